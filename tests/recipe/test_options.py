"""Options in words, and what is typed after them."""

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from sciformer.recipe.options import describe_mismatch, format_value, options, parse_arguments, parse_typed
from tests.errors import refuses


@settings(deadline=None, max_examples=50)
@given(
    st.dictionaries(st.from_regex(r"[a-z]{1,4}\.[a-z]{1,4}", fullmatch=True), st.lists(st.text(max_size=5), max_size=3))
)
def test_arguments_are_parted_without_loss(changes):
    changes = {key: [word for word in some if not word.startswith("--")] for key, some in changes.items()}
    words = [word for key, some in changes.items() for word in (f"--{key}", *some)]
    rest, found = parse_arguments(["train", "my.yaml", *words, "--run", "a.b"])
    assert rest == ["train", "my.yaml", "--run", "a.b"]
    assert found == {key: True if not some else some if len(some) > 1 else some[0] for key, some in changes.items()}


def test_arguments_by_example():
    line = (
        "my.yaml --model.depth 8 --train.learning_rate=3e-4 --data.files a.txt b.txt --model.tie false "
        "--model.flag --x.y -1 -2"
    )
    rest, found = parse_arguments([*line.split(), "--run=a.b", "--a.b=c", "d", "--", "--e.f", "1"])
    assert rest == ["my.yaml", "--run=a.b", "d", "--", "--e.f", "1"]
    assert found == {
        "model.depth": "8",
        "train.learning_rate": "3e-4",
        "data.files": ["a.txt", "b.txt"],
        "model.tie": "false",
        "model.flag": True,
        "x.y": ["-1", "-2"],
        "a.b": "c",
    }
    with refuses("--a.b", key="a.b", hint="--a.b a b"):
        parse_arguments(["--a.b", "1", "--a.b=2"])


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (list[str], "a.txt", ["a.txt"]),
        (list[str], "[a.txt, 8]", ["a.txt", "8"]),
        (list[str], "[ab]*.txt", ["[ab]*.txt"]),
        (list[str], ["1", "2"], ["1", "2"]),
        (list[int] | None, "3", [3]),
        (list[int] | None, "null", None),
        (str | list[str], "8", "8"),
        (dict[str, Any], "{a: [1, x]}", {"a": [1, "x"]}),
        (dict[str, list[str]], {"a": "8"}, {"a": ["8"]}),
        (str | None, "8", "8"),
        (str | None, "[8]", "[8]"),
        (str | None, "null", None),
        (Literal["1", "2"], "1", "1"),
        (int | Literal["full"], "9", 9),
        (int | Literal["full"], "full", "full"),
        (Path, "8", "8"),
        (Annotated[int, Field(ge=1)], "1e1", 10.0),
        (int, "1_000", 1000),
        (int, "010", 10),
        (int, "0x10", 16),
        (float, "3e-4", 3e-4),
        (float, "-.inf", float("-inf")),
        (bool, "false", False),
        (bool, True, True),
        (tuple[int, str], "[3, 4]", [3, "4"]),
        (Any, "*.txt", "*.txt"),
        (Any, "12:30", "12:30"),
        (Any, "", None),
        (int, "9" * 5000, "9" * 5000),
    ],
)
def test_what_is_typed_is_read_by_the_type_of_its_field(annotation, text, value):
    found = parse_typed(text, annotation)
    assert (found, type(found)) == (value, type(value))


SIDE = Annotated[int, Field(ge=1)]


class Warm(BaseModel, use_attribute_docstrings=True):
    steps: Annotated[int, Field(ge=1)] = 10
    """How long
    it takes."""


class Net(BaseModel):
    kind: str = ""
    files: list[str]
    warm: Warm = Warm()
    sizes: list[int] = Field(default_factory=lambda: [1])


def test_options_of_a_section():
    assert options(Net) == [
        ("files", "a list of strings", ..., ""),
        ("warm.steps", "a whole number, at least 1", 10, "How long it takes."),
        ("sizes", "a list of whole numbers", [1], ""),
    ]


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (int | None, "a whole number or null"),
        (Literal["a", "b", 3], "one of a, b, 3"),
        (tuple[float, float], "a list of 2 numbers"),
        (tuple[float, ...], "a list of numbers"),
        (tuple[float, str], "a list of a number, a string"),
        (dict[str, bool], "keys with true or false each"),
        (list[Path], "a list of paths"),
        (Annotated[float, Field(gt=0, le=1)], "a number, above 0, at most 1"),
        (SIDE | tuple[SIDE, SIDE], "a whole number, at least 1 or a list of 2 whole numbers, at least 1"),
        (Warm | None, "the keys steps or null"),
        (Any, "any value"),
        (complex, "complex"),
    ],
)
def test_types_in_words(annotation, text):
    class Holder(BaseModel):
        value: annotation

    assert options(Holder)[0].type == text


def test_a_value_of_another_type_is_told_with_what_may_be_meant():
    assert describe_mismatch(int | Literal["full"], "fulll")[1] == "Did you mean full?"
    assert '"8"' in describe_mismatch(str | None, 8)[1]
    assert describe_mismatch(int, 2.5) == ("must be a whole number, not 2.5", "")
    assert describe_mismatch(dict[str, float], 3) == ("must have keys with numbers, not 3", "")


def test_long_values_are_cut():
    assert format_value("a" * 200) == '"' + "a" * 76 + "..."
    assert format_value([*range(10)]) == "[0, 1, 2, 3, 4, 5, 6, 7, ...]"
    assert format_value({"a": 1}) == "the keys a"
