"""Generated sentences in English and German in which a pronoun has to agree with a noun far away."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from ...simulate.pronouns import pronouns
from ..source import Chosen, Data, Memory, Source, Splits
from ..split import Split
from .parallel import Parallel


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

    def open(self, say: Any = None) -> Splits:
        """Write the sentences; it takes seconds."""
        table = pronouns(self.number, self.farthest, self.seed)
        rows = self.split.of_table(table, self.number)
        whole = Memory(table)
        name = f"pronouns up to {self.farthest} words away, {self.number} sentences, seed {self.seed}"
        return Splits({part: Chosen(whole, kept) for part, kept in rows.items()}, {"simulation": name})

    def read(self, files: Sequence[str | Path]) -> Source:
        """Sentences in files: English, and German after a tab where it is known."""
        return Parallel(kind="parallel", columns=["en", "de"]).read(files)
