"""Tables of predicted tags: one row per word, or one row per entity.

sentence  line  word  tag      probability        sentence  line  type   entity    start  end  word_start  ...
       1     1  New   B-place         0.91               1     1  place  New York      0    8           0
       1     1  York  I-place         0.88
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ...data.columns import Array, Lists, Table
from ...data.token_labels import END, LINE, START
from ...metrics.text import spans

PREDICTED = {"truth": "truth", "tag": "tags", "probability": "probability"}  # column of a row -> prediction


def word_rows(predictions: Mapping[str, Any], table: Table) -> dict[str, Array | Lists]:
    """Columns of lists with words, lines, true and predicted tags, and probabilities."""
    listed, single = _divide(predictions)
    word = _word_column(listed)
    columns = {**({"word": word} if word else {}), **PREDICTED}
    made: dict[str, Array | Lists] = {**single}
    if isinstance(line := table.get(LINE), Lists):
        made[LINE] = line
    return made | {ours: _as_lists(listed[name]) for ours, name in columns.items() if name in listed}


def entity_rows(predictions: Mapping[str, Any], table: Table) -> dict[str, Array | Lists]:
    """Predicted entities in order, with their positions in the text.

    start, end             characters: text[start:end]
    word_start, word_end   words: words[word_start:word_end]
    probability            product of the probabilities of the tags
    """
    listed, single = _divide(predictions)
    words = listed.get(_word_column(listed))
    found = [(row, span) for row, tags in enumerate(listed["tags"]) for span in spans(tags.tolist())]
    rows = np.array([row for row, _ in found], np.int64)
    made: dict[str, Any] = {name: column[rows] for name, column in single.items()}
    if isinstance(line := table.get(LINE), Lists):
        first = line.lengths.cumsum() - line.lengths
        made[LINE] = line.values[np.array([first[row] + span.start for row, span in found], np.int64)]
    made["type"] = np.array([span.type for _, span in found], str)
    if words is not None:
        starts, ends = _character_ranges(words, table)
        texts = [
            _join(words[row][span.start : span.stop], starts[row][span.start :], ends[row][span.start :])
            for row, span in found
        ]
        made["entity"] = np.array(texts, str)
        made[START] = np.array([starts[row][span.start] for row, span in found], np.int64)
        made[END] = np.array([ends[row][span.stop - 1] for row, span in found], np.int64)
    made["word_start"] = np.array([span.start for _, span in found], np.int64)
    made["word_end"] = np.array([span.stop for _, span in found], np.int64)
    likely = (listed["probability"][row][span.start : span.stop] for row, span in found)
    made["probability"] = np.array([np.nanprod(one) for one in likely], np.float32)
    return made


def _divide(predictions: Mapping[str, Any]) -> tuple[dict[str, Array], dict[str, Array]]:
    """Columns with a list for each sample, and columns with a single value."""
    columns = {name: np.asarray(column) for name, column in predictions.items()}
    listed = {n: one for n, one in columns.items() if one.dtype == object and any(np.ndim(value) for value in one)}
    return listed, {name: column for name, column in columns.items() if name not in listed and column.ndim == 1}


def _word_column(listed: Mapping[str, Any]) -> str:
    return next((name for name in listed if name not in PREDICTED.values()), "")


def _as_lists(rows: Iterable[Array]) -> Lists:
    arrays = [np.asarray(row) for row in rows]
    return Lists(np.concatenate(arrays), np.array([len(row) for row in arrays], np.int64))


def _character_ranges(words: Array, table: Table) -> tuple[list[Array], list[Array]]:
    """Start and end of each word of each sample, counted in characters.

    If the table lacks these columns, the words are taken to be separated by one space.
    """
    if isinstance(start := table.get(START), Lists) and isinstance(end := table.get(END), Lists):
        cuts = start.lengths.cumsum()[:-1]
        return np.split(start.values, cuts), np.split(end.values, cuts)
    sizes = [np.array([len(word) for word in row], np.int64) for row in words]
    ends = [size.cumsum() + np.arange(len(size)) for size in sizes]
    return [stop - size for stop, size in zip(ends, sizes)], ends


def _join(words: Array, starts: Array, ends: Array) -> str:
    """Join words; each character between two words in the text becomes a space."""
    gaps = ["", *(" " * int(start - end) for start, end in zip(starts[1:], ends))]
    return "".join(gap + str(word) for gap, word in zip(gaps, words))
