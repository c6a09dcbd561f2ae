"""Attention distance of every head: against depth, and against a sample column.

    found = attention_distances(attention_maps(step, assembly, batch), assembly)
    depth(found).correlation                    correlation of the distance of heads with the number of their block

The tokens define the distance: pixels, days, an angle, words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from ..assembly import Assembly
from ..data.batch import join
from ..data.dataset import Dataset
from ..data.random import Floats
from ..errors import UserError
from .attention import AttentionMaps, attention_maps, even_steps, group_by_value, map_title, self_attention
from .plots import style
from .plots.attention import to_matrix
from .plots.curves import Band, draw_along
from .plots.style import FAINT_GREY, LINE_COLOURS

MIN_BLOCKS = 3  # blocks whose attention distances can rise or fall with depth


class AttentionDistance(NamedTuple):
    """Mean attention distance of each head (B, H), and of uniform attention (B,)."""

    heads: Floats
    uniform: Floats


def reach(weights: ArrayLike, distance: ArrayLike, front: int = 0) -> AttentionDistance:
    """Mean attention distance of every head.

        r_h = mean_i (sum_j a_hij d_ij / sum_j a_hij)         over the queries i with nonzero weights

    weights   weights a (B, H, N, N) of self-attention
    distance  distances d (N, N) of the tokens
    front     number of tokens before the tokens of the sample (1 with a class token); they have no position and are
              excluded

    The baseline is the distance of uniform attention over the visible keys. A key is visible if a head gives it
    weight. A sample without queries gets NaN.
    """
    a, d = to_matrix(weights, 4, "weights", "(B, H, N, M)")[:, :, front:, front:], np.asarray(distance, np.float64)
    if d.shape != a.shape[2:]:
        message = f"the distances must have the shape {a.shape[2:]}, for weights of the shape {a.shape}, not {d.shape}"
        raise UserError(message)
    visible = np.asarray((a > 0).any(1, keepdims=True), np.float64)
    return AttentionDistance(_mean_distance(a, d), _mean_distance(visible, d)[:, 0])


def _mean_distance(a: Floats, d: Floats) -> Floats:
    total = a.sum(-1)
    used = total > 0
    distance = np.divide((a * d).sum(-1), total, out=np.zeros_like(total), where=used)
    count = used.sum(-1)
    return np.divide(distance.sum(-1), count, out=np.full(count.shape, np.nan), where=count > 0)


def attention_distances(recorded: AttentionMaps, assembly: Assembly) -> dict[str, AttentionDistance]:
    """Attention distance of each self-attention map; {} if tokens have no distances."""
    tokens, stream = assembly.tokens[recorded.stream], recorded.seen.stream
    maps = self_attention(recorded)
    found: dict[str, list[AttentionDistance]] = {name: [] for name in maps}
    for row, length in enumerate(stream.lengths.tolist()):  # every sample has its own distances; padding is cut off
        distance = tokens.distance(stream.take(np.array([row]))) if maps and length else None
        if distance is None:
            continue
        for name, a in maps.items():
            n = recorded.front + length
            found[name].append(reach(a[row : row + 1, :, :n, :n], distance, front=recorded.front))
    joined = {name: map(np.concatenate, zip(*each)) for name, each in found.items() if each}
    return {name: AttentionDistance(*parts) for name, parts in joined.items()}


class Depth(NamedTuple):
    """Mean attention distances (L, H) of L blocks, and their correlation with depth.

    The correlation is NaN for fewer than three blocks.
    """

    heads: Floats
    correlation: float


def depth(found: Mapping[str, AttentionDistance]) -> Depth:
    """Attention distance of each head, and its correlation with depth.

    See arXiv 2010.11929, figure 7.
    """
    means = [each.heads.mean(0) for each in found.values()]
    heads = np.full((len(means), max(map(len, means), default=0)), np.nan)  # NaN where a block has fewer heads
    for row, mean in zip(heads, means):
        row[: len(mean)] = mean
    block = np.broadcast_to(np.arange(len(heads))[:, None], heads.shape)
    there = np.isfinite(heads)
    known = correlation(block[there], heads[there]) if len(heads) >= MIN_BLOCKS else float("nan")
    return Depth(heads, known)


def correlation(x: ArrayLike, y: ArrayLike) -> float:
    """Pearson correlation; NaN if x or y is constant."""
    a, b = (np.asarray(each, np.float64) for each in (x, y))
    if not a.size or not a.std() > 0 or not b.std() > 0:
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])


class ReachAlong(NamedTuple):
    """Attention distance for each of V values of a sample column.

    mean, deviation   {map: (V, H)} mean and standard deviation over the samples with each value
    uniform           (V,) distance of uniform attention, for comparison
    """

    values: Floats
    mean: dict[str, Floats]
    deviation: dict[str, Floats]
    uniform: Floats


def attention_distance_along(
    step: Any,
    assembly: Assembly,
    datasets: Sequence[Dataset],
    column: str,
    samples_per_value: int = 8,
    stream: str = "",
) -> ReachAlong | None:
    """Attention distance against a sample column; None if there is no attention.

    samples_per_value   number of samples for each value; if there are many values, neighbouring values are joined
    """
    columns = [dataset.sample_column(column) for dataset in datasets]
    x, place = np.concatenate(columns), np.concatenate([np.arange(len(column)) for column in columns])
    which = np.repeat(np.arange(len(columns)), [len(column) for column in columns])
    if x.ndim != 1 or x.dtype.kind not in "iuf":
        raise UserError(f"column `{column}` holds {x.dtype} of shape {x.shape}, not one number for each sample")
    rows: list[tuple[float, dict[str, AttentionDistance]]] = []
    for value, members in group_by_value(x.astype(np.float64)):
        few = members[even_steps(len(members), samples_per_value)]
        batches = [datasets[i].batch(place[few[which[few] == i]]) for i in np.unique(which[few])]
        recorded = attention_maps(step, assembly, join(batches), stream)
        if found := attention_distances(recorded, assembly):
            rows.append((value, found))
    if not rows:
        return None
    heads = {name: [found[name].heads for _, found in rows] for name in rows[0][1]}
    mean = {name: np.stack([each.mean(0) for each in parts]) for name, parts in heads.items()}
    deviation = {name: np.stack([each.std(0) for each in parts]) for name, parts in heads.items()}
    uniform = np.array([next(iter(found.values())).uniform.mean() for _, found in rows])
    return ReachAlong(np.array([value for value, _ in rows]), mean, deviation, uniform)


def draw_reach(found: Mapping[str, AttentionDistance], unit: str = "") -> Figure:
    """Plot the attention distance of every head by block, and of uniform attention."""
    figure, axes = style.new_axes()
    for i, each in enumerate(found.values()):
        heads = each.heads.mean(0)
        place = i + 1 + min(0.05, 0.7 / len(heads)) * (np.arange(len(heads)) - (len(heads) - 1) / 2)
        low, high = np.percentile(each.heads, [16, 84], axis=0)
        axes.vlines(place, low, high, color=LINE_COLOURS[0], alpha=0.35, linewidth=2)
        axes.plot(place, heads, "o", color=LINE_COLOURS[0], markersize=4, label="one head" if i == 0 else None)
        blind = each.uniform.mean()
        ends = [i + 0.6, i + 1.4]
        axes.plot(ends, [blind] * 2, color=FAINT_GREY, linestyle="--", label="uniform attention" if i == 0 else None)
    axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
    axes.set_xlim(0.4, len(found) + 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=12, integer=True, min_n_ticks=1))
    style.finish(figure, axes, "block", style.axis_label("mean distance", unit))
    return figure


def draw_reach_along(along: ReachAlong, column: str, unit: str = "") -> Figure:
    """Plot the attention distance of every block, with its spread, against a column."""
    name = style.axis_label("mean distance", unit)
    bands: dict[str, Band] = {}
    for block, mean in along.mean.items():
        middle, spread = mean.mean(1), along.deviation[block].mean(1)
        bands[map_title(block)] = (middle, middle - spread, middle + spread)
    return draw_along(along.values, bands | {"uniform": (along.uniform, None, None)}, None, column, name)
