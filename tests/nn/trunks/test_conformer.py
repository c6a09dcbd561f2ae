import pytest
import torch
from torch import nn

from sciformer.nn import Conformer, ConformerBlock, Ragged, Sight, Watch
from sciformer.nn.trunks.conformer import LineConv
from tests.nn.parity import shake


@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_a_convolution_along_the_line_is_torchs(kernel):
    ours, theirs = shake(LineConv(6, kernel)).double(), nn.Conv1d(6, 6, kernel, padding="same", bias=False).double()
    norm = nn.BatchNorm1d(6).double()
    with torch.no_grad():  # (out, in, kernel) -> (out, kernel in)
        ours.linear.weight.copy_(theirs.weight.movedim(2, 1).flatten(1))
        norm.weight.copy_(ours.norm.weight)
        norm.bias.copy_(ours.norm.bias)
    x = torch.randn(3, 9, 6).double()
    for module in (ours, norm):
        module.train()
    expected = nn.functional.silu(norm(theirs(x.mT))).mT
    torch.testing.assert_close(ours(x), expected)
    torch.testing.assert_close(ours.norm.running_mean, norm.running_mean)
    torch.testing.assert_close(ours.norm.running_var, norm.running_var)


def test_the_equations_of_a_block():
    x = torch.randn(2, 5, 8).double()
    block = shake(ConformerBlock(8, 2)).double().eval()
    y = block.attention_norm(x + block.attention(x))
    for conv, norm in zip(block.convs, block.conv_norms):
        y = norm(y + conv(y))
    torch.testing.assert_close(block(x), y)
    block = shake(ConformerBlock(8, 2, norm_position="pre", convolutions=1)).double().eval()
    y = x + block.attention(block.attention_norm(x))
    torch.testing.assert_close(block(x), y + block.convs[0](block.conv_norms[0](y)))


def test_training_and_its_statistics_do_not_know_the_layout():
    ragged = Ragged([4, 0, 1, 7])
    x = torch.randn(12, 8).double()
    losses, means = [], []
    for packed in (True, False):
        torch.manual_seed(0)
        trunk = Conformer(8, 2, 2).double().train()
        y = trunk(x, ragged) if packed else ragged.flatten(trunk(ragged.pad(x), ragged.valid))
        y.square().sum().backward()
        losses.append([weight.grad for weight in trunk.parameters()])
        means.append([norm.running_mean for norm in trunk.modules() if hasattr(norm, "running_mean")])
    torch.testing.assert_close(losses[0], losses[1])
    torch.testing.assert_close(means[0], means[1])


def test_a_pair_bias_leans_and_blocks_can_be_watched():
    trunk, watch = shake(Conformer(8, 2, 2)).double().eval(), Watch()
    x, bias = torch.randn(1, 5, 8).double(), torch.randn(1, 2, 5, 5).double()
    trunk(x, bias=bias, watch=watch)
    assert list(watch.attention) == ["blocks.0.attention", "blocks.1.attention"]
    first = trunk.blocks[0].attention
    plain = Watch()
    first(x, sight=Sight(), watch=plain)
    leaning = (plain.attention["attention"].log() + bias).softmax(-1)
    torch.testing.assert_close(watch.attention["blocks.0.attention"], leaning)
