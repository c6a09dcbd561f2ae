"""Similarity of positional encodings against distance (arXiv 2010.11929, fig. 7).

    found = position_similarity(step, assembly, batch)
    found.correlation             correlation of the similarity of two encodings with the distance of their positions
    found.neighbours              mean similarity of neighbours, and of all other pairs

On a grid or in a sequence, the encodings of all positions are compared; otherwise, the encodings of the tokens of one
sample.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from ..assembly import Assembly
from ..data.batch import Batch, Stream, stream_name
from ..data.random import Floats
from ..nn.positions import Position, Rotary, grid
from ..tokens.base import stream_part
from .attention import even_steps, group_by_value
from .distance import correlation
from .plots import style
from .plots.attention import COLOUR_MAP, FONT_SIZE, draw_weights
from .plots.style import LINE_COLOURS

MAX_PLACES = 160  # positions on a line, or tokens of a sample
MAX_PANELS = 8  # drawn positions of a grid, in each direction
DISTANCE_BINS = 24
NEIGHBOUR_DISTANCE = 1.5  # largest distance of neighbours, relative to the nearest distance


class Similarity(NamedTuple):
    """Cosine similarity (N, N) of positional encodings, and distances (N, N).

    shape  shape of the grid of positions, which are ordered row by row; None if the positions are on a line
    """

    values: Floats
    distance: Floats
    shape: tuple[int, ...] | None = None

    @property
    def pairs(self) -> tuple[Floats, Floats]:
        """Distances and similarities of all pairs of different positions."""
        pairs = np.triu_indices(len(self.values), 1)
        return self.distance[pairs], self.values[pairs]

    @property
    def correlation(self) -> float:
        """Correlation of similarity with distance over all pairs."""
        return correlation(*self.pairs)

    @property
    def neighbours(self) -> tuple[float, float]:
        """Mean similarity of neighbours (also diagonal), and of all other pairs.

        A correlation misses encodings that are similar both nearby and at opposite edges of an image. At irregular
        positions, two tokens are neighbours if, for each of the two tokens, their distance is at most 1.5 times the
        distance to the nearest token.
        """
        distance, like = self.pairs
        nearest = np.where(np.eye(len(self.distance), dtype=bool), np.inf, self.distance).min(1)
        first, second = np.triu_indices(len(self.values), 1)
        near = distance <= NEIGHBOUR_DISTANCE * np.minimum(nearest[first], nearest[second])
        return float(like[near].mean()), float(like[~near].mean()) if not near.all() else float("nan")


def similarity(position: Position, at: Tensor) -> Floats | None:
    """Cosine similarity (N, N) of positional encodings; None if there are none.

        s_ij = cos(PE(p_i), PE(p_j))

    at   coordinates p (N,) or (N, A)

    For additive encodings, PE is the vector added to a zero token. For rotary encodings, s is q·k of identical vectors
    after rotation.
    """
    with torch.no_grad():
        if isinstance(position, Rotary):
            cos, sin, _ = position.rotation(position.columns(at), torch.float64)
            code = torch.cat([cos, sin], -1)[0].movedim(0, 1).flatten(1)
        elif type(position) is Position or position.inside or not hasattr(position, "dim"):
            return None
        else:
            dim: int = position.dim  # type: ignore[assignment]
            rest = torch.zeros(1, len(at), dim, device=at.device)
            code = position.embed(rest, position.locate(rest, at))[0]
    vectors = code.double().cpu().numpy()
    size = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = vectors / np.where(size > 0, size, 1)
    return np.asarray(vectors @ vectors.T)


def position_similarity(step: Any, assembly: Assembly, batch: Batch, stream: str = "") -> Similarity | None:
    """Similarity of positional encodings, on the grid or for the longest sample."""
    name = stream_name(assembly.tokens, stream)
    tokens, sample = assembly.tokens[name], batch.streams[name]
    parts = (stream_part(getattr(step.model, part, None), name) for part in ("entrance", "trunk"))
    position = next((part.position for part in parts if hasattr(part, "position")), None)
    sample = sample.take(np.array([np.argmax(sample.lengths)] if len(batch) else [], np.int64))
    n = int(sample.lengths.sum())
    if not isinstance(position, Position) or n < 3:
        return None
    device, scaled, shape = next(step.model.parameters()).device, tokens.normalise(sample), None
    if isinstance(tokens.grid_shape, tuple):
        shape = tokens.grid_shape
        at = grid(shape)
        distance = tokens.distance(Stream({"at": at.numpy()}, np.array([len(at)])))
    elif "at" in scaled.columns:
        few = even_steps(n, MAX_PLACES)
        at, distance = torch.from_numpy(np.asarray(scaled.columns["at"])[few]), tokens.distance(sample)
        distance = None if distance is None else distance[np.ix_(few, few)]
    else:
        places = even_steps(tokens.grid_shape or n, MAX_PLACES)
        at, distance = torch.from_numpy(places), np.abs(np.subtract.outer(places, places))
    values = None if distance is None else similarity(position, at.to(device))
    return None if values is None or distance is None else Similarity(values, distance, shape)


def draw_positions(found: Similarity, unit: str = "") -> Figure:
    """Plot the similarity of encodings (left), and its dependence on distance (right).

    On a grid, the left panel shows some positions, each with its similarity to all positions.
    """
    figure = Figure(figsize=(7.0, 3.3), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.15, 1])
    if found.shape is not None and len(found.shape) == 2:
        _draw_mosaic(left, found.values, found.shape)
    else:
        draw_weights(found.values, axes=left, low=min(0.0, float(found.values.min())), high=1.0)
        style.label_axes(left, "position", "position")
    _draw_against_distance(right, found, unit)
    return figure


def _draw_mosaic(axes: Axes, values: Floats, shape: tuple[int, ...]) -> None:
    """Draw panels, each with the similarities of a grid position to all positions."""
    height, width = shape
    lines = [even_steps(size, MAX_PANELS) for size in shape]
    high, wide = height + max(1, height // 6), width + max(1, width // 6)  # with gaps between panels
    whole = np.full((len(lines[0]) * high, len(lines[1]) * wide), np.nan)
    for i, row in enumerate(lines[0]):
        for j, column in enumerate(lines[1]):
            one = values[row * width + column].reshape(height, width)
            whole[i * high : i * high + height, j * wide : j * wide + width] = one
    axes.imshow(whole, cmap=COLOUR_MAP, vmin=float(values.min()), vmax=1, interpolation="nearest")
    axes.set_xticks(np.arange(len(lines[1])) * wide + (width - 1) / 2, labels=[str(i + 1) for i in lines[1]])
    axes.set_yticks(np.arange(len(lines[0])) * high + (height - 1) / 2, labels=[str(i + 1) for i in lines[0]])
    axes.tick_params(length=0, labelsize=FONT_SIZE)
    style.label_axes(axes, "column of the position", "row of the position")
    axes.spines[:].set_visible(False)


def _draw_against_distance(axes: Axes, found: Similarity, unit: str) -> None:
    """Plot mean and central 68 % of the similarity in bins of distance."""
    distance, like = found.pairs
    bins = group_by_value(distance, DISTANCE_BINS)
    x, groups = [value for value, _ in bins], [like[pairs] for _, pairs in bins]
    low, high = (np.array([np.quantile(group, q) for group in groups]) for q in (0.16, 0.84))
    axes.fill_between(x, low, high, color=LINE_COLOURS[2], alpha=0.3, linewidth=0)
    axes.plot(x, [group.mean() for group in groups], color=LINE_COLOURS[0], marker="o", markersize=3, linewidth=1.4)
    style.quiet_frame(axes)
    style.label_axes(axes, style.axis_label("distance of two positions", unit), "cosine similarity of encodings")
    near, others = map(style.two_decimals, found.neighbours)
    title = f"correlation {style.two_decimals(found.correlation)}; neighbours {near}, others {others}"
    axes.set_title(title, fontsize=FONT_SIZE)
