"""Tables of answers, written piece by piece: .csv, .npz, .parquet or .root.

    write_predictions(Run("runs/mine"), ["new.root"], Path("scores.parquet"))

Samples keep their order. A file is written under another name and renamed when it is complete.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..cli.terminal import ProgressMeter, log
from ..data.columns import Array, rows_of
from ..data.source import pieces
from ..errors import UserError
from ..files.atomic import check_name, make_folder
from ..files.packages import package

if TYPE_CHECKING:
    from ..run import Run


__all__ = [
    "PredictionTable",
    "branch_names",
    "check_table",
    "column_titles",
    "flatten_columns",
    "write_answers",
    "write_predictions",
]


def write_predictions(
    run: Run, files: Sequence[str | Path], out: Path, overwrite: bool = False, show: bool = False
) -> int:
    """Answers for files, and the columns of the samples beside them; returns the number of samples.

    Data that come in pieces are read, answered and written piece by piece.

    show    tell how far it is
    """
    source = run.assembly.source([Path(file) for file in files])
    for note in getattr(source, "notes", ()) if show else ():
        log(f"note: {note}")
    with (
        PredictionTable(out, run.assembly.objective, overwrite) as predictions,
        ProgressMeter(sum(source.sizes), show) as meter,
    ):
        for table in pieces(source):
            predictions.add(run.predict(table))
            meter.add(rows_of(table))
        if not predictions.count:
            named = ", ".join(map(str, files[:4])) + (" ..." if len(files) > 4 else "")
            raise UserError(f"there are no samples in {named}", file=files[0] if len(files) == 1 else None)
    return predictions.count


def write_answers(path: Path, answers: Mapping[str, Any], objective: Any = None, overwrite: bool = False) -> int:
    """The same for answers that are at hand."""
    with PredictionTable(path, objective, overwrite) as predictions:
        predictions.add(answers)
    return predictions.count


def check_table(path: Path) -> None:
    """Refuse a name that is not that of a table, before the work of filling it, and say what is missing to write it."""
    check_name(path, list(FORMS))
    FORMS[path.suffix].check()


class PredictionTable:
    """A table that grows: `with PredictionTable(path) as table: table.add(answers)`; it is there
    when all of it is written."""

    def __init__(self, path: Path, objective: Any = None, overwrite: bool = False) -> None:
        check_table(path)
        if path.exists() and not overwrite:
            raise UserError(
                f"{path} exists already",
                hint="Name another file with --out, or replace it with --overwrite.",
                file=path,
            )
        make_folder(path.parent)
        self.path, self.objective, self.count = path, objective, 0
        self.partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        self.form: Form | None = None
        self.names: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def add(self, answers: Mapping[str, Any]) -> None:
        """More samples."""
        if not answers or not len(next(iter(answers.values()))):
            return
        listed = {name: np.asarray(_lists_as_text(column)) for name, column in answers.items()}
        whole = FORMS[self.path.suffix].whole
        columns = listed if whole else flatten_columns(listed, self.objective)
        self.names = self.names or set(columns)
        if odd := sorted(self.names ^ set(columns)):
            raise UserError(
                f"the column `{odd[0]}` is in some of the files only",
                hint="Ask for these files apart.",
            )
        try:
            if self.form is None:
                self.form = FORMS[self.path.suffix](self.partial, columns)
                self.form.about = self._about(columns)
            self.form.add(columns)
        except OSError as error:
            raise self._write_error(error) from error
        self.count += len(next(iter(listed.values())))

    def _about(self, columns: Mapping[str, Array]) -> dict[str, Array]:
        """The names of the classes, in the order of their probabilities."""
        known = getattr(self.objective, "classes", None) if "probabilities" in columns else None
        return {} if known is None or "classes" in columns else {"classes": np.array(known)}

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if self.form is not None:
                self.form.close()
                if kind is None:
                    self.partial.replace(self.path)
        except OSError as trouble:
            if kind is None:
                raise self._write_error(trouble) from trouble
        finally:
            self.partial.unlink(missing_ok=True)

    def _write_error(self, error: OSError) -> UserError:
        return UserError(
            f"{self.path} cannot be written: {error.strerror or error}",
            hint="Name another place with --out.",
            file=self.path,
        )


def flatten_columns(answers: Mapping[str, Array], objective: Any = None) -> dict[str, Array]:
    """Columns with one entry for each sample; an answer with several numbers has a column for each of them.

    A column of the samples that is called like an answer stays, under another name.
    """
    made: dict[str, Array] = {}
    wide = {name for name, column in answers.items() if column.ndim > 1}
    for name in sorted(answers, key=lambda name: name in wide or name == "class"):  # answers come last
        column = answers[name]
        values = column.reshape(len(column), -1)
        titles = column_titles(name, values.shape[1], objective) if name in wide else []
        found = dict(zip(titles, values.T)) if name in wide else {name: column}
        for title, entries in found.items():
            if title in made:
                made[f"{title}_of_file"] = made.pop(title)
            made[title] = entries
    return made


def column_titles(name: str, width: int, objective: Any) -> list[str]:
    """Names for the columns of an answer with several numbers: those of classes or targets, where they are known."""
    if name == "quantiles" and hasattr(objective, "quantiles"):
        return [f"{target}_q{100 * level:g}" for target in objective.targets for level in objective.quantiles]
    scores = name == "probabilities"
    known = getattr(objective, "classes" if scores else "targets", None)
    known = range(width) if known is None or len(known) != width else known
    return [f"{'score' if scores else name}_{one}" for one in known]


def _lists_as_text(column: Any) -> Any:
    """A column of lists as texts, with blanks between what was in a list; others as they are."""
    listed = getattr(column, "dtype", None) is not None and column.dtype.kind == "O"
    if not listed or not any(hasattr(value, "tolist") for value in column[:1]):
        return column
    return [" ".join(map(str, value)) for value in column]


# Forms of tables of answers, one class for each: CSV, NPZ, Parquet, ROOT


TREE_NAME = "tree"


class Form:
    """How a table is written: opened for columns like the first ones, then rows are added."""

    whole = False
    """Whether columns may have more than one number for a sample."""
    about: Mapping[str, Array] = {}
    """What is said of the table as a whole, where a form has a place for it."""

    def __init__(self, path: Path, columns: Mapping[str, Array]) -> None:
        raise NotImplementedError

    @staticmethod
    def check() -> None:
        """Refuse where a package is missing."""

    def add(self, columns: Mapping[str, Array]) -> None:
        """More rows."""

    def close(self) -> None:
        """Finish the file."""


class _Csv(Form):
    def __init__(self, path: Path, columns: Mapping[str, Array]) -> None:
        self.file = path.open("w", newline="", encoding="utf-8")
        self.writer, self.names = csv.writer(self.file), list(columns)
        self.writer.writerow(self.names)

    def add(self, columns: Mapping[str, Array]) -> None:
        self.writer.writerows(zip(*(columns[name].tolist() for name in self.names)))

    def close(self) -> None:
        self.file.close()


class _Npz(Form):
    """The arrays as they are; they are kept in memory until all are there."""

    whole = True

    def __init__(self, path: Path, columns: Mapping[str, Array]) -> None:
        self.file = path.open("wb")
        self.parts: dict[str, list[Array]] = {name: [] for name in columns}

    def add(self, columns: Mapping[str, Array]) -> None:
        for name, parts in self.parts.items():
            parts.append(np.asarray(columns[name]))

    def close(self) -> None:
        with self.file:
            joined = {name: np.concatenate(parts) for name, parts in self.parts.items()}
            columns = {name: _to_text(value) for name, value in joined.items()}
            np.savez_compressed(self.file, allow_pickle=False, **columns, **self.about)


class _Parquet(Form):
    def __init__(self, path: Path, columns: Mapping[str, Array]) -> None:
        self.arrow, parquet = _arrow()
        self.schema = self._table(columns, None).schema
        self.writer = parquet.ParquetWriter(path, self.schema)

    @staticmethod
    def check() -> None:
        """Pyarrow."""
        _arrow()

    def add(self, columns: Mapping[str, Array]) -> None:
        self.writer.write_table(self._table(columns, self.schema))

    def _table(self, columns: Mapping[str, Array], schema: Any) -> Any:
        made = {name: self.arrow.array(_to_plain(name, column)) for name, column in columns.items()}
        table = self.arrow.table(made)
        return table if schema is None else table.select(schema.names).cast(schema)

    def close(self) -> None:
        self.writer.close()


class _Root(Form):
    """A TTree; names have letters, digits and underscores alone."""

    def __init__(self, path: Path, columns: Mapping[str, Array]) -> None:
        uproot, self.awkward = _uproot()
        self.names = branch_names(columns)
        made = {self.names[name]: _to_plain(name, column) for name, column in columns.items()}
        self.types = {name: "string" if column.dtype.kind in "OU" else column.dtype for name, column in made.items()}
        self.handle = path.open("wb+")
        self.file = uproot.recreate(self.handle)
        self.tree = self.file.mktree(TREE_NAME, self.types)

    @staticmethod
    def check() -> None:
        """Uproot."""
        _uproot()

    def add(self, columns: Mapping[str, Array]) -> None:
        rows = {}
        for name, branch in self.names.items():
            column, kind = _to_plain(name, columns[name]), self.types[branch]
            rows[branch] = self.awkward.Array(column.tolist()) if isinstance(kind, str) else column.astype(kind)
        self.tree.extend(rows)

    def close(self) -> None:
        self.file.close()
        self.handle.close()


FORMS: dict[str, type[Form]] = {".csv": _Csv, ".npz": _Npz, ".parquet": _Parquet, ".root": _Root}


def branch_names(names: Mapping[str, Any]) -> dict[str, str]:
    """Names that a branch may have, no two alike."""
    made: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"\W", "_", name, flags=re.ASCII)
        plain = f"_{plain}" if not plain or plain[0].isdigit() else plain
        again = sum(plain == other or other.startswith(f"{plain}__") for other in made.values())
        made[name] = f"{plain}__{again + 1}" if again else plain
    return made


def _to_plain(name: str, column: Array) -> Array:
    """A column of numbers or of texts; scores in single precision, as the model gave them."""
    if column.dtype.kind in "OUS":
        return np.array([_to_word(value) for value in column.tolist()], object)
    return column.astype(np.float32) if name.startswith("score_") and column.dtype == np.float64 else column


def _to_word(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _to_text(column: Array) -> Array:
    return column.astype(str) if column.dtype.kind == "O" else column


def _arrow() -> tuple[Any, Any]:
    def load() -> tuple[Any, Any]:
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet  # type: ignore[import-untyped]

        return pyarrow, pyarrow.parquet

    found: tuple[Any, Any] = package(load, "pyarrow", "Parquet")
    return found


def _uproot() -> tuple[Any, Any]:
    def load() -> tuple[Any, Any]:
        import awkward  # type: ignore[import-untyped]
        import uproot  # type: ignore[import-untyped]

        return uproot, awkward

    found: tuple[Any, Any] = package(load, "uproot", "ROOT")
    return found
