"""Which part of the source does a translation look at while it is written?

    found = align(run, "Two dogs play in the snow.")
    draw_alignment(found).savefig("alignment.png")

A row is a token of the translation, a column one of the source: rows of a recurrent decoder are its alignment, those of
a Transformer the cross-attention of each head, those of a decoder that was prompted its attention to the prompt.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from ..data.batch import Batch, Stream
from ..errors import UserError
from ..models.encoder_decoder import SOURCE, TARGET
from ..nn import Watch
from .attention import draw_heads
from .looking import plain, title

if TYPE_CHECKING:
    from ..run import Run

LONG = 80  # tokens of a sentence that can still be told apart in a picture


class Alignment(NamedTuple):
    """The tokens of source and translation, and by name the weights (H, T, S) of every head."""

    source: list[str]
    target: list[str]
    maps: dict[str, Tensor]
    text: str

    @property
    def mean(self) -> Tensor:
        """The mean over heads and blocks (T, S), rows summing to one."""
        total = torch.cat(list(self.maps.values())).mean(0)
        return total / total.sum(-1, keepdim=True).clamp(min=1e-12)


@torch.inference_mode()
def align(run: Run, line: str, translation: str | None = None) -> Alignment:
    """How a run aligns a line with its own translation of it, or with another that is given."""
    from ..translate import translate

    if not line.strip():
        raise UserError("a sentence to align", "an empty one")
    text = translate(run, [line])[0] if translation is None else translation
    model: Any = run.model
    record = Watch(hidden=False)
    tokens = run.assembly.tokens
    if SOURCE in tokens:
        source, target = _stream(tokens[SOURCE], line), _stream(tokens[TARGET], text)
        inputs = Batch({SOURCE: source, TARGET: _before(target)}, {}, np.arange(1)).inputs(run.device)
        model.translate(inputs.streams[SOURCE], inputs.streams[TARGET], record)
        written = target.take(np.arange(1)).cut(np.array([1]), target.lengths - 1)
        names = [tokens[SOURCE].words(source), tokens[TARGET].words(written)]
        maps = {name: a[0] for name, a in record.attention.items() if _across(name)}
    else:
        (only,) = tokens.values()
        whole = _stream(only, line, text)
        inputs = Batch({"tokens": _before(whole)}, {}, np.arange(1)).inputs(run.device)
        model.decode(inputs.stream, record)
        words, part = only.words(whole), whole.columns["part"]
        first = int(np.flatnonzero(part > 0)[0])  # of the translation
        names = [words[:first], words[first:]]
        maps = {name: a[0, :, first - 1 :, :first] for name, a in record.attention.items()}
    if not maps:
        raise UserError(
            "a model that looks at its source", "one without attention", "Train with --model.score additive."
        )
    return Alignment([plain(word) for word in names[0]], [plain(word) for word in names[1]], maps, text)


def draw_alignment(found: Alignment, mean: bool = False) -> Figure:
    """Every head of every block, one line of panels for each block; or with `mean` all of them together."""
    if max(len(found.source), len(found.target)) > LONG:
        raise UserError(f"a sentence of at most {LONG} tokens to draw", f"{len(found.source)}, {len(found.target)}")
    if mean:
        figure = draw_heads({"all heads": found.mean[None]}, found.target, found.source, titles=["mean of all heads"])
    elif all(len(a) == 1 for a in found.maps.values()):
        figure = draw_heads(torch.cat(list(found.maps.values())), found.target, found.source, titles=["alignment"])
    else:
        maps = {title(name.removeprefix("decoder.").removesuffix(".cross")): a for name, a in found.maps.items()}
        figure = draw_heads(maps, found.target, found.source)
    figure.supylabel("written", fontsize=8)
    figure.supxlabel("source", fontsize=8)
    return figure


def draw_some(run: Run, lines: list[str]) -> Iterator[tuple[str, Figure, str]]:
    """(name, figure, caption) for some lines; those that are too long to draw are left out."""
    for number, line in enumerate(lines, 1):
        found = align(run, line)
        if found.text and max(len(found.source), len(found.target)) <= LONG:
            yield f"alignment-{number}", draw_alignment(found), f"«{line}» and its translation «{found.text}»."


def _across(name: str) -> bool:
    return name.startswith("decoder") and (name.endswith(".cross") or name == "decoder.attention")


def _stream(tokens: Any, *texts: str) -> Stream:
    table = {}
    for name, text in zip(tokens.reads, texts):
        table[name] = np.empty(1, object)
        table[name][0] = text
    stream: Stream = tokens.tokenize(table)
    return stream


def _before(stream: Stream) -> Stream:
    """All tokens but the last: those that are read while the others are written."""
    return stream.cut(np.zeros(1, np.int64), stream.lengths - 1)
