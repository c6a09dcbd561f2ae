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


def labelled(batch: Batch, name: str, table: Table, tokens: Tokens, labels: tuple[str, ...]) -> Batch:
    """Whole samples with their lists of labels, and tokens of the named stream that know which of them is theirs."""
    stream = batch.streams[name]
    wordy = "word" in stream.columns
    word = stream.columns.get("word", stream.position)
    first = ((np.diff(word, prepend=-2) != 0) | (stream.position == 0)) & (word >= 0)
    split = {key: column for key in tokens.source_columns if isinstance(column := table[key], Lists)}
    count = np.bincount(stream.sample[first], minlength=len(stream))
    if wordy and len(split) == 1:  # words that make no token count too
        (count,) = (column.lengths for column in split.values())
    samples = {ITEMS: count, **{key: _apart(column) for key, column in split.items()}}
    for label in labels:
        listed = table.get(label)
        if listed is None:
            continue  # who predicts need not know
        if not isinstance(listed, Lists):
            raise UserError(f"column `{label}` must have a list of labels for each sample, not single values")
        if (listed.lengths != count).any():
            bad = int(np.argmax(listed.lengths != count))
            what = "words" if wordy else "tokens"
            raise UserError(
                f"column `{label}` has {listed.lengths[bad]} labels for the {count[bad]} {what} of sample {bad}",
                hint="" if wordy else "Labels of words need tokens that are words or parts of words.",
            )
        samples[label] = _apart(listed)
    return batch.with_columns(stream.with_columns(item=np.where(first, word, -1)), name, **samples)


def _apart(column: Lists) -> Array:
    """Lists one by one, in an array of objects."""
    made, stops = np.empty(len(column), object), column.lengths.cumsum()
    for row, (stop, long) in enumerate(zip(stops, column.lengths)):
        made[row] = column.values[stop - long : stop]
    return made
