"""Copying memory: recall one symbol after a long sequence of noise.

    Cfaahbe...gd?        the value, `lag` symbols of noise, the question

The noise is independent of the value. A model without any memory of the value is right with probability 1 / `symbols`.
The task is the long time lag problem of Hochreiter and Schmidhuber (1997) and the copying memory task of arXiv
1511.06464 with one symbol.
"""

from __future__ import annotations

import string
from typing import ClassVar

import numpy as np
from pydantic import Field

from ....data.columns import Table
from ....data.readers.simulation import SimulatedTable
from ....data.readers.text_parts import strings
from ....data.source import Data
from ....data.split import Split
from ..readers.running import TextFiles

QUESTION = "?"


class Recall(SimulatedTable):
    """Sequences of a value, noise and `?`: columns `text`, `value` and `lag`."""

    noun: ClassVar[str] = "sequences"
    suffixes: ClassVar[tuple[str, ...]] = (".npz",)

    lag: int = Field(default=32, ge=0, le=1 << 20)
    """Number of noise symbols between value and question (default: 32)."""
    symbols: int = Field(default=8, ge=2, le=26)
    """Number of different values (A, B, C, ...), equal to the number of noise symbols (a, b, c, ...) (default: 8)."""
    number: int = Field(default=20_000, ge=3, le=10**10)
    """Number of sequences (default: 20,000)."""
    split: Split = Split(valid=0.05, test=0.1)
    """Fractions for validation and test (default: 0.05 and 0.1)."""

    def make(self) -> Table:
        """Simulate all sequences; each has lag + 2 characters."""
        drawn = np.random.default_rng(self.seed).integers(self.symbols, size=(self.number, self.lag + 1))
        value = np.array(list(string.ascii_uppercase))[drawn[:, 0]]
        rows = np.empty((self.number, self.lag + 2), "U1")
        rows[:, 0], rows[:, -1] = value, QUESTION
        rows[:, 1:-1] = np.array(list(string.ascii_lowercase))[drawn[:, 1:]]
        text = strings(rows.view(f"U{self.lag + 2}")[:, 0].tolist())
        return {"text": text, "value": value, "lag": np.full(self.number, self.lag)}

    def describe(self) -> str:
        return f"recall of {self.symbols} symbols after {self.lag}, {self.number} sequences, seed {self.seed}"

    def file_reader(self) -> Data:
        return TextFiles(kind="text", documents="line")
