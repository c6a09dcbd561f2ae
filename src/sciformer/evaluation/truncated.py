"""Scores of truncated samples: how early is a prediction right?

for found in truncated_scores(Run("runs/curves"), [10, 20, 50]):
    print(found.distance, found.scores["accuracy"])    # distances in units of `at`: days, word positions, ...
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from ..errors import UserError
from .evaluate import evaluate

if TYPE_CHECKING:
    from rich.console import Console

    from ..run import Run


@dataclass(frozen=True)
class TruncatedScores:
    """Scores of samples truncated at `distance` after their first token.

    distance  None for complete samples
    """

    distance: float | None
    tokens: float
    """Mean number of tokens of the truncated samples."""
    scores: dict[str, float]


def parse_horizon(text: str) -> list[float]:
    """Parse distances such as `10,20,50`."""
    try:
        found = sorted({float(word) for word in text.split(",") if word.strip()})
    except ValueError:
        found = []
    if not found or not 0 <= found[0] <= found[-1] < float("inf"):
        raise UserError(
            f"--until {text!r} is not a list of distances", hint="Write for example --until 10,20,50.", key="--until"
        )
    return found


def truncated_scores(
    run: Run, distances: Sequence[float], part: str = "test", files: Sequence[str | Path] = (), batch: int = 64
) -> list[TruncatedScores]:
    """Scores of truncated samples, for each distance and for complete samples."""
    whole = run.samples(part, files)
    found = []
    for one in [*distances, None]:
        dataset = whole if one is None else run.assembly.samples(whole.source, until=one)
        made = evaluate(run.step, run.assembly, dataset, device=run.device, batch=batch)
        found.append(TruncatedScores(one, float(dataset.whole_lengths.mean()), made.scores))
    return found


def rows_of(found: Sequence[TruncatedScores]) -> list[dict[str, Any]]:
    """Rows of the table of scores, with a row for each distance."""
    return [
        {"until": "all" if one.distance is None else f"{one.distance:g}", "tokens": f"{one.tokens:.1f}", **one.scores}
        for one in found
    ]


def draw_truncated(found: Sequence[TruncatedScores]) -> Figure:
    """Plot classification scores, or else the first metric, against the distance."""
    from ..inspection.plots.curves import Band, draw_along
    from ..inspection.plots.style import name_in_words
    from ..metrics import METRICS

    seen = {one.distance: one.scores for one in found if one.distance is not None}
    (whole,) = [one for one in found if one.distance is None]
    names = [name for name in whole.scores if name in METRICS]
    shares = [name for name in names if METRICS[name].needs[0] == "probabilities" and METRICS[name].better == "higher"]
    shown = shares or names[:1] or ["loss"]
    curves: dict[str, Band] = {
        f"{name_in_words(name)} (complete: {whole.scores[name]:.3g})": (
            [one[name] for one in seen.values()],
            None,
            None,
        )
        for name in shown
    }
    label = "score" if shares else name_in_words(shown[0])
    return draw_along(list(seen), curves, {}, "distance from the first token", label)


def evaluate_truncated(
    run: Run, until: str, part: str | None, files: Sequence[Path], out: Path | None, console: Console
) -> None:
    """Evaluate truncated samples, print the table and write the figure."""
    from ..cli.show import show_rows
    from ..files.atomic import check_picture
    from ..inspection.report.page import save_figure

    distances, place = parse_horizon(until), out or run.path / "until.png"
    check_picture(place)
    found = truncated_scores(run, distances, part or "test", files)
    what = ", ".join(map(str, files)) if files else f"the part {part or 'test'}"
    console.print(
        f"scores on {what}, with samples cut after each distance from the first token", markup=False, soft_wrap=True
    )
    show_rows(rows_of(found), console)
    save_figure(draw_truncated(found), place)
    console.print(f"\nwrote {place}", markup=False, soft_wrap=True)
