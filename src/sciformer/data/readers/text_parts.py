"""Base class of the text readers: UTF-8 decoding, lines, and files for each part."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from ...errors import UserError, one_of
from ...files.in_memory import MemoryFile
from ...files.limits import MAX_UNPACKED_BYTES, free_memory
from ..columns import Array, Table, rows_of
from ..fileset import TaggedFiles, key_of, note_overlaps
from ..source import Chosen, Memory, Source, Splits, find_files, fingerprint_files, order_parts
from ..split import Rows, Split
from .part_names import note_test_files

CHUNK_BYTES = 1 << 24  # bytes scanned at a time
MAX_ZERO_SHARE = 0.05  # largest fraction of zero bytes in a text file
REPLACE_OPTION = "--data.errors replace"
ENCODING_HINT = (
    "Save it as UTF-8, for example: iconv -f latin1 -t utf-8 OLD > NEW. Or replace invalid bytes by U+FFFD: "
)

Errors = Literal["strict", "replace"]


class Parts(TaggedFiles):
    """Text files in UTF-8, plain or gzip, with optional validation and test files."""

    what: ClassVar[str] = "text files"
    reads_texts: ClassVar[bool] = True
    unit: ClassVar[str] = "line"
    reading_keys: ClassVar[tuple[str, ...]] = ("errors",)

    files: list[str] = Field(default_factory=list)
    """Training files: names or globs; .gz files are decompressed."""
    split: Split = Split(valid=0.1, test=0.0)
    """Fractions of `files` for valid and test, if these parts have no files of their own (default: valid 0.1, test
    0)."""
    errors: Errors = "strict"
    """Treatment of invalid UTF-8. strict: refuse the file; replace: read invalid bytes as U+FFFD, with a note (default:
    strict)."""

    def open(self, log: Any = None) -> Splits:
        """Read the files of each part; split the training files if a part has no files."""
        names = self.named()
        train = self.table(names.pop("train"))
        if not rows_of(train):
            key = "data.files" if self.files else None
            raise UserError(f"the training files have no {self.unit}", key=key)
        others = {part: self.table(files) for part, files in names.items()}
        for part, table in others.items():
            if not rows_of(table):
                raise UserError(f"the files of data.{key_of(part)} have no {self.unit}", key=f"data.{key_of(part)}")
        rows = self.divided(train)
        notes = self.overlaps(train, others)
        rows["train"] = self.trained(train, rows["train"], notes)
        if not len(rows["train"]):
            raise UserError(f"no {self.unit} is left to train on", hint=" ".join(notes))
        whole = Memory(train)
        sources: dict[str, Source] = {part: Chosen(whole, kept) for part, kept in rows.items()}
        sources |= {part: Memory(table) for part, table in others.items()}
        paths = self.paths()
        notes = [*self.replaced(paths), *note_test_files(self.named()["train"]), *notes]
        return Splits(order_parts(sources), fingerprint_files(paths), notes)

    def table(self, names: Sequence[str | Path], training: bool = True) -> Table:
        """Read all samples of files; for training they must have labels or translations."""
        raise NotImplementedError

    def group(self, table: Table) -> Array | None:
        """Split key of each sample; equal keys stay in one part (default: no keys)."""
        return None

    def trained(self, table: Table, rows: Rows, notes: list[str]) -> Rows:
        """Rows to train on (default: all); notes describe the rows left out."""
        return rows

    def paths(self) -> list[Path]:
        """Files of all parts."""
        return [path for names in self.named().values() for path in self.expand(names)]

    def expand(self, names: Sequence[str | Path]) -> list[Path]:
        """Expand names and globs to files."""
        return find_files(names, self.what)

    def read(self, files: Sequence[str | Path]) -> Source:
        return Memory(self.table(files, training=False), self.replaced(self.expand(files)))

    def divided(self, table: Table) -> dict[str, Rows]:
        """Split the rows of the training files into parts; equal texts stay together."""
        split = self.own_split
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
            needs = f"a split into train, {', '.join(wanted)} needs {len(wanted) + 1} {kind}s or more"
            hint = f"Set {keys} to 0, give files in data.valid, or add data."
            message = f"{needs}, but the training files have {count}"
            raise UserError(message, hint=hint, key=f"data.split.{wanted[0]}")
        return split.divide(rows_of(table), groups, strata)

    def overlaps(self, train: Table, others: Mapping[str, Table]) -> list[str]:
        """Notes on validation or test texts also in the training files."""
        mine = self.group(train)
        if mine is None:
            return []
        parts = {part: self.group(table) for part, table in others.items()}
        return note_overlaps({"train": mine[mine != ""], **parts}, f"{self.unit}s")

    def replaced(self, paths: Sequence[Path]) -> list[str]:
        if self.errors == "strict":
            return []
        counts = {path: broken(path) for path in dict.fromkeys(paths) if not isinstance(path, MemoryFile)}
        return [f"{count:,} invalid bytes in {path} are read as U+FFFD." for path, count in counts.items() if count]


def place_columns(files: Sequence[Path], lines: Sequence[int], names: Collection[str]) -> dict[str, Array]:
    """Columns `line` and, for several files, `file`.

    names   columns that exist already: if `line` is among them, the new column is `line_of_file`
    """
    found: dict[str, Array] = {}
    if len(set(files)) > 1:
        found["file"] = np.array([str(file) for file in files], str)
    found["line"] = np.array(lines, np.int64)
    return {f"{name}_of_file" if name in names else name: column for name, column in found.items()}


def strings(values: Sequence[str]) -> Array:
    """Convert texts to a column: an array of objects."""
    column = np.empty(len(values), object)
    column[:] = values
    return column


def read_lines(path: Path, errors: Errors = "strict") -> list[str]:
    """Lines of a file, split at LF or CRLF only; the last line may have no line end."""
    lines = read_text(path, errors).split("\n")
    return lines if lines[-1] else lines[:-1]


def read_text(path: Path, errors: Errors = "strict") -> str:
    """Text of a file, decoded from UTF-8."""
    return decode(read_bytes(path, 0, None), path, 0, errors)


def read_bytes(path: Path, start: int, end: int | None) -> bytes:
    """Bytes start .. end - 1 of a file, decompressed if it is a gzip file."""
    if isinstance(path, MemoryFile):
        return path.raw[start:end]
    if path.suffix == ".gz":
        return _unpacked(path, path.stat().st_mtime_ns)[start:end]
    with path.open("rb") as file:
        file.seek(start)
        return file.read(-1 if end is None else end - start)


@lru_cache(maxsize=2)
def _unpacked(path: Path, changed: int) -> bytes:
    """Decompress a whole gzip file; the result is cached for the next piece."""
    most, text = min(MAX_UNPACKED_BYTES, free_memory()), io.BytesIO()
    try:
        with gzip.open(path, "rb") as file:
            while text.tell() <= most and (part := file.read(CHUNK_BYTES)):  # a larger read would reserve its memory
                text.write(part)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        message = f"{path} is not a complete gzip file: {error}"
        raise UserError(message, hint="Download or copy the file again.", file=path) from error
    if text.tell() > most:  # also protects against decompression bombs
        message = f"{path} has more than {most / (1 << 30):.1f} GiB of decompressed text"
        raise UserError(message, hint="Decompress it: plain files may have any size.", file=path)
    return text.getvalue()


def size_of(path: Path) -> int:
    """Size of the decompressed text of a file in bytes."""
    if isinstance(path, MemoryFile):
        return len(path.raw)
    return len(read_bytes(path, 0, None)) if path.suffix == ".gz" else path.stat().st_size


def decode(raw: bytes, path: Path, start: int, errors: Errors = "strict") -> str:
    """Decode bytes of a file, from byte `start` on; CRLF becomes LF."""
    share = raw[:65536].count(b"\0") / max(1, len(raw[:65536]))
    if share > (0 if errors == "strict" else MAX_ZERO_SHARE):
        wide = raw[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) and not start
        hint = "Convert it from UTF-16: iconv -f utf-16 -t utf-8 OLD > NEW" if wide else ""
        hint = hint or (f"Replace the zero bytes if it is text: {REPLACE_OPTION}" if share <= MAX_ZERO_SHARE else "")
        raise UserError(f"{path} is a binary file, not text: it has zero bytes", hint=hint, file=path)
    try:
        text = raw.decode("utf-8" if start else "utf-8-sig", errors).replace("\r\n", "\n")
        return text if errors == "strict" else text.replace("\0", "\ufffd")
    except UnicodeDecodeError as error:
        place = error.start + len(raw) - len(error.object)  # index in raw, including a byte order mark
        line = read_bytes(path, 0, start).count(b"\n") + raw[:place].count(b"\n") + 1
        bad = raw[place : place + 4].hex(" ")
        count = broken(path)
        others = f" (first of {count:,} invalid bytes)" if count > 1 else ""
        found = f"{bad} at byte {start + place}, line {line}{others}"
        hint = ENCODING_HINT + REPLACE_OPTION
        raise UserError(f"{path} is not UTF-8 text: {found}", hint=hint, file=path, line=line) from error


def broken(path: Path) -> int:
    """Number of invalid UTF-8 sequences and zero bytes in a text file."""
    told, kept = (codecs.getincrementaldecoder("utf-8")(errors) for errors in ("replace", "ignore"))
    count = 0
    for start in range(0, size := size_of(path), CHUNK_BYTES):
        raw, last = read_bytes(path, start, start + CHUNK_BYTES), start + CHUNK_BYTES >= size
        count += told.decode(raw, last).count("\ufffd") - kept.decode(raw, last).count("\ufffd") + raw.count(b"\0")
    return count
