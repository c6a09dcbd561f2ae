"""What the readers of text have in common: bytes, lines, and parts of the data in files of their own."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from ...errors import UserError, one_of
from ..columns import Array, Table, rows_of
from ..fileset import TaggedFiles, note_overlaps
from ..source import STANDARD_PARTS, Chosen, Memory, Source, Splits, find_files, fingerprint_files, locate, order_parts
from ..split import Rows, Split

MAX_UNPACKED_BYTES = 4 << 30  # bytes of an unpacked gzip file, which is held in memory
CHUNK_BYTES = 1 << 24  # bytes looked at at a time
MAX_ZERO_SHARE = 0.05  # share of zero bytes that no text has, however broken
REPLACE_OPTION = "--data.errors replace"
ENCODING_HINT = (
    "Save it as UTF-8, for example: iconv -f latin1 -t utf-8 OLD > NEW; or take U+FFFD for what is broken: "
    f"{REPLACE_OPTION}"
)

Errors = Literal["strict", "replace"]


class Parts(TaggedFiles):
    """Text files in UTF-8, plain or gzip, with files of their own for validation and test where there are such."""

    what: ClassVar[str] = "text files"
    unit: ClassVar[str] = "line"

    files: list[str] = Field(default_factory=list)
    """Names or globs of the files to train on; .gz is unpacked."""
    extra_parts: dict[str, list[str]] = Field(default_factory=dict)
    """Files of further parts, by name, which are judged each by itself: {test2017: [NAME, ...]}."""
    split: Split = Split(valid=0.1, test=0.0)
    """Shares of `files` kept apart for those of `valid` and `test` that have no files of their own."""
    errors: Errors = "strict"
    """Bytes that are not UTF-8: refuse the file (strict), or read U+FFFD in their place and count them (replace)."""

    def open(self, log: Any = None) -> Splits:
        """Read the files of every part; divide those to train on where a part has none."""
        names = self.named()
        train = self.table(names.pop("train"))
        if not rows_of(train):
            key = "data.files" if self.files else None
            raise UserError(f"the {self.what} to train on have no {self.unit}", key=key)
        others = {part: self.table(files) for part, files in names.items()}
        for part, table in others.items():
            if not rows_of(table):
                raise UserError(f"the files of data.{key_of(part)} have no {self.unit}", key=f"data.{key_of(part)}")
        rows = self.divided(train)
        notes = self.overlaps(train, others)
        rows["train"] = self.trained(train, rows["train"], notes)
        if not len(rows["train"]):
            raise UserError(f"all {self.unit}s to train on are left out", hint=" ".join(notes))
        whole = Memory(train)
        sources: dict[str, Source] = {part: Chosen(whole, kept) for part, kept in rows.items()}
        sources |= {part: Memory(table) for part, table in others.items()}
        paths = self.paths()
        return Splits(order_parts(sources), fingerprint_files(paths), [*self.replaced(paths), *notes])

    def table(self, names: Sequence[str | Path], training: bool = True) -> Table:
        """All samples of these files; those that are not for training may lack labels or translations."""
        raise NotImplementedError

    def group(self, table: Table) -> Array | None:
        """What of a sample may not be in two parts: its text."""
        return None

    def trained(self, table: Table, rows: Rows, notes: list[str]) -> Rows:
        """Those of the rows that are trained on; what is left out is told in the notes."""
        return rows

    def named(self) -> dict[str, list[str]]:
        """The names of the files of every part that has some."""
        for part in self.extra_parts:
            if part in STANDARD_PARTS or not part.strip():
                raise UserError(
                    f"a further part in data.extra_parts must have a name other than {', '.join(STANDARD_PARTS)}, "
                    f"not {part!r}",
                    key="data.extra_parts",
                )
        if empty := [part for part, names in self.extra_parts.items() if not names]:
            raise UserError(f"data.extra_parts.{empty[0]} names no files", key=f"data.extra_parts.{empty[0]}")
        return {**super().named(), **self.extra_parts}

    def paths(self) -> list[Path]:
        return [path for names in self.named().values() for path in find_files(names, self.what)]

    def absolute_paths(self) -> Self:
        more = {part: [locate(name) for name in names] for part, names in self.extra_parts.items()}
        return super().absolute_paths().model_copy(update={"extra_parts": more})

    def read(self, files: Sequence[str | Path]) -> Source:
        return Memory(self.table(files, training=False))

    def divided(self, table: Table) -> dict[str, Rows]:
        """Rows of the parts drawn from the files to train on; equal texts stay in one part."""
        split = self.split.less(self.valid, self.test)
        for key in ("by", "stratify"):
            if name := getattr(split, key):
                one_of(f"data.split.{key}", name, table)
        groups = np.asarray(table[split.by]) if split.by else self.group(table)
        strata = table[split.stratify] if split.stratify else None
        count = rows_of(table) if groups is None else len(set(groups.tolist()))
        wanted = [name for name in ("valid", "test") if getattr(split, name)]
        if count <= len(wanted):
            kind = self.unit if groups is None else f"different {self.unit}"
            keys = " and ".join(f"data.split.{name}" for name in wanted)
            raise UserError(
                f"at least {len(wanted) + 1} {kind}s are needed, to keep some apart for {' and '.join(wanted)}, "
                f"but there {'is' if count == 1 else 'are'} {count}",
                hint=f"Set {keys} to 0, name files in data.valid, or bring more data.",
                key=f"data.split.{wanted[0]}" if wanted else None,
            )
        return split.divide(rows_of(table), groups, strata)

    def overlaps(self, train: Table, others: Mapping[str, Table]) -> list[str]:
        """Notes on what is trained on and judged: texts of a part's own files that stand in those to train on too."""
        mine = self.group(train)
        if mine is None:
            return []
        parts = {part: self.group(table) for part, table in others.items()}
        return note_overlaps({"train": mine[mine != ""], **parts}, f"{self.unit}s")

    def replaced(self, paths: Sequence[Path]) -> list[str]:
        if self.errors == "strict":
            return []
        counts = {path: broken(path) for path in dict.fromkeys(paths)}
        return [f"{count:,} broken places in {path} are read as U+FFFD." for path, count in counts.items() if count]


def key_of(part: str) -> str:
    """The key of the files of a part."""
    return {"train": "files"}.get(part, part if part in STANDARD_PARTS else f"extra_parts.{part}")


def strings(values: Sequence[str]) -> Array:
    """A column of texts."""
    column = np.empty(len(values), object)
    column[:] = values
    return column


def read_lines(path: Path, errors: Errors = "strict") -> list[str]:
    """The lines of a file, as many as it has: only the end of a line ends one, and the last may go without."""
    lines = read_text(path, errors).split("\n")
    return lines if lines[-1] else lines[:-1]


def read_text(path: Path, errors: Errors = "strict") -> str:
    """The whole text of a file."""
    return decode(read_bytes(path, 0, None), path, 0, errors)


def read_bytes(path: Path, start: int, end: int | None) -> bytes:
    """Bytes of a file, or of what is packed in it."""
    if path.suffix == ".gz":
        return _unpacked(path, path.stat().st_mtime_ns)[start:end]
    with path.open("rb") as file:
        file.seek(start)
        return file.read(-1 if end is None else end - start)


@lru_cache(maxsize=2)
def _unpacked(path: Path, changed: int) -> bytes:
    """A gzip file can only be read from its beginning, so it is unpacked whole and kept for the next piece."""
    try:
        with gzip.open(path, "rb") as file:
            text = file.read(MAX_UNPACKED_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(
            f"{path} is not a whole gzip file: {error}", hint="Was it cut off? Fetch it again.", file=path
        ) from error
    if len(text) > MAX_UNPACKED_BYTES:  # also what a small file made to burst would become
        message = f"{path} has more than {MAX_UNPACKED_BYTES >> 30} GiB of text"
        raise UserError(message, hint="Unpack it: plain files of any size are read.", file=path)
    return text


def size_of(path: Path) -> int:
    """Bytes of text in a file."""
    return len(read_bytes(path, 0, None)) if path.suffix == ".gz" else path.stat().st_size


def decode(raw: bytes, path: Path, start: int, errors: Errors = "strict") -> str:
    """The text of bytes that begin at `start` of a file; ends of lines are LF."""
    share = raw[:65536].count(b"\0") / max(1, len(raw[:65536]))
    if share > (0 if errors == "strict" else MAX_ZERO_SHARE):
        wide = raw[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) and not start
        hint = "It seems to be UTF-16: iconv -f utf-16 -t utf-8 OLD > NEW" if wide else ""
        hint = hint or (f"If it is text with broken bytes: {REPLACE_OPTION}" if share <= MAX_ZERO_SHARE else "")
        raise UserError(f"{path} is a binary file, not text: it has zero bytes", hint=hint, file=path)
    try:
        text = raw.decode("utf-8" if start else "utf-8-sig", errors).replace("\r\n", "\n")
        return text if errors == "strict" else text.replace("\0", "\ufffd")
    except UnicodeDecodeError as error:
        place = error.start + len(raw) - len(error.object)  # counted without a byte order mark
        line = read_bytes(path, 0, start).count(b"\n") + raw[:place].count(b"\n") + 1
        bad = raw[place : place + 4].hex(" ")
        count = broken(path)
        others = f", one of {count:,} broken places" if count > 1 else ""
        found = f"{bad} at byte {start + place}, line {line}{others}"
        raise UserError(f"{path} is not UTF-8 text: {found}", hint=ENCODING_HINT, file=path, line=line) from error


def broken(path: Path) -> int:
    """How many places of a file are not UTF-8, or zero."""
    told, kept = (codecs.getincrementaldecoder("utf-8")(errors) for errors in ("replace", "ignore"))
    count = 0
    for start in range(0, size := size_of(path), CHUNK_BYTES):
        raw, last = read_bytes(path, start, start + CHUNK_BYTES), start + CHUNK_BYTES >= size
        count += told.decode(raw, last).count("\ufffd") - kept.decode(raw, last).count("\ufffd") + raw.count(b"\0")
    return count
