"""Recipes: read, inherited, changed, written again, and refused with a line that helps."""

import pickle
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, model_validator

from sciformer.errors import UserError
from sciformer.recipe import Recipe, RecipeError, describe, recipes, validate
from sciformer.recipe import recipe as recipe_module
from sciformer.recipe.document import CODE_KEYS, differences
from sciformer.recipe.registry import REGISTERED, Section
from tests.errors import refuses


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
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3


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
        patch.setattr(validate, "train_class", lambda: Train)
        yield


@pytest.fixture
def shipped(tmp_path, monkeypatch, write):
    def found():
        root = tmp_path / "shipped"
        return {f"{path.parent.name}/{path.stem}": path for path in sorted(root.glob("*/*.yaml"))}

    monkeypatch.setattr(recipe_module, "_shipped_files", found)
    return lambda name, text: write(text, f"shipped/{name}.yaml")


def problems(make, *arguments, **more) -> list[UserError]:
    """The mistakes in a recipe; the text of each names its key and place, and the whole has the fields of the first."""
    with pytest.raises(RecipeError) as caught:
        make(*arguments, **more)
    whole = caught.value
    assert whole.problems == [str(error) for error in whole.errors]
    assert str(whole) == "\n".join(whole.problems)
    assert whole.fields | {"message": ""} == whole.errors[0].fields | {"message": ""}
    for error in whole.errors:
        assert (error.key or "") in error.message
        assert f"{error.file or ''}{'' if error.line is None else f' line {error.line}'}" in error.message
        assert error.message + (f". {error.hint}" if error.hint else "") == str(error)
    return whole.errors


def check(found: list[UserError], *expected: tuple[str | None, int | None, str, str]) -> None:
    """The mistakes as (key, line, end of the message or a mention, hint)."""
    assert [(error.key, error.line) for error in found] == [(key, line) for key, line, _, _ in expected]
    for error, (_, _, mention, hint) in zip(found, expected):
        assert mention in error.message
        assert hint in error.hint
        assert bool(error.hint) is bool(hint)


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
        recipe = Recipe.from_dict(values, {"model": {"depth": depth, "rate": rate}})
    except RecipeError as error:
        assert any(word in str(error) for word in CODE_KEYS)  # noqa: PT017
        return
    path = tmp_path_factory.getbasetemp() / "round.yaml"
    path.write_text(recipe.to_yaml(), encoding="utf-8")
    again = Recipe.load(path)
    assert again == recipe
    assert differences(recipe.to_dict(), again.to_dict()) == []


@settings(deadline=None, max_examples=40)
@given(
    st.integers(1, 10**6), st.floats(1e-12, 1e4), st.text(), st.lists(words.filter(lambda word: word[:1] not in "[{"))
)
def test_changes_as_text_mean_what_they_mean_in_python(depth, rate, label, files):
    python = {"model.depth": depth, "train.learning_rate": rate, "data.files": files}
    typed = {"model.depth": str(depth), "train.learning_rate": repr(rate), "data.files": files}
    changed = Recipe.from_dict(PLAIN).change(python)
    assert changed == Recipe.from_dict(PLAIN, typed) == Recipe.from_dict(PLAIN).change(**typed)
    assert (changed.model.depth, changed.train.learning_rate, changed.data.files) == (depth, rate, files)
    assert changed.change({"tokens.label": label}).tokens.label == (None if label == "null" else label)
    assert {key for key, *_ in differences(Recipe.from_dict(PLAIN).to_dict(), changed.to_dict())} <= set(python)


def test_a_file_means_numbers_text_and_nothing_else(write):
    text = (
        YAML + "  rate: 3e-4\n  depth: 0x10\ntrain:\n  # learning_rate: 1\n"
        "about: {time: 12:30, note: no, title: 2020-01-01}\n"
    )
    recipe = Recipe.load(write(b"\xef\xbb\xbf" + text.encode()))
    assert (recipe.model.rate, recipe.model.depth, recipe.train) == (3e-4, 16, Train())
    assert (recipe.about.time, recipe.about.note, recipe.about.title) == ("12:30", "no", "2020-01-01")
    assert recipe.to_dict()["model"]["pair"] == [1, 2]
    assert "  depth: 16  # How many blocks stand on one another.\n" in recipe.to_yaml()
    assert recipe.to_yaml().startswith("about:\n  title: ")
    assert "kind" not in recipe.to_dict()["train"]


def test_bases_are_inherited_and_another_kind_starts_anew(write, shipped, tmp_path):
    about = "about: {title: parent, paper: P, score: row-1, command: c, time: 1 h, hardware: H}\n"
    shipped("text/gpt-char", about + YAML + "  depth: 2\n  dim: 6\ntrain: {steps: 7, learning_rate: 1}\n")
    write("base: text/gpt-char\nmodel: {depth: 3}\ndata: {files: [b.txt]}\ntrain:\n", "middle.yaml")
    child = write("base: middle.yaml\nabout: {title: child}\nmodel: {kind: test-other}\n")
    assert recipes() == ["text/gpt-char"]
    middle = Recipe.load(tmp_path / "middle.yaml")
    assert (middle.model.depth, middle.model.dim, middle.data.files, middle.train.steps) == (3, 6, ["b.txt"], 7)
    assert (Recipe.load(child).model, Recipe.load(child).train.steps) == (Other(kind="test-other"), 7)
    assert describe(child) == Recipe.load(child).about == validate.About(title="child", paper="P")
    assert describe("text/gpt-char").score == "row-1"
    assert middle.change({"model.kind": "test-other"}).model.depth == 1
    write(middle.to_yaml(), "run/recipe.yaml")
    assert Recipe.load(tmp_path / "run") == middle
    assert Recipe.from_dict({"base": "text/gpt-char"}).name == "in Python"


def test_streams_have_tokens_each():
    streams = {"source": {"kind": "test-beads"}, "target": {"kind": "test-strings", "length": 5}}
    recipe = Recipe.from_dict({**PLAIN, "tokens": streams}, {"tokens.source.label": "8"})
    assert recipe.tokens == {
        "source": Beads(kind="test-beads", label="8"),
        "target": Strings(kind="test-strings", length=5),
    }
    assert Recipe.from_dict(recipe.to_dict()) == recipe
    assert recipe.change({"tokens": {"kind": "test-beads"}}) == Recipe.from_dict(PLAIN)
    assert Recipe.from_dict(PLAIN, {"tokens": streams}).tokens["target"].length == 5
    assert recipe.change({"tokens.source.kind": "test-strings"}).tokens["source"] == Strings(kind="test-strings")


UNKNOWN = YAML + "  dept: 3\n  steps: 4\n  zzz: 1\n  warm: {stps: 3}\nmodle: 3\ndim: 3\n"
WRONG = (
    YAML + "  depth: 0\n  dim: 3.5\n  rate: fast\n  tie: 7\n  window: fulll\n  pair: [1]\n  warm: 3\n  heads: true\n"
    "train: {steps: true, learning_rate: -1}\n"
)


def test_unknown_keys_are_answered_with_the_place_and_the_nearest(write):
    path = write(UNKNOWN)
    found = problems(Recipe.load, path)
    check(
        found,
        ("modle", 10, "", "Did you mean model?"),
        ("dim", 11, "", "`dim` belongs to model"),
        ("model.warm.stps", 9, "", "Did you mean model.warm.steps?"),
        ("model.dept", 6, "", "Did you mean model.depth?"),
        ("model.steps", 7, "", "`steps` belongs to train"),
        ("model.zzz", 8, "", "kind, depth, dim, heads, rate, tie, window, pair, warm"),
    )
    assert {error.file for error in found} == {str(path)}
    found = problems(Recipe.from_dict, PLAIN, {"model.dept": "8", "train.learning_rat": 1}, "on the command line")
    check(
        found,
        ("model.dept", None, "on the command line: ", "Did you mean model.depth?"),
        ("train.learning_rat", None, "on the command line: ", "Did you mean train.learning_rate?"),
    )
    assert {error.file for error in found} == {None}
    with refuses("in changes: base", key="base", error=RecipeError):
        Recipe.from_dict(PLAIN).change({"base": "a"})
    with refuses("in Python: model.dept", key="model.dept", hint="model.depth"):
        Recipe.from_dict({**PLAIN, "model": {"kind": "test-net", "dept": 1}})
    with refuses("in changes: model.", key="model.", hint="model.depth"):
        Recipe.from_dict(PLAIN).change({"model.": 1})


def test_the_place_of_a_key_is_that_of_the_file_in_which_it_is_written(write, tmp_path):
    below = write(YAML + "  dept: 3\n", "below.yaml")
    above = write("base: below.yaml\ntrain:\n  stps: 3\nmodel: {dim: 3}\n")
    found = problems(Recipe.load, above, {"train.learning_rat": 1})
    check(
        found,
        ("model.dept", 6, "below.yaml", "model.depth"),
        ("train.stps", 3, "my.yaml", "train.steps"),
        ("train.learning_rat", None, "in changes", "train.learning_rate"),
    )
    assert [error.file for error in found] == [str(below), str(above), None]


class Choosy(Section):
    depth: int = 1

    @model_validator(mode="after")
    def _even(self) -> "Choosy":
        if self.depth > 3:
            raise UserError("tokens.depth must be 3 at most", hint="Choose 3.", key="tokens.depth")
        if self.depth > 2:
            raise UserError("three is too many", key="tokens.depth", file="data.txt", line=7)
        if self.depth > 1:
            raise UserError("two is too many")
        return self


def test_errors_of_a_section_keep_their_fields_and_get_the_place_of_their_key(write, monkeypatch):
    monkeypatch.setitem(REGISTERED["tokens"], "test-choosy", Choosy)
    path = write(YAML.replace("{kind: test-beads}", "\n  a:\n    kind: test-choosy\n    depth: 4"))
    with refuses("tokens.depth", key="tokens.a.depth", file=path, line=5, hint="Choose 3."):
        Recipe.load(path)
    with refuses("in changes: tokens.a.depth: ", key="tokens.a.depth", file="data.txt", line=7):
        Recipe.load(path, {"tokens.a.depth": 3})
    with refuses("tokens.a: ", key="tokens.a", file=path, line=3):
        Recipe.load(path, {"tokens.a.depth": 2})
    assert Recipe.load(path, {"tokens.a.depth": 1}).tokens["a"].depth == 1


def test_a_recipe_error_survives_another_process():
    whole = RecipeError([UserError("a is wrong", hint="Do b.", key="a", file="f", line=3), UserError("c")])
    assert (whole.problems, str(whole)) == (["a is wrong. Do b.", "c"], "a is wrong. Do b.\nc")
    assert (whole.key, whole.file, whole.line, whole.hint) == ("a", "f", 3, "Do b.")
    again = pickle.loads(pickle.dumps(whole))
    assert (type(again), str(again), again.problems) == (RecipeError, str(whole), whole.problems)
    assert again.errors[0].line == 3
    assert str(RecipeError([])) == ""


def test_wrong_values_are_answered_in_words(write):
    check(  # the types are in words, as `test_options` has them, and end with what was found
        problems(Recipe.load, write(WRONG)),
        ("model.depth", 6, "a whole number, at least 1, not 0", ""),
        ("model.dim", 7, "a whole number, not 3.5", ""),
        ("model.rate", 8, 'a number, not "fast"', ""),
        ("model.tie", 9, "true or false, not 7", ""),
        ("model.window", 10, 'a whole number or full, not "fulll"', "Did you mean full?"),
        ("model.pair", 11, "a list of 2 whole numbers, not [1]", ""),
        ("model.warm", 12, "the keys steps, not 3", ""),
        ("model.heads", 13, "a whole number or null, not true", ""),
        ("train.learning_rate", 14, "a number, above 0, not -1", ""),
        ("train.steps", 14, "a whole number, not true", ""),
    )
    check(problems(Recipe.load, write(YAML + "  dim: 3\n")), ("model", 4, "model: dim must be even", ""))
    changes = {"model.depth": ["8", "my.yaml"], "data.files": [["a"]], "tokens.unit": "bites"}
    found = problems(Recipe.from_dict, PLAIN, changes, "on the command line")
    check(
        found,
        ("data.files", None, 'data.files item 1 must be a string, not ["a"]', ""),
        ("tokens.unit", None, 'one of beads, bytes, not "bites"', "Did you mean bytes?"),
        ("model.depth", None, 'a whole number, at least 1, not [8, "my.yaml"]', ""),
    )
    assert all(error.message.startswith("on the command line: ") for error in found)
    with refuses("in Python: ", "a string or null, not 8", key="tokens.label", hint='"8"'):
        Recipe.from_dict({**PLAIN, "tokens": {"kind": "test-beads", "label": 8}})


def test_missing_sections_keys_and_kinds(write):
    found = problems(Recipe.load, write("data: {kind: test-files}\ntokens: {kind: test-bead}\nmodel: 3\n"))
    check(
        found,
        ("tokens.kind", 2, '"test-bead"', "Did you mean test-beads?"),
        ("model", 3, "`kind`, not 3", ""),
        ("objective", None, "my.yaml", "`kind`"),
        ("data.files", 1, "", "a list of strings: Where the samples are."),
    )
    assert "test-next" in found[2].hint
    assert "test-strings" in found[0].message
    with refuses("zzzzz", "test-net", key="model.kind", hint="--plugin"):
        Recipe.from_dict(PLAIN, {"model.kind": "zzzzz"})
    with refuses("in Python: ", key="tokens.a.kind", hint="test-beads"):
        Recipe.from_dict({**PLAIN, "tokens": {"a": {"unit": "beads"}}})
    with refuses("in Python: ", "title, paper", key="about"):
        Recipe.from_dict({**PLAIN, "about": 3})


def test_names_paths_and_bases_that_lead_nowhere(write, shipped, tmp_path):
    shipped("text/gpt-char", YAML)
    with refuses("gpt-chr", hint="Did you mean text/gpt-char?"):
        Recipe.load("gpt-chr")
    with refuses("quarks/zzz", hint="`sciformer recipes`"):
        Recipe.load("quarks/zzz")
    with refuses(tmp_path / "no.yaml", file=tmp_path / "no.yaml"):
        Recipe.load(tmp_path / "no.yaml")
    with refuses("recipe.yaml", file=tmp_path):
        Recipe.load(tmp_path)
    with refuses(".yaml", file=tmp_path / "a.txt"):
        Recipe.load(write("", "a.txt"))
    with refuses("x" * 80, file="x" * 5000) as caught:
        Recipe.load("x" * 5000)
    assert len(str(caught.value)) < 200
    for base, mention in (("gpt", "gpt"), ("no.yaml", "no.yaml"), ("my.yaml", "my.yaml"), ("[a]", '["a"]')):
        with refuses("base", mention, key="base", file=tmp_path / "my.yaml", line=1, error=RecipeError):
            Recipe.load(write(f"base: {base}\n"))
    for number in range(9):
        write(f"base: {number + 1}.yaml\n", f"{number}.yaml")
    write(YAML, "8.yaml")
    assert Recipe.load(tmp_path / "1.yaml").name == f"{tmp_path}/1.yaml"
    with refuses("8.yaml", "9", key="base", file=tmp_path / "7.yaml", line=1):
        Recipe.load(tmp_path / "0.yaml")
