"""Sciformer: one transformer, any token.

    Recipe           what is trained on what: load, change, save
    Run              the folder of a training: scores, predictions, report
    UserError        a mistake that can be mended: what was expected, what was found, what to do next
    Stopped          a training was asked to stop by a signal, and did so after saving

    Tokens, Readout  the ground of a domain of your own, and of its way back from vectors to tokens; what else tokens
                     can do is declared with the classes of `sciformer.tokens.protocols`
    Stream           tokens of many samples, end to end
    register         makes a class of your own known to recipes
    load_plugin      imports the file it stands in
    check_tokens     tells what is wrong with it

Verbs live in packages of their own: `sciformer.run.train`, `sciformer.generation`, `sciformer.compare`,
`sciformer.check`. The mathematics is `sciformer.nn`. Nothing is imported before it is asked for, so that the
version and the command line's help come without PyTorch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .data.batch import Stream as Stream
    from .errors import Stopped as Stopped
    from .errors import UserError as UserError
    from .recipe import Recipe as Recipe
    from .recipe.plugin import load as load_plugin
    from .recipe.registry import register as register
    from .run import Run as Run
    from .testing import check_tokens as check_tokens
    from .tokens.base import Tokens as Tokens
    from .tokens.protocols import Readout as Readout

__all__ = [
    "Readout",
    "Recipe",
    "Run",
    "Stopped",
    "Stream",
    "Tokens",
    "UserError",
    "__version__",
    "check_tokens",
    "load_plugin",
    "register",
]

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
}


def __dir__() -> list[str]:
    return sorted({*globals(), *PLACES})


if not TYPE_CHECKING:  # a checker of types should still see a name that is not there

    def __getattr__(name: str) -> Any:
        if name not in PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        module, _, attribute = PLACES[name].partition(":")
        return getattr(import_module(f".{module}", __name__), attribute)
