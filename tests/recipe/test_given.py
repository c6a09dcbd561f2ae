"""Keys given to `new`: used as they are, the rest guessed around them; and advice that works when it is followed."""

import csv
import re
import shlex

import numpy as np
import pytest

from sciformer.cli.main import main
from sciformer.recipe import Recipe
from sciformer.recipe.given import Given
from sciformer.recipe.new import new
from sciformer.recipe.page import Found, describe_columns
from tests.errors import refuses
from tests.recipe.written import written

ODD = ("star", "kind", "when", "bright")
USUAL = ("objectid", "type", "mjd", "mag")


pytestmark = pytest.mark.usefixtures("here")


def curves(path, names=ODD, classes=("A", "B"), each=False, stars=12):
    """A table of observations; `each` changes the class within every object."""
    with open(path, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(names)
        for star in range(stars):
            for point in range(8):
                label = classes[(point if each else star) % len(classes)]
                rows.writerow([f"S{star}", label, 5e4 + point, 15 + np.sin(point * (1 + star % 2))])
    return str(path)


def test_values_come_back_typed_and_merge_with_what_is_found():
    given = Given({"train.steps": "50", "tokens.extra": ["a", "b"], "data.id": "star", "model.trunk": "gru"})
    found = [Found("data.kind", "series"), Found("data.files", ["a.csv"]), Found("tokens.kind", "observations")]
    found += [Found("model.kind", "encoder"), Found("model.heads", 4), Found("objective.kind", "masked")]
    made = given.complete([*found, Found("train.batch", 8), Found("train.steps", 900)])
    assert (made["train.steps"], made["tokens.extra"], made["data.id"]) == (50, ["a", "b"], "star")
    assert "model.heads" not in made  # of the transformer, which the given trunk replaces
    assert made["train.batch"] == 8


def test_another_objective_drops_the_keys_of_the_found_one():
    found = [Found("data.kind", "series"), Found("data.files", ["a.csv"]), Found("tokens.kind", "observations")]
    found += [Found("model.kind", "encoder"), Found("objective.kind", "classify"), Found("objective.label", "label")]
    made = Given({"objective.kind": "masked"}).complete([*found, Found("train.best", "macro_f1")])
    assert made["objective.kind"] == "masked"
    assert not {"objective.label", "train.best"} & set(made)


@pytest.mark.parametrize(
    ("changes", "key", "hint"),
    [
        ({"data.tim": "when"}, "data.tim", "data.time"),
        ({"data.kind": "events"}, "data.kind", "--data.kind"),
        ({"objective.kind": "regress"}, "objective.kind", "No values"),
        ({"data.files": "b.csv"}, "data.files", "data.files"),
    ],
)
def test_keys_that_do_not_fit_are_refused(tmp_path, changes, key, hint):
    for name in "ab":
        curves(tmp_path / f"{name}.csv", USUAL)
    with refuses(key=key, hint=hint):
        new("lightcurves", ["a.csv"], changes=changes)
    assert not list(tmp_path.glob("*.yaml"))


def test_roles_and_reasons_are_in_the_recipe_and_on_the_console(tmp_path, capsys):
    curves(tmp_path / "a.csv")
    line = (
        "new lightcurves a.csv --data.time when --data.value bright --data.id star --data.label kind --train.steps 40"
    )
    assert main(line.split()) == 0
    told, page = capsys.readouterr().err, (tmp_path / "a.yaml").read_text()
    for text in ("time = when", "value = bright", "id = star", "label = kind"):
        assert text in told
        assert text in page
    recipe = Recipe.load("a.yaml")
    assert (recipe.objective.kind, recipe.train.steps, recipe.train.warmup) == ("classify", 40, 4)
    assert "steps: 40                         # given" in page
    assert describe_columns({"time": "t"}, [f"c{n}" for n in range(3000)])[1].endswith("c11 and 2,988 more.")


@pytest.mark.parametrize(
    ("names", "options", "said"),
    [
        (USUAL, {"classes": ("RR",)}, "`type`, RR"),
        (USUAL, {"each": True}, "`type` has several values"),
        (("objectid", "sort", "mjd", "mag"), {}, "label, class or type"),
    ],
)
def test_why_there_are_no_classes(tmp_path, names, options, said):
    curves(tmp_path / "a.csv", names, **options)
    recipe, page = written("lightcurves", ["a.csv"])
    assert recipe.objective.kind == "masked"
    assert f"# No classes: {said}"[:14] in page
    assert said in page


def test_files_of_given_parts(tmp_path):
    for name in ("a", "b", "test"):
        curves(tmp_path / f"{name}.csv", USUAL)
    parts = Recipe.load(new("lightcurves", ["a.csv", "b.csv"], "1.yaml", changes={"data.test": "b.csv"})).data
    assert (parts.files, parts.test) == (["a.csv"], ["b.csv"])
    assert Recipe.load(new("lightcurves", [], "2.yaml", changes={"data.files": "test.csv"})).data.files == ["test.csv"]


def test_globs_and_folders_of_several_parts(tmp_path):
    for part in ("train", "test"):
        (tmp_path / "set" / part).mkdir(parents=True)
        curves(tmp_path / "set" / part / "1.csv", USUAL)
        curves(tmp_path / f"{part}_1.csv", USUAL)
    for number, names in enumerate((["*_1.csv"], ["set"], ["set/*/*.csv"])):
        data = Recipe.load(new("lightcurves", names, f"{number}.yaml")).data
        assert [len(data.files), len(data.test)] == [1, 1]
        assert "train" in data.files[0]


# Advice: each case is a command that is refused, and the words to put for NAME, COLUMN, ... in its hint


def make_text(path):
    path.write_bytes("café au lait ".encode("latin1") * 100)


def make_words(path):
    path.write_text("colour,shape,stars\n" + "".join(f"{'ab'[n % 2]},{'xyz'[n % 3]},{n % 2}\n" for n in range(60)))


def make_stacks(path):
    rng = np.random.default_rng(0)
    np.savez(path, left=rng.random((20, 8, 8)), right=rng.random((20, 8, 8)))


CASES = {
    "times": ("lightcurves a.csv", lambda path: curves(path, ("objectid", "type", "when", "mag")), {"NAME": "when"}),
    "values": (
        "lightcurves a.csv",
        lambda path: curves(path, ("objectid", "type", "mjd", "bright")),
        {"NAME": "bright"},
    ),
    "objects": (
        "lightcurves a.csv",
        lambda path: curves(path, ("field", "type", "mjd", "mag")),
        {"COLUMN": "field"},
    ),
    "encoding": ("text a.txt", make_text, {}),
    "columns": ("text a.csv", make_words, {"NAME": "shape"}),
    "arrays": ("images a.npz", make_stacks, {"NAME": "left"}),
    "test": ("lightcurves test.csv", lambda path: curves(path, USUAL), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_advice_works_when_it_is_followed(case, tmp_path, capsys):
    command, make, words = CASES[case]
    make(tmp_path / command.split()[1])
    assert main(["new", *command.split()]) == 2
    told = " ".join(capsys.readouterr().err.split())
    option = re.search(r"--(data|objective|tokens)\.[a-z_.]+ [\w./*]*\w( text)?", told)
    assert option, told
    advice = option[0]
    for mark, word in words.items():
        advice = advice.replace(mark, word)
    assert main(["new", *command.split(), *shlex.split(advice)]) == 0, capsys.readouterr().err
