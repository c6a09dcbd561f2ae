"""The objective `discriminate`: its scores, pictures and report, and what it shares with `classify`."""

import json
import re

import numpy as np
import pytest

from sciformer.assembly import Assembly
from sciformer.comparison.compare import compare, format_figure
from sciformer.comparison.statistics import Comparison, Row, Trial, verdict
from sciformer.comparison.statistics import Figure as Seeds
from sciformer.domains.jets.discriminate import Discriminate
from sciformer.domains.jets.rejection import rejection, tradeoff
from sciformer.domains.jets.rejection_plots import draw_tradeoff
from sciformer.inspection.plots.curves import draw_history
from sciformer.inspection.report import page
from sciformer.metrics import AtLeast
from sciformer.recipe import Recipe, RecipeError
from sciformer.run import train
from tests.errors import refuses


@pytest.fixture(autouse=True, scope="module")
def _coarse():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "DOTS_PER_INCH", 24)
        yield


def sample(n=2000, c=3, seed=0):
    rng = np.random.default_rng(seed)
    label = rng.integers(c, size=n)
    p = np.exp(rng.normal(size=(n, c)) + 1.5 * np.eye(c)[label])
    return p / p.sum(1, keepdims=True), label


def test_curves_are_rejections_against_the_share_that_is_kept():
    p, label = sample()
    points = {"b": [rejection(p, label, 1, 0, 0.5)], "c": [rejection(p, label, 2, 0, 0.3)._replace(bound=True)]}
    figure = draw_tradeoff({"b": tradeoff(p, label, 1, 0), "c": tradeoff(p, label, 2, 0)}, points, "a")
    (axes,) = figure.axes
    assert axes.get_yscale() == "log"
    assert axes.get_ylabel() == "rejection of a"
    curves = {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}
    assert list(curves) == ["b", "c", "lower bound"]
    bounds = [line.get_markerfacecolor() for line in axes.lines if line.get_marker() == "^"]
    assert bounds == ["none", "none"]  # the point, and its mark in the legend
    x, y = curves["b"].get_data()
    at = int(np.argmin(np.abs(x - 0.5)))
    assert y[at] == pytest.approx(points["b"][0].value)
    assert [line.get_marker() for line in axes.lines if len(line.get_xdata()) == 1] == ["o", "^"]  # a bound points up
    low, high = (
        draw_history(
            [{"step": 1, "valid_a": 8.0}, {"step": 2, "valid_a": 9.0, "bounds": ["a"]}],
            ["valid_a"],
            bounds={"valid_a": "a"},
        )
        .axes[0]
        .lines
    )
    assert (low.get_xdata().tolist(), list(high.get_xdata()), high.get_markerfacecolor()) == ([1, 2], [2], "none")


def recipe(folder, signal=1.5, **objective):
    rng = np.random.default_rng(0)
    label = rng.integers(3, size=240)
    image = rng.normal(size=(240, 4, 4)) + signal * np.eye(4)[label][:, None]
    names, mass = np.array(["noise", "one", "two"])[label], rng.exponential(40, 240)
    np.savez(folder / "a.npz", image=image.astype(np.float32), label=names, mass=mass, text=label.astype(str))
    return Recipe.from_dict(
        {
            "data": {"kind": "arrays", "files": [str(folder / "a.npz")], "split": {"valid": 0.25, "test": 0.25}},
            "tokens": {"kind": "patches", "patch": 2},
            "model": {"kind": "encoder", "dim": 16, "depth": 1, "heads": 2, "pool": "class_attention"},
            "objective": {"kind": "discriminate", "background": "noise"} | objective,
            "train": {"steps": 12, "batch": 32, "learning_rate": 1e-2, "warmup": 1, "device": "cpu"},
        }
    ).change({"train.evaluate_every": 6})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rejection")
    asked = {"efficiencies": {"two": [0.3, 0.99]}, "spectrum": "mass"}
    return train(recipe(folder, **asked).change({"train.best": "rejection_50_one"}), folder / "run", show=False)


def test_scores_have_a_rejection_for_every_class_and_share(run):
    scores = run.evaluate("test").scores
    names = [name for name in scores if name.startswith("rejection")]
    assert names == ["rejection_50_one", "rejection_30_two", "rejection_99_two"]
    kept = run.scores
    log = [record for record in run.records if "valid_rejection_50_one" in record]
    assert max(record["valid_rejection_50_one"] for record in log) == kept["rejection_50_one"]  # the best was kept
    marked = {name for name in kept if isinstance(kept[name], AtLeast)}
    step = json.loads(json.dumps(log))  # plain numbers
    at = [record for record in step if record["valid_rejection_50_one"] == kept["rejection_50_one"]]
    at.sort(key=lambda record: record["valid_loss"])
    assert marked == set(at[0].get("bounds", []))


def test_the_report_has_a_table_and_pictures(run):
    text = run.folder.report.read_text()
    shown = [
        "Classes (test)",
        "Rejection of noise (test)",
        "rejection",
        "noise left",
        "change of mass",
        "by chance",
        "99 %",
    ]
    shown += ["Rejection of noise", "Spectrum of mass of noise", "Rejections against step"]
    assert [words for words in shown if words not in text] == []
    assert "not drawn" not in text
    found = json.loads((run.path / "scores.json").read_text())["parts"]["test"]
    judged = run.evaluate("test")
    assert found["scores"]["rejection_99_two"] == pytest.approx(judged.scores["rejection_99_two"])
    bounds = [name for name, value in judged.scores.items() if isinstance(value, AtLeast)]
    assert found.get("bounds", []) == bounds
    tables = run.assembly.objective.details(judged.outputs, judged.samples)
    assert [row["class"] for row in tables["Classes"]] == run.assembly.objective.classes
    rows = tables["Rejection of noise"]
    few = [row["noise left"] < 50 for row in rows if "change of mass" in row]
    assert [row["change of mass"] == "too few" for row in rows if "change of mass" in row] == few
    assert any(few)  # a spectrum of a single jet says nothing
    assert [row["class"] for row in rows] == ["one", "two", "two"]
    assert all((row["rejection"][0] == "≥") is (row["noise left"] == 0) for row in rows)


def test_where_no_background_is_left_the_report_says_so(tmp_path):
    made = recipe(tmp_path, signal=6, spectrum="mass").change({"train.steps": 30})
    run = train(made, tmp_path / "run", show=False)
    scores = run.evaluate("test").scores
    assert all(isinstance(value, AtLeast) for name, value in scores.items() if name.startswith("rejection"))
    assert re.search(r"not drawn; .*\bnoise\b", run.folder.report.read_text())


@pytest.mark.parametrize(
    ("objective", "mentions", "hint"),
    [
        ({"background": "nois"}, ("objective.background", "noise, one, two", "'nois'"), ""),
        ({"background": "", "spectrum": "mass"}, ("objective.spectrum",), ""),
        ({"efficiencies": {"noise": 0.5}}, ("'noise'", "one, two"), "--objective.efficiencies {}"),
        ({"efficiencies": {"one": 50}}, ("one", 50), "0.5"),
        ({"spectrum": "mas"}, ("'mas'",), "'mass'"),
        ({"spectrum": "text"}, ("`text`",), ""),
    ],
)
def test_mistakes_are_found_before_the_training(tmp_path, objective, mentions, hint):
    with refuses(*mentions, hint=hint):
        train(recipe(tmp_path, **objective), tmp_path / "run", show=False)


def test_two_classes_have_short_names(tmp_path):
    made = recipe(tmp_path)
    np.savez(tmp_path / "a.npz", image=np.zeros((20, 4, 4), np.float32), label=np.array(["noise", "top"] * 10))
    assert Assembly.open(made).objective.measured[-2:] == ["rejection_30", "rejection_50"]


# Beside `classify`: whose keys are whose, and whose heads fit whom


KINDS = ("classify", "discriminate")


def either(folder, kind):
    made = recipe(folder).to_dict() | {"objective": {"kind": kind}}
    return Recipe.from_dict(made).change({"train.steps": 2})


@pytest.mark.parametrize("key", ["background", "efficiencies", "spectrum"])
def test_a_key_of_it_under_classify_is_answered_by_its_kind(tmp_path, key):
    objective = {"kind": "classify", key: {} if key == "efficiencies" else "noise"}
    hint = f"objective.{key} belongs to objective.kind: discriminate."
    with refuses(key=f"objective.{key}", hint=hint, error=RecipeError):
        Recipe.from_dict(recipe(tmp_path).to_dict() | {"objective": objective})


def test_without_a_background_it_is_classify(tmp_path):
    plain, same = (train(either(tmp_path, kind), tmp_path / kind, show=False) for kind in KINDS)
    assert plain.scores == same.scores
    assert plain.evaluate("test").scores == same.evaluate("test").scores


@pytest.mark.parametrize("first", KINDS)
def test_heads_of_a_classifier_are_taken_by_either(tmp_path, first):
    start = train(either(tmp_path, first), tmp_path / "first", show=False, report=False)
    (second,) = set(KINDS) - {first}
    asked = either(tmp_path, second).change({"train.init_from": str(start.path)})
    run = train(asked, tmp_path / "second", show=False, report=False)
    assert run.about["init_from"]["new"] == []


# Over seeds


def test_rejections_are_compared_by_their_median(tmp_path):
    found = compare([recipe(tmp_path)], seeds=3, folder=tmp_path / "c", show=False, report=False)
    (row,) = found.rows
    values = [trial.scores["rejection_50_one"] for trial in row.trials]
    figure = row.score("rejection_50_one")
    assert figure.mean == pytest.approx(np.median(values))
    assert figure.spread == pytest.approx(np.std(values, ddof=1))
    assert figure.bound is any(isinstance(value, AtLeast) for value in values)
    assert row.score("accuracy").mean == pytest.approx(np.mean([trial.scores["accuracy"] for trial in row.trials]))
    text = (tmp_path / "c" / "comparison.html").read_text()
    assert all(word in text for word in ("rejection_50_one", "median"))
    kept = json.loads((tmp_path / "c" / "comparison.json").read_text())
    assert kept["rows"][0]["runs"][0]["bounds"] == row.trials[0].bounds


def test_a_bound_is_written_as_one_and_decides_nothing():
    assert format_figure(Seeds(1730.0, 12.0, 3, bound=True)) == "≥ 1730"
    trials = {"a": [AtLeast(100.0), 90.0, 120.0], "b": [10.0, 11.0, 12.0]}
    rows = []
    for name, values in trials.items():
        runs = [Trial(name, {}, i, "", scores={"rejection_50": value}) for i, value in enumerate(values)]
        rows.append(Row(name, {}, runs, objective=Discriminate(kind="discriminate")))
    (sentence,) = verdict(Comparison(rows, ["rejection_50"], "loss", ""))
    assert "lower bound" in sentence
    assert rows[0].score("rejection_50").mean == 100
    (sentence,) = verdict(Comparison([rows[1], rows[1]], ["rejection_50"], "loss", ""))
    assert "are equal" in sentence
