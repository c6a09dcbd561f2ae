"""Labels of words or tokens, assigned to the tokens of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..errors import UserError
from .batch import Batch
from .columns import Array, Lists, Table

if TYPE_CHECKING:
    from ..tokens.base import Tokens

ITEMS = "items of"  # sample column: number of labels of the whole sample
# Columns of lists with the place of each word: its line, its first character, and the character after it.
LINE, START, END = "line", "start", "end"


def labelled(batch: Batch, name: str, table: Table, tokens: Tokens, labels: tuple[str, ...]) -> Batch:
    """Add label lists to the samples, and label indices to the tokens.

    The column `item` of the stream has the index of the label of each token, -1 for no label.
    """
    stream = batch.streams[name]
    wordy = "word" in stream.columns
    word = stream.columns.get("word", stream.position)
    first = ((np.diff(word, prepend=-2) != 0) | (stream.position == 0)) & (word >= 0)
    split = {key: column for key in tokens.source_columns if isinstance(column := table[key], Lists)}
    count = np.bincount(stream.sample[first], minlength=len(stream))
    if wordy and len(split) == 1:  # words without a token count too
        (count,) = (column.lengths for column in split.values())
    samples = {ITEMS: count, **{key: _split_lists(column) for key, column in split.items()}}
    for label in labels:
        listed = table.get(label)
        if listed is None:
            continue  # predictions need no labels
        if not isinstance(listed, Lists):
            raise UserError(f"column `{label}` must have a list of labels for each sample, not single values")
        if (listed.lengths != count).any():
            bad = int(np.argmax(listed.lengths != count))
            what = "words" if wordy else "tokens"
            message = f"column `{label}` has {listed.lengths[bad]} labels for the {count[bad]} {what} of sample {bad}"
            raise UserError(message, hint="" if wordy else "Labels of words need word or subword tokens.")
        samples[label] = _split_lists(listed)
    return batch.with_columns(stream.with_columns(item=np.where(first, word, -1)), name, **samples)


def _split_lists(column: Lists) -> Array:
    """Convert lists to an object array with one array per sample."""
    made, stops = np.empty(len(column), object), column.lengths.cumsum()
    for row, (stop, long) in enumerate(zip(stops, column.lengths)):
        made[row] = column.values[stop - long : stop]
    return made
