"""Tables of answers, written piece by piece: .csv, .npz, .parquet or .root.

    write_predictions(Run("runs/mine"), ["new.root"], Path("scores.parquet"))

Samples keep their order. A file is written under another name and renamed when it is complete.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from .answer_forms import FORMS, Form, branches
from .data.source import pieces, rows_of
from .errors import UserError
from .terminal import Meter, say
from .whole import check_name, make_folder

if TYPE_CHECKING:
    from .run import Run

__all__ = ["Sheet", "branches", "check_table", "flat", "titles", "write_answers", "write_predictions"]

Array = NDArray[Any]


def write_predictions(
    run: Run, files: Sequence[str | Path], out: Path, overwrite: bool = False, show: bool = False
) -> int:
    """Answers for files, and the columns of the samples beside them; returns the number of samples.

    Data that come in pieces are read, answered and written piece by piece.

    show    tell how far it is
    """
    source = run.assembly.source([Path(file) for file in files])
    for note in getattr(source, "notes", ()) if show else ():
        say(f"note: {note}")
    with Sheet(out, run.assembly.objective, overwrite) as sheet, Meter(sum(source.sizes), show) as meter:
        for table in pieces(source):
            sheet.add(run.predict(table))
            meter.add(rows_of(table))
        if not sheet.count:
            named = ", ".join(map(str, files[:4])) + (" ..." if len(files) > 4 else "")
            raise UserError(f"there are no samples in {named}", file=files[0] if len(files) == 1 else None)
    return sheet.count


def write_answers(path: Path, answers: Mapping[str, Any], objective: Any = None, overwrite: bool = False) -> int:
    """The same for answers that are at hand."""
    with Sheet(path, objective, overwrite) as sheet:
        sheet.add(answers)
    return sheet.count


def check_table(path: Path) -> None:
    """Refuse a name that is not that of a table, before the work of filling it, and say what is missing to write it."""
    check_name(path, list(FORMS))
    FORMS[path.suffix].check()


class Sheet:
    """A table that grows: `with Sheet(path) as sheet: sheet.add(answers)`; it is there when all of it is written."""

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
        listed = {name: np.asarray(_in_lines(column)) for name, column in answers.items()}
        whole = FORMS[self.path.suffix].whole
        columns = listed if whole else flat(listed, self.objective)
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
            raise self._refused(error) from error
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
                raise self._refused(trouble) from trouble
        finally:
            self.partial.unlink(missing_ok=True)

    def _refused(self, error: OSError) -> UserError:
        return UserError(
            f"{self.path} cannot be written: {error.strerror or error}",
            hint="Name another place with --out.",
            file=self.path,
        )


def flat(answers: Mapping[str, Array], objective: Any = None) -> dict[str, Array]:
    """Columns with one entry for each sample; an answer with several numbers has a column for each of them.

    A column of the samples that is called like an answer stays, under another name.
    """
    made: dict[str, Array] = {}
    wide = {name for name, column in answers.items() if column.ndim > 1}
    for name in sorted(answers, key=lambda name: name in wide or name == "class"):  # answers come last
        column = answers[name]
        values = column.reshape(len(column), -1)
        found = dict(zip(titles(name, values.shape[1], objective), values.T)) if name in wide else {name: column}
        for title, entries in found.items():
            if title in made:
                made[f"{title}_of_file"] = made.pop(title)
            made[title] = entries
    return made


def titles(name: str, width: int, objective: Any) -> list[str]:
    """Names for the columns of an answer with several numbers: those of classes or targets, where they are known."""
    if name == "quantiles" and hasattr(objective, "quantiles"):
        return [f"{target}_q{100 * level:g}" for target in objective.targets for level in objective.quantiles]
    scores = name == "probabilities"
    known = getattr(objective, "classes" if scores else "targets", None)
    known = range(width) if known is None or len(known) != width else known
    return [f"{'score' if scores else name}_{one}" for one in known]


def _in_lines(column: Any) -> Any:
    """A column of lists as texts, with blanks between what was in a list; others as they are."""
    listed = getattr(column, "dtype", None) is not None and column.dtype.kind == "O"
    if not listed or not any(hasattr(value, "tolist") for value in column[:1]):
        return column
    return [" ".join(map(str, value)) for value in column]
