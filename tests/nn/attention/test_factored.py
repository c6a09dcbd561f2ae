"""Attention from positions alone, and offsets around a ring or a torus."""

import pytest
import torch

from sciformer.assembly import Assembly
from sciformer.nn.attention.attention import Attention
from sciformer.nn.attention.masks import Sight
from sciformer.nn.positions import RelativeBias, grid
from sciformer.nn.transformer import Encoder
from sciformer.recipe import Recipe
from tests.errors import refuses


def test_weights_are_the_softmax_of_the_bias():
    torch.manual_seed(0)
    attention, x, bias = Attention(8, 2, content=False).double(), torch.randn(3, 5, 8).double(), torch.randn(1, 2, 5, 5)
    assert attention.qkv.weight.shape == (8, 8)  # values alone
    bias = bias.double()
    value = attention.qkv(x).unflatten(-1, (2, 4)).transpose(1, 2)
    exact = attention.out((bias.softmax(-1) @ value).transpose(1, 2).flatten(2))
    torch.testing.assert_close(attention(x, sight=Sight(bias=bias)), exact)


def test_offsets_around_a_torus():
    position = RelativeBias(2, 4, 2, period=(2, 3))
    with torch.no_grad():
        position.table.normal_()
    at = grid((2, 3))
    bias = position.bias(at[None], at[None])
    assert position.table.shape == (6, 2)
    for i, (row, column) in enumerate(at.tolist()):
        for j, (there, aside) in enumerate(at.tolist()):
            index = (there - row) % 2 * 3 + (aside - column) % 3
            torch.testing.assert_close(bias[0, :, i, j], position.table[int(index)])


@pytest.mark.parametrize("attention", ["full", "factored"])
def test_a_periodic_encoder_commutes_with_translations(attention):
    torch.manual_seed(0)
    trunk = Encoder(8, 2, 2, position=RelativeBias(2, 6, 1, period=(6,)), content=attention == "full").double()
    with torch.no_grad():
        for weight in trunk.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    x = torch.randn(2, 6, 8).double()
    torch.testing.assert_close(trunk(x.roll(2, 1)), trunk(x).roll(2, 1))


def test_refusals():
    with refuses("kv_heads"):
        Attention(8, 2, content=False, kv_heads=1)
    for changes, key in (
        ({"model.attention": "factored", "model.position": "rotary"}, "model.position"),
        ({"model.attention": "factored", "model.position": "relative", "model.kv_heads": 1}, "model.kv_heads"),
        ({"model.attention": "factored", "model.position": "relative", "model.compress": 2}, "model.compress"),
    ):
        recipe = Recipe.load("spins/ising-vit", {"data.size": 8, "data.number": 4, "data.cache": "", **changes})
        with refuses(key=key):
            Assembly.open(recipe).network()
