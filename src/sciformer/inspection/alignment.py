"""Attention of a translation to its source, as a matrix or as drawings.

    found = align(run, "Two dogs play in the snow.")
    draw_alignment(found).savefig("alignment.png")

A row is a token of the translation, a column a token of the source. A source that is not text, such as an image, is
drawn by its own tokens, once for each word. The weights are the alignment of a recurrent decoder, the cross-attention
of each head of a Transformer, or the attention of a decoder to its prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from textwrap import shorten
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from ..data.batch import Batch, Stream
from ..data.columns import Table, rows_of
from ..errors import UserError
from ..models.encoder_decoder import SOURCE, TARGET
from ..nn import Watch
from ..tokens.base import Drawing
from ..tokens.protocols import Textual
from .attention import Picture, escape_mathtext, excess_over, map_title, relative_to_uniform
from .plots.attention import FONT_SIZE, draw_heads
from .plots.panels import shrink

if TYPE_CHECKING:
    from ..run import Run

MAX_DRAWN_TOKENS = 80  # longest sentence with legible tokens
PANELS_ACROSS, PANEL_INCHES = 6, 1.5  # drawings of a source side by side, and their size
MAX_EXAMPLE_WORDS = 4 * PANELS_ACROSS - 1  # drawings of a source in an example; a weak model repeats words
MAX_CAPTION_LETTERS = 120


class Alignment(NamedTuple):
    """Tokens of source and translation, and the attention weights between them.

    maps   weights (H, T, S) of T tokens of the translation to S tokens of the source, by name of the map
    back   weights (H, T, T) of the translation to itself, from the start token on; empty without self-attention
    sample, draw   source and its drawing; None if the source is text
    """

    source: list[str]
    target: list[str]
    maps: dict[str, Tensor]
    text: str
    back: dict[str, Tensor]
    sample: Batch | None = None
    draw: Drawing | None = None

    @property
    def mean(self) -> Tensor:
        """Mean over heads and blocks (T, S); each row sums to 1."""
        total = torch.cat(list(self.maps.values())).mean(0)
        return total / total.sum(-1, keepdim=True).clamp(min=1e-12)

    def first(self, count: int) -> Alignment:
        """Alignment of the first tokens of the translation."""
        return self._replace(target=self.target[:count], maps={name: a[:, :count] for name, a in self.maps.items()})


@torch.inference_mode()
def align(run: Run, sample: str | Table, translation: str | None = None) -> Alignment:
    """Alignment of a sample with its translation.

    sample        line of text, or a table with one row for sources that are not text
    translation   text to align with (default: translation by the run)
    """
    from ..generation.translate import cut_to_window, line_table, source_tokens, translate_table

    if isinstance(sample, str) and not sample.strip():
        raise UserError("the sentence to align is empty")
    _check_sample(sample, isinstance(source_tokens(run.assembly), Textual))
    model: Any = run.model
    table = line_table(run.assembly, [sample]) if isinstance(sample, str) else sample
    text = translate_table(model, run.assembly, run.device, table)[0] if translation is None else translation
    record, tokens = Watch(hidden=False), run.assembly.tokens
    drawn: Batch | None = None
    if SOURCE in tokens:
        source, target = cut_to_window(tokens[SOURCE], tokens[SOURCE].tokenize(table)), _stream(tokens[TARGET], text)
        streams = {SOURCE: tokens[SOURCE].normalise(source), TARGET: _without_last(target)}
        aside = {name: one.host_columns for name, one in tokens.items()}
        inputs = Batch(streams, {}, np.arange(1), aside=aside).inputs(run.device)
        model.translate(inputs.streams[SOURCE], inputs.streams[TARGET], record)
        written = target.cut(np.array([1]), target.lengths - 1)
        names = [tokens[SOURCE].token_labels(source), tokens[TARGET].token_labels(written)]
        maps = {name: a[0] for name, a in record.attention.items() if _is_cross_attention(name)}
        back = {name: a[0] for name, a in record.attention.items() if name.startswith("decoder") and name not in maps}
        drawn = None if isinstance(tokens[SOURCE], Textual) else Batch({SOURCE: source}, {}, np.arange(1))
    else:
        (only,) = tokens.values()
        whole = _stream(only, str(sample), text)
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
    draw = None if drawn is None else tokens[SOURCE].draw
    return Alignment(sides[0], sides[1], maps, text, back, drawn, draw)


def _check_sample(sample: str | Table, textual: bool) -> None:
    if isinstance(sample, str) and not textual:
        message = "the sample to align must be a table with one row, because the source is not text"
        raise UserError(message, hint="Select a row of a table such as Run.source(files).load(0).")
    if not isinstance(sample, str) and (textual or rows_of(sample) != 1):
        what = "a line of text" if textual else f"a table with one row, not {rows_of(sample)} rows"
        raise UserError(f"the sample to align must be {what}")


def draw_alignment(found: Alignment, mean: bool = False, block: int | None = None) -> Figure:
    """Heat map of every head, with a row of panels for each block.

    A source that is not text is drawn once for each token of the translation, with the mean of all heads.

    mean   draw one panel with the mean of all heads
    block  draw only the heads of this block (counted from 1), two panels in a row
    """
    if found.sample is not None:
        return _draw_source(found, block)
    if max(len(found.source), len(found.target)) > MAX_DRAWN_TOKENS:
        sizes = f"{len(found.source)} and {len(found.target)} tokens"
        raise UserError(f"the sentences are too long to draw: {sizes}, but the maximum is {MAX_DRAWN_TOKENS}")
    maps = {map_title(name.removeprefix("decoder.").removesuffix(".cross")): a for name, a in found.maps.items()}
    labels = (found.target, found.source)
    if block is not None:
        name, heads = _choose_block(maps, block)
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


def _choose_block(maps: dict[str, Tensor], block: int) -> tuple[str, Tensor]:
    if not 1 <= block <= len(maps):
        raise UserError(f"there is no block {block}: the model has blocks 1 to {len(maps)}")
    return list(maps.items())[block - 1]


def _draw_source(found: Alignment, block: int | None) -> Figure:
    """Drawing of the source, plain and with the attention of each written token.

    The colour shows the excess over uniform attention.
    """
    assert found.sample is not None
    assert found.draw is not None
    if len(found.target) > MAX_DRAWN_TOKENS:
        message = f"the text is too long to draw: {len(found.target)} tokens, but the maximum is {MAX_DRAWN_TOKENS}"
        raise UserError(message)
    weights = found.mean if block is None else _choose_block(found.maps, block)[1].mean(0)
    panels: list[tuple[str, Any]] = [("source", None)]
    for word, row in zip(found.target, weights.float().cpu().numpy()):
        excess, most = excess_over(relative_to_uniform(row))
        panels.append((f"{word}\n" + (f"up to {most:.1f} × uniform" if excess.any() else "nearly uniform"), excess))
    trial = Figure().subplots()
    found.draw(found.sample, None, trial)
    across = min(len(panels), PANELS_ACROSS if trial.get_aspect() != "auto" else 1)
    lines, wide = -(-len(panels) // across), PANEL_INCHES if across > 1 else 7.0
    figure = Figure(figsize=(across * wide, lines * (PANEL_INCHES + 0.4)), layout="constrained")
    grid = figure.subplots(lines, across, squeeze=False).ravel()
    for axes, (title, row) in zip(grid, panels):
        found.draw(found.sample, row, axes)
        shrink(axes, PANEL_INCHES)
        axes.set_title(title, fontsize=FONT_SIZE)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    return figure


def draw_some(run: Run, samples: Sequence[str | Table]) -> Iterator[Picture]:
    """Yield name, drawing function and caption for each short sample."""
    for number, sample in enumerate(samples, 1):
        found = align(run, sample)
        draw = partial(draw_alignment, found)
        if isinstance(sample, str):
            if found.text and max(len(found.source), len(found.target)) <= MAX_DRAWN_TOKENS:
                yield f"alignment-{number}", draw, f"«{sample}» and its translation «{found.text}»."
        else:
            shown, count = shorten(found.text, MAX_CAPTION_LETTERS, placeholder=" ..."), len(found.target)
            written = f"«{shown}»" if shown else "Empty text"
            some = f" (first {MAX_EXAMPLE_WORDS} of {count} tokens)" if count > MAX_EXAMPLE_WORDS else ""
            caption = f"{written}: attention of each written token to the source{some}, mean over all heads."
            caption += " Colour: excess over uniform attention."
            yield f"alignment-{number}", partial(draw_alignment, found.first(MAX_EXAMPLE_WORDS)), caption


def _is_cross_attention(name: str) -> bool:
    return name.startswith("decoder") and (name.endswith(".cross") or name == "decoder.attention")


def _stream(tokens: Any, *texts: str) -> Stream:
    """Tokens of the texts of one sample, cut to the window of the model."""
    table = {name: np.array([text], object) for name, text in zip(tokens.source_columns, texts)}
    stream: Stream = tokens.tokenize(table)
    return stream.cut(np.zeros(1, np.int64), np.minimum(stream.lengths, tokens.window))


def _without_last(stream: Stream) -> Stream:
    """Drop the last target token: the decoder predicts it, but never reads it."""
    return stream.cut(np.zeros(1, np.int64), stream.lengths - 1)
