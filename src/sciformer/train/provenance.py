"""What a training says and writes down of itself before it begins."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from typing import Any

import torch

from .._version import __version__
from ..assembly import Assembly
from ..errors import UserError
from ..recipe import Recipe, plugin
from .distributed import device_name
from .engine import Engine
from .folder import Folder
from .progress import ProgressReporter


def describe_run(assembly: Assembly, engine: Engine, plugins: Sequence[plugin.Plugin]) -> dict[str, Any]:
    """What is written down of a run: versions, device, data, sizes."""
    assert assembly.splits is not None
    return {
        "sciformer": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": device_name(engine.ranks.device),
        "ranks": engine.ranks.world,
        "plugins": plugin.record_plugins(plugins),
        "data": assembly.splits.fingerprint,
        "samples": {part: len(assembly.dataset(part)) for part in assembly.parts()},
        "batches": engine.order.batches,
        "parameters": sum(weight.numel() for weight in engine.step.parameters()),
    }


def update_metadata(folder: Folder, about: dict[str, Any], teller: ProgressReporter) -> None:
    """Write how long it took; where that fails, something worse is on its way up and must not be hidden by it."""
    try:
        folder.write("run.json", json.dumps(about, indent=1))
    except UserError as error:
        teller.log(f"the time was not noted: {error}")


def announce(recipe: Recipe, assembly: Assembly, engine: Engine, teller: ProgressReporter, resumed: bool) -> None:
    """Say what is about to be trained, and what is odd about it."""
    count = sum(weight.numel() for weight in engine.step.parameters())
    samples = ", ".join(f"{len(assembly.dataset(part)):,} {part}" for part in assembly.parts())
    where = device_name(engine.ranks.device)
    teller.log(f"{recipe.name}: {count:,} parameters; samples: {samples}; {engine.total:,} steps on {where}")
    for text in [] if assembly.splits is None or resumed else assembly.splits.notes:
        teller.log(f"note: {text}")
    if short := {part: n for part in assembly.parts() if (n := assembly.dataset(part).shortened)}:
        found = ", ".join(f"{count:,} {part}" for part, count in short.items())
        teller.log(f"note: samples longer than tokens.*.context were cut to it: {found}")
    if recipe.train.freeze:
        trained = sum(weight.numel() for weight in engine.step.parameters() if weight.requires_grad)
        random = "" if recipe.train.init_from else ", and the others are random: train.freeze without train.init_from"
        teller.log(f"{trained:,} of these parameters are trained{random}")
    if resumed:
        teller.log(f"going on from step {engine.number}")
    elif assembly.pretrained is not None:
        teller.log(assembly.pretrained.words())
        if assembly.pretrained.can_answer:
            teller.log(
                "it answers already: judged before the first step, nothing worse is kept; "
                "a low train.learning_rate spares it"
            )
