"""The gate that keeps the state: where its bias is, and that the gradient reaches further with it."""

import pytest
import torch

from sciformer.models.encoder import Encoder
from sciformer.nn import Recurrent, RecurrentDecoder
from sciformer.recipe import Recipe
from tests.errors import refuses


def reached(trunk, length=30):
    x = torch.randn(4, length, 16, dtype=torch.float64, requires_grad=True)
    trunk.double()(x)[:, -1].sum().backward()
    return float(x.grad[:, 0].norm() / x.grad[:, -1].norm())


def made(kind, forget_bias):
    torch.manual_seed(0)
    return Recurrent(16, 2, kind, forget_bias=forget_bias)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_the_gradient_reaches_further(kind):
    near, far = (reached(made(kind, forget_bias)) for forget_bias in (0.0, 2.0))
    assert far > 100 * near


def test_only_one_gate_is_opened():
    for kind in ("lstm", "gru"):
        before, after = (dict(made(kind, forget_bias).named_parameters()) for forget_bias in (0.0, 1.0))
        changed = {name for name in before if not torch.equal(before[name], after[name])}
        assert changed == {f"layers.{i}.0.bias_ih_l0" for i in range(2)}
        moved = after["layers.1.0.bias_ih_l0"] - before["layers.1.0.bias_ih_l0"]
        torch.testing.assert_close(moved[16:32], torch.ones(16))
        assert not moved[:16].any()
        assert not moved[32:].any()
    before, after = (dict(made("rnn", forget_bias).named_parameters()) for forget_bias in (0.0, 1.0))
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_the_cells_of_a_decoder_have_it(kind):
    decoder = RecurrentDecoder(8, kind=kind, score=None, forget_bias=5.0)
    assert decoder.cells[0].weights[2][8:16].mean() > 4


def test_it_is_an_option_of_models():
    assert Encoder(kind="encoder", trunk="gru", forget_bias=1.0).forget_bias == 1
    for changes in ({"model.trunk": "rnn"}, {"model.trunk": "transformer"}):
        with refuses("model.forget_bias", key="model.forget_bias", hint="gru, lstm"):
            Recipe.load("text/recall-lstm", {**changes, "model.forget_bias": 1.0})
