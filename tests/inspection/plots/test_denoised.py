"""The report of a run that takes noise away and tells whether there is anything."""

import numpy as np
import pytest

from sciformer.cli.main import main
from sciformer.data.columns import Lists
from sciformer.inspection.plots.denoised import draw_recovered
from sciformer.recipe import Recipe
from sciformer.run import Run
from tests.training.tiny import go


@pytest.fixture(scope="module", params=["plain", "gaussian"])
def run(request, tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("recovered"), np.random.default_rng(0)
    lengths = rng.integers(5, 20, 40)
    time = np.concatenate([np.arange(n) for n in lengths]).astype(np.float64)
    there = np.arange(40) % 2
    clean = (np.sin(time) * np.repeat(there, lengths)).astype(np.float32)
    table = {"time": time, "value": clean + rng.normal(size=len(time)).astype(np.float32), "clean": clean}
    sizes = {f"{name}_lengths": lengths for name in table}
    np.savez(folder / "waves.npz", **table, **sizes, label=np.where(there, "wave", "noise"))
    recipe = Recipe.from_dict(
        {
            "data": {"kind": "arrays", "files": [str(folder / "waves.npz")], "split": {"valid": 0.2, "test": 0.2}},
            "tokens": {"kind": "observations", "window": 12},
            "model": {"kind": "encoder", "dim": 8, "depth": 1, "heads": 2},
            "objective": {"kind": "denoise", "form": request.param, "label": "label"},
            "train": {"steps": 4, "batch": 8, "warmup": 1, "device": "cpu", "packed": True},
        }
    )
    go(recipe, folder / "run", report=True)
    return folder / "run"


def test_the_report_shows_series_confusion_and_reliability(run):
    text = (run / "report.html").read_text()
    assert "not drawn" not in text
    for caption in ("denoised and true series", "Reliability diagram", "Confusion matrix"):
        assert caption in text
    for metric in ("noise left", "overlap", "efficiency 1", "accuracy"):
        assert metric in text


def test_pictures_and_answers(run, tmp_path, capsys):
    opened = Run(run)
    figure = draw_recovered(opened, opened.data(), "test")
    assert len(figure.axes) == 3
    lines = figure.axes[0].get_lines()
    assert [line.get_label() for line in lines] == ["input", "clean", "denoised"]
    assert len({len(line.get_xdata()) for line in lines}) == 1
    assert bool(figure.axes[0].collections) is (opened.recipe.objective.form == "gaussian")
    table = {"time": Lists(np.arange(30.0), np.array([30])), "value": Lists(np.ones(30, np.float32), np.array([30]))}
    answers = opened.predict(table)
    assert len(answers["recovered"][0]) == 30
    assert answers["class"][0] in ("wave", "noise")
    out = tmp_path / "answers.csv"
    assert main(["predict", str(run), str(run.parent / "waves.npz"), "--out", str(out), "--quiet"]) == 0
    assert "recovered" in out.read_text().splitlines()[0]
    assert main(["evaluate", str(run), "--until", "3,9"]) == 0
