"""The command line. The verbs stand beside this file; torch is imported inside them, so that help is quick.

Exit status: 0 done · 1 a fault of Sciformer's own, with a traceback · 2 a mistake that can be mended, with what to do ·
128 + n stopped by signal n after saving (130 Ctrl-C, 143 SIGTERM); the same command goes on from there.
"""

from __future__ import annotations

import sys

from . import exchange, look, simulate, train, use
from .app import app
from .terminal import RECIPE_CHANGES, console, run_and_report

COMMAND_MODULES = (train, use, look, simulate, exchange)  # each adds its verbs to the app when it is imported


def main(arguments: list[str] | None = None) -> int:
    """Run a command line; return its exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    RECIPE_CHANGES.clear()

    def work() -> None:
        rest = words
        if any(word.startswith("--") and "." in word.partition("=")[0] for word in words):
            from ..recipe.options import parse_arguments

            rest, found = parse_arguments(words)
            RECIPE_CHANGES.update(found)
        if rest[:1] == ["simulate"] and {"--help", "-h"} & {*rest[1:2]}:
            simulate.import_commands()
        app(rest, console=console(), exit_on_error=False, print_error=False, result_action="return_value")

    return run_and_report(work)


def run() -> None:
    """The entry point of the installed command."""
    sys.exit(main())
