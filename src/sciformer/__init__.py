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
    from .data.batch import Stream as Stream
    from .errors import Stopped as Stopped
    from .errors import UserError as UserError
    from .interface.functions import check as check
    from .interface.functions import compare as compare
    from .interface.functions import embed as embed
    from .interface.functions import evaluate as evaluate
    from .interface.functions import export as export
    from .interface.functions import finetune as finetune
    from .interface.functions import generate as generate
    from .interface.functions import import_model as import_model
    from .interface.functions import inspect as inspect
    from .interface.functions import new as new
    from .interface.functions import predict as predict
    from .interface.functions import pretrain as pretrain
    from .interface.functions import report as report
    from .interface.functions import translate as translate
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
    "check": "interface.functions:check",
    "compare": "interface.functions:compare",
    "embed": "interface.functions:embed",
    "evaluate": "interface.functions:evaluate",
    "export": "interface.functions:export",
    "finetune": "interface.functions:finetune",
    "generate": "interface.functions:generate",
    "import_model": "interface.functions:import_model",
    "inspect": "interface.functions:inspect",
    "new": "interface.functions:new",
    "predict": "interface.functions:predict",
    "pretrain": "interface.functions:pretrain",
    "report": "interface.functions:report",
    "translate": "interface.functions:translate",
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
