"""The public surface: names and arguments that only a deprecation may change, as docs/api.md promises."""

import inspect
import re
import subprocess
import sys

import pytest

import sciformer as sf
from tests.errors import refuses
from tests.paths import ROOT

NAMES = (
    "Readout Recipe Run Stopped Stream Tokens UserError __version__ check check_tokens compare embed evaluate export "
    "finetune generate import_model inspect load_plugin new nn predict pretrain register report train translate"
)
FROZEN = {
    "Recipe.change": "self, changes=None, where='in changes', **more",
    "Recipe.from_dict": "cls, mapping, changes=None, where='in changes', name='in Python'",
    "Recipe.inherit_from": "self, below, label",
    "Recipe.load": "cls, name, changes=None, where='in changes'",
    "Recipe.streams": "a value",
    "Recipe.to_dict": "self",
    "Recipe.to_yaml": "self",
    "Recipe.with_tables": "self, data, valid=None, test=None, parts=''",
    "Run.__init__": "self, path, plugins=(), accept_changes=False, columns=None, reading=None",
    "Run.assembly": "a value",
    "Run.calibration": "a value",
    "Run.classes": "a value",
    "Run.data": "self",
    "Run.device": "a value",
    "Run.evaluate": "self, part='test', files=(), limit=None, accept_drift=False, *, data=None",
    "Run.generate": "self, prompts=(None,), number=1, **options",
    "Run.inputs": "self, what",
    "Run.model": "a value",
    "Run.objective": "a value",
    "Run.predict": "self, what, accept_drift=False, watch=None, *, logits=False, intervals=False",
    "Run.recipe": "a value",
    "Run.records": "a value",
    "Run.report": "self",
    "Run.samples": "self, part='test', files=(), watch=None",
    "Run.scores": "a value",
    "Run.source": "self, what, aligned=False, empty=False, streams=()",
    "Run.step": "a value",
    "Run.translate": "self, what, *, beam=None, penalty=None",
    "check": "recipe, *, data=None, valid=None, test=None, parts='', deep=False, plugins=()",
    "check_tokens": "tokens, table, *, dim=8, missing=(), draw=True",
    "compare": (
        "recipes, seeds=3, run='runs/compare', *, data=None, valid=None, test=None, parts='', grid=None, "
        "labels=(), folds=None, plugins=(), show=True, report=True"
    ),
    "embed": "run, what, *, pool='model', unit=False, stream='', accept_drift=False",
    "evaluate": "run, data=None, *, part='test', files=(), limit=None, accept_drift=False",
    "export": "run, out, format='', *, overwrite=False, stream='', raw=False",
    "finetune": (
        "recipe, run=None, *, source, data=None, valid=None, test=None, parts='', fresh=False, "
        "accept_changes=False, plugins=(), show=True, report=True"
    ),
    "generate": "run, prompt=None, length=500, *, temperature=1.0, top_k=None, top_p=None, stop=(), beam=1, seed=None",
    "import_model": "source, run, changes=None",
    "inspect": "run, out=None, *, samples=3, part=''",
    "load_plugin": "path",
    "new": "kind, files=(), out=None, *, changes=None, overwrite=False",
    "predict": "run, what, *, accept_drift=False, logits=False, intervals=False",
    "pretrain": (
        "recipe, run=None, *, data=None, valid=None, test=None, parts='', fresh=False, "
        "accept_changes=False, plugins=(), show=True, report=True, stop_after=None"
    ),
    "register": "point, name",
    "report": "run",
    "train": (
        "recipe, run=None, *, data=None, valid=None, test=None, parts='', fresh=False, "
        "accept_changes=False, plugins=(), show=True, report=True, stop_after=None"
    ),
    "translate": "run, what, *, beam=None, penalty=None",
}


def arguments(function):
    """Names, order, kinds and defaults of the arguments."""
    shown, starred = [], False
    for one in inspect.signature(function).parameters.values():
        if one.kind is one.KEYWORD_ONLY and not starred:
            shown.append("*")
            starred = True
        name = f"**{one.name}" if one.kind is one.VAR_KEYWORD else one.name
        shown.append(name if one.default is one.empty else f"{name}={one.default!r}")
    return ", ".join(shown)


def test_public_names_are_frozen():
    assert sorted(NAMES.split()) == sf.__all__


@pytest.mark.parametrize("name", FROZEN)
def test_public_arguments_are_frozen(name):
    owner, _, member = name.partition(".")
    found = inspect.getattr_static(getattr(sf, owner), member) if member else getattr(sf, owner)
    found = getattr(found, "__func__", found)
    assert FROZEN[name] == (arguments(found) if inspect.isfunction(found) else "a value")


def test_every_public_function_is_frozen_and_documented():
    functions = {name for name in sf.__all__ if inspect.isfunction(getattr(sf, name))}
    methods = {f"{owner}.{name}" for owner in ("Run", "Recipe") for name in vars(getattr(sf, owner)) if name[0] != "_"}
    assert functions | methods <= set(FROZEN)
    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    assert {name for name in NAMES.split() if name[0] != "_"} <= set(re.findall(r"\w+", page))


def test_public_functions_are_typed():
    for name in sf.__all__:
        one = getattr(sf, name)
        if inspect.isfunction(one):
            hints = one.__annotations__
            assert {"return", *inspect.signature(one).parameters} <= set(hints), name


def test_layers_come_when_they_are_asked_for():
    code = "import sys, sciformer as sf; assert 'torch' not in sys.modules; sf.nn.Transformer; "
    code += "assert 'torch' in sys.modules and 'sciformer.run' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_single_values_where_lists_are_needed_are_refused():
    with refuses(hint="[text]"):
        sf.translate("nowhere", "one text")
    with refuses(hint="[first, second]"):
        sf.compare("spins/ising-vit")
