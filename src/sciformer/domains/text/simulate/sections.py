"""Simulated sequences with something to remember in them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from ....data.source import Chosen, Data, Memory, Source, Splits
from ....data.split import Split
from ..readers.pairs import Parallel
from ..readers.running import TextFiles
from .pronouns import pronouns
from .recall import recall


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

    def open(self, log: Any = None) -> Splits:
        """Simulate; it takes no time worth keeping the result for."""
        table = recall(self.lag, self.symbols, self.number, self.seed)
        rows = self.split.of_table(table, self.number)
        whole = Memory(table)
        name = f"recall of {self.symbols} symbols after {self.lag}, {self.number} sequences, seed {self.seed}"
        return Splits({part: Chosen(whole, kept) for part, kept in rows.items()}, {"simulation": name})

    def read(self, files: Sequence[str | Path]) -> Source:
        """Lines of text files."""
        return TextFiles(kind="text", documents="line").read(files)


# Generated sentences in English and German in which a pronoun has to agree with a noun far away


class Pronouns(Data):
    """Pairs of sentences (`en`, `de`) with the `distance` of noun and pronoun in words, `pronoun`, `place` and `noun`.

    A test sentence has a pair of nouns, the one that counts and the one nearest to the pronoun, that no training
    sentence has.
    """

    number: int = Field(default=20_000, ge=3)
    """Pairs of sentences in all."""
    farthest: int = Field(default=39, ge=0)
    """Most words between the noun and the pronoun."""
    seed: int = 0
    """Of the grammar's choices."""
    split: Split = Split(valid=0.05, test=0.15, by="pair")
    """Shares kept apart, by pairs of nouns."""

    def open(self, log: Any = None) -> Splits:
        """Write the sentences; it takes seconds."""
        table = pronouns(self.number, self.farthest, self.seed)
        rows = self.split.of_table(table, self.number)
        whole = Memory(table)
        name = f"pronouns up to {self.farthest} words away, {self.number} sentences, seed {self.seed}"
        return Splits({part: Chosen(whole, kept) for part, kept in rows.items()}, {"simulation": name})

    def read(self, files: Sequence[str | Path]) -> Source:
        """Sentences in files: English, and German after a tab where it is known."""
        return Parallel(kind="parallel", columns=["en", "de"]).read(files)
