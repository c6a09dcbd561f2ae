"""Captions: one for each scene, parsed back, true or false of things."""

import pytest

from sciformer.domains.images.scenes.captions import Caption, Group, describe, parse_caption
from sciformer.domains.images.scenes.things import Kind
from tests.domains.images.scenes.examples import SIDE, thing
from tests.errors import refuses

SCENES = [
    ([("small red disc", 10, 30), ("blue star", 40, 35)], "a small red disc left of a blue star"),
    ([("orange cross", 20, 20)], "an orange cross"),
    ([("large white cross", 20, 15), ("large white cross", 40, 48)], "two large white crosses"),
    (
        [("red ring", 55, 12), ("red disc", 30, 30), ("green bar", 10, 34), ("red ring", 50, 20)],
        "a red disc left of two red rings and right of a green bar",
    ),
]


@pytest.mark.parametrize(("things", "text"), SCENES)
def test_a_scene_has_one_caption(things, text):
    made = [thing(*one) for one in things]
    found = describe(made, SIDE)
    assert found is not None
    assert found.words == text
    assert describe(made[::-1], SIDE) == found == parse_caption(text)
    assert found.holds(made, SIDE)


def test_scenes_without_a_clear_relation_have_no_caption():
    assert describe([], SIDE) is None
    assert describe([thing("red disc", 10, 10), thing("blue disc", 40, 40)], SIDE) is None
    around = [thing("red disc", 30, 30), thing("blue disc", 10, 30), thing("blue disc", 50, 30)]
    assert describe(around, SIDE) is None
    assert describe([thing("small red bar", 6 * place, 30) for place in range(1, 11)], SIDE) is None


def test_captions_are_false_of_other_scenes():
    caption = parse_caption("a blue star right of a small red disc")  # in another order
    right = [thing("small red disc", 10, 30), thing("blue star", 40, 35)]
    assert caption.holds(right, SIDE)
    assert not caption.holds([thing("small red disc", 40, 30), thing("blue star", 10, 35)], SIDE)
    assert not caption.holds([thing("small blue disc", 10, 30), thing("red star", 40, 35)], SIDE)
    assert not caption.holds([*right, thing("red ring", 30, 10)], SIDE)
    assert not caption.holds(right[:1], SIDE)


def test_parsed_captions_have_numbers_and_relations():
    found = parse_caption("Two  small red crosses above an orange disc")
    assert found == Caption((Group(2, Kind("cross", "red", "small")), Group(1, Kind("disc", "orange"))), ("above",))
    assert parse_caption("a medium red disc").words == "a red disc"


@pytest.mark.parametrize(
    ("text", "mention", "hint"),
    [
        ("", "empty", "small red disc"),
        ("left of a red disc", "before", "small red disc"),
        ("a red", "'a red'", "small red disc"),
        ("a red discus", "'discus'", "'disc'"),
        ("a rad disc", "'rad'", "'red'"),
        ("two red disc", "'disc'", "'discs'"),
        ("too red discs", "'too'", "'two'"),
        ("a red disc left of", "''", "small red disc"),
        ("a red disc left of a blue star above a green bar", "'above'", "small red disc"),
        ("a red disc near a blue star", "near", ""),
        ("a red disc above a red disc", "red disc", "two red discs"),
    ],
)
def test_other_texts_are_refused(text, mention, hint):
    with refuses(mention, hint=hint):
        parse_caption(text)
