"""Simulated sequences with something to remember in them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from ...simulate.recall import recall
from ..source import Chosen, Data, Memory, Source, Splits
from ..split import Split
from .text import TextFiles


class Recall(Data):
    """Sequences of a value, noise and `?` (column `text`), with the `value` to be recalled and the `lag` in between."""

    lag: int = Field(default=32, ge=0)
    """Symbols of noise between the value and the question."""
    symbols: int = Field(default=8, ge=2, le=26)
    """Different values, A B C ..., and as many kinds of noise, a b c ...; chance is one in so many."""
    number: int = Field(default=20_000, ge=3)
    """Sequences in all."""
    seed: int = 0
    """Of the simulation."""
    split: Split = Split(valid=0.05, test=0.1)
    """Shares kept apart."""

    def open(self, say: Any = None) -> Splits:
        """Simulate; it takes no time worth keeping the result for."""
        table = recall(self.lag, self.symbols, self.number, self.seed)
        rows = self.split.of_table(table, self.number)
        whole = Memory(table)
        name = f"recall of {self.symbols} symbols after {self.lag}, {self.number} sequences, seed {self.seed}"
        return Splits({part: Chosen(whole, kept) for part, kept in rows.items()}, {"simulation": name})

    def read(self, files: Sequence[str | Path]) -> Source:
        """Lines of text files."""
        return TextFiles(kind="text", documents="line").read(files)
