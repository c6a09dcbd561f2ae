"""Tables in memory, opened by readers like files.

table = MemoryFile(frame)                      pandas, polars, pyarrow, astropy, awkward, NumPy, tensors, lists
EventFiles(kind="events").read([table])        read like a file: formulas, selection and classes apply
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.columns import Array, Lists, rows_of, select
from ..errors import UserError

if TYPE_CHECKING:
    from .formats.base import Layout, TableFile
    from .formats.frames import Contents

    AnyPath = Path
else:
    AnyPath = type(Path())  # only the class of this system can be a base class

NAME, MARK = "the table", "memory:"


class MemoryFile(AnyPath):
    """Path of a table in memory, opened by readers like a file.

    name      name of the table in messages
    part      part of the data in the table; the key in the fingerprint is `memory:PART`
    """

    def __new__(cls, what: Any, part: str = "train", name: str = NAME) -> MemoryFile:
        """Make a path without a file; messages show it as `name`."""
        return super().__new__(cls, name)

    def __init__(self, what: Any, part: str = "train", name: str = NAME) -> None:
        from .formats.frames import Contents, read_contents

        if sys.version_info >= (3, 12):
            super().__init__(name)
        self.part = part
        self.contents: Contents = what if isinstance(what, Contents) else read_contents(what, name)
        self.is_text = isinstance(what, str)
        """Whether it is a single text, as a file of text is; other tables have samples."""
        self._tables: dict[Layout, TableFile] = {}
        if not self.contents.columns and not self.contents.others:
            raise UserError(f"{name} has no columns")
        self.rows = rows_of(self.contents.columns)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __reduce__(self) -> Any:
        return MemoryFile, (self.contents, self.part, str(self))

    def with_segments(self, *segments: Any) -> Path:
        """Make a plain path, when pathlib derives a path such as the parent folder."""
        return Path(*segments)

    def check_rows(self) -> None:
        """Refuse a table without rows, like an empty file."""
        if not self.rows and not self.contents.others:  # columns that cannot be read are an error of the reader
            raise UserError(f"{self} has no rows", key="data" if self.part == "train" else self.part)

    @property
    def key(self) -> str:
        """Key of the table in the fingerprint of the data."""
        return f"{MARK}{self.part}"

    @property
    def columns(self) -> dict[str, Any]:
        """Columns of the table: arrays (n, ...), `Lists`, or arrays of objects.

        Arrays of different shapes are stored as objects.
        """
        return self.contents.columns

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of the table: its number of rows, and a hash of all columns."""
        digest = hashlib.sha256()
        for name, column in self.columns.items():
            arrays = (column.values, column.lengths) if isinstance(column, Lists) else (column,)
            for array in arrays:
                digest.update(f"{name} {array.dtype.kind} {array.shape}\n".encode())
                for part in _bytes_of(array):
                    digest.update(part)
        return f"{self.rows} rows in memory, {digest.hexdigest()[:16]}"

    @property
    def raw(self) -> bytes:
        """The only text of a table, as bytes in UTF-8."""
        (text,) = self.texts()
        return text.encode("utf-8", "surrogatepass")

    def texts(self, *names: str, key: str = "") -> list[str]:
        """Texts of the first column among `names`, or of the only column with texts.

        key   recipe key that names the column, for the error
        """
        strings = [name for name, column in self.columns.items() if is_text(column)]
        found = next((name for name in names if name in strings), None)
        if found is None and len(strings) == 1:
            (found,) = strings
        if found is None:
            known = ", ".join(f"`{name}`" for name in (*self.columns, *self.contents.others))
            what = "no column" if not strings else "several columns"
            raise UserError(f"{self} has {what} of texts", hint=f"Its columns are {known}.", key=key or None)
        column = self.columns[found]
        return [str(text) for text in column.tolist()]

    def single_texts(self, *names: str) -> list[MemoryFile]:
        """Table in memory for each text of the column chosen by `texts`."""
        texts = self.texts(*names)
        if len(texts) == 1:
            return [MemoryFile(texts[0], self.part, str(self))]
        return [MemoryFile(text, self.part, f"text {number} of {self}") for number, text in enumerate(texts, 1)]

    def open_table(self, layout: Layout, observations: bool = False) -> TableFile:
        """Open the table like a file with this layout.

        observations   whether arrays (n, m) are lists of length m, which are never padded
        """
        from .formats.frames import open_contents

        if observations or layout not in self._tables:
            found = open_contents(self.contents, self, layout, observations)
            if layout.renames:
                found.rename(layout.renames)
            if observations:
                return found
            self._tables[layout] = found
        return self._tables[layout]

    def by_part(self, column: str) -> dict[str, MemoryFile]:
        """Split the table by a column with the part of each row.

        Parts: train, valid (or val, dev), test. Every further name is a further test set.
        """
        from ..data.readers.part_names import part_of
        from .formats.frames import Contents

        if column not in self.columns:
            from ..errors import one_of

            one_of("the column of the parts", column, [*self.columns], key="parts")
        values = self.columns[column]
        if not is_text(values):
            message = f"column `{column}` must name the part of each row, but has {describe(values)}"
            raise UserError(message, hint="The parts are train, valid and test.", key="parts")
        names = np.array([str(value).strip() for value in values.tolist()])
        if (names == "").any():
            message = f"the part of row {int((names == '').argmax())} is missing in column `{column}`"
            raise UserError(message, hint="The parts are train, valid and test.", key="parts")
        kept = {name: one for name, one in self.columns.items() if name != column}
        found: dict[str, MemoryFile] = {}
        parts = np.array([part_of(name) or name for name in names.tolist()])
        for part in dict.fromkeys(parts.tolist()):
            some = select(kept, np.flatnonzero(parts == part))
            contents = Contents(dict(some), self.contents.others, self.contents.units, self.contents.header)
            found[part] = MemoryFile(contents, part, _name_of(part))
        return found


def _name_of(part: str) -> str:
    return NAME if part == "train" else f"{NAME} of {part}"


def memory_files(data: Any, valid: Any = None, test: Any = None, parts: str = "") -> dict[str, MemoryFile]:
    """Tables in memory for each part of the data.

    data    training samples; parts without a table of their own are split off by the recipe
    parts   column of `data` with the part of each row (default: none)
    """
    whole = MemoryFile(data)
    found = whole.by_part(parts) if parts and whole.rows else {"train": whole}
    for part, table in (("valid", valid), ("test", test)):
        if table is None:
            continue
        if part in found:
            raise UserError(f"the part {part} is given twice: by `{part}` and by the column `{parts}`", key="parts")
        found[part] = MemoryFile(table, part, _name_of(part))
    for table in found.values():
        table.check_rows()
    if "train" not in found:
        raise UserError(f"no row has the part train in the column `{parts}`, only {', '.join(found)}", key="parts")
    return found


def is_text(column: Any) -> bool:
    """Whether a column holds strings."""
    if not isinstance(column, np.ndarray) or column.ndim != 1:
        return False
    return column.dtype.kind == "U" or (column.dtype.kind == "O" and all(isinstance(one, str) for one in column))


def describe(column: Array | Lists) -> str:
    """Describe the type of a column in words."""
    if isinstance(column, Lists):
        return f"lists of {column.values.dtype}"
    return f"{column.dtype} of shape {column.shape}"


def _bytes_of(array: Array) -> Iterator[bytes]:
    if array.dtype.kind != "O":
        yield str(array.dtype).encode() if array.dtype.kind != "U" else b""
        yield _text_bytes(array) if array.dtype.kind == "U" else np.ascontiguousarray(array).tobytes()
        return
    for one in array.tolist():
        if isinstance(one, np.ndarray):
            yield f"{one.shape} ".encode()
            yield from _bytes_of(one)
        else:
            text = str(one).encode("utf-8", "surrogatepass")
            yield f"{len(text)} ".encode() + text


def _text_bytes(array: Array) -> bytes:
    return "\0".join(array.ravel().tolist()).encode("utf-8", "surrogatepass") if array.size else b""


def is_in_memory(data: Mapping[str, str]) -> bool:
    """Whether the data of a run were tables in memory, from the fingerprint."""
    return any(name.startswith(MARK) for name in data)
