"""Metadata of a run (run.json), and the messages at the start of a training."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from .._version import __version__
from ..assembly import Assembly
from ..recipe import Recipe, plugin
from .distributed import device_name
from .engine import Engine
from .progress import ProgressReporter


def describe_run(assembly: Assembly, engine: Engine, plugins: Sequence[plugin.Plugin]) -> dict[str, Any]:
    """Metadata of a run: versions, device, fingerprint of the data, sizes."""
    where = {"device": device_name(engine.ranks.device), "ranks": engine.ranks.world}
    length = {"batches": engine.order.batches, "steps": engine.total}
    return {**describe_model(assembly, engine.step), **where, "plugins": plugin.record_plugins(plugins), **length}


def describe_model(assembly: Assembly, model: nn.Module) -> dict[str, Any]:
    """Metadata of a trained or imported model."""
    return {
        "sciformer": __version__,
        "sealed": True,  # the folder has a manifest
        "torch": torch.__version__,
        "python": platform.python_version(),
        "plugins": [],
        "data": assembly.splits.fingerprint if assembly.splits else {},
        **assembly.counts(),
        "parameters": sum(weight.numel() for weight in model.parameters()),
    }


def announce(recipe: Recipe, assembly: Assembly, engine: Engine, reporter: ProgressReporter, resumed: bool) -> None:
    """Print model size, samples, steps and device of a training, and data notes."""
    count = sum(weight.numel() for weight in engine.step.parameters())
    samples = ", ".join(f"{part} {assembly.dataset(part).count_in_words}" for part in assembly.parts())
    where = device_name(engine.ranks.device)
    reporter.log(f"{recipe.name}: {count:,} parameters; samples: {samples}; {engine.length} on {where}")
    for name, words in assembly.data_facts.items():
        reporter.log(f"{name}: {words}")
    notes = [*assembly.splits.notes, *assembly.profile_notes] if assembly.splits is not None else []
    for text in [] if resumed else notes:
        reporter.log(f"note: {text}")
    if short := {part: n for part in assembly.parts() if (n := assembly.dataset(part).shortened)}:
        found = ", ".join(f"{count:,} {part}" for part, count in short.items())
        reporter.log(f"note: samples longer than tokens.*.context were truncated: {found}")
    if recipe.train.freeze:
        trained = sum(weight.numel() for weight in engine.step.parameters() if weight.requires_grad)
        random = "" if recipe.train.init_from else "; the other parameters stay random: train.init_from is not set"
        reporter.log(f"{trained:,} of these parameters are trained{random}")
    if resumed:
        reporter.log(f"resuming from step {engine.number}")
    elif assembly.pretrained is not None:
        reporter.log(assembly.pretrained.words())
        if assembly.pretrained.can_answer:
            reporter.log(
                "the pretrained model has the heads of this objective: it is evaluated before the first step, "
                "and no worse model is kept; use a low train.learning_rate"
            )
