"""Agreement of pictures with their captions, judged by reading the pictures.

    found = judge(picture, "a small red disc left of a blue star")
    found.right, found.mistake                             False, "wrong_binding"
    shares(pictures, captions)                             {"right": 0.91, "wrong_binding": 0.02, ...}

A wrong picture has one mistake, the first of:

    missing          fewer things than in the caption
    extra            more things than in the caption
    wrong_binding    the right shapes, colours and sizes, but put together in another way
    wrong_attribute  another shape, colour or size
    wrong_relation   the right things, but a relation of the caption does not hold
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ....data.columns import Array
from .captions import Caption, parse_caption
from .reading import read_things
from .things import COLOURS, SHAPES, SIZES, Kind, Thing

MISTAKES = ("missing", "extra", "wrong_binding", "wrong_attribute", "wrong_relation")
ATTRIBUTES = {"shape": SHAPES, "colour": tuple(COLOURS), "size": SIZES}


class Judgement(NamedTuple):
    """Things read from a picture, and the mistake; "" if the picture is right."""

    things: list[Thing]
    mistake: str

    @property
    def right(self) -> bool:
        """Whether things and relations are as in the caption."""
        return not self.mistake


def wanted_kinds(caption: Caption) -> list[Kind]:
    """Kinds of all things of a caption."""
    return [group.kind for group in caption.groups for _ in range(group.number)]


def judge(picture: Array, caption: str) -> Judgement:
    """Judge a picture (H, W, 3) of 8 bits by its caption."""
    wanted, things = parse_caption(caption), read_things(picture)
    return Judgement(things, find_mistake(wanted, things, picture.shape[0]))


def find_mistake(caption: Caption, things: Sequence[Thing], side: int) -> str:
    """Mistake of the things in a picture, compared with a caption; "" if none.

    side   side of the picture in pixels
    """
    wanted, found = wanted_kinds(caption), [thing.kind for thing in things]
    if len(found) != len(wanted):
        return "missing" if len(found) < len(wanted) else "extra"
    if Counter(found) != Counter(wanted):
        parts = zip(zip(*wanted), zip(*found))
        return "wrong_binding" if all(Counter(one) == Counter(two) for one, two in parts) else "wrong_attribute"
    return "" if caption.holds(things, side) else "wrong_relation"


def shares(pictures: Array, captions: Sequence[str]) -> dict[str, float]:
    """Share of right pictures and of each mistake, over pictures (n, H, W, 3)."""
    return shares_of([judge(picture, caption) for picture, caption in zip(pictures, captions, strict=True)])


def shares_of(judgements: Sequence[Judgement]) -> dict[str, float]:
    """Share of right pictures, of each mistake, and of wrong counts.

    The share of wrong counts is the sum of the shares of missing and of extra things.
    """
    count = Counter(one.mistake for one in judgements)
    total = max(1, len(judgements))
    found = {"right": count[""] / total} | {name: count[name] / total for name in MISTAKES}
    return found | {"wrong_count": found["missing"] + found["extra"]}


def confusion(captions: Sequence[str], judgements: Sequence[Judgement], attribute: str) -> Array:
    """Confusion table (wanted, found) of an attribute: shape, colour or size.

    Pictures with a wrong number of things are left out. Each wanted thing is paired with a found thing; pairs with the
    most equal attributes are made first.
    """
    names, place = ATTRIBUTES[attribute], list(ATTRIBUTES).index(attribute)
    table = np.zeros((len(names), len(names)), np.int64)
    for caption, judgement in zip(captions, judgements, strict=True):
        wanted, left = wanted_kinds(parse_caption(caption)), [thing.kind for thing in judgement.things]
        if len(wanted) != len(left):
            continue
        pairs = sorted(((-_equal(one, two), i, j) for i, one in enumerate(wanted) for j, two in enumerate(left)))
        rows: set[int] = set()
        columns: set[int] = set()
        for _, i, j in pairs:
            if i not in rows and j not in columns:
                rows.add(i)
                columns.add(j)
                table[names.index(wanted[i][place]), names.index(left[j][place])] += 1
    return table


def _equal(one: Kind, other: Kind) -> int:
    return sum(a == b for a, b in zip(one, other))


def centres(judgements: Sequence[Judgement]) -> Array:
    """Centres x, y (n, 2) of all things, in pixels."""
    found = [(thing.x, thing.y) for one in judgements for thing in one.things]
    return np.array(found, np.float64).reshape(-1, 2)
