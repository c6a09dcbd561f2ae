"""The command line. The verbs stand in `verbs/`; torch is imported inside them, so that help is quick.

Exit status: 0 done · 1 a fault of Sciformer's own, with a traceback · 2 a mistake that can be mended, with what to do ·
128 + n stopped by signal n after saving (130 Ctrl-C, 143 SIGTERM); the same command goes on from there.
"""

from __future__ import annotations

import sys

from . import exchange
from . import look as looking
from . import simulate as simulating
from . import train as training
from . import use as using
from .app import app
from .terminal import CHANGES, console, status

VERBS = (training, using, looking, simulating, exchange)  # each adds its verbs to the app when it is imported


def main(arguments: list[str] | None = None) -> int:
    """Run a command line; return its exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    CHANGES.clear()

    def work() -> None:
        rest = words
        if any(word.startswith("--") and "." in word.partition("=")[0] for word in words):
            from ..recipe.options import parse_arguments

            rest, found = parse_arguments(words)
            CHANGES.update(found)
        app(rest, console=console(), exit_on_error=False, print_error=False, result_action="return_value")

    return status(work)


def run() -> None:
    """The entry point of the installed command."""
    sys.exit(main())
