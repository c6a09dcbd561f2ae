"""Texts of a table: how they are found in it, and how encoded ones become a stream."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..data.batch import Stream
from ..data.source import Lists, Table
from ..errors import UserError
from .vocabulary import Array, Encoded


def run_of(texts: list[Encoded], part: int) -> Stream:
    """Encoded texts end to end."""
    ids = [found for found, _ in texts]
    word = [np.full(len(found), -1, np.int32) if word is None else word for found, word in texts]
    lengths = np.array([len(found) for found in ids], np.int64)
    flat = {"ids": _flat(ids), "word": _flat(word), "part": np.full(int(lengths.sum()), part, np.int32)}
    return Stream(flat, lengths)


def joined(runs: list[Stream]) -> Stream:
    """The rows of all runs one after the other; words are counted on from run to run."""
    lengths = np.array([run.lengths for run in runs]).sum(0)
    place = lengths.cumsum() - lengths
    made = {name: np.empty(int(lengths.sum()), np.int32) for name in ("ids", "word", "part")}
    words = np.zeros(len(lengths), np.int32)
    for run in runs:
        index = place[run.sample] + run.position
        word = run.columns["word"]
        counted = np.where(word < 0, -1, word + words[run.sample])
        for name, column in {**run.columns, "word": counted}.items():
            made[name][index] = column
        np.maximum.at(words, run.sample, counted + 1)
        place = place + run.lengths
    return Stream(made, lengths)


def _flat(parts: list[Array]) -> Array:
    return np.concatenate(parts) if parts else np.zeros(0, np.int32)


def texts_of(table: Table, name: str) -> tuple[list[Any], bool]:
    """The texts of a column, and whether they are lists of words instead."""
    if name not in table:
        raise UserError(f"column `{name}` is missing; the columns are {', '.join(table)}")
    column = table[name]
    if not isinstance(column, Lists):
        return [str(text) for text in column], False
    words, stops = [str(word) for word in column.values], column.lengths.cumsum().tolist()
    return [words[stop - length : stop] for stop, length in zip(stops, column.lengths.tolist())], True
