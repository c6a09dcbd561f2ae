"""Text files, plain or gzip: whole files, lines or paragraphs as documents."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from ....data.columns import Table
from ....data.fileset import key_of
from ....data.readers.text_parts import Errors, Parts, decode, read_bytes, read_lines, read_text, size_of, strings
from ....data.source import Memory, Source, Splits, find_files, fingerprint_files, order_parts
from ....errors import UserError
from ....files.in_memory import MemoryFile


class TextFiles(Parts):
    """Documents of UTF-8 text files, without labels."""

    documents: Literal["file", "line", "paragraph"] = "file"
    """Unit of text: a file (default), a line, or a paragraph (lines between empty lines). For file, `split`
    takes validation and test from the end of the whole text; for line and paragraph, it takes random units."""
    chunk_size: int = Field(default=1 << 24, ge=1 << 10)
    """Bytes read at a time (default: 16 MiB). Longer files are read in pieces, so they may be larger than memory; gzip
    files must fit."""

    @property
    def unit(self) -> str:  # type: ignore[override]
        return self.documents

    def open(self, log: Any = None) -> Splits:
        if self.split.by:
            message = f"data.split.by cannot be {self.split.by!r}: plain texts have no further columns"
            raise UserError(message, key="data.split.by")
        if self.documents != "file":
            return super().open(log)
        if self.split.folds:
            message = "data.split.folds cannot split whole files (data.documents: file)"
            raise UserError(message, hint="Choose --data.documents line or paragraph.", key="data.split.folds")
        named = {part: self._single_texts(names) for part, names in self.named().items()}
        sources = self._by_position(named.pop("train"))
        for part, paths in named.items():
            sources[part] = TextChunks([(path, 0, size_of(path)) for path in paths], self.chunk_size, self.errors)
            if not sources[part].sizes:
                key = f"data.{key_of(part)}"
                raise UserError(f"the files of {key} are empty: they have 0 bytes", key=key)
        paths = self.paths()
        return Splits(order_parts(sources), fingerprint_files(paths), self.replaced(paths))

    def table(self, names: Sequence[str | Path], training: bool = True) -> Table:
        texts: list[str] = []
        for path in find_files(names, self.what):
            if isinstance(path, MemoryFile) and not path.is_text:
                texts += [text for text in path.texts("text") if text.strip() or not training]
            else:
                texts += self._documents(read_text(path, self.errors))
        return {"text": strings(texts)}

    def _single_texts(self, names: Sequence[str | Path]) -> list[Path]:
        """Paths of the files; each text of a table in memory counts as a file."""
        found: list[Path] = []
        for path in find_files(names, self.what):
            found += path.single_texts("text") if isinstance(path, MemoryFile) else [path]
        return found

    def aligned(self, files: Sequence[str | Path]) -> Source:
        paths = find_files(files, self.what)
        if self.documents != "line" or any(isinstance(path, MemoryFile) for path in paths):
            return self.read(files)
        return Memory({"text": strings([line for path in paths for line in read_lines(path, self.errors)])})

    def _documents(self, text: str) -> list[str]:
        if self.documents == "file":
            return [text]
        parts = text.split("\n") if self.documents == "line" else re.split(r"\n[ \t]*\n", text)
        return [part.strip("\n") for part in parts if part.strip()]

    def _by_position(self, paths: list[Path]) -> dict[str, Source]:
        """Split the concatenated text by position: first train, then valid, then test."""
        sizes, split = [size_of(path) for path in paths], self.own_split
        total = sum(sizes)
        shares = {"train": 1 - split.valid - split.test, "valid": 1 - split.test, "test": 1.0}
        sources: dict[str, Source] = {}
        start = 0
        for name, share in shares.items():
            end = int(round(total * share, 6))  # 1 - 0.9 is less than 0.1
            part = TextChunks(_byte_ranges(paths, sizes, start, end), self.chunk_size, self.errors)
            if part.sizes:
                sources[name] = part
            start = max(start, end)
        if "train" not in sources:
            key = "data.split" if total else "data.files"
            raise UserError(f"no text is left to train on: the files have {total} bytes", key=key)
        return sources


class TextChunks:
    """Source of texts: byte ranges of files, cut only between characters."""

    def __init__(self, stretches: list[tuple[Path, int, int]], chunk_size: int, errors: Errors = "strict") -> None:
        self.errors = errors
        self.pieces: list[list[tuple[Path, int, int]]] = []
        room = 0  # bytes left in the last piece
        for path, start, end in stretches:
            cuts = [_next_boundary(path, place) for place in (*range(start, end, chunk_size), end)]
            for low, high in ((low, high) for low, high in pairwise(cuts) if high > low):
                if high - low > room:  # small files share a piece, so they are shuffled together
                    self.pieces.append([])
                    room = chunk_size
                self.pieces[-1].append((path, low, high))
                room -= high - low
        self.sizes = [len(texts) for texts in self.pieces]

    def load(self, piece: int) -> Table:
        parts = self.pieces[piece]
        texts = [decode(read_bytes(path, low, high), path, low, self.errors) for path, low, high in parts]
        return {"text": strings(texts)}


def _next_boundary(path: Path, place: int) -> int:
    """Offset of the first character at or after byte `place`; CRLF is not cut."""
    if place and read_bytes(path, place - 1, place + 1) == b"\r\n":
        return place + 1  # keep CRLF together
    ahead = read_bytes(path, place, place + 4)
    starts = (place + skip for skip, byte in enumerate(ahead) if byte & 0xC0 != 0x80)
    return next(starts, place + len(ahead) if len(ahead) < 4 else place)


def _byte_ranges(paths: list[Path], sizes: list[int], start: int, end: int) -> list[tuple[Path, int, int]]:
    """Byte ranges of the files between two offsets in the concatenated text."""
    found, first = [], 0
    for path, size in zip(paths, sizes):
        low, high = max(start, first) - first, min(end, first + size) - first
        if high > low:
            found.append((path, low, high))
        first += size
    return found
