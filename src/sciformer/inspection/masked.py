"""Figures of masked tokens and their predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from ..assembly import Assembly
from ..data.batch import Batch
from ..data.columns import Array
from ..tokens.base import stream_part
from ..tokens.protocols import Maskable, overrides
from .attention import eval_mode, hide_tokens
from .plots.attention import FONT_SIZE
from .plots.panels import draw_missing, join_legends

PANEL_WIDTH, PANEL_HEIGHT = 7.0, 1.9  # inches


def predict_masked(step: Any, assembly: Assembly, batch: Batch, stream: str = "") -> tuple[Batch, dict[str, Array]]:
    """Masked samples in raw values, and predictions of their masked tokens.

    stream   stream of the tokens, and the only stream of the returned samples (default: the stream of the objective)

    Predictions (T, ...) are for the tokens of all samples, in the units of the readout, with NaN for tokens not masked.
    """
    name, model = stream or assembly.objective.asked_stream(assembly.tokens), step.model
    seen, prepared = hide_tokens(assembly, batch)
    view = prepared.inputs(next(model.parameters()).device, packed=True).view(name)
    with eval_mode(step), torch.no_grad():
        answer = stream_part(model.readout, name).predict(model.tokens(model.encode(view)))
    seen = seen.only(name)
    asked = seen.stream.columns["asked"].astype(bool)
    found = {name: column.float().cpu().numpy().astype(np.float64) for name, column in answer.items()}
    for column in found.values():
        column[~asked] = np.nan
    return seen, found


def draw_masked(step: Any, assembly: Assembly, batch: Batch, stream: str = "") -> Figure | None:
    """Draw masked values beside predictions; None for tokens without a drawing.

    stream   stream of the tokens (default: the stream of the objective)
    """
    objective = assembly.objective
    if not (objective.hides and objective.reads_out and len(batch)):
        return None
    stream = stream or objective.asked_stream(assembly.tokens)
    tokens = assembly.tokens[stream]
    if not isinstance(tokens, Maskable) or not overrides(tokens, Maskable.draw_hidden):
        return None
    seen, answers = predict_masked(step, assembly, batch, stream)
    figure = Figure(figsize=(PANEL_WIDTH, PANEL_HEIGHT * len(batch) + 0.3), layout="constrained")
    grid = figure.subplots(len(batch), 1, squeeze=False)[:, 0]
    for row, axes in enumerate(grid):
        one = {name: column[seen.stream.sample == row] for name, column in answers.items()}
        if seen.stream.lengths[row]:
            tokens.draw_hidden(seen.take(np.array([row])), one, axes)
        else:
            draw_missing(axes)
        axes.set_title(f"sample {seen.ids[row]}", fontsize=FONT_SIZE, loc="left")
    join_legends(figure, grid, grey=False)
    return figure
