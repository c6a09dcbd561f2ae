"""Progress of long work: a bar in a terminal or a notebook, plain lines elsewhere."""

from __future__ import annotations

import html
import os
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Self, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.table import Column

from .errors import printable

MIN_SECONDS_BETWEEN_LINES = 5.0  # where there is no live bar
MIN_SECONDS_BETWEEN_UPDATES = 0.25  # in a notebook


class PrintableConsole(Console):
    """Console with control characters as visible text."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Segments to print, with control characters as visible text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


class ProgressConsole(PrintableConsole):
    """Console without further output after a closed pipe, for example to `head`."""

    def __init__(self, file: TextIO | None = None) -> None:
        super().__init__(file=file or sys.stderr, highlight=False, soft_wrap=True)

    def on_broken_pipe(self) -> None:
        self.quiet = True
        self.file = open(os.devnull, "w")  # noqa: SIM115, for as long as the process lives


class NotebookLine:
    """Notebook line, updated in place by IPython without ipywidgets."""

    def __init__(self) -> None:
        self.handle: Any = None

    def show(self, text: str, share: float) -> None:
        """Replace the line; `share` is the fraction done."""
        display = import_module("IPython.display").display
        bar = f'<progress value="{min(1.0, max(0.0, share)):.4f}"></progress> <code>{html.escape(text)}</code>'
        data = {"text/plain": text, "text/html": bar}
        if self.handle is None:
            self.handle = display(data, raw=True, display_id=True)
        else:
            self.handle.update(data, raw=True)


class ProgressBar:
    """Progress bar: count, speed or other figures, and remaining time.

        with ProgressBar(len(samples), "samples") as bar: bar.add(100)

    total   total count
    unit    name of the counted objects
    show    whether to print anything
    done    count at the start
    keep    leave the bar on the screen at the end; without a terminal, always print the first and the last line
    """

    def __init__(
        self,
        total: int,
        unit: str = "samples",
        show: bool = True,
        done: int = 0,
        keep: bool = False,
        console: Console | None = None,
    ) -> None:
        self.total, self.unit, self.show, self.keep, self.done, self.first = total, unit, show, keep, done, done
        self.console = console or ProgressConsole()
        self.began = time.monotonic()
        self.last = 0.0 if keep else self.began
        text = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))
        columns = (BarColumn(bar_width=12), text, TimeRemainingColumn())
        live = show and self.console.is_terminal
        self.line = NotebookLine() if show and self.console.is_jupyter else None
        self.bar = Progress(*columns, console=self.console, transient=not keep, refresh_per_second=4) if live else None
        self.task = self.bar.add_task("", total=total, completed=done) if self.bar else None

    def __enter__(self) -> Self:
        if self.bar:
            self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar:
            self.bar.stop()

    def add(self, count: int) -> None:
        """Advance the bar by `count`."""
        self.update(self.done + count)

    def update(self, done: int, total: int | None = None, figures: str = "") -> None:
        """Set the count and the text `figures` beside it (default: count per second)."""
        self.done, self.total, now = done, self.total if total is None else total, time.monotonic()
        gone = now - self.began
        figures = figures or f"{(done - self.first) / max(1e-9, gone):,.0f} {self.unit}/s"
        if self.line is not None:
            if now - self.last > MIN_SECONDS_BETWEEN_UPDATES or self.done == self.total:
                self.last = now
                self.line.show(f"{done:,}/{self.total:,} {self.unit}  {figures}", done / max(1, self.total))
        elif self.bar and self.task is not None:
            text = f"{done:,}/{self.total:,}  {figures}"
            self.bar.update(self.task, completed=done, total=self.total, description=text)
        elif now - self.last > MIN_SECONDS_BETWEEN_LINES or (self.keep and done == self.total):
            self.last = now
            left = gone / max(1, done - self.first) * (self.total - done)
            self.log(f"{self.unit} {done:,}/{self.total:,}  {figures}  {duration(left)} left")

    def log(self, text: str) -> None:
        """Print a line above the bar."""
        if self.show:
            self.console.print(text, markup=False)


def duration(seconds: float) -> str:
    """Format seconds as 4 s, 2 min 5 s, or 3 h 20 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
