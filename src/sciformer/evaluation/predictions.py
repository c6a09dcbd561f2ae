"""Table of the predictions of a model, written block by block.

    write_predictions(Run("runs/mine"), ["new.root"], Path("scores.parquet"))

Samples keep their order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.columns import Array, Lists, Samples, Table, rows_of, select
from ..data.profile import Comparison
from ..data.source import Source
from ..errors import UserError, one_of
from ..files.formats.base import as_text
from ..files.tables import TableOutput, create_table
from ..progress import ProgressBar
from ..tokens.protocols import Textual
from .blocks import ALL, Block, Inputs, Share

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

    Large data are read, predicted and written in pieces. Returns the number of rows.

    show           show a progress bar
    accept_drift   predict even if the scale of a column differs from the training data
    rows           unit of a row, from `Objective.row_units` (default: the first unit; a sample if there are no units)
    """
    objective = run.assembly.objective
    objective.check_predicts()
    if rows:
        if not objective.row_units:
            message = f"`objective.kind: {objective.kind}` writes a row per sample, so --rows {rows} cannot be used"
            raise UserError(message, key="--rows")
        one_of("--rows", rows, objective.row_units, key="--rows")
    watch = run.assembly.compare(accept_drift, scores=True)
    count = 0
    with create_table(out, overwrite) as file, ProgressBar(0, show=show) as bar:
        for table, predictions in predict_files(run, Inputs(run.assembly, files), watch, bar):
            add_block(file, run, table, predictions, rows)
            count += rows_of(table)
        if not count:
            named = ", ".join(map(str, files[:4])) + (" ..." if len(files) > 4 else "")
            raise UserError(f"there are no samples in {named}", file=files[0] if len(files) == 1 else None)
    return file.count


def predict_files(
    run: Run,
    inputs: Inputs,
    watch: Comparison | None,
    bar: ProgressBar,
    share: Share = ALL,
    notes: dict[int, list[str]] | None = None,
) -> Iterator[tuple[Table, dict[str, Any]]]:
    """Yield the samples and predictions of each block, in the order of the samples.

    watch   comparison with the training data
    bar     shows the progress and the notes on the data
    share   share of the blocks to predict (default: all)
    notes   collects the notes of the readers, by the index of the group of files
    """
    for number, group in enumerate(inputs.groups):
        if not share.touches(group, inputs.total):
            continue
        source, blocks = inputs.open(number)
        own, found = share.select(blocks, group, inputs.total), list(getattr(source, "notes", ()))
        for note in found:
            bar.log(f"note: {note}")
        if notes is not None:
            notes[number] = found
        expected = bar.done + sum(block.size for block in own)
        bar.update(bar.done, round(expected / share.covered(group, inputs.total)))
        yield from predict_blocks(run, source, own, watch, bar)


def predict_blocks(
    run: Run, source: Source, blocks: Sequence[Block], watch: Comparison | None, bar: ProgressBar
) -> Iterator[tuple[Table, dict[str, Any]]]:
    """Yield the samples and predictions of each block; log new notes of `watch`.

    Whole pieces are compared with the training data, because a block may be too small for a comparison.
    """
    piece = -1
    whole: Table = {}
    added: dict[str, Array] = {}
    for block in blocks:
        if block.piece != piece:
            piece, whole = block.piece, source.load(block.piece)
            told = 0 if watch is None else len(watch.notes)
            added = {} if watch is None else watch.compare_columns(whole)
            for note in [] if watch is None else watch.notes[told:]:
                bar.log(f"note: {note}")
        rows = slice(block.start, block.stop)
        table = whole if block.size == rows_of(whole) else select(whole, np.arange(block.start, block.stop))
        drift = {name: column[rows] for name, column in added.items()}
        yield table, run.predict(Samples(table), watch=lambda *_, drift=drift: drift)
        bar.add(block.size)


def add_block(
    file: TableOutput, run: Run, table: Table, predictions: Mapping[str, Any], unit: str = "", empty: bool = False
) -> None:
    """Add the predictions of a block of samples to a file.

    unit    unit of a row, from `Objective.row_units` (default: the first unit; a sample if there are no units)
    empty   add the column names, but no rows
    """
    objective = run.assembly.objective
    if unit := unit or next(iter(objective.row_units), ""):
        made = objective.as_rows(unit, predictions, table)
        file.add(select(made, np.arange(0)) if empty else made)
    else:
        made = _with_texts(run, table, predictions)
        add_predictions(
            file, {name: np.asarray(column)[: 0 if empty else None] for name, column in made.items()}, objective
        )


def _with_texts(run: Run, table: Table, predictions: Mapping[str, Any]) -> dict[str, Any]:
    """Add the texts of the samples to the predictions, with columns in table order."""
    tokens = [one for one in run.assembly.tokens.values() if isinstance(one, Textual)]
    texts = {name for one in tokens for name in one.source_columns if not isinstance(table.get(name), Lists)}
    own = {name: predictions.get(name, column) for name, column in table.items() if name in {*predictions, *texts}}
    return {**own, **predictions}


def add_predictions(file: TableOutput, predictions: Mapping[str, Any], objective: Any = None) -> None:
    """Add predictions to a file; tabular formats get one column for each number."""
    columns = {name: as_text(np.asarray(column)) for name, column in predictions.items()}
    if not columns:
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
            values = answers[name].reshape(len(answers[name]), math.prod(answers[name].shape[1:]))
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
