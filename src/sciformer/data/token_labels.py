"""Labels of words or tokens: which token has which label."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..errors import UserError
from .batch import Batch
from .columns import Array, Lists, Table

if TYPE_CHECKING:
    from ..tokens.base import Tokens

ITEMS = "items of"  # the column of samples that says how many labels a whole sample has


def labelled(batch: Batch, table: Table, tokens: Tokens, labels: tuple[str, ...]) -> Batch:
    """Whole samples with their lists of labels, and tokens that know which of them is theirs."""
    stream, wordy = batch.stream, "word" in batch.stream.columns
    word = stream.columns.get("word", stream.position)
    first = ((np.diff(word, prepend=-2) != 0) | (stream.position == 0)) & (word >= 0)
    split = {name: column for name in tokens.source_columns if isinstance(column := table[name], Lists)}
    count = np.bincount(stream.sample[first], minlength=len(stream))
    if wordy and len(split) == 1:  # words that make no token count too
        (count,) = (column.lengths for column in split.values())
    samples = {ITEMS: count, **{name: _apart(column) for name, column in split.items()}}
    for name in labels:
        listed = table.get(name)
        if listed is None:
            continue  # who predicts need not know
        if not isinstance(listed, Lists):
            raise UserError(f"column `{name}` must have a list of labels for each sample, not single values")
        if (listed.lengths != count).any():
            bad = int(np.argmax(listed.lengths != count))
            what = "words" if wordy else "tokens"
            raise UserError(
                f"column `{name}` has {listed.lengths[bad]} labels for the {count[bad]} {what} of sample {bad}",
                hint="" if wordy else "Labels of words need tokens that are words or parts of words.",
            )
        samples[name] = _apart(listed)
    return batch.with_columns(stream.with_columns(item=np.where(first, word, -1)), **samples)


def _apart(column: Lists) -> Array:
    """Lists one by one, in an array of objects."""
    made, stops = np.empty(len(column), object), column.lengths.cumsum()
    for row, (stop, long) in enumerate(zip(stops, column.lengths)):
        made[row] = column.values[stop - long : stop]
    return made
