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
from .attention import escape_mathtext, map_title
from .plots.attention import draw_heads

if TYPE_CHECKING:
    from ..run import Run

MAX_DRAWN_TOKENS = 80  # tokens of a sentence that can still be told apart in a picture


class Alignment(NamedTuple):
    """The tokens of source and translation, and by name the weights (H, T, S) of every head.

    back   the same (H, T, T) for a decoder that also attends to what is written: at the start, and after each token
    """

    source: list[str]
    target: list[str]
    maps: dict[str, Tensor]
    text: str
    back: dict[str, Tensor]

    @property
    def mean(self) -> Tensor:
        """The mean over heads and blocks (T, S), rows summing to one."""
        total = torch.cat(list(self.maps.values())).mean(0)
        return total / total.sum(-1, keepdim=True).clamp(min=1e-12)


@torch.inference_mode()
def align(run: Run, line: str, translation: str | None = None) -> Alignment:
    """How a run aligns a line with its own translation of it, or with another that is given."""
    from ..generation.translate import translate

    if not line.strip():
        raise UserError("the sentence to align is empty")
    text = translate(run, [line])[0] if translation is None else translation
    model: Any = run.model
    record = Watch(hidden=False)
    tokens = run.assembly.tokens
    if SOURCE in tokens:
        source, target = _stream(tokens[SOURCE], line), _stream(tokens[TARGET], text)
        inputs = Batch({SOURCE: source, TARGET: _without_last(target)}, {}, np.arange(1)).inputs(run.device)
        model.translate(inputs.streams[SOURCE], inputs.streams[TARGET], record)
        written = target.take(np.arange(1)).cut(np.array([1]), target.lengths - 1)
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
            raise UserError(f"the sentence leaves no room for its translation in {only.grid_shape} tokens")
        first = int(np.flatnonzero(part > 0)[0])  # of the translation
        names = [words[:first], words[first:]]
        maps = {name: a[0, :, first - 1 :, :first] for name, a in record.attention.items()}
        back = {name: a[0, :, first - 1 :, first - 1 :] for name, a in record.attention.items()}
    if not maps:
        raise UserError(
            "this model has no attention, so it does not look at its source", hint="Train with --model.score additive."
        )
    return Alignment(
        [escape_mathtext(word) for word in names[0]], [escape_mathtext(word) for word in names[1]], maps, text, back
    )


def draw_alignment(found: Alignment, mean: bool = False, block: int | None = None) -> Figure:
    """Every head of every block, a line of panels for each block; with `mean` all of them together.

    block  that one alone, counted from 1, with two panels in a line: what fits on a page
    """
    if max(len(found.source), len(found.target)) > MAX_DRAWN_TOKENS:
        sizes = f"{len(found.source)} and {len(found.target)}"
        raise UserError(f"a sentence to draw must have at most {MAX_DRAWN_TOKENS} tokens, not {sizes}")
    maps = {map_title(name.removeprefix("decoder.").removesuffix(".cross")): a for name, a in found.maps.items()}
    labels = (found.target, found.source)
    if block is not None:
        if not 1 <= block <= len(maps):
            raise UserError(f"block must be from 1 to {len(maps)}, not {block}")
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
    for axes in figure.axes:  # beside the words, not at the rim of the page
        if (place := axes.get_subplotspec()) is not None and axes.axison:
            if place.is_first_col():
                axes.set_ylabel("written", fontsize=8)
            if place.is_last_row():
                axes.set_xlabel("source", fontsize=8)
    return figure


def draw_some(run: Run, lines: list[str]) -> Iterator[tuple[str, Figure, str]]:
    """(name, figure, caption) for some lines; those that are too long to draw are left out."""
    for number, line in enumerate(lines, 1):
        found = align(run, line)
        if found.text and max(len(found.source), len(found.target)) <= MAX_DRAWN_TOKENS:
            yield f"alignment-{number}", draw_alignment(found), f"«{line}» and its translation «{found.text}»."


def _is_cross_attention(name: str) -> bool:
    return name.startswith("decoder") and (name.endswith(".cross") or name == "decoder.attention")


def _stream(tokens: Any, *texts: str) -> Stream:
    table = {}
    for name, text in zip(tokens.source_columns, texts):
        table[name] = np.empty(1, object)
        table[name][0] = text
    stream: Stream = tokens.tokenize(table)
    return stream.cut(np.zeros(1, np.int64), np.minimum(stream.lengths, tokens.window))  # no more was ever read


def _without_last(stream: Stream) -> Stream:
    """All tokens but the last: those that are read while the others are written."""
    return stream.cut(np.zeros(1, np.int64), stream.lengths - 1)
