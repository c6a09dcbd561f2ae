"""Predictions of a model as a table, written block by block.

    write_predictions(Run("runs/mine"), ["new.root"], Path("scores.parquet"))

Samples keep their order. They are predicted in blocks, which depend only on the files: so a sample has the same
predictions, bit for bit, however the blocks are shared out among processes (`cluster.shards`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..data.batch import Stream
from ..data.columns import Array, Table, rows_of, select
from ..data.profile import Comparison
from ..data.source import Source
from ..errors import UserError
from ..files.formats.base import as_text
from ..files.tables import TableOutput, create_table
from ..progress import ProgressBar
from ..tokens.protocols import Windowed

if TYPE_CHECKING:
    from ..run import Run

MIN_BLOCK, MAX_BLOCK = 16, 4096  # samples in a block, except for a piece with fewer samples
USUAL_BLOCKS = 256  # as many that 64 processes have nearly equal shares


class Block(NamedTuple):
    """Samples start .. stop - 1 of a piece of a source, which are predicted together."""

    piece: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        """Number of samples."""
        return self.stop - self.start


def write_predictions(
    run: Run,
    files: Sequence[str | Path],
    out: Path,
    overwrite: bool = False,
    show: bool = False,
    accept_drift: bool = False,
) -> int:
    """Write predictions for files, together with the columns of the samples.

    Large data are read, predicted and written in pieces. Returns the number of samples.

    show           show a progress bar
    accept_drift   predict even if the scale of a column differs from the training data
    """
    watch = run.assembly.compare(accept_drift, scores=True)
    source = run.assembly.source([Path(file) for file in files])
    with create_table(out, overwrite) as file, ProgressBar(sum(source.sizes), show=show) as bar:
        for note in getattr(source, "notes", ()):
            bar.log(f"note: {note}")
        for table, predictions in predict_blocks(run, source, divide(run, source), watch, bar):
            add_block(file, run, table, predictions)
        if not file.count:
            named = ", ".join(map(str, files[:4])) + (" ..." if len(files) > 4 else "")
            raise UserError(f"there are no samples in {named}", file=files[0] if len(files) == 1 else None)
    return file.count


def divide(run: Run, source: Source) -> list[Block]:
    """Divide the samples of a source into blocks, within its pieces."""
    size = min(MAX_BLOCK, max(MIN_BLOCK, sum(source.sizes) // USUAL_BLOCKS))
    tokens = run.assembly.tokens.values()
    if any(isinstance(one, Windowed) and one.concatenates for one in tokens):
        size = max([1, *source.sizes])  # the samples of a piece are one text
    made = []
    for piece, count in enumerate(source.sizes):
        ends = np.linspace(0, count, -(-count // size) + 1).astype(int).tolist()
        made += [Block(piece, start, stop) for start, stop in pairwise(ends)]
    return made


def predict_blocks(
    run: Run, source: Source, blocks: Sequence[Block], watch: Comparison | None, bar: ProgressBar
) -> Iterator[tuple[Table, dict[str, Any]]]:
    """Samples and predictions of each block; new notes of `watch` are logged.

    Whole pieces are compared with the training data, because blocks may be small.
    """
    piece, told = -1, 0
    whole: Table = {}
    added: dict[str, Array] = {}
    for block in blocks:
        if block.piece != piece:
            piece, whole = block.piece, source.load(block.piece)
            added = {} if watch is None else watch.compare_columns(whole)
        rows = slice(block.start, block.stop)
        table = whole if block.size == rows_of(whole) else select(whole, np.arange(block.start, block.stop))
        drift = {name: column[rows] for name, column in added.items()}
        yield table, run.predict(table, watch=partial(_add_columns, drift))
        notes = [] if watch is None else watch.notes
        for note in notes[told:]:
            bar.log(f"note: {note}")
        told = len(notes)
        bar.add(block.size)


def _add_columns(columns: dict[str, Array], table: Table, streams: Mapping[str, Stream]) -> dict[str, Array]:
    """Sample columns that were computed before (a function `watch` of `Dataset`)."""
    return columns


def add_block(
    file: TableOutput, run: Run, table: Table, predictions: Mapping[str, Any], rows: slice = slice(None)
) -> None:
    """Add the predictions of a block of samples to a file.

    rows   rows to add (default: all); none makes a table with the same columns and no rows
    """
    taken = {name: np.asarray(column)[rows] for name, column in predictions.items()}
    add_predictions(file, taken, run.assembly.objective)


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
