"""What a trained model looks at: its attention on samples, and how far it reaches.

    look = look_at(step, assembly, dataset.batch(ids))
    draw_attention(look, assembly, 0)

Nothing here knows what a token is: where tokens stand, what they are called and how a sample is drawn, the tokens say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..assembly import Assembly
from ..data.batch import Batch, join
from ..data.chance import Chance
from ..data.dataset import Dataset
from ..errors import UserError
from ..nn import ClassToken, Watch
from .attention import FONT, draw_heads
from .curves import FAINT, LINES, Band, _finish, _start, draw_along
from .panels import few_ticks, join_legends, shrink

Array = NDArray[Any]
Floats = NDArray[np.float64]
Panel = tuple[str, Batch, Floats | None]
VALUES = 40  # places along a column, above which neighbouring samples are put together
MAPS, HEADS = 4, 8  # attention maps drawn of a sample, and heads of each
LETTERS = 48  # words in a line of a wide drawing, about


class Look(NamedTuple):
    """Samples as the model saw them (hidden tokens hidden, values raw), and its attention."""

    seen: Batch
    watch: Watch
    front: int  # tokens before the sample's own in self-attention: 1 with a class token


def watch(step: Any, assembly: Assembly, batch: Batch) -> Watch:
    """One forward pass over a prepared batch, watched: attention maps (B, H, N, M) by name, in order of depth.

    A trunk without attention (recurrent, convolution) leaves none, unless its pooling attends.
    """
    model, record, was = step.model, Watch(hidden=False), step.training
    device = next(model.parameters()).device
    step.eval()
    try:
        with torch.no_grad():
            view = batch.inputs(device).stream
            if hasattr(model, "encode"):
                encoded = model.encode(view, record)
                if len(model.heads):  # otherwise nobody asks for the pooled vector
                    model.pool(encoded, record)
            else:
                model.decode(view, record)
    finally:
        step.train(was)
    return record


def look_at(step: Any, assembly: Assembly, batch: Batch) -> Look:
    """Watch the model over samples as they come from a data set, hidden and normalised as for judging."""
    if len(assembly.tokens) > 1:
        raise UserError("one stream of tokens to look at", f"{len(assembly.tokens)}")
    ids = batch.ids if len(batch.ids) else np.arange(len(batch))
    seen = assembly.objective.corrupt(batch, assembly.tokens, Chance(assembly.recipe.train.seed, -1, ids))
    streams = {name: assembly.tokens[name].normalise(stream) for name, stream in seen.streams.items()}
    front = int(isinstance(getattr(step.model, "pooling", None), ClassToken))
    return Look(seen, watch(step, assembly, replace(seen, streams=streams)), front)


def self_attention(look: Look) -> dict[str, Tensor]:
    """The maps (B, H, N, N) in which tokens look at each other, without those of a pooling."""
    return {name: a for name, a in look.watch.attention.items() if not name.startswith("pool")}


def title(name: str) -> str:
    """The name of an attention map for people: `blocks.0.attention` is block 1."""
    name = re.sub(r"blocks\.(\d+)", lambda found: f"block {int(found[1]) + 1}", name.removesuffix(".attention"))
    return name.replace(".", ", ")


# How far


class Reach(NamedTuple):
    """Mean distances of attention: of each head (B, H), and of attention that is the same everywhere (B,)."""

    heads: Floats
    uniform: Floats


def reach(weights: ArrayLike, distance: ArrayLike, valid: ArrayLike | None = None, front: int = 0) -> Reach:
    """r_h = mean over real queries i of (sum_j a_hij d_ij / sum_j a_hij).

    weights   (B, H, N, N) of self-attention
    distance  (N, N), or (B, N, N) where each sample has its own
    valid     (B, N), True where a token is real; all unless given
    front     tokens before the sample's own (a class token), which stand nowhere: their rows and columns are left out

    Beside it the same for uniform attention over the keys that a query may see: what a head that is blind would reach.
    A key is one that may be seen if any head gives it weight. nan where a sample has no query.
    """
    a = _array(weights)[:, :, front:, front:]
    if a.shape[2] != a.shape[3]:
        raise UserError("self-attention (B, H, N, N)", f"{a.shape}", "The map of a pooling has no distance.")
    d = np.asarray(distance, np.float64)
    d = d if d.ndim == 3 else d[None]
    if d.shape[1:] != a.shape[2:]:
        raise UserError(f"distances of {a.shape[2]} tokens", f"{d.shape}")
    open_ = np.asarray((a > 0).any(1, keepdims=True), np.float64)
    real = np.ones((len(a), a.shape[2]), bool) if valid is None else np.asarray(valid, bool)
    found = [_mean_distance(each, d[:, None], real) for each in (a, open_)]
    return Reach(found[0], found[1][:, 0])


def _mean_distance(a: Floats, d: Floats, real: NDArray[np.bool_]) -> Floats:
    """(B, H): the mean distance of rows of weights (B, H, N, N), over real rows that have any."""
    total = a.sum(-1)
    used = real[:, None] & (total > 0)
    far = np.divide((a * d).sum(-1), total, out=np.zeros_like(total), where=used)
    count = used.sum(-1)
    return np.divide(far.sum(-1), count, out=np.full(count.shape, np.nan), where=count > 0)


def reaches(look: Look, assembly: Assembly) -> dict[str, Reach]:
    """The reach of every self-attention of a look, by name; none where tokens have no distance."""
    (tokens,) = assembly.tokens.values()
    stream = look.seen.stream
    maps = self_attention(look)
    found: dict[str, list[Reach]] = {name: [] for name in maps}
    for row, length in enumerate(stream.lengths.tolist()):  # each with its own distances; padding is cut off
        distance = tokens.distance(stream.take(np.array([row]))) if maps and length else None
        if distance is None:
            continue
        for name, a in maps.items():
            n = look.front + length
            found[name].append(reach(a[row : row + 1, :, :n, :n], distance, front=look.front))
    return {name: Reach(*(np.concatenate(parts) for parts in zip(*each))) for name, each in found.items() if each}


class ReachAlong(NamedTuple):
    """Reach at values (V,) of a column: mean and deviation over samples of each head {map: (V, H)}; uniform (V,)."""

    values: Floats
    mean: dict[str, Floats]
    deviation: dict[str, Floats]
    uniform: Floats


def reach_along(
    step: Any, assembly: Assembly, datasets: Sequence[Dataset], column: str, samples_per_value: int = 8
) -> ReachAlong | None:
    """How far attention reaches against a column of the samples of some data sets; None where there is no attention.

    Of every value of the column, `samples_per_value` samples at even steps; many values are put together in groups of
    neighbours with as many samples each.
    """
    columns = [dataset.sample_column(column) for dataset in datasets]
    x, place = np.concatenate(columns), np.concatenate([np.arange(len(column)) for column in columns])
    which = np.repeat(np.arange(len(columns)), [len(column) for column in columns])
    if x.ndim != 1 or x.dtype.kind not in "iuf":
        raise UserError(f"numbers in the column `{column}`", f"{x.dtype} of shape {x.shape}")
    rows: list[tuple[float, dict[str, Reach]]] = []
    for value, members in gather(x.astype(np.float64)):
        few = members[even(len(members), samples_per_value)]
        batches = [datasets[i].batch(place[few[which[few] == i]]) for i in np.unique(which[few])]
        look = look_at(step, assembly, join(batches))
        if found := reaches(look, assembly):
            rows.append((value, found))
    if not rows:
        return None
    heads = {name: [found[name].heads for _, found in rows] for name in rows[0][1]}
    return ReachAlong(
        np.array([value for value, _ in rows]),
        {name: np.stack([each.mean(0) for each in parts]) for name, parts in heads.items()},
        {name: np.stack([each.std(0) for each in parts]) for name, parts in heads.items()},
        np.array([next(iter(found.values())).uniform.mean() for _, found in rows]),
    )


def gather(x: Floats, most: int = VALUES) -> list[tuple[float, Array]]:
    """Samples by equal values of x: (value, numbers of the samples), rising; where values are many, by neighbours."""
    order = np.argsort(x, kind="stable")
    order = order[np.isfinite(x[order])]
    values, first = np.unique(x[order], return_index=True)
    if len(values) <= most:
        return list(zip(values.tolist(), np.split(order, first[1:])))
    return [(float(x[part].mean()), part) for part in np.array_split(order, most)]


def even(count: int, wanted: int) -> Array:
    """`wanted` numbers below `count` at even steps, each once."""
    return np.unique(np.linspace(0, max(0, count - 1), min(count, wanted)).round().astype(np.int64))


# At what


def received(weights: ArrayLike, front: int = 0) -> Floats:
    """The attention each token receives (B, N), as a mean over queries and heads.

        r_j = mean over heads of (1 / N) sum_i (n_i / m_j) a_ij

    where query i may see n_i keys, and key j is seen by m_j queries. Where all see all that is the plain mean over
    queries; with a causal mask it does not favour the first tokens because more queries see them. Where one query asks
    for the sample (a class token in `front`, or a pooling by attention), it is that query's own row.
    """
    a = _array(weights)
    if front:
        return a[:, :, 0, front:].mean(1)
    if a.shape[2] == 1:
        return a[:, :, 0].mean(1)
    a = a.mean(1)
    seen = a > 0
    total = (a * seen.sum(2, keepdims=True)).sum(1) / a.shape[1]
    return np.divide(total, seen.sum(1), out=np.zeros_like(total), where=seen.any(1))


def weights_on(look: Look, row: int, head: int | None = None) -> dict[str, Floats]:
    """The attention that the tokens of one sample receive (N,), by map in order of depth; from all heads, or one."""
    n = int(look.seen.stream.lengths[row])
    longest, inside = int(look.seen.stream.lengths.max(initial=0)), self_attention(look)
    found = {}
    for name, a in look.watch.attention.items() if n else ():
        a = a if head is None else a[:, head : head + 1]
        if name in inside:
            end = look.front + n
            found[name] = received(a[row : row + 1, :, :end, :end], look.front)[0]
        else:
            own = a.shape[3] - longest  # a class token that asks may also see itself
            found[name] = received(a[row : row + 1, :, :1, own : own + n])[0]
    return found


# Pictures


def draw_attention(look: Look, assembly: Assembly, row: int, form: str = "") -> Figure:
    """A sample, plain and with the attention its tokens receive in some maps, from the first to the last.

    Drawn is how much more than uniform attention a token receives; nothing where no token has a tenth more; in another
    `form`, if one of those that the tokens know is given.
    """
    sample, found = look.seen.take(np.array([row])), weights_on(look, row)
    panels: list[Panel] = [("sample", sample, None)]
    for name in (list(found)[i] for i in even(len(found), MAPS)):
        times = len(found[name]) * found[name]
        most = float(times.max())
        words = f"up to {most:.1f} × uniform" if most >= 1.1 else "nearly uniform"
        panels.append((f"{title(name)}\n{words}", sample, np.clip(times - 1, 0, None) * (most >= 1.1)))
    return draw_samples(assembly, panels, form)


def draw_samples(assembly: Assembly, panels: Sequence[Panel], form: str = "") -> Figure:
    """(title, one sample, weights of its tokens), as the tokens draw them.

    Side by side where the drawing has a shape of its own, else one below the other.
    """
    (tokens,) = assembly.tokens.values()
    draw = tokens.forms(panels[0][1])[form] if form else tokens.draw
    trial = Figure().subplots()
    draw(panels[0][1], None, trial)
    if trial.get_aspect() != "auto":
        across = min(len(panels), MAPS + 1)
        lines = -(-len(panels) // across)
        figure = Figure(figsize=(min(8.0, 1.9 * across), 2.0 * lines), layout="constrained")
    else:
        across, lines = 1, len(panels)
        wide, high = (abs(float(np.ptp(ends))) for ends in (trial.get_xlim(), trial.get_ylim()))
        # A drawing without axes is in units of letters; one with axes needs room for them.
        height = 1.4 if trial.axison else 0.16 * max(1.0, high) * max(1.0, LETTERS / 1.25 / max(wide, 1))
        figure = Figure(figsize=(7.0, lines * (height + 0.25) + 0.1), layout="constrained")
    grid = figure.subplots(lines, across, squeeze=False).ravel()
    for axes, (name, sample, weights) in zip(grid, panels):
        draw(sample, weights, axes)
        for letter in axes.texts:  # they stand inside, and measuring hundreds takes longer than drawing them
            letter.set_in_layout(len(axes.texts) < LETTERS)
        if across > 1:
            shrink(axes, 1.9)
            few_ticks(axes, named=axes in grid[::across] or axes.get_ylim() != grid[0].get_ylim())
        words = name.replace("\n", ", ") if across == 1 else name
        axes.set_title(plain(words), fontsize=FONT, loc="left" if across == 1 else "center")
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    join_legends(figure, grid)
    return figure


def draw_matrices(look: Look, assembly: Assembly, row: int) -> Figure:
    """Who looks at whom in one sample, head by head, in some blocks from the first to the last."""
    (tokens,) = assembly.tokens.values()
    sample = look.seen.stream.take(np.array([row]))
    words = [*["class"] * look.front, *(plain(word) for word in tokens.words(sample))]
    n = len(words)
    maps = self_attention(look)
    chosen = [list(maps)[i] for i in even(len(maps), MAPS)]
    return draw_heads({title(name): maps[name][row, :HEADS, :n, :n] for name in chosen}, words)


def draw_reach(found: Mapping[str, Reach]) -> Figure:
    """The reach of every head by block, over all samples, beside that of uniform attention."""
    figure, axes = _start()
    for i, each in enumerate(found.values()):
        heads = each.heads.mean(0)
        place = i + 1 + min(0.05, 0.7 / len(heads)) * (np.arange(len(heads)) - (len(heads) - 1) / 2)
        low, high = np.percentile(each.heads, [16, 84], axis=0)
        axes.vlines(place, low, high, color=LINES[0], alpha=0.35, linewidth=2)
        axes.plot(place, heads, "o", color=LINES[0], markersize=4, label="a head" if i == 0 else None)
        blind = each.uniform.mean()
        ends = [i + 0.6, i + 1.4]
        axes.plot(ends, [blind] * 2, color=FAINT, linestyle="--", label="uniform attention" if i == 0 else None)
    axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
    axes.set_xlim(0.4, len(found) + 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=12, integer=True))
    _finish(figure, axes, "block", "mean distance")
    return figure


def draw_reach_along(along: ReachAlong, column: str) -> Figure:
    """The reach of every block, in the mean over heads, against a column; the band is the deviation over samples."""
    bands: dict[str, Band] = {}
    for name, mean in along.mean.items():
        middle, spread = mean.mean(1), along.deviation[name].mean(1)
        bands[title(name)] = (middle, middle - spread, middle + spread)
    return draw_along(along.values, bands | {"uniform": (along.uniform, None, None)}, None, column, "mean distance")


def plain(name: str) -> str:
    """A name that Matplotlib does not read as a formula."""
    return name.replace("$", r"\$")


def _array(weights: Any) -> Floats:
    if isinstance(weights, Tensor):
        weights = weights.detach().to("cpu", torch.float64).numpy()
    array = np.asarray(weights, np.float64)
    if array.ndim != 4:
        raise UserError("weights of shape (B, H, N, M)", f"{array.shape}")
    return array
