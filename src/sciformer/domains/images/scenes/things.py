"""Things of a scene: shape, colour, size and place; relations between two things.

    "small red disc 12 30 7 7; blue star 40 25 13 13"     the things of a scene as text, each with its box in pixels

Lengths are pixels of the picture; `x` increases with the column, `y` with the row. A box is its left column, its top
row, its width and its height.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ....errors import UserError, one_of

SHAPES = ("disc", "square", "triangle", "star", "cross", "ring", "crescent", "bar")
COLOURS = {
    "red": (230, 40, 40),
    "green": (30, 160, 60),
    "blue": (50, 90, 240),
    "yellow": (245, 220, 40),
    "orange": (250, 130, 20),
    "purple": (150, 60, 190),
    "cyan": (60, 215, 225),
    "white": (250, 250, 250),
}
BACKGROUND = (24, 24, 28)
SIZES = ("small", "medium", "large")
UNNAMED_SIZE = "medium"  # captions have no word for it
RADII = (5.0, 7.0, 10.0)  # of the sizes, in 1 / FIELD_SIDE of the side of the picture
MIN_LEAN = 6 / 64  # least difference of |dx| and |dy| for a relation, relative to the side of the picture
RELATIONS = ("left of", "right of", "above", "below")
MAX_THINGS = 4
Box = tuple[int, int, int, int]


class Kind(NamedTuple):
    """Shape, colour and size of a thing, as words."""

    shape: str
    colour: str
    size: str = UNNAMED_SIZE

    @property
    def words(self) -> str:
        """Kind as text: `small red disc`."""
        return " ".join((*((self.size,) if self.size != UNNAMED_SIZE else ()), self.colour, self.shape))

    @property
    def rank(self) -> tuple[int, int, int]:
        """Sort key of the canonical order: by shape, then colour, then size."""
        return SHAPES.index(self.shape), [*COLOURS].index(self.colour), SIZES.index(self.size)


def parse_kind(words: Sequence[str]) -> Kind:
    """Parse the text of a kind; the inverse of `Kind.words`."""
    size, rest = (words[0], words[1:]) if words[:1] and words[0] in SIZES else (UNNAMED_SIZE, words)
    if len(rest) != 2:
        hint = "Write [SIZE] COLOUR SHAPE: small red disc"
        raise UserError(f"{' '.join(words)!r} does not name a thing of a scene", hint=hint)
    one_of("a colour", rest[0], COLOURS)
    one_of("a shape", rest[1], SHAPES)
    return Kind(rest[1], rest[0], size)


class Thing(NamedTuple):
    """Thing of a scene with its centre and its box, in pixels."""

    kind: Kind
    x: int
    y: int
    box: Box


def things_text(things: Sequence[Thing]) -> str:
    """Write kinds and boxes of things as text."""
    return "; ".join(f"{thing.kind.words} {' '.join(map(str, thing.box))}" for thing in things)


def parse_things(text: str) -> list[tuple[Kind, Box]]:
    """Parse things with their boxes; the inverse of `things_text`."""
    found = []
    for entry in filter(None, (entry.strip() for entry in text.split(";"))):
        *words, x, y, width, height = entry.split()
        found.append((parse_kind(words), (int(x), int(y), int(width), int(height))))
    return found


def relation(one: Thing, other: Thing, side: int) -> str:
    """Relation of a thing to another thing; "" if no relation is clear.

    Near the diagonals, a thing is neither clearly beside nor clearly above the other thing.

    side   side of the picture in pixels
    """
    dx, dy = other.x - one.x, other.y - one.y
    lean = abs(dx) - abs(dy)
    if abs(lean) < MIN_LEAN * side:
        return ""
    before = (dx if lean > 0 else dy) > 0
    return RELATIONS[(0 if lean > 0 else 2) + (0 if before else 1)]


def relation_of_groups(group: Sequence[Thing], other: Sequence[Thing], side: int) -> str:
    """Relation of all things of a group to all things of another group.

    The result is "" if the relations of the things differ.
    """
    found = {relation(one, two, side) for one in group for two in other}
    return found.pop() if len(found) == 1 else ""
