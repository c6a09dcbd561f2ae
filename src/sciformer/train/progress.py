"""How a training goes, told to people: a live bar in a terminal, plain lines elsewhere, TensorBoard where installed."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

MIN_SECONDS_BETWEEN_LINES = 5.0  # where there is no live bar


class _Figures(ProgressColumn):
    """Loss, speed and gradient beside the bar."""

    def render(self, task: Task) -> Text:
        return Text(str(task.fields.get("figures", "")), no_wrap=True, overflow="ellipsis")


class _Console(Console):
    """A console whose reader may go away, as `head` does: then there is nobody to tell, and the training goes on."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        self.file = open(os.devnull, "w")  # noqa: SIM115, for as long as the process lives


class ProgressReporter:
    """Tells of steps, scores and events. `show=False` tells nothing, as a library wants it."""

    def __init__(self, show: bool = True, file: TextIO | None = None) -> None:
        self.show = show
        self.console = _Console(file=file or sys.stderr, highlight=False, soft_wrap=True)
        self.live = show and self.console.is_terminal
        self.bar: Progress | None = None
        self.task: Any = None
        self.total, self.last, self.began, self.first = 0, 0.0, 0.0, 0

    def begin(self, total: int, step: int, unit: str) -> None:
        """Start counting: `step` of `total` are done already."""
        self.total, self.unit, self.began, self.first = total, unit, time.monotonic(), step
        if self.live:
            columns = (
                BarColumn(bar_width=12),
                TextColumn("{task.completed}/{task.total}"),
            )
            self.bar = Progress(*columns, _Figures(), TimeRemainingColumn(), console=self.console, refresh_per_second=4)
            self.bar.start()
            self.task = self.bar.add_task("training", total=total, completed=step, figures="")

    def step(self, number: int, record: dict[str, Any]) -> None:
        """A step was logged."""
        if not self.show:
            return
        speed = f"{record['tokens_per_s']:,.0f} tokens/s"  # all of it fits into 80 columns
        figures = f"loss {record['loss']:.4f}  {speed}  gradient {record['norm']:.2f}"
        if self.bar is not None:
            self.bar.update(self.task, completed=number, figures=figures)
        elif time.monotonic() - self.last > MIN_SECONDS_BETWEEN_LINES or number == self.total:
            self.last = time.monotonic()
            gone = max(1, number - self.first)
            left = (self.last - self.began) / gone * (self.total - number)
            self.console.print(f"step {number}/{self.total}  {figures}  {duration(left)} left", markup=False)

    def scores(self, number: int, scores: dict[str, float], best: bool) -> None:
        """A model was judged; all of the scores are shown."""
        shown = "  ".join(f"{name} {value:.4f}" for name, value in scores.items())
        self.log(f"step {number}: validation {shown}" + ("  (best so far)" if best else ""))

    def log(self, text: str) -> None:
        """One line, above the bar."""
        if self.show:
            self.console.print(text, markup=False)

    def end(self) -> None:
        """Take the bar away."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


def duration(seconds: float) -> str:
    """Seconds in words: 4 s, 2 min 5 s, 3 h 20 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


class Board:
    """Curves for TensorBoard, where it is installed; otherwise nothing."""

    def __init__(self, folder: Path, step: int) -> None:
        self.writer: Any = None
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            return
        self.writer = SummaryWriter(str(folder), purge_step=step + 1)

    def add(self, record: dict[str, Any]) -> None:
        """The numbers of a record."""
        if self.writer is not None:
            for name, value in record.items():
                if isinstance(value, float):
                    self.writer.add_scalar(name, value, record["step"])

    def end(self) -> None:
        """Write what is left."""
        if self.writer is not None:
            self.writer.close()
