import pytest
import torch
from torch import nn

from sciformer.nn import MLP, NORMFORMER, Block, ClassBlock, Documents, DropPath, Ragged, Sight, make_norm
from tests.errors import refuses
from tests.nn.parity import shake


def test_normformer_extras_stand_where_the_paper_puts_them():
    block = shake(Block(12, 3, extras=NORMFORMER).double())
    x = torch.randn(2, 5, 12).double()
    a = block.attention
    heads = [part.unflatten(-1, (3, 4)).transpose(1, 2) for part in a.qkv(block.attention_norm(x)).split(12, -1)]
    mixed = nn.functional.scaled_dot_product_attention(*heads) * a.scale
    y = x + block.attention_out_norm(a.out(mixed.transpose(1, 2).flatten(2)))
    hidden = block.mlp.norm(nn.functional.gelu(block.mlp.up(block.mlp_norm(y))))
    expected = y * block.residual_scale + block.mlp.down(hidden)
    torch.testing.assert_close(block(x), expected)
    names = {name for name, _ in block.named_parameters()}
    plain = {name for name, _ in Block(12, 3).named_parameters()}
    assert names - plain == {
        "residual_scale", "attention.scale", "mlp.norm.weight", "mlp.norm.bias",
        "attention_out_norm.weight", "attention_out_norm.bias",
    }  # fmt: skip


def test_swiglu_and_norms_are_their_equations():
    x = torch.randn(3, 8).double()
    mlp = shake(MLP(8, 10, "swiglu").double())
    gate, value = mlp.up(x).chunk(2, -1)
    torch.testing.assert_close(mlp(x), mlp.down(gate * torch.sigmoid(gate) * value))
    rms, layer = shake(make_norm("rms", 8).double()), shake(make_norm("layer", 8).double())
    torch.testing.assert_close(rms(x), rms.weight * x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt())
    spread = (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(layer(x), layer.weight * (x - x.mean(-1, keepdim=True)) / spread + layer.bias)


def test_class_attention_asks_with_the_class_token_alone():
    token, x = torch.randn(2, 1, 12).double(), torch.randn(2, 5, 12).double()
    valid = torch.tensor([[1, 1, 1, 1, 1], [1, 0, 0, 1, 0]]).bool()
    for raw in (False, True):
        block = shake(ClassBlock(12, 3, raw_query=raw).double())
        inner = block.block
        keys = inner.attention_norm(torch.cat([token, x], 1))
        seen = torch.cat([torch.ones(2, 1, dtype=torch.bool), valid], 1)
        asked = inner.attention(token if raw else keys[:, :1], keys, Sight(valid=seen))
        y = token + asked
        torch.testing.assert_close(block(token, x, valid), y + inner.mlp(inner.mlp_norm(y)))
        changed = x.masked_fill(~valid[..., None], 9.0)
        torch.testing.assert_close(block(token, changed, valid), block(token, x, valid))


def test_parallel_blocks_add_both_parts_of_the_same_tokens():
    block = shake(Block(8, 2, parallel_residual=True)).double().eval()
    x = torch.randn(2, 5, 8).double()
    expected = x + block.attention(block.attention_norm(x)) + block.mlp(block.mlp_norm(x))
    torch.testing.assert_close(block(x), expected)
    for options in ({"cross": True}, {"norm_position": "post"}, {"residual": False}, {"extras": ("residual_scale",)}):
        with refuses(next(iter(options)).split("_")[0] if "extras" not in options else "residual_scale"):
            Block(8, 2, parallel_residual=True, **options)


@pytest.mark.parametrize("norm_position", ["pre", "post"])
def test_without_a_residual_only_what_the_parts_made_goes_on(norm_position):
    block = shake(Block(8, 2, residual=False, norm_position=norm_position, activation="tanh")).double().eval()
    x = torch.randn(2, 5, 8).double()
    if norm_position == "pre":
        y = block.attention(block.attention_norm(x))
        expected = block.mlp(block.mlp_norm(y))
    else:
        y = block.attention_norm(block.attention(x))
        expected = block.mlp_norm(block.mlp.down(torch.tanh(block.mlp.up(y))))
    torch.testing.assert_close(block(x), expected)


def test_drop_path_leaves_out_whole_samples():
    drop = DropPath(0.4)
    y = drop(torch.ones(1000, 3, 2))
    assert torch.equal(y.amin((1, 2)), y.amax((1, 2)))
    assert sorted(set(y[:, 0, 0].tolist())) == pytest.approx([0, 1 / 0.6])
    assert y.mean().item() == pytest.approx(1, abs=0.1)
    assert torch.equal(drop.eval()(torch.ones(4, 3, 2)), torch.ones(4, 3, 2))


def test_packed_training_drops_paths_by_sample():
    block = Block(8, 2, drop_path=0.5)
    ragged = Ragged(torch.tensor([2, 3]))
    torch.manual_seed(3)
    x = torch.randn(1, 5, 8)
    kept = {tuple((block(x, Sight(Documents(ragged))) == x).all(-1)[0].tolist()) for _ in range(60)}
    assert (True, True, False, False, False) in kept
    assert all(pattern[0] == pattern[1] and len(set(pattern[2:])) == 1 for pattern in kept)
