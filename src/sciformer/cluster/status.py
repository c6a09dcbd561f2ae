"""State of a run, read from its folder, also while it trains on another machine.

    run_state(Path("runs/mine")).step

Nothing is locked, and PyTorch is not imported.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from ..progress import duration
from ..training.folder import Folder
from .scheduler import describe_process

TAIL_BYTES = 1 << 16  # read from the end of a log
CHECKPOINT = re.compile(r"step-(\d{7,})")


@dataclass(frozen=True)
class RunState:
    """Progress of a run, and the process of its training.

    state          training, complete, stopped (by a signal), failed, interrupted (killed, or its machine was lost), not
                   started, or imported
    step, steps    finished steps, and steps of the whole training
    loss           last loss in the log
    tokens_per_s   speed in the last line of the log
    steps_per_s    mean speed since the training was started or resumed, including evaluations
    seconds_left   remaining time at this speed, only while the run trains
    resumed        number of resumptions from a checkpoint
    logged         time of the last line of the log
    checkpoint     step of the last checkpoint
    saved          time of the last checkpoint
    owner          process that trains the run: `pid`, `host`, `since` and job
    reason         signal or error that ended the training
    """

    folder: str
    state: str
    step: int | None = None
    steps: int | None = None
    loss: float | None = None
    tokens_per_s: float | None = None
    steps_per_s: float | None = None
    seconds_left: float | None = None
    resumed: int = 0
    logged: str | None = None
    checkpoint: int | None = None
    saved: str | None = None
    owner: dict[str, Any] | None = field(default=None)
    reason: str | None = None

    def describe(self) -> list[str]:
        """Lines of text for the terminal, without the name of the run."""
        count = "" if self.step is None else f"step {self.step:,}"
        count += "" if self.steps is None else f" of {self.steps:,}"
        figures = [
            self.state,
            count.strip(),
            "" if self.loss is None else f"loss {self.loss:.4f}",
            "" if self.tokens_per_s is None else f"{self.tokens_per_s:,.0f} tokens/s",
            "" if self.seconds_left is None else f"{duration(self.seconds_left)} left",
        ]
        saved = f"step {self.checkpoint:,}, {_ago(self.saved)}" if self.checkpoint is not None else "none"
        details = [
            f"last checkpoint: {saved}",
            f"resumed {self.resumed} time{'' if self.resumed == 1 else 's'}" if self.resumed else "",
            f"last line of the log: {_ago(self.logged)}" if self.owner is not None and self.logged else "",
        ]
        lines = ["  ".join(filter(None, figures)), "  ".join(filter(None, details))]
        if self.owner is not None:
            lines.append(f"held by {describe_owner(self.owner)}")
        return [*lines, *([self.reason] if self.reason else [])]


def _ago(time: str | None) -> str:
    """Age of a time stamp in words: 3 min ago."""
    try:
        seconds = (datetime.now().astimezone() - datetime.fromisoformat(str(time))).total_seconds()
    except (ValueError, TypeError):
        return "at an unknown time"
    return f"{duration(max(0.0, seconds))} ago"


def describe_owner(owner: dict[str, Any]) -> str:
    """Description of the owner of a run folder: process, machine, job."""
    if not owner:
        return "an unknown process"
    return describe_process(owner) + (f" since {owner['since']}" if "since" in owner else "")


def run_state(path: Path) -> RunState:
    """Read the state of the run in a folder."""
    folder = Folder(path)
    about, stopped, owner = folder.peek("run.json"), folder.peek("stopped.json"), folder.owner()
    lines = [line for line in read_tail(folder.log) if "loss" in line]
    last: dict[str, Any] = lines[-1] if lines else {}
    checkpoint, saved = _last_checkpoint(folder)
    step, steps = max(last.get("step", 0), checkpoint or 0), about.get("steps")
    reason = stopped.get("error") or stopped.get("signal")
    complete = about.get("complete", "steps" not in about and folder.report.exists())  # no `steps` before 0.2.0
    if owner is not None:
        state, reason = "training", None
    elif "imported" in about:
        state = "imported"
    elif reason:
        state = "stopped" if "signal" in stopped else "failed"
        reason = f"{reason} at step {stopped.get('step')}" if state == "stopped" else reason
    else:
        state = "complete" if complete else "interrupted" if about or step else "not started"
    speed = _steps_per_second(lines, owner) if owner else None
    return RunState(
        folder=str(path),
        state=state,
        step=step,
        steps=steps,
        loss=last.get("loss"),
        tokens_per_s=last.get("tokens_per_s"),
        steps_per_s=speed,
        seconds_left=(steps - step) / speed if speed and steps is not None else None,
        resumed=about.get("resumed", 0),
        logged=last.get("time"),
        checkpoint=checkpoint,
        saved=saved,
        owner=owner,
        reason=reason,
    )


def read_tail(path: Path) -> list[dict[str, Any]]:
    """Last complete records of a log."""
    try:
        with open(path, "rb") as file:
            start = max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES)
            file.seek(start)
            data = file.read(TAIL_BYTES)
    except OSError:
        return []
    lines = data[: data.rfind(b"\n") + 1].splitlines()[int(start > 0) :]
    found = []
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if type(record) is dict:
            found.append(record)
    return found


def _steps_per_second(lines: list[dict[str, Any]], owner: dict[str, Any]) -> float | None:
    """Mean speed in steps per second since the process `owner` has locked the run."""
    try:
        began = datetime.fromisoformat(owner["since"]) if "since" in owner else None
        points = [(datetime.fromisoformat(line["time"]), line["step"]) for line in lines if {"time", "step"} <= {*line}]
        own = [point for point in points if began is None or point[0] >= began]
    except (ValueError, TypeError):
        return None
    if len(own) < 2 or own[-1][0] <= own[0][0]:
        return None
    return float((own[-1][1] - own[0][1]) / (own[-1][0] - own[0][0]).total_seconds())


def _last_checkpoint(folder: Folder) -> tuple[int | None, str | None]:
    """Step and time of the newest checkpoint."""
    try:
        found = [
            (int(match[1]), path) for path in folder.checkpoints.iterdir() if (match := CHECKPOINT.fullmatch(path.name))
        ]
        step, path = max(found)
        when = datetime.fromtimestamp(path.stat().st_mtime).astimezone().isoformat(timespec="seconds")
        return step, when
    except (OSError, ValueError):
        return None, None
