"""Small checkpoints, children that are killed and calls that fail, for the tests of what is written to the disk."""

import contextlib
import os

import pytest
import safetensors.torch
import torch

from sciformer.training.checkpoint import load, save
from tests.training.tiny import fate, start


def contents(step):
    weights = {"a": torch.full((3, 2), float(step)), "b": torch.arange(5) + step}
    return {"weights": weights, "optimizer": {"a.mean": torch.randn(3, 2)}}, {"step": step, "loss": 0.1 * step}


def put(folder, *numbers, **options):
    for step in numbers:
        save(folder, step, *contents(step), **options)


def get(folder, **options):
    """What is loaded, checked against what was saved, and what was said."""
    said = []
    found = load(folder, log=said.append, **options)
    assert found is not None
    tensors, state = contents(found.step)
    assert found.state == state
    assert {stem: {*named} for stem, named in found.tensors.items()} == {stem: {*tensors[stem]} for stem in tensors}
    assert all(torch.equal(found.tensors["weights"][name], tensors["weights"][name]) for name in "ab")
    return found, said


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def in_child(work):
    """The fate of a forked child that does the work: its exit code, or minus the signal that ended it."""
    return fate(start(work, seconds=20))


@contextlib.contextmanager
def at_call(fatal, act):
    """Count the calls that change files; the `fatal`-th one acts instead, a writing one after half a file."""
    calls = []

    def around(call):
        def counted(*arguments, **options):
            calls.append((call.__name__, *arguments))
            if len(calls) != fatal:
                return call(*arguments, **options)
            if call.__name__ == "save_file":
                arguments[1].write_bytes(b"half a file")
            return act()

        return counted

    with pytest.MonkeyPatch.context() as patch:
        for name in ("fsync", "rename", "replace", "unlink", "rmdir", "mkdir", "open"):
            patch.setattr(os, name, around(getattr(os, name)))
        patch.setattr(safetensors.torch, "save_file", around(safetensors.torch.save_file))
        yield calls
