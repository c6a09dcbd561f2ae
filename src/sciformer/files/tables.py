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
from .formats.base import TablePart, TableWriter, all_formats, format_of
from .packages import require


def table_suffixes() -> list[str]:
    """Suffixes of all writable formats, including plugins."""
    return [one.suffixes[0] for one in all_formats() if one.writer is not None]


def check_table(path: Path, suffixes: Sequence[str] = (), overwrite: bool = True) -> type[TableWriter]:
    """Check an output table in advance; return the writer class.

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

    columns   names of the columns
    rows      rows of each call of `add`
    about     arrays that describe the whole table, for formats that can store them
    """

    def __init__(self, path: Path, writer: type[TableWriter]) -> None:
        self.path, self.writer = path, writer
        self.columns: list[str] = []
        self.rows: list[int] = []
        self.about: dict[str, Array] = {}
        self.opened: TableWriter | None = None

    @property
    def count(self) -> int:
        """Number of rows written."""
        return sum(self.rows)

    @property
    def tabular(self) -> bool:
        """Whether the format usually has a single value in each cell."""
        return self.writer.tabular

    def add(self, table: Table) -> None:
        """Append the rows of a table."""
        self.columns = self.columns or list(table)
        if odd := sorted({*self.columns} ^ {*table}):
            raise UserError(
                f"only some of the tables have the column `{odd[0]}`",
                hint="Process files with different columns separately.",
            )
        self.opened = self.opened or self.writer(self.path, table)
        if rows := rows_of(table):
            self.opened.add(table)
            self.rows.append(rows)


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
            with suppress(Exception):  # the partial file is removed in any case
                if file.opened is not None:
                    file.opened.stop()
            raise


def merge_tables(path: Path, parts: Sequence[TablePart], overwrite: bool = False) -> int:
    """Merge files of one format; return the number of rows.

    The file has the same bytes as if one process had added all rows (except the times and the id in a ROOT file).
    """
    writer = check_table(path, (parts[0].path.suffix,), overwrite)
    with atomic_write(path) as partial:
        writer.merge(partial, parts)
    return sum(sum(part.rows) for part in parts)


def write_table(path: Path, tables: Iterable[Table], overwrite: bool = False) -> int:
    """Write tables to a file; return the number of rows."""
    with create_table(path, overwrite) as file:
        for table in tables:
            file.add(table)
    return file.count
