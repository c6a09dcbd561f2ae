"""Captions of scenes: one canonical sentence for each scene, and its parser.

    a small red disc left of a blue star
    two large green rings above a white bar and right of three orange crosses

    caption  = group {relation group}        relations are joined by `and`
    group    = (a | an | two | three | ...) [small | large] colour shape[s]
    relation = left of | right of | above | below

Things of one kind form a group. Groups are named by shape, then colour, then size, in the order of the lists in
`things`. Every relation is between the first group and a further group, and holds for each pair of their things. So
each scene has exactly one caption, and `Caption.holds` decides whether a caption is true of a scene.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ....errors import UserError, one_of
from .things import RELATIONS, SHAPES, Kind, Thing, parse_kind, relation_of_groups

NUMBERS = {"a": 1, "an": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9}
MAX_NUMBER = max(NUMBERS.values())
RELATION = re.compile(rf" ?\b({'|'.join(RELATIONS)})\b ?")
HIDDEN = "?"  # in the place of a hidden word
HINT = "Write a caption like: a small red disc left of a blue star and above two large green rings"
PLURALS = {shape: f"{shape}{'es' if shape.endswith('s') else 's'}" for shape in SHAPES}
SINGULARS = {plural: shape for shape, plural in PLURALS.items()}


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


class Group(NamedTuple):
    """Kind of things in a scene, and their number."""

    number: int
    kind: Kind

    @property
    def words(self) -> str:
        """Group as words: `two small red discs`."""
        if self.number == 1:
            return f"{_article(self.kind.words)} {self.kind.words}"
        number = next(word for word, number in NUMBERS.items() if number == self.number)
        return f"{number} {self.kind.words.removesuffix(self.kind.shape)}{PLURALS[self.kind.shape]}"

    def without(self, attribute: str) -> str:
        """Group as words, with HIDDEN for its shape or its colour.

        Examples: `two small ? discs`, `a ? disc`. The article and the ending do not reveal the hidden word.
        """
        first, *others = self.words.split()
        others[{"shape": len(others) - 1, "colour": len(others) - 2}[attribute]] = HIDDEN
        return " ".join([_article(others[0]) if self.number == 1 else first, *others])


class Caption(NamedTuple):
    """Groups of things, and the relations of the first group to the further groups."""

    groups: tuple[Group, ...]
    relations: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """Caption as text."""
        return self._join([group.words for group in self.groups])

    def without(self, group: int, attribute: str) -> str:
        """Caption as text, with HIDDEN for the shape or the colour of a group."""
        groups = [one.without(attribute) if number == group else one.words for number, one in enumerate(self.groups)]
        return self._join(groups)

    def _join(self, groups: Sequence[str]) -> str:
        first, *others = groups
        rest = " and ".join(f"{how} {other}" for how, other in zip(self.relations, others, strict=True))
        return f"{first} {rest}" if rest else first

    def holds(self, things: Sequence[Thing], side: int) -> bool:
        """Whether the caption is true of a scene: the same things, and all relations hold."""
        found = group_things(things)
        if Counter(thing.kind for thing in things) != Counter({group.kind: group.number for group in self.groups}):
            return False
        members = [found[group.kind] for group in self.groups]
        return all(relation_of_groups(members[0], some, side) == how for some, how in zip(members[1:], self.relations))


def group_things(things: Sequence[Thing]) -> dict[Kind, list[Thing]]:
    """Things of a scene by kind, in the canonical order of the kinds."""
    found: dict[Kind, list[Thing]] = {}
    for thing in sorted(things, key=lambda one: (one.kind.rank, one.x, one.y)):
        found.setdefault(thing.kind, []).append(thing)
    return found


def describe(things: Sequence[Thing], side: int) -> Caption | None:
    """Canonical caption of things; None for no things or an unclear relation.

    side   side of the picture in pixels
    """
    groups = group_things(things)
    if not groups or max(map(len, groups.values())) > MAX_NUMBER:
        return None
    first, *others = groups.values()
    relations = tuple(relation_of_groups(first, other, side) for other in others)
    return (
        Caption(tuple(Group(len(some), kind) for kind, some in groups.items()), relations) if all(relations) else None
    )


def parse_caption(text: str) -> Caption:
    """Parse a caption, with groups in any order; refuse any other text."""
    parts = RELATION.split(" ".join(text.lower().split()))
    if not parts[0]:
        raise UserError(
            "the caption has no thing before a relation" if text.strip() else "the caption is empty", hint=HINT
        )
    *groups, last = parts[::2]
    for number, part in enumerate(groups[1:], 1):
        if not part.endswith(" and"):
            raise UserError(f"{text!r} has no `and` before {parts[2 * number + 1]!r}", hint=HINT)
        groups[number] = part.removesuffix(" and")
    found = tuple(_parse_group(part.split(), text) for part in (*groups, last))
    kinds = [group.kind for group in found]
    if twice := [kind for kind in kinds if kinds.count(kind) > 1]:
        hint = f"Things of one kind form one group: {Group(2, twice[0]).words}."
        raise UserError(f"{text!r} names {twice[0].words!r} twice", hint=hint)
    return Caption(found, tuple(parts[1::2]))


def _parse_group(words: list[str], text: str) -> Group:
    if len(words) < 3:
        raise UserError(f"{' '.join(words)!r} in {text!r} is not a group of things", hint=HINT)
    one_of("the first word of a group", words[0], NUMBERS)
    number = NUMBERS[words[0]]
    one_of("a shape", words[-1], SINGULARS if number > 1 else SHAPES)
    return Group(number, parse_kind([*words[1:-1], SINGULARS.get(words[-1], words[-1])]))
