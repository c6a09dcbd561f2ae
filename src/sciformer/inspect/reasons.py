"""What the answers of a run rest on: the tokens they come from, and whether leaving these out matters.

The pictures of `sciformer inspect`, and a section of the report where they do not take long.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ..assembly import Assembly
from ..data.batch import Batch
from ..models.base import parameters
from .attribution import answers
from .faithfulness import (
    DRAWS,
    SHARES,
    WAYS,
    Faithfulness,
    Scores,
    draw_faithfulness,
    faithfulness,
    likeliest,
    scored,
)
from .looking import Panel, draw_samples, even, name_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..run import Run

    Picture = tuple[str, Callable[[], Figure], str]

Floats = NDArray[np.float64]
SAMPLES, FEWEST = 48, 8  # of which tokens are left out, at most, and at least for it to mean something
OPERATIONS = 1e11  # that a report may take for it: some seconds of a core


def draw_reasons(assembly: Assembly, batch: Batch, ways: dict[str, Scores], row: int) -> Figure:
    """A sample, plain and with what every way to look at the model says of its tokens.

    Drawn is how much more than the mean of all tokens one has; nothing where none has a tenth more.
    """
    sample = batch.take(np.array([row]))
    panels: list[Panel] = [("sample", sample, None)]
    for way, scores in ways.items():
        weights = np.clip(np.nan_to_num(scores[row]), 0, None)
        times = weights / weights.mean() if weights.sum() > 0 else weights
        most = float(times.max(initial=0.0))
        words = f"up to {most:.1f} × mean" if most >= 1.1 else "nearly the same for all"
        panels.append((f"{WAYS.get(way, way)}\n{words}", sample, np.clip(times - 1, 0, None) * (most >= 1.1)))
    return draw_samples(assembly, panels)


def affordable(run: Run, tokens: float) -> int:
    """Samples of so many tokens that a report has the time for; none where they would be too few to mean something."""
    passes = len(SHARES) * (len(WAYS) + 1 + DRAWS) + 4
    few = int(OPERATIONS / (2.0 * parameters(run.model) * max(1.0, tokens) * passes))
    return min(SAMPLES, few) if few >= FEWEST else 0


def pictures(
    run: Run, data: Assembly, part: str, samples: int, numbers: dict[str, Any], most: int = SAMPLES
) -> Iterator[Picture]:
    """(name, how to draw it, caption) of some samples, and of what leaving out tokens does; numbers are left in
    `numbers`. None where a model has no one answer for a sample."""
    if not answers(run.step, data):
        return
    dataset = data.dataset(part)
    shown = dataset.batch(even(len(dataset), samples))
    if shown.stream.lengths.sum():
        ways, said = scored(run.step, data, shown), likeliest(run.step, data, shown)
        for row in np.flatnonzero(shown.stream.lengths):
            name = name_of(shown, int(row), run.recipe.objective)
            caption = f"{name}: what the answer {said[row]} comes from, by several ways to look at the model."
            yield f"reasons-{row + 1}", partial(draw_reasons, data, shown, ways, int(row)), caption
    batch = dataset.batch(even(len(dataset), most))
    if int((batch.stream.lengths > 1).sum()) >= min(2, most):
        found = faithfulness(run.step, data, batch)
        numbers["faithfulness"] = as_numbers(found)
        yield "faithfulness", partial(draw_faithfulness, found), summary(found)


def as_numbers(found: Faithfulness) -> dict[str, Any]:
    """For scores.json."""
    return {
        "samples": len(next(iter(found.change.values()))),
        "removed": found.removed,
        "shares": found.shares,
        "change": {way: each.mean(0) for way, each in found.change.items()},
        "flipped": found.flipped,
        "ratio": {way: {"value": value, "error": error} for way, (value, error) in found.ratio.items()},
    }


def summary(found: Faithfulness) -> str:
    """The ratios in words."""
    said = [f"{WAYS.get(way, way)} {value:.2f} ± {error:.2f}" for way, (value, error) in found.ratio.items()]
    count = len(next(iter(found.change.values())))
    verb = "left out" if found.removed else "blanked"
    return (
        f"How answers change when tokens are {verb}, in the mean of {count} samples. The area below each curve over "
        f"that of random tokens: {', '.join(said)}."
    )
