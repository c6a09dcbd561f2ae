"""Pictures of series: attention on the points, folded, and what was hidden beside what a model says."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from sciformer.assembly import Assembly
from sciformer.data.batch import Batch
from sciformer.data.columns import select
from sciformer.data.random import SampleRandom
from sciformer.data.source import Data, Memory, Splits
from sciformer.inspection.attention import attention_maps, draw_attention
from sciformer.inspection.masked import draw_masked, predict_masked
from sciformer.inspection.report.figures import inspect_run
from sciformer.objectives.base import Step
from sciformer.recipe import Recipe
from sciformer.recipe.registry import REGISTERED, register
from sciformer.run import train
from tests.domains.lightcurves.curves_table import curves, regular

TOKENS = {"kind": "observations", "window": 12, "errors": "both", "gaussian": True, "magnitudes": True}
MODEL = {"kind": "encoder", "dim": 8, "depth": 1, "heads": 2}
MASKED = {"kind": "masked", "mask_ratio": 0.4, "random": 0.2}


@pytest.fixture(scope="module", autouse=True)
def _made():
    class Made(Data):
        what: str = "curves"

        def open(self, log=None):
            if self.what == "curves":
                table = curves((14, 9, 30, 8, 20, 11, 12, 16), bands=("g", "r"), limits=True)
                table["period"][1] = np.nan
                table["size"] = np.arange(8.0)
            else:
                table = regular((60, 40, 30, 50, 60, 60, 40, 50))
            parts = {"train": np.arange(5), "valid": np.arange(5, 8)}
            return Splits({name: Memory(select(table, rows)) for name, rows in parts.items()})

    register("data", "made-series")(Made)
    yield
    del REGISTERED["data"]["made-series"]


def recipe(objective=None, **tokens):
    what = "regular" if "patch" in tokens else "curves"
    sections = {"data": {"kind": "made-series", "what": what}, "tokens": {**TOKENS, **tokens}, "model": MODEL}
    rest = {"objective": objective or MASKED, "train": {"steps": 2, "batch": 4, "warmup": 1, "device": "cpu"}}
    return Recipe.from_dict({**sections, **rest})


def opened(objective=None, **tokens):
    assembly = Assembly.open(recipe(objective, **tokens))
    return assembly, Step(assembly.network(), assembly.objective)


@pytest.mark.parametrize("tokens", [{}, {"gaussian": False}, {"patch": 4}])
def test_what_is_said_stands_at_what_was_hidden(tokens):
    assembly, step = opened(**tokens)
    batch = assembly.dataset("valid").all()
    seen, answers = predict_masked(step, assembly, batch)
    asked = seen.stream.columns["asked"].astype(bool)
    for column in answers.values():
        known = np.isfinite(column.reshape(len(asked), -1))
        assert known[asked].all()
        assert not known[~asked].any()
    figure = draw_masked(step, assembly, batch)
    assert isinstance(figure, Figure)
    assert len(figure.axes) == len(batch)
    figure.draw_without_rendering()
    assert all(axes.yaxis_inverted() for axes in figure.axes)  # magnitudes
    (legend,) = figure.legends
    assert [text.get_text().partition(",")[0] for text in legend.get_texts()][:3] == ["seen", "hidden", "predicted"]


def test_where_nothing_is_hidden_nothing_is_drawn():
    assembly, step = opened({"kind": "regress", "targets": ["size"]})
    assert draw_masked(step, assembly, assembly.dataset("train").all()) is None


def test_predictions_are_drawn_in_the_units_of_the_data():
    """A model that says what is true stands on what was hidden."""
    assembly, _ = opened(scale="deviation")
    (tokens,) = assembly.tokens.values()
    batch = assembly.dataset("valid").all().take(np.array([2]))
    seen = assembly.objective.corrupt(batch, assembly.tokens, SampleRandom(0, -1, batch.ids))
    normal = tokens.normalise(seen.stream)
    asked = seen.stream.columns["asked"].astype(bool)
    truth = np.where(asked, normal.columns["target value"], np.nan)
    axes = Figure().subplots()
    sample = Batch(seen.streams, {}, seen.ids)
    tokens.draw_hidden(sample, {"value": truth, "error": np.where(asked, 0.1, np.nan)}, axes)
    labels = {marks.get_label(): np.asarray(marks.get_offsets()) for marks in axes.collections}
    said = np.concatenate([found for name, found in labels.items() if str(name).startswith("predicted")])
    hidden = labels["hidden"]
    order = [np.lexsort(found.T) for found in (said, hidden)]
    np.testing.assert_allclose(said[order[0]], hidden[order[1]], atol=1e-4)


def test_points_are_drawn_against_time_or_folded():
    assembly, step = opened()
    (tokens,) = assembly.tokens.values()
    batch = assembly.dataset("train").batch(np.arange(2))
    look = attention_maps(step, assembly, batch)
    figure = draw_attention(look, assembly, 0)
    assert len(figure.axes) == 2
    assert figure.axes[0].get_xlabel().startswith("time − 60")
    one, two = (batch.take(np.array([row])) for row in (0, 1))
    assert list(tokens.alternative_drawings(one)) == ["folded"]
    assert tokens.alternative_drawings(two) == {}  # its period is not known
    folded = draw_attention(look, assembly, 0, "folded")
    assert folded.axes[0].get_xlabel().startswith("phase (period")
    assert folded.axes[0].get_xlim() == (0, 2)
    phases = np.concatenate([np.asarray(marks.get_offsets())[:, 0] for marks in folded.axes[0].collections[1:3]])
    assert 0 <= phases.min() <= phases.max() <= 2


def test_the_report_shows_what_was_hidden(tmp_path):
    run = train(recipe(), tmp_path / "run", show=False)
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "Masked tokens" in page
    names = [path.stem for path in inspect_run(run, tmp_path / "pictures", samples=2)]
    assert {"sample-1", "folded-1", "sample-2", "hidden"} <= set(names)
