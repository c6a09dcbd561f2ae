"""Sciformer: one transformer, any token.

    Recipe           data, tokens, model, objective and training of a run: load, change, save
    Run              a run folder: scores, predictions, report
    UserError        an error that the user can correct, with message, hint, key, file and line
    Stopped          a training was stopped by a signal, after saving a checkpoint

    Tokens, Readout  base classes for your own tokens and for their prediction; the classes of
                     `sciformer.tokens.protocols` declare further abilities
    Stream           tokens of many samples, concatenated
    register         makes your own class available in recipes
    load_plugin      imports your Python file or folder
    check_tokens     conformance tests of your tokens

Functions are in packages of their own: `sciformer.run.train`, `sciformer.generation`, `sciformer.comparison`,
`sciformer.checks`. The layers are in `sciformer.nn`. Names are imported on first use, so that the version and the help
of the command line do not need PyTorch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._version import __version__ as __version__

if TYPE_CHECKING:
    from .data.batch import Stream as Stream
    from .errors import Stopped as Stopped
    from .errors import UserError as UserError
    from .recipe import Recipe as Recipe
    from .recipe import plugin
    from .recipe.registry import register as register
    from .run import Run as Run
    from .run import train as train
    from .testing import check_tokens as check_tokens
    from .tokens.base import Tokens as Tokens
    from .tokens.protocols import Readout as Readout

    load_plugin = plugin.load

PLACES = {
    "Readout": "tokens.protocols:Readout",
    "Recipe": "recipe:Recipe",
    "Run": "run:Run",
    "Stopped": "errors:Stopped",
    "Stream": "data.batch:Stream",
    "Tokens": "tokens.base:Tokens",
    "UserError": "errors:UserError",
    "check_tokens": "testing:check_tokens",
    "load_plugin": "recipe.plugin:load",
    "register": "recipe.registry:register",
    "train": "run:train",
}
__all__ = sorted([*PLACES, "__version__"])


def __dir__() -> list[str]:
    return sorted({*globals(), *PLACES})


if not TYPE_CHECKING:  # type checkers should still report unknown names

    def __getattr__(name: str) -> Any:
        if name not in PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        module, _, attribute = PLACES[name].partition(":")
        return getattr(import_module(f".{module}", __name__), attribute)
