"""What the readers of many files have in common: a class before the name of files, and parts drawn from all of them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from pydantic import Field

from ..errors import UserError
from .columns import Array
from .source import Data, find_files, locate
from .split import Split

TAG = re.compile(r"([^:/\\*?\[\]]+):(.+)", re.DOTALL)
MAX_PIECES_IN_MEMORY = 8  # pieces that a data set keeps in memory


class TaggedFiles(Data):
    """Files of which each may have a class before its name, with files of their own for validation and test."""

    files: list[str] = Field(default_factory=list)
    """Names or globs of the files to train on; a name before a colon is the class of all that is in them."""
    valid: list[str] = Field(default_factory=list)
    """Files of the same form to choose the best model with; where none are given, see `split`."""
    test: list[str] = Field(default_factory=list)
    """Files for the final judgement; where none are given, see `split`."""
    split: Split = Split()
    """Shares of `files` kept apart for those of `valid` and `test` that have no files of their own."""

    def named(self) -> dict[str, list[str]]:
        """The names of files of the parts that have some; to train on there must be."""
        given = {"train": self.files, "valid": self.valid, "test": self.test}
        return {part: names for part, names in given.items() if names or part == "train"}

    def absolute_paths(self) -> Self:
        """The same section with absolute names of files."""
        found = {}
        for key in ("files", "valid", "test"):
            pairs = [split_tag(name) for name in getattr(self, key)]
            found[key] = [f"{tag}:{locate(name)}" if tag else locate(name) for tag, name in pairs]
        return self.model_copy(update=found)


class Found(Protocol):
    """What was found in a file: the numbers of the samples that are kept, where it can be read from anew, and columns
    that may be missing, and are."""

    @property
    def path(self) -> Path: ...
    @property
    def tag(self) -> str: ...
    @property
    def kept(self) -> Array: ...
    @property
    def edges(self) -> Array: ...
    @property
    def lacks(self) -> tuple[str, ...]: ...


Scan = TypeVar("Scan", bound=Found)


def split_tag(name: str | Path) -> tuple[str, str]:
    """The class before the colon, if there is one, and the name of the files."""
    match = None if Path(name).expanduser().exists() else TAG.fullmatch(str(name))
    if match and os.name == "nt" and len(match[1]) == 1:  # a drive
        match = None
    tag, rest = (match[1].strip(), match[2].strip()) if match else ("", str(name))
    if rest.startswith("//") or "://" in rest:
        raise UserError(f"{str(name)!r} is not on this machine", hint="Fetch it first, for example with xrdcp.")
    return tag, rest


def find_tagged_files(names: Sequence[str | Path], what: str) -> list[tuple[str, Path]]:
    """Files with the class of all their samples, or nothing."""
    found: dict[Path, str] = {}
    for tag, name in map(split_tag, names):
        for path in find_files([name], what):
            if found.setdefault(path, tag) != tag:
                pair = " and ".join(f"with the class {one}" if one else "without a class" for one in (found[path], tag))
                raise UserError(f"{path} is named twice, {pair}", file=path)
    if not names:
        find_files([], what)
    return [(tag, path) for path, tag in found.items()]


def check_tags(files: Sequence[tuple[str, Path]]) -> None:
    """Refuse files of which some have a class and others none."""
    bare = [path for tag, path in files if not tag]
    if bare and len(bare) < len(files):
        raise UserError(
            f"{bare[0]} has no class before its name, but other files have",
            hint="Write a class before every name of files (NAME:FILES), or before no name.",
            file=bare[0],
        )


def scan_files(
    look: Callable[[Path, str], Scan],
    files: Sequence[tuple[str, Path]],
    part: str,
    notes: list[str],
    skip: bool,
) -> list[Scan]:
    """What is in the files of a part; bad ones are refused, or told in the notes."""
    scans: list[Scan] = []
    for tag, path in files:
        try:
            scans.append(look(path, tag))
        except UserError as error:
            if not skip:
                hint = f"{error.hint} Or leave out files that cannot be read: --data.bad_files skip".strip()
                raise error.with_fields(hint=hint if len(files) > 1 else error.hint) from error
            notes.append(f"left out {path}: {error.message}.")
    if not scans:
        raise UserError(f"no file for {part} can be read", hint=" ".join(notes[:4]))
    return scans


def note_missing_columns(scans: Sequence[Found], asked: Collection[str], notes: list[str], but: str = "") -> list[str]:
    """Columns (`but` one) that are missing in some files; those that only some lack, or that were `asked` for, are
    told in the notes."""
    names = list(dict.fromkeys(name for scan in scans for name in scan.lacks if name != but))
    for name in names:
        without = [scan.path for scan in scans if name in scan.lacks]
        if len(without) < len(scans) or name in asked:
            more = f" and {len(without) - 1:,} more files" if len(without) > 1 else ""
            notes.append(f"`{name}` is not in {without[0]}{more}: left out.")
    return names


def in_files(sizes: Iterable[int], rows: Array) -> list[Array]:
    """Sorted numbers of samples, counted over files of these sizes, as numbers within each."""
    ends = np.cumsum([0, *sizes])
    cuts = np.searchsorted(rows, ends)
    return [rows[low:high] - first for (low, high), first in zip(pairwise(cuts), ends)]


def parts_of(scans: Mapping[str, Sequence[Scan]], drawn: Mapping[str, Array]) -> dict[str, list[tuple[Scan, Array]]]:
    """The files of every part, with the numbers of their rows: those `drawn` from the files to train on, and all of the
    parts that have files of their own."""
    made = {}
    for part, rows in drawn.items():
        shares = in_files([len(scan.kept) for scan in scans["train"]], rows)
        made[part] = [(scan, scan.kept[share]) for scan, share in zip(scans["train"], shares)]
    return made | {part: [(scan, scan.kept) for scan in some] for part, some in scans.items() if part != "train"}


def note_overlaps(groups: Mapping[str, Any], what: str) -> list[str]:
    """Notes on samples of a part's own files that stand in those to train on too, by what they are told apart."""
    known = set(groups["train"].tolist())
    counts = {part: sum(one in known for one in own.tolist()) for part, own in groups.items() if part != "train"}
    return [
        f"{count:,} of {len(groups[part]):,} {what} of {part} are among those to train on."
        for part, count in counts.items()
        if count
    ]
