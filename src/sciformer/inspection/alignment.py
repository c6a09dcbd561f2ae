"""Attention of a translation to its source, as a matrix of tokens.

    found = align(run, "Two dogs play in the snow.")
    draw_alignment(found).savefig("alignment.png")

A row is a token of the translation, a column a token of the source. The weights are the alignment of a recurrent
decoder, the cross-attention of each head of a Transformer, or the attention of a decoder to its prompt.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from ..data.batch import Batch, Stream
from ..errors import UserError
from ..models.encoder_decoder import SOURCE, TARGET
from ..nn import Watch
from .attention import Picture, escape_mathtext, map_title
from .plots.attention import draw_heads

if TYPE_CHECKING:
    from ..run import Run

MAX_DRAWN_TOKENS = 80  # longest sentence with legible tokens


class Alignment(NamedTuple):
    """Tokens of source and translation, and the attention weights between them.

    maps   weights (H, T, S) of T tokens of the translation to S tokens of the source, by name of the map
    back   weights (H, T, T) of the translation to itself, from the start token on; empty without self-attention
    """

    source: list[str]
    target: list[str]
    maps: dict[str, Tensor]
    text: str
    back: dict[str, Tensor]

    @property
    def mean(self) -> Tensor:
        """Mean over heads and blocks (T, S); each row sums to 1."""
        total = torch.cat(list(self.maps.values())).mean(0)
        return total / total.sum(-1, keepdim=True).clamp(min=1e-12)


@torch.inference_mode()
def align(run: Run, line: str, translation: str | None = None) -> Alignment:
    """Alignment of a line with its translation.

    translation   text to align with (default: translation by the run)
    """
    from ..generation.translate import translate

    if not line.strip():
        raise UserError("the sentence to align is empty")
    text = translate(run, [line])[0] if translation is None else translation
    model: Any = run.model
    record, tokens = Watch(hidden=False), run.assembly.tokens
    if SOURCE in tokens:
        source, target = _stream(tokens[SOURCE], line), _stream(tokens[TARGET], text)
        inputs = Batch({SOURCE: source, TARGET: _without_last(target)}, {}, np.arange(1)).inputs(run.device)
        model.translate(inputs.streams[SOURCE], inputs.streams[TARGET], record)
        written = target.cut(np.array([1]), target.lengths - 1)
        names = [tokens[SOURCE].token_labels(source), tokens[TARGET].token_labels(written)]
        maps = {name: a[0] for name, a in record.attention.items() if _is_cross_attention(name)}
        back = {name: a[0] for name, a in record.attention.items() if name.startswith("decoder") and name not in maps}
    else:
        (only,) = tokens.values()
        whole = _stream(only, line, text)
        inputs = Batch({"tokens": _without_last(whole)}, {}, np.arange(1)).inputs(run.device)
        model.decode(inputs.stream, record)
        words, part = only.token_labels(whole), whole.columns["part"]
        if not part.any():
            raise UserError(
                f"the sentence fills the context of {only.grid_shape} tokens: no token is left for its translation"
            )
        first = int(np.flatnonzero(part > 0)[0])  # first token of the translation
        names = [words[:first], words[first:]]
        maps = {name: a[0, :, first - 1 :, :first] for name, a in record.attention.items()}
        back = {name: a[0, :, first - 1 :, first - 1 :] for name, a in record.attention.items()}
    if not maps:
        hint = "Train a model with attention: --model.score additive."
        raise UserError("this model has no attention to its source", hint=hint)
    sides = [[escape_mathtext(word) for word in side] for side in names]
    return Alignment(sides[0], sides[1], maps, text, back)


def draw_alignment(found: Alignment, mean: bool = False, block: int | None = None) -> Figure:
    """Heat map of every head, with a row of panels for each block.

    mean   draw one panel with the mean of all heads
    block  draw only the heads of this block (counted from 1), two panels in a row
    """
    if max(len(found.source), len(found.target)) > MAX_DRAWN_TOKENS:
        sizes = f"{len(found.source)} and {len(found.target)} tokens"
        raise UserError(f"the sentences are too long to draw: {sizes}, but the maximum is {MAX_DRAWN_TOKENS}")
    maps = {map_title(name.removeprefix("decoder.").removesuffix(".cross")): a for name, a in found.maps.items()}
    labels = (found.target, found.source)
    if block is not None:
        if not 1 <= block <= len(maps):
            raise UserError(f"there is no block {block}: the model has blocks 1 to {len(maps)}")
        name, heads = list(maps.items())[block - 1]
        figure = draw_heads(heads, *labels, titles=[f"{name}, head {head + 1}" for head in range(len(heads))], across=2)
    elif mean:
        figure = draw_heads(found.mean[None], *labels, titles=["mean of all heads"])
    elif all(len(a) == 1 for a in maps.values()):
        figure = draw_heads(torch.cat(list(maps.values())), *labels, titles=["alignment"] * len(maps))
    else:
        figure = draw_heads(maps, *labels)
    figure.supylabel("")
    figure.supxlabel("")
    for axes in figure.axes:  # labels beside the words, not at the edge of the figure
        if (place := axes.get_subplotspec()) is not None and axes.axison:
            if place.is_first_col():
                axes.set_ylabel("written", fontsize=8)
            if place.is_last_row():
                axes.set_xlabel("source", fontsize=8)
    return figure


def draw_some(run: Run, lines: list[str]) -> Iterator[Picture]:
    """Yield name, drawing function and caption for each line that is short enough to draw."""
    for number, line in enumerate(lines, 1):
        found = align(run, line)
        if found.text and max(len(found.source), len(found.target)) <= MAX_DRAWN_TOKENS:
            draw = partial(draw_alignment, found)
            yield f"alignment-{number}", draw, f"«{line}» and its translation «{found.text}»."


def _is_cross_attention(name: str) -> bool:
    return name.startswith("decoder") and (name.endswith(".cross") or name == "decoder.attention")


def _stream(tokens: Any, *texts: str) -> Stream:
    """Tokens of the texts of one sample, cut to the window of the model."""
    table = {name: np.array([text], object) for name, text in zip(tokens.source_columns, texts)}
    stream: Stream = tokens.tokenize(table)
    return stream.cut(np.zeros(1, np.int64), np.minimum(stream.lengths, tokens.window))


def _without_last(stream: Stream) -> Stream:
    """Drop the last target token, which the decoder predicts but never reads."""
    return stream.cut(np.zeros(1, np.int64), stream.lengths - 1)
