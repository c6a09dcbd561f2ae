"""The verb that makes data: `simulate`, with a command for each simulation that a field registers."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from ..errors import one_of
from ..recipe.field import load, places
from .app import app

simulator = App(name="simulate", help="Simulate data and write them to a file.", sort_key=11, help_epilogue="")
app.command(simulator)


@simulator.default
def simulate(
    what: Annotated[str, Parameter(show=False)],
    /,
    *more: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
) -> None:
    """Simulate data and write them to a file."""
    one_of("what to simulate", what, sorted(places("simulate")))


for name, place in sorted(places("simulate").items()):
    command = load(place)
    simulator.command(command, name=name, help_epilogue=getattr(command, "help_epilogue", ""))
