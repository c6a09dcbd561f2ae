"""Calibration of a trained model on held-out samples, stored beside its weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import UserError, one_of
from .evaluate import Evaluation

if TYPE_CHECKING:
    from rich.console import Console

    from ..run import Run

FEW_SAMPLES = 200  # below this number of samples a calibration is uncertain
SHOWN_SCORES = ("calibration_error", "quantile_error", "coverage_68", "coverage_95")


@dataclass(frozen=True)
class Calibration:
    """Fitted calibration, and the scores before and after it, for each part."""

    state: dict[str, Any]
    part: str
    before: dict[str, Evaluation]
    after: dict[str, Evaluation]
    fitted: dict[str, tuple[dict[str, float], dict[str, float]]]
    """Optimised scores of each part: before and after the calibration."""

    @property
    def words(self) -> str:
        """Sentence with the fitted temperature or factors."""
        if "temperature" in self.state:
            found = self.state["temperature"]
            return f"temperature {found:.3f}: the model was {'overconfident' if found > 1 else 'underconfident'}"
        factors = self.state["spread"]
        kinds = {"too small" if factor > 1 else "too large" for factor in factors}
        what = f"they were {kinds.pop()}" if len(kinds) == 1 else "some were too small, some too large"
        return f"standard deviations times {', '.join(f'{factor:.3f}' for factor in factors)}: {what}"


def calibrate(run: Run, part: str = "valid") -> Calibration:
    """Calibrate a run on a part of its data not used for training.

    A classifier gets one temperature. A regression gets one factor for the standard deviation of each target. Predicted
    classes and means do not change. Every call starts from the uncalibrated model.
    """
    parts = run.data().parts()
    one_of("the part to calibrate with", part, [name for name in parts if name != "train"] or ["valid"], key="--part")
    if part not in parts:
        message = f"the data have no part `{part}` to calibrate with"
        raise UserError(message, hint="Hold out a part of the data with data.split.", key="data.split")
    objective = run.assembly.objective
    for key in run.calibration.get("state", {}):
        objective.state.pop(key, None)
    held_out = [name for name in dict.fromkeys((part, "test")) if name in parts]
    before = {name: run.evaluate(name) for name in held_out}
    fitted = {name: objective.calibrated_scores(one.outputs, one.samples) for name, one in before.items()}
    state = objective.calibrate(before[part].outputs, before[part].samples)
    objective.state.update(state)
    after = {name: run.evaluate(name) for name in held_out}
    both = {n: (fitted[n], objective.calibrated_scores(one.outputs, one.samples)) for n, one in after.items()}
    about = {"state": state, "part": part, "samples": before[part].size}
    with run.folder.lock():
        run.folder.seal({"model/calibration.json": json.dumps(about, indent=1)})
    return Calibration(state, part, before, after, both)


def forget(run: Run) -> bool:
    """Remove the calibration of a run; return whether the run had a calibration."""
    for key in (found := run.calibration).get("state", {}):
        run.assembly.objective.state.pop(key, None)
    with run.folder.lock():
        run.folder.seal({"model/calibration.json": None})
    return bool(found)


def calibrate_run(run: Run, part: str, undo: bool, console: Console) -> None:
    """Calibrate a run or undo its calibration; print scores and write the report."""
    from ..cli.show import plain_table

    if undo:
        if not forget(run):
            console.print("the run has no calibration", markup=False)
            return
        console.print("calibration removed", markup=False)
    else:
        found = calibrate(run, part)
        size = found.before[part].size
        console.print(f"{found.words} ({size:,} samples of {part})", markup=False, soft_wrap=True)
        if size < FEW_SAMPLES:
            console.print(
                f"note: a calibration with {size} samples is uncertain; {FEW_SAMPLES} or more are better.", markup=False
            )
        head = ["score", *(f"{name}, {when}" for name in found.before for when in ("before", "after"))]
        ways = [
            {**fitted, **{score: way[name].scores[score] for score in SHOWN_SCORES if score in way[name].scores}}
            for name in found.before
            for fitted, way in zip(found.fitted[name], (found.before, found.after))
        ]
        rows = [[score, *(f"{way[score]:.4f}" for way in ways)] for score in ways[0]]
        console.print(plain_table(head, rows))
    console.print(f"report: {run.report()}", markup=False, soft_wrap=True)
