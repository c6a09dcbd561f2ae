"""What a trained model looks at: its attention, drawn on samples.

    look = look_at(step, assembly, dataset.batch(ids))
    draw_attention(look, assembly, 0)

Nothing here knows what a token is: where tokens stand, what they are called and how a sample is drawn, the tokens say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..assembly import Assembly
from ..data.batch import Batch, stream_name
from ..data.columns import Array
from ..data.random import SampleRandom
from ..errors import UserError
from ..nn import ClassToken, FirstPool, LastPool, Watch
from ..tokens.base import stream_part
from .plots.attention import FONT_SIZE, draw_heads, to_float64
from .plots.panels import join_legends, shrink, thin_ticks

Floats = NDArray[np.float64]
Panel = tuple[str, Batch, Floats | None]
MAX_COLUMN_VALUES = 40  # places along a column, above which neighbouring samples are put together
MAX_DRAWN_MAPS, MAX_DRAWN_HEADS = 4, 8  # attention maps drawn of a sample, and heads of each
WORDS_PER_LINE = 48  # words in a line of a wide drawing, about
ANSWERING_TOKENS = {ClassToken: "class", FirstPool: "first", LastPool: "last"}


class AttentionMaps(NamedTuple):
    """A stream of samples as the model saw it (hidden tokens hidden, values raw), and its attention."""

    seen: Batch
    watch: Watch
    front: int  # tokens before the sample's own in self-attention: 1 with a class token
    asks: str = "mean"  # which tokens answer, where no pooling attends: class, first, last, or the mean of all
    others: Batch | None = None  # the samples with all their streams
    between: Mapping[str, dict[str, Tensor]] = {}  # maps (B, H, N, M) by the stream of their keys

    @property
    def stream(self) -> str:
        return stream_name(self.seen.streams)


@contextmanager
def eval_mode(step: Any) -> Iterator[None]:
    """Evaluation mode of a module; training mode is restored at the end."""
    was = step.training
    step.eval()
    try:
        yield
    finally:
        step.train(was)


def watch(step: Any, assembly: Assembly, batch: Batch, stream: str = "") -> Watch:
    """One forward pass over a prepared batch, watched: attention maps (B, H, N, M) by name, in order of depth.

    stream   that the model is asked about (default: the only one)

    A trunk without attention (recurrent, convolution) leaves none, unless its pooling attends; nor does one that looks
    at mixtures of tokens.
    """
    model, record = step.model, Watch(hidden=False)
    view = batch.inputs(next(model.parameters()).device).view(stream)
    with eval_mode(step), torch.no_grad():
        if hasattr(model, "encode"):
            encoded = model.encode(view, record)
            asked = view.name == assembly.objective.asked_stream(assembly.tokens)
            if len(model.heads) and asked:  # otherwise nobody asks for the pooled vector
                model.pool(encoded, record)
        else:
            model.decode(view, record)
    if getattr(assembly.recipe.model.for_stream(view.name), "compress", None) is not None:
        for name in [name for name in record.attention if not name.startswith("pool")]:
            del record.attention[name]
    return record


def attention_maps(step: Any, assembly: Assembly, batch: Batch, stream: str = "") -> AttentionMaps:
    """Watch the model over a stream (default: the only one) of samples as they come from a data set, hidden and
    normalised as for judging.

    A model of several streams names a map after its stream, `NAME.blocks.0.attention`, or after the streams of queries
    and keys, `NAME to OTHER`.
    """
    stream = stream_name(assembly.tokens, stream)
    seen, prepared = hide_tokens(assembly, batch)
    asks = answering_token(step.model, stream)
    found = AttentionMaps(seen, watch(step, assembly, prepared, stream), int(asks == "class"), asks)
    return choose_stream(found, stream) if len(assembly.tokens) > 1 else found


def evaluation_random(assembly: Assembly, batch: Batch) -> SampleRandom:
    """Random numbers of samples as in an evaluation."""
    ids = batch.ids if len(batch.ids) else np.arange(len(batch))
    return SampleRandom(assembly.recipe.train.seed, -1, ids)


def hide_tokens(assembly: Assembly, batch: Batch) -> tuple[Batch, Batch]:
    """Samples as the objective corrupts them: with raw values, and normalised for the model."""
    seen = assembly.objective.corrupt(batch, assembly.tokens, evaluation_random(assembly, batch))
    streams = {name: assembly.tokens[name].normalise(stream) for name, stream in seen.streams.items()}
    aside = {name: assembly.tokens[name].host_columns for name in streams}
    return seen, replace(seen, streams=streams, aside=aside)


def answering_token(model: Any, stream: str) -> str:
    """Which token of a stream answers: class, first, last, or the mean of all."""
    pooling = stream_part(getattr(model, "pooling", None), stream)
    return ANSWERING_TOKENS.get(type(pooling), "mean")


def choose_stream(look: AttentionMaps, stream: str) -> AttentionMaps:
    """The maps of one of several streams, by their names without that of the stream; and those to the other streams."""
    own, between = Watch(hidden=False), dict[str, dict[str, Tensor]]()
    for name, weights in look.watch.attention.items():
        whose, _, rest = name.partition(".")
        queries, _, keys = whose.partition(" to ")
        if whose in (stream, "pool"):  # only the stream that is asked about is pooled
            own.attention[name if whose == "pool" else rest] = weights
        elif queries == stream and keys in look.seen.streams:
            between.setdefault(keys, {})[rest or "attention"] = weights
    return AttentionMaps(look.seen.only(stream), own, look.front, look.asks, look.seen, between)


def self_attention(look: AttentionMaps) -> dict[str, Tensor]:
    """The maps (B, H, N, N) in which tokens look at each other, without those of a pooling."""
    return {name: a for name, a in look.watch.attention.items() if not name.startswith("pool")}


def map_title(name: str) -> str:
    """The name of an attention map for people: `blocks.0.attention` is block 1."""
    name = re.sub(r"blocks\.(\d+)", lambda found: f"block {int(found[1]) + 1}", name.removesuffix(".attention"))
    return name.replace(".", ", ")


def group_by_value(x: Floats, most: int = MAX_COLUMN_VALUES) -> list[tuple[float, Array]]:
    """Samples by equal values of x: (value, numbers of the samples), rising; where values are many, by neighbours."""
    order = np.argsort(x, kind="stable")
    order = order[np.isfinite(x[order])]
    values, first = np.unique(x[order], return_index=True)
    if len(values) <= most:
        return list(zip(values.tolist(), np.split(order, first[1:])))
    return [(float(x[part].mean()), part) for part in np.array_split(order, most)]


def even_steps(count: int, wanted: int) -> Array:
    """`wanted` numbers below `count` at even steps, each once."""
    return np.unique(np.linspace(0, max(0, count - 1), min(count, wanted)).round().astype(np.int64))


# At what


def received_attention(weights: ArrayLike, front: int = 0) -> Floats:
    """The attention each token receives (B, N), as a mean over queries and heads.

        r_j = mean over heads of (1 / N) sum_i (n_i / m_j) a_ij

    where query i, of N that see any, may see n_i keys, and key j is seen by m_j queries. Where all see all that is the
    plain mean over queries; with a causal mask it does not favour the first tokens because more queries see them. Where
    one query asks for the sample (a class token in `front`, or a pooling by attention), it is that query's own row.
    """
    a = _array(weights)
    if front:
        return a[:, :, 0, front:].mean(1)
    if a.shape[2] == 1:
        return a[:, :, 0].mean(1)
    a = a.mean(1)
    seen = a > 0
    total = (a * seen.sum(2, keepdims=True)).sum(1) / np.maximum(1, seen.any(2).sum(1, keepdims=True))
    return np.divide(total, seen.sum(1), out=np.zeros_like(total), where=seen.any(1))


def weights_on(look: AttentionMaps, row: int, head: int | None = None) -> dict[str, Floats]:
    """The attention that the tokens of one sample receive (N,), by map in order of depth; from all heads, or one."""
    n = int(look.seen.stream.lengths[row])
    longest, inside = int(look.seen.stream.lengths.max(initial=0)), self_attention(look)
    found = {}
    for name, a in look.watch.attention.items() if n else ():
        a = a if head is None else a[:, head : head + 1]
        if name in inside:
            end = look.front + n
            found[name] = received_attention(a[row : row + 1, :, :end, :end], look.front)[0]
        else:
            own = a.shape[3] - longest  # a class token that asks may also see itself
            found[name] = received_attention(a[row : row + 1, :, :1, own : own + n])[0]
    return found


def relative_to_uniform(weights: Floats) -> Floats:
    """How many times as much as uniform attention each token (N,) receives; what no token may see does not count."""
    return np.count_nonzero(weights) * weights


def excess_over(times: Floats) -> tuple[Floats, float]:
    """Weights (N,) above 1, for a drawing, and the largest weight; all zero if no weight is 1.1 or more."""
    most = float(times.max(initial=0.0))
    return np.clip(times - 1, 0, None) * (most >= 1.1), most


def sample_name(batch: Batch, row: int, objective: Any) -> str:
    """A sample by what is known of it."""
    wanted = [objective.plot_against, getattr(objective, "label", ""), *getattr(objective, "targets", [])]
    known = [name for name in dict.fromkeys(wanted) if name in batch.samples]
    values = [batch.samples[name][row] for name in known]
    words = [f"{value:.4g}" if isinstance(value, np.floating) else f"{value}" for value in values]
    return ", ".join(map(" ".join, zip(known, words))) or f"sample {batch.ids[row]}"


# Pictures


def draw_attention(look: AttentionMaps, assembly: Assembly, row: int, form: str = "") -> Figure:
    """A sample, plain and with the attention its tokens receive in some maps, from the first to the last.

    Drawn is how much more than uniform attention a token receives; nothing where no token has a tenth more; in another
    `form`, if one of those that the tokens know is given.
    """
    sample, found = look.seen.take(np.array([row])), weights_on(look, row)
    panels: list[Panel] = [("sample", sample, None)]
    for name in (list(found)[i] for i in even_steps(len(found), MAX_DRAWN_MAPS)):
        excess, most = excess_over(relative_to_uniform(found[name]))
        words = f"up to {most:.1f} × uniform" if excess.any() else "nearly uniform"
        panels.append((f"{map_title(name)}\n{words}", sample, excess))
    return draw_samples(assembly, panels, form)


def draw_samples(assembly: Assembly, panels: Sequence[Panel], form: str = "") -> Figure:
    """(title, a stream of one sample, weights of its tokens), as the tokens draw them.

    Side by side where the drawing has a shape of its own, else one below the other.
    """
    tokens = assembly.tokens[stream_name(panels[0][1].streams)]
    draw = tokens.alternative_drawings(panels[0][1])[form] if form else tokens.draw
    trial = Figure().subplots()
    draw(panels[0][1], None, trial)
    if trial.get_aspect() != "auto":
        across = min(len(panels), MAX_DRAWN_MAPS + 1)
        lines = -(-len(panels) // across)
        figure = Figure(figsize=(min(8.0, 1.9 * across), 2.0 * lines), layout="constrained")
    else:
        across, lines = 1, len(panels)
        wide, high = (abs(float(np.ptp(ends))) for ends in (trial.get_xlim(), trial.get_ylim()))
        # A drawing without axes is in units of letters; one with axes needs room for them.
        height = 1.4 if trial.axison else 0.16 * max(1.0, high) * max(1.0, WORDS_PER_LINE / 1.25 / max(wide, 1))
        figure = Figure(figsize=(7.0, lines * (height + 0.25) + 0.1), layout="constrained")
    grid = figure.subplots(lines, across, squeeze=False).ravel()
    for axes, (name, sample, weights) in zip(grid, panels):
        draw(sample, weights, axes)
        for letter in axes.texts:  # they stand inside, and measuring hundreds takes longer than drawing them
            letter.set_in_layout(len(axes.texts) < WORDS_PER_LINE)
        if across > 1:
            shrink(axes, 1.9)
            thin_ticks(axes, named=axes in grid[::across] or axes.get_ylim() != grid[0].get_ylim())
        words = name.replace("\n", ", ") if across == 1 else name
        axes.set_title(escape_mathtext(words), fontsize=FONT_SIZE, loc="left" if across == 1 else "center")
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    join_legends(figure, grid)
    return figure


def draw_matrices(look: AttentionMaps, assembly: Assembly, row: int, other: str = "") -> Figure:
    """Attention matrices of one sample, head by head, in some blocks from the first to the last.

    other  stream of the keys (default: the stream of the queries)
    """
    keys = look.others.only(other) if look.others is not None and other else look.seen
    rows, columns = (_token_names(look, assembly, batch, row) for batch in (look.seen, keys))
    maps = look.between[other] if other else self_attention(look)
    chosen = [list(maps)[i] for i in even_steps(len(maps), MAX_DRAWN_MAPS)]
    cut = {map_title(name): maps[name][row, :MAX_DRAWN_HEADS, : len(rows), : len(columns)] for name in chosen}
    return draw_heads(cut, rows, columns)


def _token_names(look: AttentionMaps, assembly: Assembly, batch: Batch, row: int) -> list[str]:
    name = stream_name(batch.streams)
    words = assembly.tokens[name].token_labels(batch.stream.take(np.array([row])))
    return [*["class"] * (look.front if name == look.stream else 0), *map(escape_mathtext, words)]


def escape_mathtext(name: str) -> str:
    """A name that Matplotlib does not read as a formula."""
    return name.replace("$", r"\$")


def _array(weights: Any) -> Floats:
    array = to_float64(weights)
    if array.ndim != 4:
        raise UserError(f"weights must have the shape (B, H, N, M), not {array.shape}")
    return array
