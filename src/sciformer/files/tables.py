"""Write tables to files, piece by piece; the suffix chooses the format.

    with create_table(Path("scores.parquet")) as file:
        file.add({"id": ids, "score": scores})

Writes are atomic: after a full disk, an error or a kill, the file is absent or has its previous content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ..data.columns import Array, Table, rows_of
from ..errors import UserError
from .atomic import atomic_write, check_name, check_new, check_writable
from .formats.base import TableWriter, all_formats, format_of
from .packages import require


def table_suffixes() -> list[str]:
    """Suffixes of all formats that can be written, including plugins."""
    return [one.suffixes[0] for one in all_formats() if one.writer is not None]


def check_table(path: Path, suffixes: Sequence[str] = (), overwrite: bool = True) -> type[TableWriter]:
    """Check in advance that a table can be written; return the writer class.

    suffixes   accepted suffixes (default: all formats that can be written)
    """
    check_name(path, suffixes or table_suffixes())
    check_new(path, overwrite)
    check_writable(path)
    found = format_of(path)
    for name in found.packages:
        require(name, f"{found.name} files")
    assert found.writer is not None
    return found.writer


class TableOutput:
    """Table file open for writing; `add` appends tables with the same columns.

    count   rows written
    about   arrays that describe the whole table, for formats that can store them
    """

    def __init__(self, path: Path, writer: type[TableWriter]) -> None:
        self.path, self.writer, self.count = path, writer, 0
        self.about: dict[str, Array] = {}
        self.opened: TableWriter | None = None
        self._names: set[str] = set()

    @property
    def tabular(self) -> bool:
        """Whether a cell of the format usually holds a single value."""
        return self.writer.tabular

    def add(self, table: Table) -> None:
        """Append the rows of a table."""
        self._names = self._names or set(table)
        if odd := sorted(self._names ^ set(table)):
            raise UserError(
                f"only some of the tables have the column `{odd[0]}`",
                hint="Process files with different columns separately.",
            )
        self.opened = self.opened or self.writer(self.path, table)
        if rows := rows_of(table):
            self.opened.add(table)
            self.count += rows


@contextmanager
def create_table(path: Path, overwrite: bool = False) -> Iterator[TableOutput]:
    """Open a table file to write: `with create_table(path) as file: file.add(table)`."""
    writer = check_table(path, overwrite=overwrite)
    with atomic_write(path) as partial:
        file = TableOutput(partial, writer)
        try:
            yield file
            if file.opened is None:
                raise UserError(f"there is no table to write to {path}", file=path)
            file.opened.close(file.about)
        except BaseException:
            with suppress(Exception):  # the file is discarded anyway
                if file.opened is not None:
                    file.opened.stop()
            raise


def write_table(path: Path, tables: Iterable[Table], overwrite: bool = False) -> int:
    """Write tables to a file; return the number of rows."""
    with create_table(path, overwrite) as file:
        for table in tables:
            file.add(table)
    return file.count
