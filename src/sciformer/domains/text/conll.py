"""CoNLL files: a word and its tags per line, an empty line after each sentence."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from ...data.columns import Lists, Table
from ...errors import UserError
from ...files.formats.base import Format, LineWriter


class CoNLLWriter(LineWriter):
    """Writer of CoNLL files: a line per word, with tab-separated tags.

    Only columns with lists of strings are written.
    """

    def __init__(self, path: Path, table: Table) -> None:
        if not self._lists(table):
            message = "a .conll file has a line per word, but these predictions have no lists of words"
            raise UserError(message, hint="Write .csv, .jsonl or .parquet.", key="--out")
        self.file = path.open("w", encoding="utf-8", newline="\n")

    def _lists(self, table: Table) -> list[Lists]:
        lists = [column for column in table.values() if isinstance(column, Lists)]
        return [column for column in lists if column.values.dtype.kind in "OU"]

    def add(self, table: Table) -> None:
        columns = self._lists(table)
        rows = zip(*(column.values for column in columns))
        for length in columns[0].lengths.tolist():
            for row in islice(rows, length):
                self.file.write("\t".join(" ".join(str(cell).split()) for cell in row) + "\n")
            self.file.write("\n")


CONLL = Format("CoNLL", (".conll",), writer=CoNLLWriter)
