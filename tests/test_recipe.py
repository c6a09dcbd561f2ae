"""Recipes: read, inherited, changed, written again, and refused with a line that helps."""

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, model_validator

from sciformer import recipe as module
from sciformer import sections
from sciformer.recipe import Recipe, RecipeError, describe, differences, recipes
from sciformer.registry import REGISTERED, Section


class Files(Section):
    files: list[str]
    """Where the samples are."""
    columns: dict[str, Any] | None = None


class Beads(Section):
    unit: Literal["beads", "bytes"] = "beads"
    label: str | None = "a"


class Strings(Section):
    length: int = 3


class Warm(BaseModel, extra="forbid"):
    steps: int = 10


class Net(Section):
    depth: Annotated[int, Field(ge=1)] = 4
    """How many blocks
    stand on one another."""
    dim: int = 8
    heads: int | None = None
    rate: float = 1.0
    tie: bool = False
    window: int | Literal["full"] = "full"
    pair: tuple[int, int] = (1, 2)
    warm: Warm = Warm()

    @model_validator(mode="after")
    def _even(self) -> "Net":
        if self.dim % 2:
            raise ValueError("dim must be even")
        return self


class Other(Section):
    depth: int = 1


class Train(Section):
    steps: int = 100
    rate: Annotated[float, Field(gt=0)] = 1e-3


KINDS = {
    ("data", "test-files"): Files,
    ("tokens", "test-beads"): Beads,
    ("tokens", "test-strings"): Strings,
    ("model", "test-net"): Net,
    ("model", "test-other"): Other,
    ("objective", "test-next"): Section,
}
PLAIN = {
    "data": {"kind": "test-files", "files": ["a.txt"]},
    "tokens": {"kind": "test-beads"},
    "model": {"kind": "test-net"},
    "objective": {"kind": "test-next"},
}
YAML = """\
data: {kind: test-files, files: [a.txt]}
tokens: {kind: test-beads}
objective: {kind: test-next}
model:
  kind: test-net
"""


@pytest.fixture(autouse=True, scope="module")
def _kinds_of_these_tests():
    with pytest.MonkeyPatch.context() as patch:
        for (section, name), found in KINDS.items():
            patch.setitem(REGISTERED[section], name, found)
        patch.setattr(sections, "train_class", lambda: Train)
        yield


@pytest.fixture
def write(tmp_path):
    def write_file(text: str | bytes, name: str = "my.yaml") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write_file


@pytest.fixture
def shipped(tmp_path, monkeypatch, write):
    monkeypatch.setattr(module, "_shipped", lambda: tmp_path / "shipped")
    return lambda name, text: write(text, f"shipped/{name}.yaml")


def problems(make, *arguments, **more) -> list[str]:
    with pytest.raises(RecipeError) as caught:
        make(*arguments, **more)
    assert str(caught.value).splitlines() == [line for text in caught.value.problems for line in text.splitlines()]
    return [line.rpartition("/my.yaml")[2].strip() for line in caught.value.problems]


words = st.text(max_size=12)
numbers = st.floats(allow_nan=False) | st.integers(-(10**15), 10**15)
trees = st.recursive(
    words | numbers | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1, max_size=6), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(words, max_size=3),
    st.dictionaries(st.text(min_size=1, max_size=6), trees, max_size=3),
    words | st.none(),
    st.integers(1, 10**9),
    st.floats(allow_nan=False),
    words | st.none(),
)
def test_the_text_of_a_recipe_loads_to_an_equal_recipe(tmp_path_factory, files, columns, label, depth, rate, title):
    values = {
        **PLAIN,
        "data": {"kind": "test-files", "files": files, "columns": columns},
        "about": {"title": title},
        "tokens": {"kind": "test-beads", "label": label},
    }
    try:
        recipe = Recipe.of(values, {"model": {"depth": depth, "rate": rate}})
    except RecipeError as error:
        assert "a recipe cannot name code" in str(error)  # noqa: PT017
        return
    path = tmp_path_factory.getbasetemp() / "round.yaml"
    path.write_text(recipe.text(), encoding="utf-8")
    again = Recipe.load(path)
    assert again == recipe
    assert differences(recipe.dump(), again.dump()) == []


@settings(deadline=None, max_examples=40)
@given(
    st.integers(1, 10**6), st.floats(1e-12, 1e12), st.text(), st.lists(words.filter(lambda word: word[:1] not in "[{"))
)
def test_changes_as_text_mean_what_they_mean_in_python(depth, rate, label, files):
    python = {"model.depth": depth, "train.rate": rate, "data.files": files}
    typed = {"model.depth": str(depth), "train.rate": repr(rate), "data.files": files}
    changed = Recipe.of(PLAIN).change(python)
    assert changed == Recipe.of(PLAIN, typed) == Recipe.of(PLAIN).change(**typed)
    assert (changed.model.depth, changed.train.rate, changed.data.files) == (depth, rate, files)
    assert changed.change({"tokens.label": label}).tokens.label == (None if label == "null" else label)
    assert {key for key, *_ in differences(Recipe.of(PLAIN).dump(), changed.dump())} <= set(python)


def test_a_file_means_numbers_text_and_nothing_else(write):
    text = (
        YAML + "  rate: 3e-4\n  depth: 0x10\ntrain:\n  # rate: 1\nabout: {time: 12:30, note: no, title: 2020-01-01}\n"
    )
    recipe = Recipe.load(write(b"\xef\xbb\xbf" + text.encode()))
    assert (recipe.model.rate, recipe.model.depth, recipe.train) == (3e-4, 16, Train())
    assert (recipe.about.time, recipe.about.note, recipe.about.title) == ("12:30", "no", "2020-01-01")
    assert recipe.dump()["model"]["pair"] == [1, 2]
    assert "  depth: 16  # How many blocks stand on one another.\n" in recipe.text()
    assert recipe.text().startswith("about:\n  title: ")
    assert "kind" not in recipe.dump()["train"]


def test_bases_are_inherited_and_another_kind_starts_anew(write, shipped, tmp_path):
    about = "about: {title: parent, paper: P, score: row-1, command: c, time: 1 h, hardware: H}\n"
    shipped("text/gpt-char", about + YAML + "  depth: 2\n  dim: 6\ntrain: {steps: 7, rate: 1}\n")
    write("base: text/gpt-char\nmodel: {depth: 3}\ndata: {files: [b.txt]}\ntrain:\n", "middle.yaml")
    child = write("base: middle.yaml\nabout: {title: child}\nmodel: {kind: test-other}\n")
    assert recipes() == ["text/gpt-char"]
    middle = Recipe.load(tmp_path / "middle.yaml")
    assert (middle.model.depth, middle.model.dim, middle.data.files, middle.train.steps) == (3, 6, ["b.txt"], 7)
    assert (Recipe.load(child).model, Recipe.load(child).train.steps) == (Other(kind="test-other"), 7)
    assert describe(child) == Recipe.load(child).about == module.About(title="child", paper="P")
    assert describe("text/gpt-char").score == "row-1"
    assert middle.change({"model.kind": "test-other"}).model.depth == 1
    write(middle.text(), "run/recipe.yaml")
    assert Recipe.load(tmp_path / "run") == middle
    assert Recipe.of({"base": "text/gpt-char"}).name == "in Python"


def test_streams_have_tokens_each():
    streams = {"source": {"kind": "test-beads"}, "target": {"kind": "test-strings", "length": 5}}
    recipe = Recipe.of({**PLAIN, "tokens": streams}, {"tokens.source.label": "8"})
    assert recipe.tokens == {
        "source": Beads(kind="test-beads", label="8"),
        "target": Strings(kind="test-strings", length=5),
    }
    assert Recipe.of(recipe.dump()) == recipe
    assert recipe.change({"tokens": {"kind": "test-beads"}}) == Recipe.of(PLAIN)
    assert Recipe.of(PLAIN, {"tokens": streams}).tokens["target"].length == 5
    assert recipe.change({"tokens.source.kind": "test-strings"}).tokens["source"] == Strings(kind="test-strings")


UNKNOWN = YAML + "  dept: 3\n  steps: 4\n  zzz: 1\n  warm: {stps: 3}\nmodle: 3\ndim: 3\n"
WRONG = (
    YAML + "  depth: 0\n  dim: 3.5\n  rate: fast\n  tie: 7\n  window: fulll\n  pair: [1]\n  warm: 3\n  heads: true\n"
    "train: {steps: true, rate: -1}\n"
)


def test_unknown_keys_are_answered_with_the_place_and_the_nearest(write):
    assert problems(Recipe.load, write(UNKNOWN)) == [
        "line 10: modle is not known; did you mean model?",
        "line 11: dim is not known; `dim` belongs to model",
        "line 9: model.warm.stps is not known; did you mean model.warm.steps?",
        "line 6: model.dept is not known; did you mean model.depth?",
        "line 7: model.steps is not known; `steps` belongs to train",
        "line 8: model.zzz is not known; known are kind, depth, dim, heads, rate, tie, window, pair, warm",
    ]
    changes = {"model.dept": "8", "train.rat": 1}
    assert problems(Recipe.of, PLAIN, changes, "on the command line") == [
        "on the command line: model.dept is not known; did you mean model.depth?",
        "on the command line: train.rat is not known; did you mean train.rate?",
    ]
    assert problems(Recipe.of(PLAIN).change, {"base": "a"})[0].startswith("in changes: base is not known")
    assert problems(Recipe.of, {**PLAIN, "model": {"kind": "test-net", "dept": 1}})[0].startswith(
        "in Python: model.dept"
    )
    assert "model. is not a key" in problems(Recipe.of(PLAIN).change, {"model.": 1})[0]


def test_wrong_values_are_answered_in_words(write):
    assert problems(Recipe.load, write(WRONG)) == [
        "line 6: model.depth: expected a whole number, at least 1; found 0",
        "line 7: model.dim: expected a whole number; found 3.5",
        'line 8: model.rate: expected a number; found "fast"',
        "line 9: model.tie: expected true or false; found 7",
        'line 10: model.window: expected a whole number or full; found "fulll"; did you mean full?',
        "line 11: model.pair: expected a list of 2 whole numbers; found [1]",
        "line 12: model.warm: expected the keys steps; found 3",
        "line 13: model.heads: expected a whole number or null; found true",
        "line 14: train.rate: expected a number, above 0; found -1",
        "line 14: train.steps: expected a whole number; found true",
    ]
    assert problems(Recipe.load, write(YAML + "  dim: 3\n")) == ["line 4: model: dim must be even"]
    changes = {"model.depth": ["8", "my.yaml"], "data.files": [["a"]], "tokens.unit": "bites"}
    assert problems(Recipe.of, PLAIN, changes, "on the command line") == [
        'on the command line: data.files item 1: expected text; found ["a"]',
        'on the command line: tokens.unit: expected one of beads, bytes; found "bites"; did you mean bytes?',
        'on the command line: model.depth: expected a whole number, at least 1; found [8, "my.yaml"]',
    ]
    found = problems(Recipe.of, {**PLAIN, "tokens": {"kind": "test-beads", "label": 8}})
    assert found == ['in Python: tokens.label: expected text or null; found 8; in quotes it is text: "8"']


def test_missing_sections_keys_and_kinds(write):
    found = problems(Recipe.load, write("data: {kind: test-files}\ntokens: {kind: test-bead}\nmodel: 3\n"))
    assert found[0].startswith("line 2: tokens.kind: expected one of ")
    assert found[0].endswith('found "test-bead"; did you mean test-beads?')
    assert found[1] == "line 3: model: expected keys under it, with a `kind`; found 3"
    assert found[2].startswith(": objective is missing; it needs a `kind`, one of ")
    assert found[3] == "line 1: data.files is missing; expected a list of texts: Where the samples are."
    assert "a kind of your own needs --plugin FILE" in problems(Recipe.of, PLAIN, {"model.kind": "zzzzz"})[0]
    assert problems(Recipe.of, {**PLAIN, "tokens": {"a": {"unit": "beads"}}})[0].startswith(
        "in Python: tokens.a.kind is"
    )
    assert problems(Recipe.of, {**PLAIN, "about": 3})[0].startswith("in Python: about: expected the keys title, paper")


def test_names_paths_and_bases_that_lead_nowhere(write, shipped, tmp_path):
    shipped("text/gpt-char", YAML)
    assert problems(Recipe.load, "gpt-chr") == [
        "gpt-chr is not a recipe that comes with Sciformer; did you mean text/gpt-char?"
    ]
    assert "`sciformer recipes` lists them" in problems(Recipe.load, "quarks/zzz")[0]
    assert problems(Recipe.load, tmp_path / "no.yaml") == [f"{tmp_path}/no.yaml does not exist"]
    assert "is a folder without recipe.yaml" in problems(Recipe.load, tmp_path)[0]
    assert "should end in .yaml" in problems(Recipe.load, write("", "a.txt"))[0]
    assert "cannot be read" in problems(Recipe.load, "x" * 5000)[0]
    assert problems(Recipe.load, write("base: gpt\n"))[0].startswith("line 1: base: gpt is not a recipe that comes")
    assert problems(Recipe.load, write("base: my.yaml\n")) == ["line 1: base: my.yaml leads back to itself"]
    assert problems(Recipe.load, write("base: [a]\n"))[0].endswith(
        'expected the name of a recipe or a path; found ["a"]'
    )
    for number in range(9):
        write(f"base: {number + 1}.yaml\n", f"{number}.yaml")
    write(YAML, "8.yaml")
    assert Recipe.load(tmp_path / "1.yaml").name == f"{tmp_path}/1.yaml"
    assert problems(Recipe.load, tmp_path / "0.yaml")[0].endswith("base: 8.yaml is number 9 in a row; 8 are the most")
