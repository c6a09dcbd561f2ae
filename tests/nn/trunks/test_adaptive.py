"""Blocks with adaptive norms: the identity at first, then the formula."""

import pytest
import torch
import torch.nn.functional as F

from sciformer.nn import Block, Encoder, Learned
from sciformer.nn.trunks.adaptive import AdaptiveBlock, AdaptiveTransformer, LevelEmbedding
from tests.errors import refuses
from tests.nn.parity import shake


@pytest.mark.parametrize("cross", [False, True])
def test_a_new_block_changes_nothing(cross):
    block, x, c = AdaptiveBlock(8, 2, cross=cross), torch.randn(2, 5, 8), torch.randn(2, 8)
    memory = torch.randn(2, 3, 8) if cross else None
    torch.testing.assert_close(block(x, memory=memory, condition=c), x)


def test_without_shift_and_with_gates_of_one_it_is_a_plain_block():
    torch.manual_seed(0)
    block, plain = AdaptiveBlock(8, 2, cross=True), Block(8, 2, cross=True)
    plain.load_state_dict({name: w for name, w in block.state_dict().items() if not name.startswith("modulation")})
    with torch.no_grad():
        block.modulation.bias.view(3, 3, 8)[:, 2] = 1  # the gates
    x, memory = torch.randn(2, 5, 8), torch.randn(2, 3, 8)
    torch.testing.assert_close(block(x, memory=memory, condition=torch.randn(2, 8)), plain(x, memory=memory))


def test_each_branch_is_scaled_and_shifted():
    torch.manual_seed(0)
    block, x, c = shake(AdaptiveBlock(8, 2)).eval(), torch.randn(2, 5, 8), torch.randn(2, 8)
    shift, scale, gate, shift2, scale2, gate2 = block.modulation(F.silu(c))[:, None].chunk(6, -1)
    y = x + gate * block.attention(block.attention_norm(x) * (1 + scale) + shift)
    y = y + gate2 * block.mlp(block.mlp_norm(y) * (1 + scale2) + shift2)
    torch.testing.assert_close(block(x, condition=c), y)


def test_a_stack_passes_the_condition_on():
    torch.manual_seed(0)
    trunk = shake(AdaptiveTransformer(8, 3, 2, position=Learned(8, (6,)), cross=True)).eval()
    x, memory, c = torch.randn(2, 6, 8), torch.randn(2, 4, 8), torch.randn(2, 8)
    found = trunk(x, memory=memory, condition=c)
    assert not torch.allclose(found, trunk(x, memory=memory, condition=c + 1))
    for row in range(2):
        here = slice(row, row + 1)
        torch.testing.assert_close(found[here], trunk(x[here], memory=memory[here], condition=c[here]))
    valid = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    short = trunk(x, valid, memory=memory, condition=c)
    torch.testing.assert_close(short[1:, :4], trunk(x[1:, :4], memory=memory[1:], condition=c[1:]))
    fresh = AdaptiveTransformer(8, 2, 2)
    fresh.reset("xavier")
    assert not any(block.modulation.weight.any() for block in fresh.blocks)


def test_plain_blocks_take_no_condition():
    with pytest.raises(TypeError):
        Encoder(8, 1, 2)(torch.randn(1, 3, 8), condition=torch.randn(1, 8))


@pytest.mark.parametrize("options", [{"norm_position": "post"}, {"residual": False}, {"extras": ("residual_scale",)}])
def test_other_residual_connections_are_refused(options):
    with refuses(key="model.norm_position"):
        AdaptiveBlock(8, 2, **options)


def test_levels_are_told_apart():
    made = shake(LevelEmbedding(16))
    found = made(torch.linspace(0, 1, 50)).detach()
    assert found.shape == (50, 16)
    apart = torch.cdist(found, found) + 1e9 * torch.eye(50)
    assert float(apart.min()) > 1e-3
