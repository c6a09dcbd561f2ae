"""Cost of a model: parameters, FLOPs and memory, counted on a few samples."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from ..assembly import Assembly
from ..data.batch import Batch
from ..data.prepare import prepare
from ..data.random import SampleRandom
from ..errors import UserError
from ..evaluation.evaluate import on_device
from ..progress import duration
from .report.page import Page

if TYPE_CHECKING:
    from ..run import Run
    from ..training.config import Train

Shape = Sequence[int]


@dataclass(frozen=True)
class Cost:
    """Training cost of a model; a multiplication and an addition are two operations."""

    parameters: int
    """Number of trained parameters; tied parameters count once."""
    weight_bytes: int
    """Memory of the weights in bytes."""
    tokens: float
    """Mean number of tokens of the counted samples."""
    flops_per_sample: float
    """FLOPs of a training step (forward and backward) for one sample."""
    flops_per_token: float
    """FLOPs of a training step for one token."""
    activation_bytes: float
    """Memory for the backward pass of one sample, in bytes."""
    training_bytes: float
    """Memory of weights, gradients, two AdamW moments and activations of a micro-batch, in bytes."""


def cost(assembly: Assembly, step: nn.Module, batch: Batch) -> Cost:
    """Cost of a training step, counted while it runs on a small prepared batch.

        FLOPs = sum over matrix products of 2 n m k               (norms, activations and the softmax are not counted)
        bytes = (weights + gradients + 2 moments) + activations of a sample x micro-batch

    Attention counts 4 N M D FLOPs forward and 8 N M D backward, even if a mask hides some keys. Recomputation by a
    kernel is not counted. The step runs on a copy on the CPU in single precision, so the numbers do not depend on the
    device; bfloat16 activations take about half the memory.
    """
    if not len(batch) or not batch.tokens:
        raise UserError(
            "the cost is counted on at least one sample with one token, but there are "
            f"{len(batch)} samples with {batch.tokens} tokens"
        )
    twin = copy.deepcopy(step).to("cpu").train()
    twin.zero_grad(set_to_none=True)
    carried = {name: one.initial for name, one in assembly.carried().items()}
    own = {weight.untyped_storage().data_ptr() for weight in [*twin.parameters(), *twin.buffers()]}
    kept: dict[int, int] = {}  # storages live until the backward pass, so addresses are unique

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    counter = FlopCounterMode(display=False, custom_mapping=_flop_formulas())
    with torch.random.fork_rng(devices=[]), torch.enable_grad(), counter:
        with saved_tensors_hooks(keep, lambda tensor: tensor):
            loss, _ = twin(on_device(batch, torch.device("cpu"), carried))
        loss.backward()
    trained = [weight for weight in twin.parameters() if weight.requires_grad]
    weight_bytes = sum(weight.nbytes for weight in twin.parameters())
    activations, settings = sum(kept.values()) / len(batch), assembly.recipe.train
    copies = 3 * sum(weight.nbytes for weight in trained) + (weight_bytes if settings.ema else 0)
    flops = float(counter.get_total_flops())
    return Cost(
        parameters=sum(weight.numel() for weight in trained),
        weight_bytes=weight_bytes,
        tokens=batch.tokens / len(batch),
        flops_per_sample=flops / len(batch),
        flops_per_token=flops / batch.tokens,
        activation_bytes=activations,
        training_bytes=weight_bytes + copies + activations * samples_at_once(settings, batch),
    )


def training_cost(run: Run, data: Assembly) -> tuple[Cost, Batch]:
    """Cost of a training step of a run, and the four samples (all, if the loss needs them) used to count it."""
    train = data.dataset("train")
    few = train.batch(np.arange(len(train) if data.objective.needs_all else min(4, len(train))))
    rng = SampleRandom(run.recipe.train.seed, 0, few.ids)
    return cost(data, run.step, prepare(few, data.tokens, data.objective, rng, training=True)), few


def samples_seen(run: Run, size: int) -> float:
    """Number of samples or windows in all training steps together.

    size   number of samples or windows in the training part
    """
    steps = max((record.get("step", 0) for record in run.records), default=0)
    settings = run.recipe.train
    return steps * (min(settings.batch, size) if settings.tokens is None else size / run.about["batches"])


def tokens_per_second(run: Run) -> float:
    """Median training speed of a run in tokens per second; NaN if it was not logged."""
    speeds = [record["tokens_per_s"] for record in run.records if "tokens_per_s" in record]
    return float(np.median(speeds)) if speeds else math.nan


def samples_at_once(settings: Train, batch: Batch) -> int:
    """Number of samples in a micro-batch, by train.micro_batch or train.tokens."""
    if settings.micro_batch or settings.tokens is None:
        return settings.micro_batch or settings.batch
    return max(1, settings.tokens // max(1, batch.widest()))


def _flop_formulas() -> dict[Any, Any]:
    """FLOP formulas of CPU kernels not counted by PyTorch (attention, LSTM)."""
    aten = torch.ops.aten
    return {
        aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *_, **__: _attention_flops(q, k, v),
        aten._scaled_dot_product_flash_attention_for_cpu_backward: lambda _, *qkv, **__: 2 * _attention_flops(*qkv[:3]),
        aten.mkldnn_rnn_layer: lambda x, w, u, *_, **__: _recurrent_flops(x, w, u),
        aten.mkldnn_rnn_layer_backward: lambda x, w, u, *_, **__: 2 * _recurrent_flops(x, w, u),
    }


def _attention_flops(query: Shape, key: Shape, value: Shape) -> int:
    """FLOPs of q k^T and of the weighted sum of v: 2 B H N M (E + E').

    E is the width of a query or key, E' the width of a value.
    """
    batch, heads, n, width = query
    return 2 * batch * heads * n * key[-2] * (width + value[-1])


def _recurrent_flops(x: Shape, of_x: Shape, of_h: Shape) -> int:
    """FLOPs of W x + U h at all N steps: 2 N B (|W| + |U|), with |W| elements of W."""
    steps, batch, _ = x
    return 2 * steps * batch * of_x[0] * (of_x[1] + of_h[1])


def format_large(number: float, unit: str = "") -> str:
    """Format a large number with an SI prefix: 1.23 G."""
    number, letters = float(number), ["", "k", "M", "G", "T", "P", "E"]
    while abs(number) >= 999.5 and len(letters) > 1:
        number, letters = number / 1000, letters[1:]
    return f"{number:.3g} {letters[0]}{unit}".rstrip()


def setting(page: Page, run: Run) -> None:
    """Write the section of the report on recipe, device, versions and time of a run."""
    page.section("Run")
    recipe, about, log = run.recipe, run.about, run.folder.log
    kinds = [*(each.kind for each in recipe.streams.values()), recipe.model.kind, recipe.objective.kind]
    plugins = [f"{one['name']} ({one['sha256'][:12]})" for one in about.get("plugins", [])]
    said = {
        **{key.capitalize(): value for key, value in recipe.about if key in ("paper", "data", "note")},
        "Recipe": about.get("recipe"),
        "Parts": f"{' · '.join(kinds)}, trunk {recipe.model.trunk}",
        "Seed": recipe.train.seed,
        "Started": about.get("began"),
        "Initial weights": _describe_start(about.get("init_from")),
        "Last step": f"{datetime.fromtimestamp(log.stat().st_mtime):%Y-%m-%d %H:%M}" if log.exists() else None,
        "Device": f"{about.get('device')}; processes: {about.get('ranks', 1)}",
        "Versions": ", ".join(f"{name} {about[name]}" for name in ("sciformer", "torch", "python") if name in about),
        "Plugins": ", ".join(plugins) or None,
    }
    page.facts({name: value for name, value in said.items() if value is not None})


def _describe_start(source: dict[str, Any] | None) -> str | None:
    if not source:
        return None
    taken = f"{source['parameters']:,} parameters of the run {Path(source['run']).name} (weights {source['hash']})"
    return f"{taken}; newly initialised: {', '.join(source['new'])}" if source["new"] else taken


def section(page: Page, run: Run, data: Assembly | None, numbers: dict[str, Any]) -> None:
    """Write the section on cost: speed from the log, and counts if the data exist."""
    page.section("Cost")
    about, settings = run.about, run.recipe.train
    facts = {"Time": duration(about.get("seconds", 0.0)), "Parameters": f"{about.get('parameters', 0):,}"}
    speed = tokens_per_second(run)
    if math.isfinite(speed):
        facts["Speed"] = f"{speed:,.0f} tokens/s (median)"
    if data is not None:
        found, few = training_cost(run, data)
        numbers["cost"] = asdict(found)
        train = data.dataset("train")
        seen, one = samples_seen(run, len(train)), train.unit.removesuffix("s")
        facts |= {
            "Weights": format_large(found.weight_bytes, "B"),
            "FLOPs of a training step": f"{format_large(found.flops_per_token)} per token, "
            f"{format_large(found.flops_per_sample)} per {one} of {found.tokens:.4g} tokens (forward and backward)",
            "FLOPs of the training": format_large(found.flops_per_sample * seen),
            "Activations": f"{format_large(found.activation_bytes, 'B')} per {one}",
            "Memory for training": f"about {format_large(found.training_bytes, 'B')}, "
            f"with {samples_at_once(settings, few)} {train.unit} at once, in single precision",
        }
        if "Speed" in facts:
            facts["Speed"] += f", {format_large(speed * found.flops_per_token, 'FLOP/s')}"
    page.facts(facts)


def to_json(value: Any) -> Any:
    """Convert to plain JSON; NaN and infinity become null."""
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (np.ndarray, list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value
