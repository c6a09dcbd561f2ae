"""Text: a token is a character or a byte; where it stands in the line is where it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

import numpy as np
from matplotlib.axes import Axes
from pydantic import Field
from torch import Tensor, nn

from ..data.batch import Batch, Stream
from ..data.chance import Chance
from ..data.source import Lists, Table
from ..errors import UserError
from ..nn.losses import IGNORED, linear_cross_entropy, total_cross_entropy
from .base import Array, Columns, Readout, Tokens

CHUNK = 16384  # tokens whose logits are held at once, where a vocabulary is large
UNKNOWN, MASK = "\ufffd", "\ufffc"  # the characters Unicode has for «unreadable» and «something stands here»


class Text(Tokens):
    """Characters or bytes of running text."""

    reads: ClassVar[tuple[str, ...]] = ("text",)
    hides: ClassVar[tuple[str, ...]] = ("ids",)
    stand_in: ClassVar[bool] = False

    unit: Literal["characters", "bytes"] = "characters"
    """What a token is. Characters: those of the training text, learned; bytes: all 256 of UTF-8."""
    context: int = Field(default=256, ge=1)
    """The most tokens the model sees at once; text is cut into windows of that length."""
    step: int | None = Field(default=None, ge=1)
    """How many tokens apart the windows of the training begin; 1 (anywhere) unless given, end to end in large texts."""
    tie: bool = True
    """Use the embedding also as the last layer."""
    vocabulary: int | None = Field(default=None, ge=1)
    """Pad the vocabulary to this many tokens (a multiple of 64 is fast on a GPU)."""

    def fit(self, tables: Iterable[Table]) -> None:
        """Learn which characters there are."""
        if self.unit == "bytes":
            return
        seen: set[str] = set()
        for table in tables:
            for text in _texts(table):
                seen |= set(text)
        seen -= {UNKNOWN, MASK}
        if not seen:
            raise UserError("some text to train on", "none")
        self.state["characters"] = "".join(sorted(seen))

    @property
    def size(self) -> int:
        """The number of different tokens, with one for unknown and one for hidden."""
        if self.vocabulary is not None and self.vocabulary < self.known + 2:
            raise UserError(f"tokens.vocabulary of {self.known + 2} or more, for the text's own", f"{self.vocabulary}")
        return self.vocabulary or self.known + 2

    @property
    def known(self) -> int:
        """The number of tokens that stand for text; those after it are the unknown one, the hidden one and padding."""
        return 256 if self.unit == "bytes" else len(self._characters)

    @property
    def mask(self) -> int:
        """The id of a hidden token."""
        return self.known + 1

    @property
    def _characters(self) -> str:
        if "characters" not in self.state:
            raise UserError("tokens that were fitted on a text", "no vocabulary yet", "Call fit, or load a run.")
        return str(self.state["characters"])

    @property
    def window(self) -> int:
        """The context."""
        return self.context

    @property
    def stride(self) -> int | None:
        """How far apart windows begin."""
        return self.step

    def encode(self, text: str) -> Array:
        """The ids of a text; a character that was never seen becomes the unknown one."""
        if self.unit == "bytes":
            return np.frombuffer(text.encode(), np.uint8).astype(np.int32)
        points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        known = np.array([ord(character) for character in self._characters], np.uint32)
        place = np.searchsorted(known, points)
        seen = np.append(known, np.uint32(0xFFFFFFFF))[place] == points  # no character has that number
        return np.where(seen, place, len(known)).astype(np.int32)

    def decode(self, ids: Any) -> str:
        """The text of ids."""
        ids = np.asarray(ids).reshape(-1)
        if self.unit == "bytes":
            return bytes(ids[ids < 256].astype(np.uint8)).decode(errors="replace")
        letters = self._characters
        extra = {len(letters): UNKNOWN, len(letters) + 1: MASK}
        return "".join(letters[i] if i < len(letters) else extra.get(int(i), "") for i in ids)

    def tokenize(self, table: Table) -> Stream:
        """Column `ids`: one for each character or byte."""
        ids = [self.encode(text) for text in _texts(table)]
        lengths = np.array([len(part) for part in ids], np.int64)
        return Stream({"ids": np.concatenate(ids) if ids else np.zeros(0, np.int32)}, lengths)

    def embedding(self, dim: int) -> nn.Module:
        """A learned vector for each token."""
        return TextEmbedding(self.size, dim)

    def readout(self, dim: int, embedding: nn.Module) -> Readout:
        """Probabilities of tokens: softmax(W h), where W may be the embedding."""
        return TextReadout(self.size, dim, embedding if self.tie else None)

    def blank(self, stream: Stream, tokens: Array) -> dict[str, Array]:
        """The hidden token has an id of its own."""
        return {"ids": np.where(tokens, self.mask, stream.columns["ids"])}

    def noise(self, stream: Stream, tokens: Array, chance: Chance) -> dict[str, Array]:
        """Random tokens."""
        random = chance.integers("noise", self.known, stream.lengths).astype(np.int32)
        return {"ids": np.where(tokens, random, stream.columns["ids"])}

    def words(self, stream: Stream) -> list[str]:
        """The characters, with blanks made visible."""
        shown = {" ": "␣", "\n": "⏎", "\t": "⇥"}
        return [shown.get(word, word) for word in (self.decode([i]) for i in stream.columns["ids"])]

    def draw(self, sample: Batch, weights: Array | None, axes: Axes) -> None:
        """The text in lines of 64, each character on a ground as dark as its weight."""
        stream = sample.stream
        words, across = self.words(stream), 64
        shade = np.zeros(len(words)) if weights is None else np.asarray(weights, np.float64)
        shade = shade / max(float(shade.max(initial=0)), 1e-12)
        axes.set_axis_off()
        lines = -(-len(words) // across)
        axes.set_xlim(0, max(1, min(across, len(words))))
        axes.set_ylim(max(1, lines), 0)
        for i, word in enumerate(words):
            x, y = i % across, i // across
            axes.add_patch(_square(x, y, shade[i]))
            dark = "white" if shade[i] > 0.6 else "black"
            axes.text(x + 0.5, y + 0.5, word, ha="center", va="center", fontsize=7, family="monospace", color=dark)


def _square(x: float, y: float, shade: float) -> Any:
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), 1, 1, facecolor=colormaps["Blues"](0.9 * float(shade)), linewidth=0)


class TextEmbedding(nn.Module):
    """x = E[id], with E normal of deviation 0.02 (GPT-2)."""

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        self.table = nn.Embedding(size, dim)
        nn.init.normal_(self.table.weight, std=0.02)

    def forward(self, columns: Columns) -> Tensor:
        """ids (..., N) -> (..., N, D)."""
        return self.table(columns["ids"])


class TextReadout(Readout):
    """p(id) = softmax(W h); W is the embedding itself where that is given."""

    def __init__(self, size: int, dim: int, embedding: nn.Module | None) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, size, bias=False)
        if embedding is not None:
            assert isinstance(embedding, TextEmbedding)
            self.linear.weight = embedding.table.weight
        else:
            nn.init.normal_(self.linear.weight, std=0.02)

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits (..., V)."""
        return self.linear(hidden)

    def loss(self, hidden: Tensor, target: Columns) -> Tensor:
        """-ln p of the target's ids (n,)."""
        return linear_cross_entropy(hidden, self.linear.weight, target["ids"])

    def total(self, hidden: Tensor, target: Columns, wanted: Tensor | None = None) -> Tensor:
        """The sum of -ln p; on a GPU a large vocabulary goes in chunks."""
        ids = target["ids"] if wanted is None else target["ids"].masked_fill(~wanted, IGNORED)
        large = hidden.is_cuda and hidden.shape[0] * self.linear.weight.shape[0] > CHUNK * 16384
        return total_cross_entropy(hidden, self.linear.weight, ids, CHUNK if large else 0)

    def answer(self, hidden: Tensor) -> Columns:
        """The likeliest id."""
        return {"ids": self.linear(hidden).argmax(-1)}


def _texts(table: Table) -> list[str]:
    if "text" not in table:
        raise UserError("a column `text`", f"columns {', '.join(table)}")
    column = table["text"]
    assert not isinstance(column, Lists)
    return [str(text) for text in column]


def as_table(texts: list[str]) -> Table:
    """A table of texts, one sample each."""
    column = np.empty(len(texts), object)
    column[:] = texts
    return {"text": column}
