"""The curves show the numbers they were given, with one legend at most, however odd the numbers are."""

import io
import math

import numpy as np
import pytest
from matplotlib import _pylab_helpers
from matplotlib.backends.backend_agg import FigureCanvasAgg

from sciformer.inspection.plots import curves
from sciformer.inspection.plots.curves import draw_along, draw_confusion, draw_history, draw_residuals
from sciformer.metrics.calibration import reliability
from sciformer.metrics.classification import roc
from tests.errors import refuses

NAN = float("nan")


def legend(figure):
    """The texts of the one legend."""
    found = [*figure.legends, *(axes.get_legend() for axes in figure.axes if axes.get_legend())]
    assert len(found) <= 1
    return [text.get_text() for text in found[0].get_texts()] if found else []


def rendered(figure):
    kept = io.BytesIO()
    figure.set_dpi(50)
    FigureCanvasAgg(figure).print_png(kept)
    assert not _pylab_helpers.Gcf.figs
    assert len(kept.getvalue()) > 1000
    return figure


def test_history_reads_each_column_from_the_records_that_have_it():
    records = [{"step": s, "loss": 4.0 - s} for s in range(4)] + [{"step": 3, "valid": 2.0}, {"step": 1, "valid": 3.0}]
    records.insert(2, {"step": 2, "loss": 9.0})  # a resumed run: the later record counts
    figure = rendered(draw_history(records, ["loss", "valid"], ylabel="nats"))
    loss, valid = figure.axes[0].lines
    np.testing.assert_array_equal(loss.get_xydata(), [[0, 4], [1, 3], [2, 2], [3, 1]])
    np.testing.assert_array_equal(valid.get_xydata(), [[1, 3], [3, 2]])
    assert legend(figure) == ["loss", "valid"]


@pytest.mark.parametrize("values", [[1e9, 1e-9], [math.inf, 1.0], [1.0], [0.0, 0.0], [NAN, None, 3.0], [NAN]])
def test_odd_numbers_are_drawn(values):
    rendered(draw_history([{"step": i, "a": value} for i, value in enumerate(values)], {"a": "name"}))
    array = np.array(values, float)
    rendered(draw_along(range(len(values)), {"p": (array, array - 0.1, array + 0.1)}))


def test_a_point_between_gaps_is_a_dot():
    values = np.ones(100)
    values[[49, 51]] = NAN
    line = draw_history([{"step": i, "a": v} for i, v in enumerate(values)], ["a"]).axes[0].lines[0]
    assert line.get_markevery() == [50]
    assert np.isnan(line.get_ydata()).sum() == 2


def test_an_unknown_column_is_answered_with_the_nearest():
    with refuses("los", hint="'loss'"):
        draw_history([{"step": 1, "loss": 1.0}], ["los"])
    with refuses():
        draw_history([{"step": 1, "loss": 1.0}], [])


def test_names_are_drawn_as_they_are():
    names = [r"$\wrong{", "_hidden", "$a$ b", "%s {0}"]
    figure = rendered(draw_history([{"step": 1, **dict.fromkeys(names, 1.0)}], names, ylabel="$x$ $"))
    assert len(legend(figure)) == 4
    rendered(draw_confusion(np.eye(4), names))
    rendered(draw_along([1, 2], {name: ([1, 2], None, None) for name in names}, {r"$\b{$": 1.0}, r"$\b{$"))


def test_curves_along_a_column_are_sorted_banded_and_marked():
    figure = rendered(
        draw_along([3, 1, 2], {"p": ([30, 10, 20], [29, 9, 19], [31, 11, 21])}, {"here": 2.5, "there": NAN}, "x", "y")
    )
    axes = figure.axes[0]
    np.testing.assert_array_equal(axes.lines[0].get_xydata(), [[1, 10], [2, 20], [3, 30]])
    assert axes.lines[1].get_xdata()[0] == 2.5
    band = axes.collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (9, 31)
    assert legend(figure) == ["p", "here", "there: none"]


def test_curves_that_do_not_fit_are_refused():
    with refuses("'p'", 2, (1,)):
        draw_along([1, 2], {"p": ([1], None, None)})
    with refuses("1.0"):
        draw_along(1.0, {})
    with refuses("1, 1, 2"):
        draw_residuals([2], [1], [2, 2])


def test_reliability_shows_its_bins_and_its_error():
    p = np.array([[0.3, 0.7], [0.1, 0.9], [0.2, 0.8]])
    for n in (3, 1):
        curve = reliability(p[:n], [1, 1, 0][:n], bins=10)
        figure = rendered(curves.draw_reliability(curve))
        np.testing.assert_array_equal(figure.axes[0].lines[1].get_ydata(), curve.accuracy)
        assert sum(bar.get_height() for bar in figure.axes[1].patches) == n
        assert f"{curve.error:.3f}" in legend(figure)[1]


def test_roc_shows_its_area():
    figure = rendered(curves.draw_roc(roc([[0.8, 0.2], [0.3, 0.7], [0.1, 0.9]], [0, 1, 0])))
    np.testing.assert_array_equal(figure.axes[0].lines[1].get_xydata(), [[0, 0], [0.5, 0], [0.5, 1], [1, 1]])
    assert legend(figure)[1] == "model, AUC 0.500"


def test_confusion_writes_counts_and_colours_shares():
    axes = rendered(draw_confusion([[3, 1], [0, 0]], ["cat", "dog"])).axes[0]
    np.testing.assert_array_equal(axes.images[0].get_array(), [[0.75, 0.25], [0, 0]])
    assert {text.get_position(): text.get_text() for text in axes.texts} == {(0, 0): "3", (1, 0): "1"}
    assert [label.get_text() for label in axes.get_yticklabels()] == ["cat", "dog"]


def test_large_and_tiny_confusions():
    rendered(draw_confusion(np.eye(120), ["a long name of a class, too long"] * 120))
    rendered(draw_confusion([[0]]))
    for matrix, names in (([[1, 2]], None), ([[1]], ["a", "b"]), (np.empty((0, 0)), None)):
        with refuses():
            draw_confusion(matrix, names)


@pytest.mark.parametrize("n", [0, 1, 2, 100, 3000])
def test_residuals_leave_out_what_is_no_number_and_say_so(n):
    generator = np.random.default_rng(0)
    mean, target = generator.normal(size=(2, n))
    figure = rendered(draw_residuals([*mean, NAN, 1], [*np.full(n, 0.1), 1, 0], [*target, 1, 1]))
    assert f"2 of {n + 2} left out" in figure.axes[0].get_xlabel()
    if n:
        width = figure.axes[1].patches[0].get_width()
        assert sum(bar.get_height() for bar in figure.axes[1].patches) * width == pytest.approx(1)
