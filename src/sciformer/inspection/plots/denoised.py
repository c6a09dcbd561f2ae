"""Denoised series: plots of input, prediction and truth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from matplotlib.figure import Figure

from ...data.prepare import prepare
from ...data.random import SampleRandom
from ...tokens.protocols import Maskable, prefix_length
from ..attention import even_steps
from . import style
from .attention import FONT_SIZE
from .style import FAINT_GREY, FIGURE_SIZE, LINE_COLOURS

if TYPE_CHECKING:
    from ...assembly import Assembly
    from ...run import Run


@torch.no_grad()
def draw_recovered(run: Run, data: Assembly, part: str, samples: int = 3) -> Figure:
    """Plot denoised series against the position; for patches, against the index."""
    dataset, objective = data.dataset(part), data.objective
    ids = even_steps(len(dataset), samples)
    batch = dataset.batch(ids)
    made = prepare(batch, data.tokens, objective, SampleRandom(0, -1, ids), training=False, counted=False)
    found = objective.predict(run.model, made.inputs(run.device))
    told = objective.units({name: value.float().cpu().numpy() for name, value in found.items()}, {})
    name = objective.asked_stream(batch.streams)
    stream = batch.streams[name]
    figure = style.new_figure()
    figure.set_size_inches(FIGURE_SIZE[0], 1.0 + 1.7 * len(ids))
    panels = np.atleast_1d(figure.subplots(len(ids), 1))
    tokens, target = Maskable.require(data.tokens[name], "draw_recovered"), getattr(objective, "target", "")
    for row, axes in enumerate(panels):
        here = np.flatnonzero(stream.sample == row)[prefix_length(tokens) :]
        columns: dict[str, Any] = {key: column[here] for key, column in stream.columns.items()}
        value, true = columns[tokens.hides[0]].ravel(), columns[target].ravel()
        at = columns.get("at")
        x = at if at is not None and at.shape == value.shape else np.arange(len(value))
        x, middle = x - x[:1], told["recovered"][row]
        labels = (None, None, None) if row else ("input", style.escape_label(target), "denoised")
        axes.plot(x, value, ".", color=FAINT_GREY, markersize=2.5, label=labels[0])
        axes.plot(x, true, color=LINE_COLOURS[1], linewidth=1.0, label=labels[1])
        axes.plot(x, middle, color=LINE_COLOURS[0], linewidth=1.2, label=labels[2])
        if "deviation" in told:
            deviation = told["deviation"][row]
            axes.fill_between(x, middle - deviation, middle + deviation, color=LINE_COLOURS[2], alpha=0.35, linewidth=0)
        style.quiet_frame(axes)
    style.finish(figure, panels[0], "", "")
    panels[-1].set_xlabel("position after the first token", fontsize=FONT_SIZE)
    return figure
