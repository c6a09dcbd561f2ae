"""Text files, plain or gzip, as long running texts or line by line."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from ...errors import UserError
from ..source import Chosen, Data, Memory, Source, Splits, Table, find_files, fingerprint
from ..split import Split

LIMIT = 4 << 30  # bytes of an unpacked gzip file, which is held in memory


class TextFiles(Data):
    """Text files in UTF-8."""

    files: list[str] = Field(default_factory=list)
    """Names or globs of the files; .gz is unpacked."""
    documents: Literal["file", "line", "paragraph"] = "file"
    """What one text is: a whole file, a line, or lines between empty ones."""
    split: Split = Split(valid=0.1, test=0.0)
    """Shares kept apart: of whole files the last part of the text, else whole lines or paragraphs, drawn."""
    piece: int = Field(default=1 << 24, ge=1 << 10)
    """Bytes read at a time: a longer file is read in pieces, so that it need not fit into memory (gzip must)."""

    def open(self, say: Any = None) -> Splits:
        """Find the files and divide the text."""
        paths = find_files(self.files, "text files")
        if self.split.by:
            raise UserError("no data.split.by for texts, which have no other columns", repr(self.split.by))
        prints = {str(path): fingerprint(path) for path in paths}
        if self.documents == "file":
            return Splits(self._by_position(paths), prints)
        table = _table([text for path in paths for text in self._documents(read_text(path))])
        whole = Memory(table)
        if not len(table["text"]):
            raise UserError(f"text with at least one {self.documents}", "none")
        rows = self.split.divide(len(table["text"]))
        return Splits({name: Chosen(whole, kept) for name, kept in rows.items()}, prints)

    def read(self, files: Sequence[str | Path]) -> Source:
        """Each document of these files as a sample."""
        paths = find_files(files, "text files")
        return Memory(_table([text for path in paths for text in self._documents(read_text(path))]))

    def _documents(self, text: str) -> list[str]:
        if self.documents == "file":
            return [text]
        parts = text.split("\n") if self.documents == "line" else re.split(r"\n[ \t]*\n", text)
        return [part.strip("\n") for part in parts if part.strip()]

    def _by_position(self, paths: list[Path]) -> dict[str, Source]:
        """Train on the beginning, choose on what follows, judge on the end."""
        sizes = [_size(path) for path in paths]
        total = sum(sizes)
        shares = {"train": 1 - self.split.valid - self.split.test, "valid": 1 - self.split.test, "test": 1.0}
        ends = {name: int(round(total * share, 6)) for name, share in shares.items()}  # 1 - 0.9 is less than 0.1
        sources: dict[str, Source] = {}
        start = 0
        for name, end in ends.items():
            part = TextPieces(_stretch(paths, sizes, start, end), self.piece)
            if part.sizes:
                sources[name] = part
            start = max(start, end)
        if "train" not in sources:
            raise UserError("some text to train on", f"{total} bytes in all")
        return sources


class TextPieces:
    """Stretches (file, first byte, last byte) of text, read a piece at a time, cut between characters."""

    def __init__(self, stretches: list[tuple[Path, int, int]], piece: int) -> None:
        self.pieces: list[list[tuple[Path, int, int]]] = []
        room = 0  # left in the last piece
        for path, start, end in stretches:
            cuts = [_boundary(path, place) for place in range(start, end, piece)] + [_boundary(path, end)]
            for low, high in pairwise(cuts):
                if high <= low:
                    continue
                if high - low > room:  # small files share a piece, so that they are shuffled with each other
                    self.pieces.append([])
                    room = piece
                self.pieces[-1].append((path, low, high))
                room -= high - low
        self.sizes = [len(texts) for texts in self.pieces]

    def load(self, piece: int) -> Table:
        """The texts of a piece."""
        return _table([_decode(_bytes(path, low, high), path, low) for path, low, high in self.pieces[piece]])


def read_text(path: Path) -> str:
    """The whole text of a file."""
    return _decode(_bytes(path, 0, None), path, 0)


def _table(texts: list[str]) -> dict[str, Any]:
    column = np.empty(len(texts), object)
    column[:] = texts
    return {"text": column}


def _bytes(path: Path, start: int, end: int | None) -> bytes:
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
            text = file.read(LIMIT + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"a whole gzip file at {path}", f"{error}", "Was it cut off? Fetch it again.") from error
    if len(text) > LIMIT:  # also what a small file made to burst would become
        raise UserError(
            f"at most {LIMIT >> 30} GiB of text in {path}", "more", "Unpack it: plain files of any size are read."
        )
    return text


def _size(path: Path) -> int:
    """Bytes of text in a file."""
    return len(_bytes(path, 0, None)) if path.suffix == ".gz" else path.stat().st_size


def _boundary(path: Path, place: int) -> int:
    """The first byte at `place` or after it that begins a character, or the next line."""
    before = min(place, 1)
    around = _bytes(path, place - before, place + 4)
    ahead = around[before:]
    if around[:2] == b"\r\n" and before:
        return place + 1  # the two bytes of a line's end stay together
    for skip, byte in enumerate(ahead):
        if byte & 0xC0 != 0x80:
            return place + skip
    return place + len(ahead) if len(ahead) < 4 else place


def _decode(raw: bytes, path: Path, start: int) -> str:
    if b"\0" in raw[:65536]:
        raise UserError(f"text in {path}", "a binary file (it holds zero bytes)")
    try:
        return raw.decode("utf-8" if start else "utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = _bytes(path, 0, start).count(b"\n") + raw[: error.start].count(b"\n") + 1
        where = f"byte {start + error.start}, line {line}"
        bad = raw[error.start : error.start + 4].hex(" ")
        advice = "Save it as UTF-8, for example: iconv -f latin1 -t utf-8 OLD > NEW"
        raise UserError(f"UTF-8 text in {path}", f"{bad} at {where}", advice) from error


def _stretch(paths: list[Path], sizes: list[int], start: int, end: int) -> list[tuple[Path, int, int]]:
    """The parts of the files between two places of the whole text."""
    found, first = [], 0
    for path, size in zip(paths, sizes):
        low, high = max(start, first) - first, min(end, first + size) - first
        if high > low:
            found.append((path, low, high))
        first += size
    return found
