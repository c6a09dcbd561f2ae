"""The form of text files, by their names and their beginnings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..data.readers.parallel import MARK
from ..data.readers.parts import read_lines, read_text
from ..data.readers.rows import form_of
from .page import PARTS

LANGUAGES = frozenset(
    re.findall(
        r"\w+",
        """src tgt trg source target af am ar az be bg bn bs ca cs cy da de el en eo es et eu fa fi fr ga gd gl gu ha he
        hi hr hu hy id ig is it ja ka kk km ko la lo lt lv mk ml mn mr ms mt my nb ne nl nn no pa pl pt ro ru si sk sl
        so sq sr sv sw ta te th tl tr uk ur uz vi xh yo zh zu""",
    )
)
CLASSES = frozenset(("pos", "neg", "positive", "negative", "neutral", "ham", "spam", "true", "false", "real", "fake"))
TAGGED = {".conll": (0, None), ".conllu": (1, 3), ".iob": (0, None), ".iob2": (0, None), ".bio": (0, None)}
AGREE = 0.3  # least correlation of the lengths of lines that belong together
FEW = 8  # lines that tell nothing about that


class Marked(NamedTuple):
    """Names that differ in one part: what stands there, and the names with a mark in its place."""

    values: list[str]
    names: list[str]


def marked(paths: Sequence[Path]) -> Marked | None:
    """The names with a mark, where all files come in sets that differ in the same part, counted from the end."""
    words = [re.split(r"([._-])", path.name) for path in paths]
    for place in range(1, max(map(len, words)) + 1, 2):
        sets: dict[str, list[str]] = {}
        for path, parts in zip(paths, words):
            if len(parts) < place:
                return None
            name = "".join([*parts[: len(parts) - place], MARK, *parts[len(parts) - place + 1 :]])
            sets.setdefault(str(path.with_name(name)), []).append(parts[-place])
        values = next(iter(sets.values()))
        alike = all(sorted(found) == sorted(values) for found in sets.values())
        if alike and len(set(values)) == len(values) > 1 and not {value.lower() for value in values} & set(PARTS):
            return Marked(values, list(sets))
    return None


def belong(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether lines belong together: as many, and long ones with long ones."""
    if len(one) != len(other) or len(one) < FEW:
        return False
    lengths = np.log1p([[len(line) for line in lines] for lines in (one, other)])
    return bool(lengths.std(1).min() > 0 and np.corrcoef(lengths)[0, 1] > AGREE)


def translations(found: Marked) -> bool:
    """Whether files that differ in a part of their names are translations of each other."""
    if LANGUAGES.issuperset(found.values):
        return True
    first, second = (read_lines(Path(found.names[0].replace(MARK, value))) for value in found.values[:2])
    return not CLASSES.issuperset(found.values) and belong(first, second)


def tabbed(path: Path) -> list[str]:
    """Names of the columns of a file whose lines are pairs with a tab between; nothing if they are not."""
    if form_of(path, read_text(path)) != "tsv":
        return []
    rows = [line.split("\t") for line in read_lines(path) if line.strip()]
    if {len(row) for row in rows} != {2}:
        return []
    head = [cell.strip() for cell in rows[0]]
    if LANGUAGES.issuperset(head):
        return head
    varied = all(2 * len({row[place] for row in rows}) > len(rows) for place in (0, 1))
    worded = all(sum(" " in row[place].strip() for row in rows) > 0.5 * len(rows) for place in (0, 1))
    return ["source", "target"] if varied and worded and belong(*zip(*rows)) else []


def tagged(path: Path) -> bool:
    """Whether a file has a word a line with a tag behind, and empty lines between sentences."""
    name = path.with_suffix("") if path.suffix == ".gz" else path
    if name.suffix.lower() in TAGGED:
        return True
    lines = [line.strip() for line in read_text(path).split("\n", 20_000)[:20_000]]
    rows = [re.split(r"[ \t]+", line) for line in lines if line and not line.startswith("-DOCSTART-")]
    if len(rows) < 10 or "" not in lines[:-1] or len({len(row) for row in rows}) > 1 or len(rows[0]) < 2:
        return False
    tags = {row[-1] for row in rows}
    return len(tags) <= 0.2 * len(rows) and ("O" in tags or len(tags) < 100 < len(rows))
