"""Map of embedding vectors in their first two principal components.

figure = draw_map(embed(run, ["stars.parquet"]), "label")
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from ..data.columns import Array
from ..errors import UserError, one_of
from ..files.atomic import check_picture
from .plots import style
from .report.page import save_figure

if TYPE_CHECKING:
    from ..evaluation.embed import Embedded

MAX_COLOURED_CLASSES = 12  # classes with a colour of their own; rarer classes are grey
CLASS_COLOURS = [
    *("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377"),
    *("#332288", "#ddaa33", "#004488", "#bb5566", "#44aa99", "#999933"),
]


class Principal(NamedTuple):
    """Principal components (n, k) of n vectors, and their shares (k,) of the variance."""

    points: Array
    shares: Array


def principal(vectors: Array, count: int = 2) -> Principal:
    """Principal components x V of centred vectors x (n, D) = U S V^T.

    The sign is fixed: the largest entry of a direction is positive.
    """
    if len(vectors) < 2:
        raise UserError(f"a map needs at least 2 vectors, not {len(vectors)}")
    if not np.isfinite(vectors).all():
        raise UserError("the vectors hold NaN or infinity")
    centred = vectors.astype(np.float64) - vectors.mean(0, dtype=np.float64)
    _, sizes, directions = np.linalg.svd(centred, full_matrices=False)
    directions = directions[:count]
    directions *= np.sign(directions[np.arange(len(directions)), np.abs(directions).argmax(1)])[:, None]
    shares = sizes**2 / max(float((sizes**2).sum()), 1e-300)
    points = np.zeros((len(vectors), count))
    points[:, : len(directions)] = centred @ directions.T
    return Principal(points, np.pad(shares, (0, count))[:count])


def draw_map(found: Embedded, by: str = "") -> Figure:
    """Scatter plot of the map, coloured by a column of the samples.

    by   column for the colours: one colour per name, or a colour scale for many numbers (default: a single colour)
    """
    points, shares = principal(found.vectors)
    x, y = points.T
    figure, axes = style.new_axes()
    figure.set_size_inches(5.5, 4.4)
    options: dict[str, Any] = {"s": 12 if len(points) < 2000 else 4, "rasterized": len(points) > 5000}
    options |= {"linewidths": 0, "alpha": 0.75}
    column = found.samples.get(by)
    if column is None:
        axes.scatter(x, y, color=CLASS_COLOURS[0], **options)
    elif column.dtype.kind in "biuf" and len(np.unique(column)) > MAX_COLOURED_CLASSES:
        drawn = axes.scatter(x, y, c=column.astype(np.float64), cmap="viridis", **options)
        style.add_colour_bar(figure, drawn, axes, style.escape_label(by))
    else:
        named = np.array([str(value) for value in column.tolist()])
        names, counts = np.unique(named, return_counts=True)
        shown = sorted(names[np.argsort(-counts, kind="stable")[:MAX_COLOURED_CLASSES]])
        if len(shown) < len(names):
            rest = ~np.isin(named, shown)
            axes.scatter(x[rest], y[rest], color="0.75", label="others", **options)
        for hue, name in zip(CLASS_COLOURS, shown):
            axes.scatter(x[named == name], y[named == name], color=hue, label=style.escape_label(name), **options)
    titles = [f"component {i + 1} ({100 * share:.0f} % of the variance)" for i, share in enumerate(shares)]
    style.finish(figure, axes, titles[0], titles[1])
    return figure


def check_colours(found: Embedded, by: str) -> None:
    """Refuse an unknown column for the colours; the default `label` may be missing."""
    if by != "label":
        one_of("the column for the colours", by, found.samples, key="--by")


def write_map(path: Path, found: Embedded, by: str = "label") -> None:
    """Write the map to a picture file."""
    check_picture(path)
    check_colours(found, by)
    with style.ignore_missing_glyphs():
        save_figure(draw_map(found, by), path)
