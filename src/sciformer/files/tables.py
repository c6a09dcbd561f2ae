"""Tables written to files by suffix, piece by piece, in place when complete.

    with create_table(Path("scores.parquet")) as file:
        file.add({"id": ids, "score": scores})

A full disk, an error or a kill leaves nothing under the name of the file, or the older file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ..data.columns import Array, Table, rows_of
from ..errors import UserError
from .atomic import atomic_write, check_name, check_new, make_folder
from .formats.base import TableWriter, all_formats, format_of
from .packages import require


def table_suffixes() -> list[str]:
    """The endings of files that tables can be written to, those of plugins among them."""
    return [one.suffixes[0] for one in all_formats() if one.writer is not None]


def check_table(path: Path, suffixes: Sequence[str] = (), overwrite: bool = True) -> type[TableWriter]:
    """Refuse a file that cannot be written, before the work; returns its writer.

    suffixes   the endings to accept (default: those of all formats that can be written)
    """
    check_name(path, suffixes or table_suffixes())
    check_new(path, overwrite)
    found = format_of(path)
    for name in found.packages:
        require(name, f"{found.name} files")
    assert found.writer is not None
    return found.writer


class TableOutput:
    """A table file in the making: tables of the same columns are added to it.

    count   rows so far
    about   arrays that describe the table as a whole, for formats with a place for them
    """

    def __init__(self, path: Path, writer: type[TableWriter]) -> None:
        self.path, self.writer, self.count = path, writer, 0
        self.about: dict[str, Array] = {}
        self.opened: TableWriter | None = None
        self._names: set[str] = set()

    @property
    def tabular(self) -> bool:
        """Whether readers of the format expect one value for each row and column."""
        return self.writer.tabular

    def add(self, table: Table) -> None:
        """Write the rows of a table."""
        self._names = self._names or set(table)
        if odd := sorted(self._names ^ set(table)):
            raise UserError(f"the column `{odd[0]}` is in some of the files only", hint="Ask for these files apart.")
        self.opened = self.opened or self.writer(self.path, table)
        if rows := rows_of(table):
            self.opened.add(table)
            self.count += rows


@contextmanager
def create_table(path: Path, overwrite: bool = False) -> Iterator[TableOutput]:
    """A table to write: `with create_table(path) as file: file.add(table)`."""
    writer = check_table(path, overwrite=overwrite)
    make_folder(path.parent)
    with atomic_write(path) as partial:
        file = TableOutput(partial, writer)
        try:
            yield file
            if file.opened is None:
                raise UserError(f"there are no rows to write to {path}", file=path)
            file.opened.close(file.about)
        except BaseException:
            with suppress(Exception):  # of a file that is given up
                if file.opened is not None:
                    file.opened.stop()
            raise


def write_table(path: Path, tables: Iterable[Table], overwrite: bool = False) -> int:
    """Write tables to a file; returns the number of their rows."""
    with create_table(path, overwrite) as file:
        for table in tables:
            file.add(table)
    return file.count
