"""Recipes side by side: trained, reused, chosen on validation, judged on test; the verdict does not overstate."""

import io
import json
import math

import numpy as np
import pytest
from rich.console import Console

from sciformer.comparison import compare as compare_module
from sciformer.comparison.compare import (
    compare,
    comparison_page,
    format_figure,
    show_comparison,
    table_caption,
    table_cells,
)
from sciformer.comparison.plan import parse_grid, plan
from sciformer.comparison.statistics import Comparison, Figure, Row, Trial, choose_points, verdict
from sciformer.errors import Stopped, UserError
from sciformer.recipe import RecipeError
from tests.errors import refuses
from tests.inspection.report.test_page import Reader
from tests.training.tiny import image_recipe


@pytest.fixture
def recipe(tmp_path):
    small = {"data__split__test": 0.2, "train__steps": 3, "train__batch": 8, "train__warmup": 1}

    def make(name="a", **changes):
        made = image_recipe(tmp_path, **small | changes)
        object.__setattr__(made, "name", name)
        return made

    return make


def printed(found, width=200) -> str:
    file = io.StringIO()
    show_comparison(found, Console(file=file, width=width))
    return file.getvalue()


def test_recipes_are_compared_and_the_same_call_trains_nothing_again(recipe, tmp_path, monkeypatch):
    pair = [recipe("one.yaml"), recipe("rnn/one.yaml", model__trunk="gru")]
    heard = []
    found = compare(pair, 2, tmp_path / "runs", report=False, show=False, log=heard.append)
    paths = ["one/seed-0", "one/seed-1", "one-2/seed-0", "one-2/seed-1"]
    assert heard == [f"run {n} of 4: {tmp_path}/runs/{path}" for n, path in enumerate(paths, 1)]
    assert [row.recipe for row in found.rows] == ["one", "one-2"]
    assert found.failed == []
    assert {trial.part for row in found.rows for trial in row.trials} == {"test"}
    score, trials = found.rows[0].score("loss"), found.rows[0].trials
    losses = [trial.scores["loss"] for trial in trials]
    assert (score.count, score.mean, score.spread) == (2, np.mean(losses), pytest.approx(np.std(losses, ddof=1)))
    assert trials[0].flops == trials[0].flops_per_sample * 3 * 8
    assert trials[0].unit == "samples"
    assert trials[0].speed > 0
    kept = json.loads((tmp_path / "runs/comparison.json").read_text())
    assert kept["rows"][0]["scores"]["loss"]["mean"] == score.mean
    assert kept["verdict"] == found.verdict

    def written():
        return {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("weights.safetensors")}

    files = written()
    again = compare(pair, 2, tmp_path / "runs", report=False, show=False)
    assert again.to_json()["rows"][1]["scores"] == found.to_json()["rows"][1]["scores"]
    assert files == written()
    assert all(word in printed(found) for word in ("one-2", "accuracy", "total FLOPs"))
    assert "samples/s" in printed(found, width=60)  # turned over where it is narrow


def test_of_a_grid_the_best_by_validation_is_compared_and_one_failure_loses_nothing(recipe, tmp_path):
    grid = parse_grid(["model.heads=2,3"])
    found = compare([recipe("b")], [5], tmp_path / "runs", grid, report=False, show=False)
    assert (tmp_path / "runs/b/model.heads=2/seed-5/model/weights.safetensors").exists()
    good, bad = found.rows
    assert (good.chosen, bad.chosen) == (True, False)
    assert "model.heads" in bad.trials[0].error
    assert "1 of 2 runs failed" in " ".join(found.warnings)
    text = printed(found)
    assert all(part in text for part in ("grid point with the best validation loss", "failed: ", "seed-5"))
    page = (tmp_path / "runs/comparison.html").read_text()
    assert page.count("<table") == 3
    assert all(f">{cell}</td>" in page for cell in ("model.heads=3", "chosen"))


def test_a_stop_is_a_stop(recipe, tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise Stopped(15, 3)

    monkeypatch.setattr(compare_module, "train", stopped)
    with pytest.raises(Stopped):
        compare([recipe()], 1, tmp_path, show=False)


def test_mistakes_are_found_before_anything_is_trained(recipe, tmp_path):
    for key, hint, error in (("model.dept", "model.depth", RecipeError), ("train.seed", "--seeds", UserError)):
        with refuses(key=key, hint=hint, error=error):
            compare([recipe()], 1, tmp_path / "no", {key: [1]}, show=False)
    with refuses("0 recipes and 1 seeds"):
        compare([], 1, tmp_path / "no")
    assert not (tmp_path / "no").exists()
    for word in ("rate=1", "train.learning_rate", "train.learning_rate="):
        with refuses(repr(word), key="--grid"):
            parse_grid([word])
    assert parse_grid(["train.learning_rate=1e-3,3e-4,1e-3", "model.depth=2"]) == {
        "train.learning_rate": ["1e-3", "3e-4"],
        "model.depth": ["2"],
    }


def test_recipes_without_a_usable_name_are_numbered(recipe):
    assert [trial.recipe for trial, _ in plan([recipe("?"), recipe("?")], [0], {})] == ["recipe", "recipe-2"]


def test_what_is_unfair_is_said(recipe, tmp_path):
    other = recipe("b", train__steps=2, model__dim=32, tokens__patch=4, data__split__seed=3)
    found = compare([recipe("a"), other], 1, tmp_path, report=False, show=False)
    words = " ".join(found.warnings)
    for mention in (
        "differ in data.split.seed",
        "differ in tokens.patch",
        "budgets differ",
        "a 24, b 16",
        "sizes differ",
    ):
        assert mention in words
    few = [sentence for sentence in found.verdict if "too few samples" in sentence]
    assert [sentence.partition(":")[0] for sentence in few] == ["auc"]
    assert all("one seed" in sentence or "equal" in sentence for sentence in found.verdict if sentence not in few)
    head, cells = table_cells(found, found.chosen)
    assert [row[head.index("auc")] for row in cells] == ["too few", "too few"]
    assert "too few: the score needs" in table_caption(found)
    assert Reader(comparison_page(found).html()).under("td").count("too few") == 4


# Verdicts, without training


def row(recipe, values, valid=(), metric="loss", **point):
    trials = [Trial(recipe, point, i, "", "test", {metric: v}) for i, v in enumerate(values)]
    for trial, score in zip(trials, valid):
        trial.valid = {metric: score}
    return Row(recipe, point, trials)


def says(*rows, metric="loss"):
    (sentence,) = verdict(Comparison(list(rows), [metric], "loss", ""))
    return sentence


def test_the_verdict_weighs_the_difference_against_the_spread():
    assert "a is ahead of b by 1, beyond the spread" in says(row("a", [1.0, 1.01, 0.99]), row("b", [2.0, 2.01, 1.99]))
    near = says(row("a", [1.0, 1.2, 0.8]), row("b", [1.1, 1.3, 0.9]))
    assert "within the spread" in near
    assert "may still be chance" in says(row("a", [1.0, 1.1]), row("b", [1.3, 1.4]))
    assert "one seed" in says(row("a", [1.0]), row("b", [1.3]))
    assert "are equal" in says(row("a", [1.0, 1.1]), row("b", [1.1, 1.0]))
    assert "all seeds agree" in says(row("a", [1.0, 1.0]), row("b", [2.0, 2.0]))
    assert "b is ahead of a" in says(*(row(n, v, metric="auc") for n, v in (("a", [0.1]), ("b", [0.9]))), metric="auc")
    assert "nothing to compare" in says(row("a", [1.0]))
    assert "fewer than two" in says(row("a", [1.0]), row("b", [math.nan]))


def test_the_grid_is_chosen_on_validation_and_not_on_test():
    rows = [row("a", [9.0], [0.1], rate=1), row("a", [0.0], [0.2], rate=2), row("a", [0.0], [math.nan], rate=3)]
    found = Comparison(rows, ["loss"], "loss", "")
    choose_points(found)
    assert [r.chosen for r in rows] == [True, False, False]
    found = Comparison([row("a", [1.0], [v], "auc", rate=v) for v in (0.5, 0.9)], ["auc"], "auc", "")
    choose_points(found)
    assert [r.point["rate"] for r in found.chosen] == [0.9]


@pytest.mark.parametrize(
    ("figure", "text"),
    [
        (Figure(0.123456, 0.0123, 3), "0.123 ± 0.012"),
        (Figure(1234.5, 30.0, 3), "1234 ± 30"),
        (Figure(0.5, math.nan, 1), "0.5"),
        (Figure(0.5, 0.0, 2), "0.5 ± 0"),
        (Figure(math.nan, math.nan, 0), "–"),
    ],
)
def test_numbers_have_as_many_places_as_their_spread(figure, text):
    assert format_figure(figure) == text
