"""What was hidden of samples, and what a model says of it.

Nothing here knows what a token is: the tokens draw both, if they can.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from matplotlib.figure import Figure

from ..assembly import Assembly
from ..data.batch import Batch
from ..data.columns import Array
from ..tokens.base import stream_part
from ..tokens.protocols import Maskable, overrides
from .attention import escape_mathtext, eval_mode, even_steps, hide_tokens
from .plots.attention import FONT_SIZE
from .plots.panels import join_legends
from .report.page import Page

if TYPE_CHECKING:
    from .report.report import ReportData

PANEL_WIDTH, PANEL_HEIGHT = 7.0, 1.9  # inches of a panel


def predict_masked(step: Any, assembly: Assembly, batch: Batch) -> tuple[Batch, dict[str, Array]]:
    """Samples as a model saw them (hidden tokens hidden, values raw), and what it says of those it was asked for.

    The samples have the stream that is asked about; the answers are (T, ...) for its tokens in all samples, as the
    readout gives them, NaN where nothing was asked.
    """
    name, model = assembly.objective.asked_stream(assembly.tokens), step.model
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


def draw_masked(step: Any, assembly: Assembly, batch: Batch, names: Sequence[str] = ()) -> Figure | None:
    """What was hidden of each sample beside what the model says of it; None where nothing is, or cannot be drawn so.

    names  of the samples, above their drawings
    """
    objective = assembly.objective
    if not (objective.hides and objective.reads_out and len(batch)):
        return None
    tokens = assembly.tokens[objective.asked_stream(assembly.tokens)]
    if not isinstance(tokens, Maskable) or not overrides(tokens, Maskable.draw_hidden):
        return None
    seen, answers = predict_masked(step, assembly, batch)
    figure = Figure(figsize=(PANEL_WIDTH, PANEL_HEIGHT * len(batch) + 0.3), layout="constrained")
    grid = figure.subplots(len(batch), 1, squeeze=False)[:, 0]
    stops = seen.stream.lengths.cumsum()
    for row, axes in enumerate(grid):
        mine = slice(stops[row] - seen.stream.lengths[row], stops[row])
        one = {name: column[mine] for name, column in answers.items()}
        tokens.draw_hidden(seen.take(np.array([row])), one, axes)
        if row < len(names):
            axes.set_title(escape_mathtext(names[row]), fontsize=FONT_SIZE, loc="left")
    join_legends(figure, grid, grey=False)
    return figure


def section(page: Page, found: ReportData, part: str, samples: int = 3) -> None:
    """The section of the report, where tokens are hidden that can be drawn so."""
    if found.data is None:
        return
    dataset = found.data.dataset(part)
    batch = dataset.batch(even_steps(len(dataset), samples))
    figure = draw_masked(found.run.step, found.data, batch, [f"sample {number}" for number in batch.ids])
    if figure is not None:
        page.section("What was hidden", note=f"And what the model says of it ({part})")
        page.figure(figure, "Hidden values and predictions, with one standard deviation where it has one.", "Hidden")
