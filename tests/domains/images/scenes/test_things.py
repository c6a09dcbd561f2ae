"""Kinds, boxes and relations of things, and their text."""

import pytest

from sciformer.domains.images.scenes.things import RELATIONS, Kind, parse_kind, parse_things, relation, things_text
from tests.domains.images.scenes.examples import SIDE, thing
from tests.errors import refuses


def test_kinds_are_their_words():
    assert Kind("disc", "red").words == "red disc"
    assert parse_kind(["medium", "red", "disc"]) == parse_kind(["red", "disc"]) == Kind("disc", "red")
    assert parse_kind(["small", "blue", "bar"]).rank > parse_kind(["large", "blue", "star"]).rank
    with refuses("'redd'", hint="'red'"):
        parse_kind(["redd", "disc"])
    with refuses("'discs'", hint="'disc'"):
        parse_kind(["red", "discs"])
    with refuses("small red"):
        parse_kind(["small", "red"])


def test_text_of_things_is_read_back():
    things = [thing("small red disc", 10, 20), thing("orange star", 40, 30)]
    assert parse_things(things_text(things)) == [(one.kind, one.box) for one in things]
    assert parse_things("") == []


@pytest.mark.parametrize(
    ("x", "y", "name"),
    [
        (50, 32, "left of"),
        (14, 36, "right of"),
        (30, 50, "above"),
        (34, 10, "below"),
        (50, 49, ""),
        (50, 44, "left of"),
    ],
)
def test_relations_are_clear_or_none(x, y, name):
    one, other = thing("red disc", 32, 32), thing("blue disc", x, y)
    assert relation(one, other, SIDE) == name
    opposite = dict(zip(RELATIONS, ("right of", "left of", "below", "above")))
    assert relation(other, one, SIDE) == opposite.get(name, "")
