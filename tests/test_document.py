"""Documents: YAML with the place of every key, laid over one another; files that are refused, and quickly."""

import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer.document import RecipeError, differences, flat, lay_over, of_mapping, read


def refusal(tmp_path, content: str | bytes) -> list[str]:
    path = tmp_path / "my.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    began = time.process_time()
    with pytest.raises(RecipeError) as caught:
        read(path, "my.yaml")
    assert time.process_time() - began < 2
    assert str(caught.value) == "\n".join(caught.value.problems)
    return caught.value.problems


keys = st.sampled_from(["a", "b", "c", "d"])
flat_trees = st.recursive(
    st.integers(), lambda inner: st.dictionaries(keys, inner, min_size=1, max_size=3), max_leaves=6
)


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(keys, flat_trees), st.dictionaries(keys, flat_trees))
def test_a_child_wins_and_the_rest_is_the_bases(base, child):
    below, above = of_mapping(base, "below"), of_mapping(child, "above")
    merged = lay_over(below, above)
    ends, wanted = dict(flat(merged.values)), dict(flat(child))
    assert {key: ends[key] for key in wanted} == wanted
    assert all(merged.where(key) == ("above" if key in wanted else "below") for key in ends)
    assert set(ends) <= set(wanted) | set(dict(flat(base)))
    assert lay_over(merged, above).values == merged.values
    assert lay_over(of_mapping({}, ""), above).values == child
    assert (below.values, above.values) == (base, child)


CODE = "a recipe cannot name code; pass --plugin FILE on the command line"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", ["my.yaml: empty; expected sections such as `model:` or a `base:`"]),
        ("# nothing\n", ["my.yaml: empty; expected sections such as `model:` or a `base:`"]),
        ("\n- 1\n", ["my.yaml line 2: expected a section such as `model:`; found `- 1`"]),
        ("model:\n\tdepth: 3\n", ["my.yaml line 2: indented with a tab; YAML wants spaces: `depth: 3`"]),
        ("a: [1, 2\nb: 3\n", ["my.yaml line 2: expected ',' or ']', but got ':': `b: 3`"]),
        ("a: 1\nb: 3: 4\n", ["my.yaml line 2: mapping values are not allowed here: `b: 3: 4`"]),
        ("a: \x07\n", ["my.yaml line 1: the character '\\x07', which YAML does not allow"]),
        ("a: 1\n---\nb: 2\n", ["my.yaml line 2: but found another document: `---`"]),
        ("? [a]\n: 3\n", ["my.yaml line 1: a key is a word"]),
        (b"\x89PNG\r\n\x00", ["my.yaml: not UTF-8 text; a recipe is a YAML text file"]),
        ("a: ü".encode("latin-1"), ["my.yaml: not UTF-8 text; a recipe is a YAML text file"]),
        ("a: 1".encode("utf-16"), ["my.yaml: not UTF-8 text; a recipe is a YAML text file"]),
        (
            "a: x" + "x" * 10**6,
            ["my.yaml: larger than 1 MB; a recipe is a short text, data belong in files of their own"],
        ),
        (
            "a: 1\na: 2\nb:\n  c: 1\n  c: 2\n",
            [
                "my.yaml line 2: a is given twice (first in line 1)",
                "my.yaml line 5: b.c is given twice (first in line 4)",
            ],
        ),
        (
            "a: !!python/object/apply:os.system ['touch owned']\nb: [!!python/name:os.system '']\nc: !mine 3\n",
            [
                "my.yaml line 1: !!python/object/apply:os.system: a recipe cannot run code",
                "my.yaml line 2: !!python/name:os.system: a recipe cannot run code",
                "my.yaml line 3: !mine: tags are not known in a recipe",
            ],
        ),
        (
            "plugin: a.py\nmodel: {_target_: x}\ndata:\n  - class_path: x\n  - {b: {import: x}}\n",
            [
                f"my.yaml line 1: plugin: {CODE}",
                f"my.yaml line 2: model._target_: {CODE}",
                f"my.yaml line 4: data item 1.class_path: {CODE}",
                f"my.yaml line 5: data item 2.b.import: {CODE}",
            ],
        ),
    ],
)
def test_a_file_is_refused_with_its_line_and_text(tmp_path, content, expected):
    assert refusal(tmp_path, content) == expected


def bomb(levels: int, width: int) -> str:
    rows = [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * width)}]" for level in range(1, levels)]
    return "\n".join(["a0: &a0 [lol, lol]", *rows])


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (bomb(10, 9), "more than 50 anchors (&) and aliases (*)"),
        (bomb(17, 2), "aliases (*) that grow without end"),
        (bomb(8, 6), "aliases (*) that grow without end"),
        (f"a: &a {'x' * 500_000}\nb: [{'*a, ' * 48}]", "aliases (*) that grow without end"),
        ("a: &a [*a]", "aliases (*) that grow without end"),
        ("a: &a {b: *a}", "aliases (*) that grow without end"),
        ("a: " + "[" * 100_000, "nested more than 40 deep"),
        ("a:\n" + "".join(" " * depth + "- \n" for depth in range(500)), "nested more than 40 deep"),
    ],
)
def test_bombs_are_refused_quickly(tmp_path, content, expected):
    (problem,) = refusal(tmp_path, content)
    assert expected in problem
    assert len(problem) < 300


def test_a_few_aliases_are_fine_and_folders_are_not_files(tmp_path):
    (tmp_path / "a.yaml").write_text("a: &x [1, 3e-4, '8', !!str 9, !!int 7]\nb: *x\nc: {0: ~, true: no}\n")
    document = read(tmp_path / "a.yaml", "a.yaml")
    assert document.values == {"a": [1, 3e-4, "8", "9", 7], "b": [1, 3e-4, "8", "9", 7], "c": {"0": None, "true": "no"}}
    assert document.where(("b", 1)) == "a.yaml line 1"  # where it is written
    assert document.where(("c", "0", "deeper")) == "a.yaml line 3"
    with pytest.raises(RecipeError, match="cannot be read"):
        read(tmp_path, "folder")


def test_differences():
    old, new = {"a": {"b": 1, "c": [1]}, "d": {"e": 1}}, {"a": {"b": 2, "c": [2]}, "d": {"e": 2}, "f": None}
    assert differences(old, new) == [("a.b", 1, 2), ("a.c", [1], [2]), ("d.e", 1, 2)]
    assert differences(old, new, ["a.c", "d"]) == [("a.b", 1, 2)]
    assert differences(old, new, ["a.", "d.ee"]) == differences(old, new)
    assert differences({"a": math.nan}, {"a": math.nan}) == []


def test_an_empty_mapping_inside_a_section_empties_that_of_the_base():
    base = of_mapping({"data": {"kind": "a", "names": {"x": 1}, "split": {"valid": 0.1}}}, "base")
    child = of_mapping({"data": {"names": {}}}, "child")
    assert lay_over(base, child).values == {"data": {"kind": "a", "names": {}, "split": {"valid": 0.1}}}
    assert lay_over(base, of_mapping({"data": {}}, "child")).values == base.values
