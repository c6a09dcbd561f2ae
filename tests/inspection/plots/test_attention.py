"""The drawings show the numbers they were given, under the labels they were given."""

import numpy as np
import pytest
import torch
from matplotlib import _pylab_helpers

from sciformer.inspection import draw_heads, draw_pattern, draw_weights
from sciformer.nn import Causal, Encoder, Global, Watch, Window
from tests.errors import refuses


def ticks(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def shown(axes):
    return np.asarray(axes.images[0].get_array())


def panels(figure):
    return [axes for axes in figure.axes if axes.images]


def test_weights_are_drawn_under_their_labels():
    weights = torch.rand(2, 3)
    axes = draw_weights(weights, ["a", "b"], ["x", "y", "z"])
    np.testing.assert_allclose(shown(axes), weights.numpy(), rtol=1e-6)
    assert (ticks(axes.yaxis), ticks(axes.xaxis)) == (["a", "b"], ["x", "y", "z"])


def test_small_matrices_have_their_values_written_but_for_zeros():
    axes = draw_weights([[0.25, 0.0], [float("nan"), -1.0]])
    written = {text.get_position(): text.get_text() for text in axes.texts}
    assert written == {(0, 0): "0.25", (0, 1): "nan", (1, 1): "-1.00"}  # (column, row)
    assert not draw_weights(torch.rand(30, 30)).texts
    assert draw_weights([[float("inf"), 0.5]]).images[0].get_clim() == (0.0, 0.5)


def test_labels_that_do_not_fit_are_left_out_at_even_steps():
    labels = [str(i) for i in range(300)]
    kept = ticks(draw_weights(torch.rand(300, 300), labels).yaxis)
    assert 1 < len(kept) < 300
    assert kept == labels[:: int(kept[1])]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.bool])
def test_any_tensor_is_taken(dtype):
    weights = torch.eye(3).to(dtype)
    if dtype.is_floating_point:
        weights.requires_grad_()
    np.testing.assert_array_equal(shown(draw_weights(weights)), np.eye(3))


@pytest.mark.parametrize(
    ("call", "mentions", "hint"),
    [
        (lambda: draw_weights(torch.rand(3)), ["(N, M)", (3,)], ""),
        (lambda: draw_weights(torch.rand(1, 2, 3, 3)), [(1, 2, 3, 3)], "weights[0, 0]"),
        (lambda: draw_weights(torch.rand(0, 3)), [(0, 3)], ""),
        (lambda: draw_weights(torch.eye(3), ["a", "b"]), ["3 rows", (3, 3), 2], ""),
        (lambda: draw_weights(torch.eye(3), list("abc"), list("abcd")), ["3 columns", (3, 3), 4], ""),
        (lambda: draw_heads(torch.rand(5, 2, 3, 3)), ["(H, N, M)", (5, 2, 3, 3)], "weights[0]"),
        (lambda: draw_heads({"block 7": torch.rand(3, 3)}), ["'block 7'", (3, 3)], ""),
        (lambda: draw_heads({}), [], "Watch"),
        (lambda: draw_heads(torch.rand(2, 3, 3), titles=["one"]), ["1 titles", "2 panels"], ""),
        (lambda: draw_heads(torch.rand(2, 3, 3), list("ab")), ["3 rows", (3, 3), 2], ""),
        (lambda: draw_heads(torch.rand(2, 3, 3), across=0), ["across", 0], ""),
        (lambda: draw_pattern(Causal(), 0), ["0 queries"], ""),
    ],
)
def test_mistakes_are_answered(call, mentions, hint):
    with refuses(*mentions, hint=hint) as caught:
        call()
    assert bool(caught.value.hint) == bool(hint)


def test_heads_share_one_colour_scale():
    weights = torch.stack([0.1 * torch.eye(3), 0.9 * torch.eye(3)])
    first, second = panels(draw_heads(weights, list("abc")))
    assert first.images[0].get_clim() == second.images[0].get_clim() == (0.0, pytest.approx(0.9))


def test_what_a_watch_saw_is_drawn_block_by_block(tmp_path):
    watch, encoder = Watch(), Encoder(8, depth=3, heads=2)
    encoder(torch.randn(1, 4, 8), watch=watch)
    figure = draw_heads({name: weights[0] for name, weights in watch.attention.items()}, list("abcd"))
    drawn = panels(figure)
    assert len(drawn) == 6
    assert drawn[3].get_title() == "blocks.1.attention, head 2"
    np.testing.assert_allclose(shown(drawn[3]), watch.attention["blocks.1.attention"][0, 1].detach(), rtol=1e-6)
    figure.savefig(tmp_path / "heads.png")
    assert (tmp_path / "heads.png").stat().st_size > 1000
    assert not _pylab_helpers.Gcf.figs


@pytest.mark.parametrize("pattern", [Causal(), Window(2), Causal() & Window(1), Window(1) | Global(2)])
@pytest.mark.parametrize(("n", "keys"), [(1, 1), (7, 7), (3, 8)])
def test_patterns_are_drawn_as_their_mask(pattern, n, keys):
    axes = draw_pattern(pattern, n, keys=keys)
    np.testing.assert_array_equal(shown(axes), pattern.mask(n, keys).numpy())
