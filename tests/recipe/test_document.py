"""Documents: YAML with the place of every key, laid over one another; files that are refused, and quickly."""

import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer.errors import UserError
from sciformer.recipe.document import RecipeError, differences, flatten, from_mapping, lay_over, read
from sciformer.recipe.yaml import Place
from tests.errors import refuses


def refusal(tmp_path, content: str | bytes) -> list[UserError]:
    path = tmp_path / "my.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    began = time.process_time()
    with pytest.raises(RecipeError) as caught:
        read(path, "my.yaml")
    assert time.process_time() - began < 2
    assert str(caught.value) == "\n".join(caught.value.problems)
    for error in caught.value.errors:
        assert error.file == str(path)
        assert error.message.startswith("my.yaml: " if error.line is None else f"my.yaml line {error.line}: ")
    return caught.value.errors


keys = st.sampled_from(["a", "b", "c", "d"])
flat_trees = st.recursive(
    st.integers(), lambda inner: st.dictionaries(keys, inner, min_size=1, max_size=3), max_leaves=6
)


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(keys, flat_trees), st.dictionaries(keys, flat_trees))
def test_a_child_wins_and_the_rest_is_the_bases(base, child):
    below, above = from_mapping(base, "below"), from_mapping(child, "above")
    merged = lay_over(below, above)
    ends, wanted = dict(flatten(merged.values)), dict(flatten(child))
    assert {key: ends[key] for key in wanted} == wanted
    assert all(merged.where(key) == Place("above" if key in wanted else "below") for key in ends)
    assert set(ends) <= set(wanted) | set(dict(flatten(base)))
    assert lay_over(merged, above).values == merged.values
    assert lay_over(from_mapping({}, ""), above).values == child
    assert (below.values, above.values) == (base, child)


@pytest.mark.parametrize(
    ("content", "hint", "expected"),
    [
        ("", "`base:`", [(None, None, "empty")]),
        ("# nothing\n", "", [(None, None, "empty")]),
        ("\n- 1\n", "", [(None, 2, "`- 1`")]),
        ("model:\n\tdepth: 3\n", "spaces", [(None, 2, "`depth: 3`")]),
        ("a: [1, 2\nb: 3\n", "", [(None, 2, "expected ',' or ']': `b: 3`")]),
        ("a: 1\nb: 3: 4\n", "", [(None, 2, "mapping values are not allowed in this context: `b: 3: 4`")]),
        ("a: \x07\n", "", [(None, 1, "'\\x07'")]),
        ("a: 1\n---\nb: 2\n", "", [(None, 2, "`---`")]),
        ("? [a]\n: 3\n", "", [(None, 1, "key")]),
        (b"\x89PNG\r\n\x00", "YAML", [(None, None, "UTF-8")]),
        ("a: ü".encode("latin-1"), "YAML", [(None, None, "UTF-8")]),
        ("a: 1".encode("utf-16"), "YAML", [(None, None, "UTF-8")]),
        ("a: x" + "x" * 10**6, "files of their own", [(None, None, "1 MB")]),
        ("a: 1\na: 2\nb:\n  c: 1\n  c: 2\n", "", [("a", 2, "line 1"), ("b.c", 5, "line 4")]),
        (
            "a: !!python/object/apply:os.system ['touch owned']\nb: [!!python/name:os.system '']\nc: !mine 3\n",
            "",
            [("a", 1, "!!python/object/apply:os.system"), ("b", 2, "!!python/name:os.system"), ("c", 3, "!mine")],
        ),
        (
            "plugin: a.py\nmodel: {_target_: x}\ndata:\n  - class_path: x\n  - {b: {import: x}}\n",
            "--plugin FILE",
            [
                ("plugin", 1, "plugin"),
                ("model._target_", 2, "model._target_"),
                ("data", 4, "data item 1.class_path"),
                ("data", 5, "data item 2.b.import"),
            ],
        ),
    ],
)
def test_a_file_is_refused_with_its_key_line_text_and_what_to_do(tmp_path, content, hint, expected):
    found = refusal(tmp_path, content)
    assert hint in found[0].hint
    assert [(error.key, error.line) for error in found] == [(key, line) for key, line, _ in expected]
    assert all(mention in error.message for error, (_, _, mention) in zip(found, expected))


def bomb(levels: int, width: int) -> str:
    rows = [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * width)}]" for level in range(1, levels)]
    return "\n".join(["a0: &a0 [lol, lol]", *rows])


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (bomb(10, 9), "50 anchors (&) and aliases (*)"),
        (bomb(17, 2), "aliases (*)"),
        (bomb(8, 6), "aliases (*)"),
        (f"a: &a {'x' * 500_000}\nb: [{'*a, ' * 48}]", "aliases (*)"),
        ("a: &a [*a]", "aliases (*)"),
        ("a: &a {b: *a}", "aliases (*)"),
        ("a: " + "[" * 100_000, "40 deep"),
        ("a:\n" + "".join(" " * depth + "- \n" for depth in range(500)), "40 deep"),
    ],
)
def test_bombs_are_refused_quickly(tmp_path, content, expected):
    (error,) = refusal(tmp_path, content)
    assert expected in error.message
    assert error.line is not None
    assert len(str(error)) < 300


def test_a_few_aliases_are_fine_and_folders_are_not_files(tmp_path):
    (tmp_path / "a.yaml").write_text("a: &x [1, 3e-4, '8', !!str 9, !!int 7]\nb: *x\nc: {0: ~, true: no}\n")
    document = read(tmp_path / "a.yaml", "a.yaml")
    assert document.values == {"a": [1, 3e-4, "8", "9", 7], "b": [1, 3e-4, "8", "9", 7], "c": {"0": None, "true": "no"}}
    assert document.where(("b", 1)) == Place("a.yaml", str(tmp_path / "a.yaml"), 1)  # where it is written
    assert str(document.where(("b", 1))) == "a.yaml line 1"
    assert str(document.where(("c", "0", "deeper"))) == "a.yaml line 3"
    assert str(document.where(("d",))) == document.whole.name == "a.yaml"
    with refuses("folder", file=tmp_path, error=RecipeError):
        read(tmp_path, "folder")


def test_differences():
    old, new = {"a": {"b": 1, "c": [1]}, "d": {"e": 1}}, {"a": {"b": 2, "c": [2]}, "d": {"e": 2}, "f": None}
    assert differences(old, new) == [("a.b", 1, 2), ("a.c", [1], [2]), ("d.e", 1, 2)]
    assert differences(old, new, ["a.c", "d"]) == [("a.b", 1, 2)]
    assert differences(old, new, ["a.", "d.ee"]) == differences(old, new)
    assert differences({"a": math.nan}, {"a": math.nan}) == []


def test_an_empty_mapping_inside_a_section_empties_that_of_the_base():
    base = from_mapping({"data": {"kind": "a", "names": {"x": 1}, "split": {"valid": 0.1}}}, "base")
    child = from_mapping({"data": {"names": {}}}, "child")
    assert lay_over(base, child).values == {"data": {"kind": "a", "names": {}, "split": {"valid": 0.1}}}
    assert lay_over(base, from_mapping({"data": {}}, "child")).values == base.values


def test_a_mapping_with_replace_takes_the_place_of_that_of_the_base(tmp_path):
    base = from_mapping({"data": {"kind": "a", "classes": {"x": "1", "y": "2"}, "new": {"p": "q"}}}, "base")
    for text in ("classes: !replace {z: 3}", "classes: !replace\n    z: 3", "classes: {z: 3}"):
        (tmp_path / "child.yaml").write_text(f"data:\n  {text}\n  new: {{r: s}}\n")
        child = read(tmp_path / "child.yaml", "child.yaml")
        found = lay_over(base, child)
        kept = {} if "!replace" in text else base.values["data"]["classes"]
        assert found.values["data"]["classes"] == {**kept, "z": 3}
        assert found.values["data"]["new"] == {"p": "q", "r": "s"}
        assert type(found.values["data"]["classes"]) is dict
        assert (("data", "classes", "x") in found.places) == bool(kept)
        below = lay_over(from_mapping({"data": {"kind": "a", "classes": {"w": 0}}}, "lowest"), found)
        assert ("w" in below.values["data"]["classes"]) == bool(kept)
    (tmp_path / "child.yaml").write_text("data:\n  files: !replace [a]\n")
    with refuses("!replace", key="data.files", line=2):
        read(tmp_path / "child.yaml", "child.yaml")
