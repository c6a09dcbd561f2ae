"""Entry point of the command line.

The commands are in the modules of this folder. They import torch inside their functions, so that help is fast.

Exit status: 0 success · 1 internal error, with a traceback · 2 user error, with a hint · 128 + n stopped by signal n
after saving a checkpoint (130 Ctrl-C, 143 SIGTERM); the same command resumes the training.
"""

from __future__ import annotations

import sys

from . import cluster, exchange, inspection, simulate, train, use
from .app import app
from .terminal import RECIPE_CHANGES, console, run_and_report

COMMAND_MODULES = (train, cluster, use, inspection, simulate, exchange)  # importing them adds their commands to the app


def main(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit status."""
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
    """Entry point of the command `sciformer`."""
    sys.exit(main())
