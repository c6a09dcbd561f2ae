"""One thread, one seed, and GPU tests only where there is a GPU."""

import gc
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from sciformer.data import collate
from sciformer.recipe import plugin, registry
from sciformer.recipe.field import PLUGIN_FIELDS

SLURM = Path(__file__).parent / "slurm"


def pytest_ignore_collect(collection_path, config):
    """The tests on a real Slurm run only when they are named, as by `make test-cluster`."""
    named = any(Path(word).resolve().is_relative_to(SLURM) for word in config.args)
    return True if collection_path == SLURM and not named else None


def pytest_collection_modifyitems(config, items):
    if torch.cuda.is_available():
        return
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    config.hook.pytest_deselected(items=gpu)
    items[:] = [item for item in items if item not in gpu]


def pytest_collection_finish(session):
    """Modules and tests stay to the end: searching them for garbage, again and again, takes time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def pytest_configure():
    torch.set_num_threads(1)  # also for fixtures of modules


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The temporary folder as the working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def _quiet_and_repeatable():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it


@pytest.fixture
def own_plugins(monkeypatch):
    """Plugins that are loaded here are forgotten afterwards."""
    monkeypatch.setattr(plugin, "LOADED_PLUGINS", {})
    monkeypatch.setattr(registry, "REGISTERED", {point: {} for point in registry.EXTENSION_POINTS})
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = set(sys.modules)
    yield
    PLUGIN_FIELDS.clear()
    for name in set(sys.modules) - before:
        if name.startswith("sciformer_plugin_"):
            del sys.modules[name]


@pytest.fixture
def double(monkeypatch):
    """Everything in float64, in which a mistake is not mistaken for rounding: norms of few rows amplify it."""
    monkeypatch.setitem(collate.DTYPES, "f", np.float64)
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
