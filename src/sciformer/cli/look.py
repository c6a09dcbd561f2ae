"""Verbs that look: report, inspect."""

from __future__ import annotations

from pathlib import Path

from .app import Plugins, RunName, app, open_run
from .terminal import log


@app.command(sort_key=9, help_epilogue="")
def report(run: RunName, /, *, plugin: Plugins = ()) -> None:
    """Write the report of a run anew: one HTML file that needs nothing else."""
    print(f"wrote {open_run(run, plugin).report()}")


@app.command(sort_key=10, help_epilogue="")
def inspect(
    run: RunName, /, *, out: Path | None = None, samples: int = 3, part: str = "", plugin: Plugins = ()
) -> None:
    """Pictures of what a model attends to and what its answers rest on, drawn on the samples themselves.

    Parameters
    ----------
    out
        Folder for the pictures; RUN/inspect unless given.
    samples
        How many samples to draw; 3 unless given.
    part
        Of which part of the data; test, or valid where there is none, unless given.
    """
    opened = open_run(run, plugin)
    from ..files.atomic import make_folder
    from ..inspect.report.figures import inspect_run

    for path in inspect_run(opened, make_folder(out or run / "inspect"), samples=samples, part=part, log=log):
        print(f"wrote {path}")
