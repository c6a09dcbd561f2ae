"""Predictions of a model as a table, written piece by piece.

    write_predictions(Run("runs/mine"), ["new.root"], Path("scores.parquet"))

Samples keep their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.columns import Array, Lists, Table, rows_of
from ..data.source import pieces
from ..errors import UserError, one_of
from ..files.formats.base import as_text
from ..files.tables import TableOutput, create_table
from ..progress import ProgressBar
from ..tokens.protocols import Textual

if TYPE_CHECKING:
    from ..run import Run


def write_predictions(
    run: Run,
    files: Sequence[str | Path],
    out: Path,
    overwrite: bool = False,
    show: bool = False,
    accept_drift: bool = False,
    rows: str = "",
) -> int:
    """Write predictions for files, together with the columns and texts of the samples.

    Large data are read, predicted and written in pieces. Returns the number of rows: samples, or those of `rows`.

    show           show a progress bar
    accept_drift   predict even if the scale of a column differs from the training data
    rows           unit of a row, one of `Objective.row_units` (default: the first of them, else a sample)
    """
    objective = run.assembly.objective
    objective.check_predicts()
    if rows and not objective.row_units:
        message = f"--rows {rows} cannot be used with `objective.kind: {objective.kind}`, which writes a row per sample"
        raise UserError(message, key="--rows")
    unit = rows or next(iter(objective.row_units), "")
    if rows:
        one_of("--rows", rows, objective.row_units, key="--rows")
    watch = run.assembly.compare(accept_drift, scores=True)
    told: list[str] = []
    count = 0
    source = run.assembly.source([Path(file) for file in files])
    with create_table(out, overwrite) as file, ProgressBar(sum(source.sizes), show=show) as bar:
        for note in getattr(source, "notes", ()):
            bar.log(f"note: {note}")
        for table in pieces(source):
            answers = run.predict(table, watch=watch)
            if unit and rows_of(table):
                file.add(objective.as_rows(unit, answers, table))
            elif not unit:
                add_predictions(file, _with_texts(run, table, answers), objective)
            count += rows_of(table)
            for note in [] if watch is None else watch.notes[len(told) :]:
                told.append(note)
                bar.log(f"note: {note}")
            bar.add(rows_of(table))
        if not count:
            named = ", ".join(map(str, files[:4])) + (" ..." if len(files) > 4 else "")
            raise UserError(f"there are no samples in {named}", file=files[0] if len(files) == 1 else None)
    return file.count


def _with_texts(run: Run, table: Table, predictions: Mapping[str, Any]) -> dict[str, Any]:
    """Add the texts of the samples to the predictions, in the order of the table."""
    tokens = [one for one in run.assembly.tokens.values() if isinstance(one, Textual)]
    texts = {name for one in tokens for name in one.source_columns if not isinstance(table.get(name), Lists)}
    own = {name: predictions.get(name, column) for name, column in table.items() if name in {*predictions, *texts}}
    return {**own, **predictions}


def add_predictions(file: TableOutput, predictions: Mapping[str, Any], objective: Any = None) -> None:
    """Add predictions to a file; tabular formats get one column for each number."""
    columns = {name: as_text(np.asarray(column)) for name, column in predictions.items()}
    if not rows_of(columns):
        return
    classes = getattr(objective, "classes", None)
    if file.tabular:
        columns = flatten_columns(columns, objective)
    elif "probabilities" in columns and classes is not None and "classes" not in columns:
        file.about["classes"] = np.array(classes)  # in the order of the probabilities
    file.add(columns)


def flatten_columns(answers: Mapping[str, Array], objective: Any = None) -> dict[str, Array]:
    """Split arrays into one column per number, with predictions last.

    A sample column with the same name as a prediction is renamed to `<name>_of_file`.
    """
    made: dict[str, Array] = {}
    wide = {name for name, column in answers.items() if column.ndim > 1}
    for name in sorted(answers, key=lambda name: name in wide or name == "class"):  # predictions come last
        found = {name: answers[name]}
        if name in wide:
            values = answers[name].reshape(len(answers[name]), -1)
            if name == "probabilities" and values.dtype == np.float64:
                values = values.astype(np.float32)  # the precision of the model
            found = dict(zip(column_titles(name, values.shape[1], objective), values.T))
        for title, entries in found.items():
            if title in made:
                made[f"{title}_of_file"] = made.pop(title)
            made[title] = entries
    return made


def column_titles(name: str, width: int, objective: Any) -> list[str]:
    """Column names of an array of `width` columns, from classes or targets if known."""
    if name == "quantiles" and hasattr(objective, "quantiles"):
        return [f"{target}_q{100 * level:g}" for target in objective.targets for level in objective.quantiles]
    scores = name == "probabilities"
    known = getattr(objective, "classes" if scores else "targets", None)
    known = range(width) if known is None or len(known) != width else known
    return [f"{'score' if scores else name}_{one}" for one in known]
