"""Attention maps of a trained model on samples.

    recorded = attention_maps(step, assembly, dataset.batch(ids))
    draw_attention(recorded, assembly, 0)

The module works for every kind of token: the tokens provide positions, labels and the drawing of a sample.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from torch import Tensor

from ..assembly import Assembly
from ..data.batch import Batch, stream_name
from ..data.columns import Array
from ..data.random import Floats, SampleRandom
from ..nn import ClassToken, FirstPool, LastPool, Watch
from ..tokens.base import stream_part
from .plots.attention import FONT_SIZE, draw_heads, to_matrix
from .plots.panels import add_weight_bar, draw_missing, join_legends, shrink, thin_ticks

Panel = tuple[str, Batch, Floats | None]
Picture = tuple[str, Callable[[], Figure], str]  # name, drawing function, caption
MAX_COLUMN_VALUES = 40  # groups along a column; with more values, neighbours are joined
MAX_NAME_CHARACTERS = 60  # of a list in the name of a sample
MAX_DRAWN_MAPS, MAX_DRAWN_HEADS = 4, 8  # largest numbers of drawn maps of a sample, and of heads of a map
WORDS_PER_LINE = 48  # approximate words in a line of a wide drawing
ANSWERING_TOKENS = {ClassToken: "class", FirstPool: "first", LastPool: "last"}


class AttentionMaps(NamedTuple):
    """Attention maps of a stream, and its masked samples in raw values."""

    seen: Batch
    watch: Watch
    front: int  # number of tokens before the tokens of the sample: 1 with a class token
    asks: str = "mean"  # token that gives the prediction if there is no attention pooling: class, first, last or mean
    others: Batch | None = None  # the samples with all streams
    between: Mapping[str, dict[str, Tensor]] = {}  # maps (B, H, N, M) by the stream of their keys

    @property
    def stream(self) -> str:
        return stream_name(self.seen.streams)


@contextmanager
def eval_mode(step: Any) -> Iterator[None]:
    """Context manager: evaluation mode of a module, restored at the end."""
    was = step.training
    step.eval()
    try:
        yield
    finally:
        step.train(was)


def watch(step: Any, assembly: Assembly, batch: Batch, stream: str = "") -> Watch:
    """Encode a stream and record its attention maps (B, H, N, M) by name.

    stream   stream of the tokens (default: the only stream)

    Maps are in order of depth. Trunks without attention (recurrent, convolution) have no maps, except for an attention
    pooling. Linformer trunks have no maps either, because they attend to mixtures of tokens.
    """
    model, record = step.model, Watch(hidden=False)
    view = batch.inputs(next(model.parameters()).device).view(stream)
    with eval_mode(step), torch.no_grad():
        if hasattr(model, "encode"):
            encoded = model.encode(view, record)
            asked = view.name == assembly.objective.asked_stream(assembly.tokens)
            if len(model.heads) and (asked or assembly.recipe.model.joins_streams):  # else the vector is not used
                model.pool(encoded, record)
        elif hasattr(model, "reconstruct"):
            model.reconstruct(view, record)
        else:
            model.decode(view, record)
    if getattr(assembly.recipe.model.for_stream(view.name), "compress", None) is not None:
        for name in [name for name in record.attention if not name.startswith("pool")]:
            del record.attention[name]
    return record


def attention_maps(step: Any, assembly: Assembly, batch: Batch, stream: str = "") -> AttentionMaps:
    """Attention maps of samples, with masking and scaling as in an evaluation.

    stream   stream of the tokens (default: the only stream)

    With several streams, the name of a map begins with its stream, `NAME.blocks.0.attention`, or with the streams of
    queries and keys, `NAME to OTHER`.
    """
    stream = stream_name(assembly.tokens, stream)
    seen, prepared = hide_tokens(assembly, batch)
    asks = answering_token(step.model, stream)
    found = AttentionMaps(seen, watch(step, assembly, prepared, stream), int(asks == "class"), asks)
    return choose_stream(found, stream) if len(assembly.tokens) > 1 else found


def evaluation_random(assembly: Assembly, batch: Batch) -> SampleRandom:
    """Random numbers for each sample, the same as in an evaluation."""
    ids = batch.ids if len(batch.ids) else np.arange(len(batch))
    return SampleRandom(assembly.recipe.train.seed, -1, ids)


def hide_tokens(assembly: Assembly, batch: Batch) -> tuple[Batch, Batch]:
    """Masked samples: in raw values, and normalised for the model."""
    seen = assembly.objective.corrupt(batch, assembly.tokens, evaluation_random(assembly, batch))
    streams = {name: assembly.tokens[name].normalise(stream) for name, stream in seen.streams.items()}
    aside = {name: assembly.tokens[name].host_columns for name in streams}
    return seen, replace(seen, streams=streams, aside=aside)


def answering_token(model: Any, stream: str) -> str:
    """Source of a prediction: the token `class`, `first` or `last`, or `mean` of all."""
    pooling = stream_part(getattr(model, "pooling", None), stream)
    return ANSWERING_TOKENS.get(type(pooling), "mean")


def choose_stream(recorded: AttentionMaps, stream: str) -> AttentionMaps:
    """Select the attention maps with queries in a stream."""
    own, between = Watch(hidden=False), dict[str, dict[str, Tensor]]()
    for name, weights in recorded.watch.attention.items():
        whose, _, rest = name.partition(".")
        queries, _, keys = whose.partition(" to ")
        if whose in (stream, "pool"):  # only the stream of the objective is pooled
            own.attention[name if whose == "pool" else rest] = weights
        elif queries == stream and keys in recorded.seen.streams:
            between.setdefault(keys, {})[rest or "attention"] = weights
    return AttentionMaps(recorded.seen.only(stream), own, recorded.front, recorded.asks, recorded.seen, between)


def self_attention(recorded: AttentionMaps) -> dict[str, Tensor]:
    """Maps (B, H, N, N) of self-attention, without the maps of an attention pooling."""
    return {name: a for name, a in recorded.watch.attention.items() if not name.startswith("pool")}


def map_title(name: str) -> str:
    """Title of an attention map: `blocks.0.attention` becomes `block 1`."""
    name = re.sub(r"blocks\.(\d+)", lambda found: f"block {int(found[1]) + 1}", name.removesuffix(".attention"))
    return name.replace(".", ", ")


def group_by_value(x: Floats, most: int = MAX_COLUMN_VALUES) -> list[tuple[float, Array]]:
    """Group samples by equal values of x: (value, indices), in increasing order.

    With more than `most` different values, neighbouring values are joined into groups of equal size.
    """
    order = np.argsort(x, kind="stable")
    order = order[np.isfinite(x[order])]
    values, first = np.unique(x[order], return_index=True)
    if len(values) <= most:
        return list(zip(values.tolist(), np.split(order, first[1:])))
    return [(float(x[part].mean()), part) for part in np.array_split(order, most)]


def even_steps(count: int, wanted: int) -> Array:
    """Evenly spaced indices below `count`, at most `wanted`."""
    return np.unique(np.linspace(0, max(0, count - 1), min(count, wanted)).round().astype(np.int64))


def sample_ids(count: int, wanted: int) -> Array:
    """Indices of at most `wanted` samples: centres of equal parts of 0 .. count - 1."""
    wanted = min(count, wanted)
    return ((np.arange(wanted) + 0.5) * count / max(1, wanted)).astype(np.int64)


# Received attention


def received_attention(weights: ArrayLike, front: int = 0) -> Floats:
    """Attention received by each token (B, N): mean over queries and heads.

        r_j = mean over heads of (1 / N) sum_i (n_i / m_j) a_ij

    N queries see at least one key, query i sees n_i keys, and m_j queries see key j. With full attention this is the
    plain mean over queries. With a causal mask, more queries see the first tokens; the factor 1 / m_j corrects for
    this. If a single query represents the sample (a class token in `front`, or an attention pooling), the row of this
    query is returned.
    """
    a = to_matrix(weights, 4, "weights", "(B, H, N, M)")
    if front or a.shape[2] == 1:
        return a[:, :, 0, front:].mean(1)
    a = a.mean(1)
    seen = a > 0
    total = (a * seen.sum(2, keepdims=True)).sum(1) / np.maximum(1, seen.any(2).sum(1, keepdims=True))
    return np.divide(total, seen.sum(1), out=np.zeros_like(total), where=seen.any(1))


def weights_on(recorded: AttentionMaps, row: int, head: int | None = None) -> dict[str, Floats]:
    """Attention (N,) received by the tokens of one sample, for each map.

    head   one head (default: the mean over heads)
    """
    n = int(recorded.seen.stream.lengths[row])
    longest, inside = int(recorded.seen.stream.lengths.max(initial=0)), self_attention(recorded)
    found = {}
    for name, a in recorded.watch.attention.items() if n else ():
        a = a if head is None else a[:, head : head + 1]
        if name in inside:
            end = recorded.front + n
            found[name] = received_attention(a[row : row + 1, :, :end, :end], recorded.front)[0]
        else:
            own = a.shape[3] - longest  # a class token may also attend to itself
            found[name] = received_attention(a[row : row + 1, :, :1, own : own + n])[0]
    return found


def relative_to_uniform(weights: Floats) -> Floats:
    """Attention (N,) divided by uniform attention over the tokens with nonzero weight."""
    return np.count_nonzero(weights) * weights


def excess_over(times: Floats) -> tuple[Floats, float]:
    """Excess max(0, w - 1) of weights w (N,), and the largest w.

    If no weight reaches 1.1, the excess is 0 everywhere.
    """
    most = float(times.max(initial=0.0))
    return np.clip(times - 1, 0, None) * (most >= 1.1), most


def _shorten(value: Any) -> str:
    """Text of a value; a list, such as tags, is shortened."""
    if isinstance(value, (list, tuple, np.ndarray)):
        return textwrap.shorten(" ".join(map(str, value)), MAX_NAME_CHARACTERS, placeholder=" …")
    return f"{value:.4g}" if isinstance(value, np.floating) else f"{value}"


def sample_name(batch: Batch, row: int, objective: Any) -> str:
    """Name of a sample: label, targets and plotted column, or else its number."""
    wanted = [objective.plot_against, getattr(objective, "label", ""), *getattr(objective, "targets", [])]
    known = [name for name in dict.fromkeys(wanted) if name in batch.samples]
    values = [batch.samples[name][row] for name in known]
    words = [_shorten(value) for value in values]
    return ", ".join(map(" ".join, zip(known, words))) or f"sample {batch.ids[row]}"


# Pictures


def draw_attention(recorded: AttentionMaps, assembly: Assembly, row: int, form: str = "") -> Figure:
    """Draw a sample plain, then once for each map, coloured by received attention.

    At most MAX_DRAWN_MAPS maps are drawn, evenly spaced. The colour shows the excess over uniform attention; it is
    left out if the largest excess is below 10 %.

    form   alternative drawing of the tokens (default: the usual drawing)
    """
    found = {map_title(name): relative_to_uniform(weights) for name, weights in weights_on(recorded, row).items()}
    shown = {name: found[name] for name in (list(found)[i] for i in even_steps(len(found), MAX_DRAWN_MAPS))}
    return draw_excess(assembly, recorded.seen.take(np.array([row])), shown, "uniform", form)


def draw_excess(assembly: Assembly, sample: Batch, times: Mapping[str, Floats], unit: str, form: str = "") -> Figure:
    """Draw a sample plain, then once for each title, coloured by weights.

    The colour shows the part of a weight above 1.

    times   {title: weights (N,) in multiples of `unit`}
    unit    name of the unit, for the titles of the panels
    """
    panels: list[Panel] = [("sample", sample, None)]
    for name, weights in times.items():
        excess, most = excess_over(weights)
        words = f"up to {most:.1f} × {unit}" if excess.any() else "nearly uniform"
        panels.append((f"{name}\n{words}", sample, excess))
    return draw_samples(assembly, panels, form)


def draw_samples(assembly: Assembly, panels: Sequence[Panel], form: str = "") -> Figure:
    """Draw panels (title, sample, token weights) with the drawing of the tokens.

    Drawings with a fixed aspect ratio are side by side, other drawings are below each other. A sample without tokens
    has a panel that says so.
    """
    tokens = assembly.tokens[stream_name(panels[0][1].streams)]
    draw = tokens.alternative_drawings(panels[0][1])[form] if form else tokens.draw
    trial = Figure().subplots()
    if whole := [sample for _, sample, _ in panels if sample.stream.lengths[0]]:
        draw(whole[0], None, trial)
    if trial.get_aspect() != "auto":
        across = min(len(panels), MAX_DRAWN_MAPS + 1)
        lines = -(-len(panels) // across)
        figure = Figure(figsize=(min(8.0, 1.9 * across), 2.0 * lines), layout="constrained")
    else:
        across, lines = 1, len(panels)
        wide, high = (abs(float(np.ptp(ends))) for ends in (trial.get_xlim(), trial.get_ylim()))
        # A drawing without axes is measured in letters; axes need a fixed height.
        height = 1.4 if trial.axison else 0.16 * max(1.0, high) * max(1.0, WORDS_PER_LINE / 1.25 / max(wide, 1))
        figure = Figure(figsize=(7.0, lines * (height + 0.25) + 0.1), layout="constrained")
    grid = figure.subplots(lines, across, squeeze=False).ravel()
    for axes, (name, sample, weights) in zip(grid, panels):
        if sample.stream.lengths[0]:
            draw(sample, weights, axes)
        else:
            draw_missing(axes)
        for letter in axes.texts:  # measuring hundreds of letters takes longer than drawing them
            letter.set_in_layout(len(axes.texts) < WORDS_PER_LINE)
        if across > 1:
            shrink(axes, 1.9)
            thin_ticks(axes, named=axes in grid[::across] or axes.get_ylim() != grid[0].get_ylim())
        words = name.replace("\n", ", ") if across == 1 else name
        axes.set_title(escape_mathtext(words), fontsize=FONT_SIZE, loc="left" if across == 1 else "center")
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    join_legends(figure, grid)
    add_weight_bar(figure, [(axes, weights) for axes, (_, _, weights) in zip(grid, panels)])
    return figure


def draw_matrices(recorded: AttentionMaps, assembly: Assembly, row: int, other: str = "") -> Figure:
    """Draw the attention matrices of a sample: blocks by heads.

    other  stream of the keys (default: the stream of the queries)
    """
    keys = recorded.others.only(other) if recorded.others is not None and other else recorded.seen
    rows, columns = (_token_names(recorded, assembly, batch, row) for batch in (recorded.seen, keys))
    maps = list((recorded.between[other] if other else self_attention(recorded)).items())
    chosen = [maps[i] for i in even_steps(len(maps), MAX_DRAWN_MAPS)]
    cut = {map_title(name): a[row, :MAX_DRAWN_HEADS, : len(rows), : len(columns)] for name, a in chosen}
    return draw_heads(cut, rows, columns)


def _token_names(recorded: AttentionMaps, assembly: Assembly, batch: Batch, row: int) -> list[str]:
    name = stream_name(batch.streams)
    words = assembly.tokens[name].token_labels(batch.stream.take(np.array([row])))
    return [*["class"] * (recorded.front if name == recorded.stream else 0), *map(escape_mathtext, words)]


def escape_mathtext(name: str) -> str:
    """Escape dollar signs against Matplotlib formulas."""
    return name.replace("$", r"\$")
