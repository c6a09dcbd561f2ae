"""Every shipped recipe: it loads, says what it is, its command parses, it trains, is judged and reported."""

import json
import shlex
from pathlib import Path

import pytest
import torch

from sciformer.assembly import Assembly
from sciformer.cli import app
from sciformer.models.base import parameters
from sciformer.options import parse_arguments
from sciformer.recipe import Recipe, describe, recipes
from sciformer.run import Run, train

ROOT = Path(__file__).parents[1]
NAMES = recipes()
COUNT = 5
TEXT = "To be, or not to be, that is the question: whether 'tis nobler in the mind to suffer\n" * 12
SMALL = {"model.dim": 16, "model.depth": 1, "model.heads": 2, "train.batch": 4, "train.device": "cpu"}
FIVE = {"train.steps": 5, "train.evaluate_every": 5, "train.log_every": 1, "train.warmup": 1}
# What makes the data of a reader small, or is needed to have any.
DATA = {
    "lattices": {"size": 8, "number": 6, "chains": 6, "samples": 1, "cache": ""},
    "text": {"files": ["{folder}/text.txt"]},
}
SHORT = {"text": {"tokens.context": 16}}
# Parameters of the presets at full size, in millions.
MILLIONS = {
    "spins/ising-cnn": 0.150,
    "spins/ising-lstm": 0.0514,
    "spins/ising-vit": 0.105,
    "text/gpt-char": 0.80,
    "text/gpt-char-large": 10.7,
}


def measured() -> set[str]:
    files = [ROOT / "src/sciformer/recipes/measured.json", *sorted((ROOT / "benchmarks/results").glob("*.json"))]
    assert len(files) >= 2
    ids: set[str] = set()
    for file in files:
        found = json.loads(file.read_text("utf-8"))
        ids |= set(found) if isinstance(found, dict) else {row["id"] for row in found}
    return ids


def small(name, folder):
    """The recipe with data of its own kind, as few as it takes."""
    (folder / "text.txt").write_text(TEXT)
    kind = Recipe.load(name).data.kind
    assert kind in DATA, f"say here what makes the data of `{kind}` small"
    data = {
        f"data.{key}": [word.format(folder=folder) for word in value] if isinstance(value, list) else value
        for key, value in DATA[kind].items()
    }
    return Recipe.load(name, data)


def test_the_sweep_sees_all_of_them():
    files = sorted((ROOT / "src/sciformer/recipes").glob("**/*.yaml"))
    assert sorted(f"{file.parent.name}/{file.stem}" for file in files) == NAMES
    assert len(NAMES) == COUNT
    assert sorted(MILLIONS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_it_is(name):
    about = describe(name)
    for key in ("title", "paper", "data", "command", "score"):
        assert getattr(about, key), f"{name}: about.{key} is missing"
    assert len(about.title) <= 80 - len(name) - 2
    text = (ROOT / "src/sciformer/recipes" / f"{name}.yaml").read_text()
    assert text.startswith("# "), "a recipe opens with what it is, in a sentence"
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("name", NAMES)
def test_its_score_is_measured_or_says_that_it_is_not(name):
    assert describe(name).score in measured() | {"unmeasured"}


@pytest.mark.parametrize("name", NAMES)
def test_its_command_parses_and_runs_this_recipe(name):
    program, *line = shlex.split(describe(name).command)
    words, changes = parse_arguments(line)
    assert (program, *words[:2]) == ("sciformer", "train", name)
    command, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    assert (command.__name__, bound.arguments["recipe"]) == ("train", name)
    assert Recipe.load(name, changes).name == name


@pytest.mark.parametrize("name", NAMES)
def test_what_it_prints_loads_to_the_same(name, tmp_path):
    recipe = Recipe.load(name)
    (tmp_path / "mine.yaml").write_text(recipe.text())
    assert Recipe.load(tmp_path / "mine.yaml") == recipe


@pytest.mark.parametrize("name", NAMES)
def test_it_trains_five_steps_is_judged_and_reported(name, tmp_path):
    recipe = small(name, tmp_path)
    recipe = recipe.change({**SMALL, **FIVE, **SHORT.get(recipe.tokens.kind, {})})
    run = train(recipe, tmp_path / "run", show=False)
    records = [record for record in run.records if "loss" in record]
    assert [record["step"] for record in records] == [1, 2, 3, 4, 5]
    assert all(torch.isfinite(torch.tensor(record["loss"])) for record in records)
    kept = json.loads((run.path / "scores.json").read_text())
    assert kept["parts"]
    for part in kept["parts"].values():
        assert part["scores"]["loss"] > 0
    assert (run.path / "report.html").stat().st_size > 10_000
    again = Run(run.path)
    assert again.recipe == run.recipe
    assert again.evaluate("valid").scores["loss"] == pytest.approx(run.scores["loss"], rel=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_its_size_is_what_it_should_be(name, tmp_path):
    recipe = small(name, tmp_path)
    size = {"data.size": Recipe.load(name).data.size} if recipe.data.kind == "lattices" else {}
    recipe = recipe.change(size)
    data = Assembly.open(recipe)
    if recipe.tokens.kind == "text":
        data.tokens["tokens"].state["characters"] = "".join(map(chr, range(32, 97)))  # 65, as tiny Shakespeare has
    with torch.device("meta"):
        model = recipe.model.build(data.tokens, data.objective)
    assert all(weight.is_meta for weight in model.parameters())
    assert parameters(model) / 1e6 == pytest.approx(MILLIONS[name], rel=0.02)
