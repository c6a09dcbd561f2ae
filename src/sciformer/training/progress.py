"""Progress of a training: terminal output and TensorBoard curves."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TextIO

from ..progress import ProgressBar, ProgressConsole


class ProgressReporter:
    """Terminal output of a training: progress bar, scores, messages.

    With `show=False` nothing is printed.
    """

    def __init__(self, show: bool = True, file: TextIO | None = None) -> None:
        self.show, self.console = show, ProgressConsole(file)
        self.bar: ProgressBar | None = None

    def begin(self, total: int, step: int) -> None:
        """Start the progress bar at step `step` of `total`."""
        self.bar = ProgressBar(total, "step", self.show, step, keep=True, console=self.console).__enter__()

    def step(self, number: int, record: dict[str, Any]) -> None:
        if self.bar is not None:
            speed = f"{record['tokens_per_s']:,.0f} tokens/s"  # all of it fits into 80 columns
            self.bar.update(number, figures=f"loss {record['loss']:.4f}  {speed}  gradient {record['norm']:.2f}")

    def scores(self, number: int, scores: dict[str, float], best: bool) -> None:
        shown = "  ".join(f"{name} {value:.4f}" for name, value in scores.items())
        self.log(f"step {number}: validation {shown}" + ("  (best so far)" if best else ""))

    def log(self, text: str) -> None:
        """Print a line above the progress bar."""
        if self.show:
            self.console.print(text, markup=False)

    def end(self) -> None:
        if self.bar is not None:
            self.bar.__exit__()
            self.bar = None


class Board:
    """Curves for TensorBoard; without TensorBoard, no curves."""

    def __init__(self, folder: Path, step: int) -> None:
        self.writer: Any = None
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            return
        self.writer = SummaryWriter(str(folder), purge_step=step + 1)

    def add(self, record: dict[str, Any]) -> None:
        """Add a point to the curve of each float value in a log record."""
        if self.writer is not None:
            for name, value in record.items():
                if isinstance(value, float):
                    self.writer.add_scalar(name, value, record["step"])

    def end(self) -> None:
        if self.writer is not None:
            self.writer.close()
