"""Comparison of recipes with few labels and in folds."""

import json
import math

import numpy as np
import pytest

from sciformer.cli.main import main
from sciformer.comparison.compare import compare, comparison_page
from sciformer.comparison.plan import parse_labels, plan
from sciformer.comparison.statistics import Comparison, Row, Trial, choose_points, verdict
from sciformer.inspection.plots.curves import draw_steps
from sciformer.recipe import Recipe, RecipeError
from sciformer.run import Run
from tests.comparison.test_compare import printed
from tests.errors import refuses


@pytest.fixture
def tree(tmp_path):
    rng, label = np.random.default_rng(0), np.arange(90) % 3
    image = rng.normal(size=(90, 4, 4)) + 2 * label[:, None, None]
    np.savez(tmp_path / "data.npz", image=image, label=np.array(["a", "b", "c"])[label], star=np.arange(90))
    split = {"valid": 0.2, "by": "star", "stratify": "label"}
    return {
        "data": {"kind": "arrays", "files": [str(tmp_path / "data.npz")], "split": split},
        "tokens": {"kind": "patches", "patch": 2},
        "model": {"kind": "encoder", "dim": 8, "depth": 1, "heads": 2},
        "objective": {"kind": "classify", "balance": "classes", "metrics": ["accuracy", "macro_f1"]},
        "train": {"steps": 4, "batch": 8, "log_every": 1, "warmup": 1, "device": "cpu", "best": "macro_f1"},
    }


def test_every_recipe_with_every_number_of_labels_on_every_fold(tree, tmp_path):
    recipes = [Recipe.from_dict(tree), Recipe.from_dict(tree, {"model.trunk": "gru"})]
    found = compare(recipes, 1, tmp_path / "runs", labels=[4, None], folds=3, report=False, show=False)
    assert not found.failed
    assert [(row.recipe, row.labels, len(row.done)) for row in found.rows] == [
        ("in-Python", "4", 3),
        ("in-Python", "all", 3),
        ("in-Python-2", "4", 3),
        ("in-Python-2", "all", 3),
    ]
    run = Run(tmp_path / "runs/in-Python/labels-4/fold-1/seed-0")
    assert run.recipe.data.labels_per_class == 4
    assert (run.recipe.data.split.folds, run.recipe.data.split.fold) == (3, 1)
    assert np.unique(run.data().dataset("train").sample_column("label"), return_counts=True)[1].tolist() == [4] * 3
    judged = [
        Run(tmp_path / f"runs/in-Python/labels-all/fold-{fold}/seed-0").data().dataset("test").sample_column("star")
        for fold in range(3)
    ]
    assert sorted(np.concatenate(judged).tolist()) == list(range(90))
    row = found.rows[0]
    scores = [trial.scores["macro_f1"] for trial in row.trials]
    assert row.score("macro_f1").mean == pytest.approx(np.mean(scores))
    assert row.score("macro_f1").spread == pytest.approx(np.std(scores, ddof=1))
    assert [sentence.partition(": ")[0] for sentence in found.verdict] == ["4 labels of each class"] * 3 + [
        "all labels"
    ] * 3
    assert "has few labels" in " ".join(found.warnings)
    text = printed(found)
    assert "3 folds and all seeds" in text
    assert "labels" in text
    html = (tmp_path / "runs/comparison.html").read_text()
    assert ">all</td>" in html
    assert html.count("<img") == 2  # accuracy and macro F1 against the number of labels
    kept = json.loads((tmp_path / "runs/comparison.json").read_text())
    assert [row["labels"] for row in kept["rows"]] == ["4", "all"] * 2
    assert {one["fold"] for one in kept["rows"][0]["runs"]} == {0, 1, 2}


def test_the_verb(tree, tmp_path, capsys, monkeypatch):
    asked = []
    monkeypatch.setattr("sciformer.run.Run.report", lambda run: asked.append(run.path))  # drawing takes longest
    made = tmp_path / "mine.yaml"
    made.write_text(Recipe.from_dict(tree).to_yaml())
    line = ["compare", str(made), "--labels", "3,all", "--folds", "2", "--seeds", "1", "--quiet"]
    assert main([*line, "--run", str(tmp_path / "runs")]) == 0
    assert "labels of each class" in capsys.readouterr().out.replace("\n", " ")
    assert len(list((tmp_path / "runs").rglob("model/weights.safetensors"))) == 4
    assert len(set(asked)) == 4
    assert main(["compare", str(made), "--labels", "few"]) == 2
    said = capsys.readouterr().err
    assert "--labels" in said
    assert "'few'" in said


def test_what_is_planned_and_what_cannot_be(tree):
    recipe = Recipe.from_dict(tree, {"train.init_from": "runs/before-{fold}"})
    planned = plan([recipe], [0, 1], {"train.learning_rate": ["1e-3", "3e-4"]}, [20, None], 2)
    assert len(planned) == 16
    assert planned[0][0].path == "in-Python/train.learning_rate=1e-3/labels-20/fold-0/seed-0"
    assert [made.train.init_from for _, made in planned[:4]] == ["runs/before-0"] * 2 + ["runs/before-1"] * 2
    assert {made.data.labels_per_class for _, made in planned} == {20, None}
    for key, option in (
        ("data.labels_per_class", "--labels"),
        ("data.split.fold", "--folds"),
        ("train.seed", "--seeds"),
    ):
        with refuses(key=key, hint=option):
            plan([recipe], [0], {key: [1]})
    with refuses(1, key="data.split.folds", error=RecipeError):
        plan([recipe], [0], {}, [], 1)
    lattices = Recipe.load("spins/ising-vit")
    with refuses("--labels", "lattices", key="data.kind"):
        plan([lattices], [0], {}, [20])
    assert parse_labels("20, 100,all,20") == [20, 100, None]
    assert parse_labels("") == []
    for wrong in ("0", "-3", "many", "2.5"):
        with refuses(repr(wrong), key="--labels"):
            parse_labels(wrong)


def row(recipe, folds, labels="20", **point):
    """A row with a score for each fold, nearly equal for three seeds."""
    trials = [
        Trial(recipe, point, seed, "", "test", {"macro_f1": value + 0.001 * seed}, labels=labels, fold=fold)
        for fold, value in enumerate(folds)
        for seed in range(3)
    ]
    for trial in trials:
        trial.valid = {"macro_f1": trial.scores["macro_f1"]}
    return Row(recipe, point, trials, labels=labels)


def test_folds_are_compared_one_by_one():
    hard = [0.5, 0.6, 0.7, 0.8]  # folds differ much, the recipes in each of them little but always
    pair = [row("a", hard), row("b", [value + 0.02 + 0.001 * n for n, value in enumerate(hard)])]
    (sentence,) = verdict(Comparison(pair, ["macro_f1"], "loss", ""))
    assert sentence.startswith("20 labels of each class: macro_f1: b is ahead of a by 0.02")
    assert "beyond the spread" in sentence
    pair = [row("a", hard), row("b", [0.52, 0.57, 0.75, 0.79])]
    (sentence,) = verdict(Comparison(pair, ["macro_f1"], "loss", ""))
    assert "within the spread" in sentence
    few = [row("a", hard[:3]), row("b", [0.52, 0.63, 0.71])]
    (sentence,) = verdict(Comparison(few, ["macro_f1"], "loss", ""))
    assert "with few folds this may still be chance" in sentence


def test_each_number_of_labels_has_its_own_choice_and_verdict():
    rows = [row("a", [0.5, 0.6], "20", rate=1), row("a", [0.6, 0.7], "20", rate=2)]
    rows += [row("a", [0.9, 0.8], "all", rate=1), row("a", [0.7, 0.6], "all", rate=2)]
    found = Comparison(rows, ["macro_f1", "coverage_68"], "macro_f1", "")
    choose_points(found)
    assert [one.chosen for one in rows] == [False, True, True, False]
    assert [line.partition(": ")[0] for line in verdict(found)] == ["20 labels of each class", "all labels"]
    assert "Only a has results" in verdict(found)[0]
    assert comparison_page(found).html().count("<img") == 1
    both = Comparison([row("a", [0.5, 0.6]), row("b", [0.6, 0.5])], ["coverage_68"], "loss", "")
    assert verdict(both) == []  # neither more nor less is better


def test_a_picture_of_steps():
    figure = draw_steps(["20", "all"], {"a_$": ([0.5, 0.6], [0.1, 0.0]), "b": ([math.nan, 0.7], [0, 0])}, "x", "y")
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["20", "all"]
    with refuses("'a'", 2, 1):
        draw_steps(["20", "all"], {"a": ([0.5], [0.1])}, "x", "y")
