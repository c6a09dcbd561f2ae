"""Commands `report` and `inspect`: figures of a trained model."""

from __future__ import annotations

from pathlib import Path

from .app import Plugins, RunName, app, open_run
from .terminal import log, say


@app.command(sort_key=9, help_epilogue="")
def report(run: RunName, /, *, plugin: Plugins = ()) -> None:
    """Write the report of a run again, as an HTML page without external files."""
    say(f"wrote {open_run(run, plugin).report()}")


@app.command(sort_key=10, help_epilogue="")
def inspect(
    run: RunName, /, *, out: Path | None = None, samples: int = 3, part: str = "", plugin: Plugins = ()
) -> None:
    """Draw attention maps and attributions of a model on its samples.

    Parameters
    ----------
    out
        Folder for the figures (default: RUN/inspect).
    samples
        Number of samples to draw (default: 3).
    part
        Part of the data to draw from (default: test; valid if there is no test part).
    """
    opened = open_run(run, plugin)
    from ..files.atomic import make_folder
    from ..inspection.report.figures import inspect_run

    for path in inspect_run(opened, make_folder(out or run / "inspect"), samples=samples, part=part, log=log):
        say(f"wrote {path}")
