"""Sciformer: one transformer, any token.

    train, pretrain, finetune        train a recipe on files, or on tables in memory
    predict, embed, evaluate         use a run on files, or on tables in memory
    generate, translate              texts from a run
    new, check, compare              recipes: write for files, check before a training, compare
    inspect, report, export          look at a run, or give it to other libraries
    import_model                     a model of another library as a run

    Recipe           data, tokens, model, objective and training of a run: load, change, save
    Run              a run folder: scores, predictions, model, report
    UserError        an error that the user can correct, with message, hint, key, file and line
    Stopped          a training was stopped by a signal, after saving a checkpoint
    nn               layers: attention, transformers, poolings, positions

    Tokens, Readout  base classes for your own tokens and for their prediction; the classes of
                     `sciformer.tokens.protocols` declare further abilities
    Stream           tokens of many samples, concatenated
    register         makes your own class available in recipes
    load_plugin      imports your Python file or folder
    check_tokens     conformance tests of your tokens

docs/api.md says what is public. Names are imported on first use, so that the version and the help of the command line
do not need PyTorch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._version import __version__ as __version__

if TYPE_CHECKING:
    from . import nn as nn
    from .api import check as check
    from .api import compare as compare
    from .api import embed as embed
    from .api import evaluate as evaluate
    from .api import export as export
    from .api import finetune as finetune
    from .api import generate as generate
    from .api import import_model as import_model
    from .api import inspect as inspect
    from .api import new as new
    from .api import predict as predict
    from .api import pretrain as pretrain
    from .api import report as report
    from .api import translate as translate
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
    "check": "api:check",
    "compare": "api:compare",
    "embed": "api:embed",
    "evaluate": "api:evaluate",
    "export": "api:export",
    "finetune": "api:finetune",
    "generate": "api:generate",
    "import_model": "api:import_model",
    "inspect": "api:inspect",
    "new": "api:new",
    "predict": "api:predict",
    "pretrain": "api:pretrain",
    "report": "api:report",
    "translate": "api:translate",
    "check_tokens": "testing:check_tokens",
    "load_plugin": "recipe.plugin:load",
    "register": "recipe.registry:register",
    "train": "run:train",
}
PACKAGES = ("nn",)  # public packages
__all__ = sorted([*PLACES, *PACKAGES, "__version__"])


def __dir__() -> list[str]:
    return sorted({*globals(), *PLACES, *PACKAGES})


if not TYPE_CHECKING:  # type checkers should still report unknown names

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name in PACKAGES:
            return import_module(f".{name}", __name__)
        if name not in PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, _, attribute = PLACES[name].partition(":")
        return getattr(import_module(f".{module}", __name__), attribute)
