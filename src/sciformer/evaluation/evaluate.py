"""Evaluation and prediction of a model on a data set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from ..assembly import Assembly
from ..data.batch import Batch, ModelInputs
from ..data.collate import AsyncTensors
from ..data.columns import Array
from ..data.dataset import ADDED_COLUMNS, Dataset
from ..data.prepare import prepare
from ..data.random import SampleRandom
from ..data.sampler import share
from ..data.windows import WINDOW
from ..errors import UserError, is_out_of_memory
from ..objectives.base import CARRIED

Item = TypeVar("Item")
Part = tuple[dict[str, Array], dict[str, Array], Array]  # outputs, columns of samples, ids
# Batch size of an evaluation divided by the batch size of the training, by device (default: 1).
EVALUATION_BATCH_FACTOR = {"cuda": 4}


@dataclass(frozen=True)
class Evaluation:
    """Scores of an evaluation, with the model outputs and columns of its samples."""

    scores: dict[str, float]
    outputs: dict[str, Array] = field(default_factory=dict)
    samples: dict[str, Array] = field(default_factory=dict)
    count: float = 0.0
    size: int = 0
    """Number of evaluated samples."""
    windows: int = 0
    """Number of evaluated windows; 0 if samples were not cut into windows."""
    notes: tuple[str, ...] = ()
    """Notes of the reader on skipped samples."""


@torch.no_grad()
def evaluate(
    step: nn.Module,
    assembly: Assembly,
    dataset: Dataset,
    *,
    ranks: Any = None,
    device: torch.device | str = "cpu",
    batch: int = 64,
    tokens: int | None = None,
    limit: int | None = None,
    precision: torch.dtype | None = None,
    carried: Mapping[str, torch.Tensor] | None = None,
) -> Evaluation:
    """Loss and metrics on a data set; `step` holds the model and the objective.

    ranks    processes that divide the work (default: only this process)
    batch    largest number of samples in a training batch; an evaluation on a GPU uses larger batches
             (`evaluation_limits`)
    tokens   largest number of tokens of a stream in a training batch, including padding (default: no limit)
    limit    number of samples to evaluate, from the first (default: all)
    carried  state tensors of the objective (default: the initial tensors)

    If the loss compares the samples of a batch (`Objective.whole_batch`), batches have `train.batch` samples in the
    order of the data; the last batch may be shorter.
    """
    rank, world = (0, 1) if ranks is None else (ranks.rank, ranks.world)
    was = step.training
    step.eval()
    where = torch.device(device)
    count = len(dataset) if limit is None else min(limit, len(dataset))
    whole, size = assembly.objective.whole_batch, assembly.recipe.train.batch
    if carried is None:
        carried = {name: one.initial for name, one in assembly.carried().items()}

    def forward(ids: Array, divided: bool = False) -> tuple[AsyncTensors, Batch]:
        rng = SampleRandom(assembly.recipe.train.seed, -1, ids)
        made = prepare(dataset.batch(ids), assembly.tokens, assembly.objective, rng, training=False)
        with autocast(where, precision):
            loss, outputs = step(on_device(made, where, carried, divided), True)
        outputs = {name: value for name, value in outputs.items() if not name.startswith(CARRIED)}
        return AsyncTensors(outputs | {"": loss / world if divided else loss}), made

    def passes() -> Iterator[tuple[AsyncTensors, Batch]]:
        most, room = (size, None) if whole else evaluation_limits(dataset, where, batch, tokens)
        for ids in batches(dataset, count, most, room, by_length=not whole):
            alone = len(ids) < world  # too few to divide: all ranks compute them, rank 0 counts them
            mine = ids if alone else share(ids, rank, world)
            if whole:
                found: Iterable[tuple[AsyncTensors, Batch]] = [forward(mine, world > 1 and not alone)]
            else:
                found = halve_on_out_of_memory(forward, mine)
            yield from (one for one in found if not (alone and rank))

    total = counted = 0.0
    kept: list[Part] = []
    for arriving, made in one_behind(passes()):
        found = arriving.read()
        total, counted = total + float(found.pop("")), counted + made.count
        kept.append((_to_arrays(found, assembly, made.samples), _flat_columns(made.samples), made.ids))
    step.train(was)
    if ranks is not None and world > 1:
        gathered = ranks.gather((total, counted, kept))
        total, counted = sum(part[0] for part in gathered), sum(part[1] for part in gathered)
        kept = [part for found in gathered for part in found[2]]
    if not counted:  # without samples the loss would be the lowest of all
        raise UserError(
            f"there are no {assembly.objective.unit} to evaluate", hint="Hold out a larger part of the data."
        )
    outputs, samples = _sort_by_id(kept)
    seen = dataset.samples if count == len(dataset) else len(np.unique(samples.get(WINDOW, np.arange(count))))
    outputs, samples = _merge_windows(outputs, samples, assembly)
    outputs = assembly.objective.finish(outputs)
    for name in ("label", "correct", "count"):
        if name in outputs:
            outputs[name] = outputs[name].astype(np.int64)
    scores = {"loss": total / counted} | assembly.objective.score(outputs)
    windows = 0 if dataset.windows is None else count
    return Evaluation(scores, outputs, samples, counted, seen, windows, tuple(getattr(dataset.source, "notes", ())))


@torch.no_grad()
def predict(
    step: nn.Module,
    assembly: Assembly,
    dataset: Dataset,
    device: torch.device | str = "cpu",
    batch: int = 64,
    logits: bool = False,
) -> Evaluation:
    """Predictions for samples with or without known targets.

    logits   also return the logits of the classes
    """
    step.eval()
    where = torch.device(device)
    carried = {name: one.initial for name, one in assembly.carried().items()}
    answer = assembly.objective.exported if logits else assembly.objective.predict

    def forward(ids: Array) -> tuple[AsyncTensors, dict[str, Array], Array]:
        raw, rng = dataset.batch(ids), SampleRandom(0, -1, ids)
        made = prepare(raw, assembly.tokens, assembly.objective, rng, training=False, counted=False)
        outputs = answer(step.model, on_device(made, where, carried))
        if logits and "logits" not in outputs:
            kind = assembly.objective.kind
            message = f"predictions of `objective.kind: {kind}` have no logits of classes"
            raise UserError(message, hint="Predict without logits.", key="objective.kind")
        return AsyncTensors(outputs), raw.samples, ids

    def passes() -> Iterator[tuple[AsyncTensors, dict[str, Array], Array]]:
        for ids in batches(dataset, len(dataset), *evaluation_limits(dataset, where, batch)):
            yield from halve_on_out_of_memory(forward, ids)

    kept = []
    for arriving, samples, ids in one_behind(passes()):
        kept.append((_to_arrays(arriving.read(), assembly, samples), _flat_columns(samples), ids))
    outputs, samples = _merge_windows(*_sort_by_id(kept), assembly)
    return Evaluation({}, assembly.objective.finish(outputs), samples)


def on_device(
    batch: Batch, device: torch.device, carried: Mapping[str, torch.Tensor], divided: bool = False
) -> ModelInputs:
    """Inputs of a model from a batch, with the state tensors of the objective."""
    inputs = batch.inputs().to(device)
    moved = {name: value.to(device) for name, value in carried.items()}
    return replace(inputs, carried=moved, divided=divided) if moved or divided else inputs


def batches(
    dataset: Dataset, count: int, batch: int, tokens: int | None = None, by_length: bool = True
) -> Iterator[Array]:
    """Yield the ids of the first `count` samples, in batches of similar length.

    A batch has at most `batch` samples and `tokens` tokens. Samples of one piece of the data stay together, because
    only some pieces are in memory.
    """
    ids, width = np.arange(count), dataset.width if by_length else 1
    if width is None:
        widths = np.maximum(1, dataset.widths[:count])
        ids = np.lexsort((widths, np.searchsorted(dataset.stops, ids, side="right")))
        widths = widths[ids]
    else:
        widths = np.full(min(count, batch), max(1, width))
    start = 0
    while start < count:
        size = min(batch, count - start)
        if tokens is not None:
            some = widths[:size] if width is not None else np.maximum.accumulate(widths[start : start + size])
            size = max(1, int((some * np.arange(1, size + 1) <= tokens).sum()))
        yield ids[start : start + size]
        start += size


def evaluation_limits(
    dataset: Dataset, device: torch.device, batch: int, tokens: int | None = None
) -> tuple[int, int | None]:
    """Limits of an evaluation batch: numbers of samples and of tokens.

    On a GPU, batches are larger than in training, because no gradients are stored. A limit on tokens keeps batches of
    long samples small.
    """
    factor = EVALUATION_BATCH_FACTOR.get(device.type, 1)
    if factor > 1 and tokens is None and dataset.width is None and len(dataset.widths):
        tokens = round(batch * float(np.maximum(1, dataset.widths).mean()))
    return factor * batch, tokens and factor * tokens


def halve_on_out_of_memory(call: Callable[[Array], Item], ids: Array) -> Iterator[Item]:
    """Yield call(ids); if the memory is too small, yield the results of both halves."""
    try:
        yield call(ids)
        return
    except (RuntimeError, MemoryError) as error:
        if len(ids) == 1 or not is_out_of_memory(error):
            raise
    # Outside the handler, so the memory of the failed call is free.
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    for half in np.array_split(ids, 2):
        yield from halve_on_out_of_memory(call, half)


def one_behind(items: Iterable[Item]) -> Iterator[Item]:
    """Yield items with a delay of one item, to keep the GPU busy."""
    before: list[Item] = []
    for item in items:
        yield from before
        before = [item]
    yield from before


def autocast(device: torch.device, precision: torch.dtype | None) -> Any:
    """Context manager of torch.autocast for a precision; None disables it."""
    return torch.autocast(device.type, precision, enabled=precision is not None)


def _to_arrays(outputs: dict[str, torch.Tensor], assembly: Assembly, samples: dict[str, Array]) -> dict[str, Array]:
    found = {name: value.double().numpy() for name, value in outputs.items()}
    return assembly.objective.units(found, samples)


def _merge_windows(
    outputs: dict[str, Array], samples: dict[str, Array], assembly: Assembly
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Merge the outputs of the windows of each sample; keep outputs of single tokens."""
    windows = samples.get(WINDOW)
    samples = {name: column for name, column in samples.items() if name not in ADDED_COLUMNS}
    if windows is None or assembly.objective.unit == "tokens":
        return outputs, samples
    _, first, which = np.unique(windows, return_index=True, return_inverse=True)
    outputs = {name: assembly.objective.merge(values, which, len(first)) for name, values in outputs.items()}
    return outputs, {name: column[first] for name, column in samples.items()}


def _flat_columns(samples: dict[str, Array]) -> dict[str, Array]:
    return {name: column for name, column in samples.items() if column.ndim == 1}


def _sort_by_id(parts: list[Part]) -> tuple[dict[str, Array], dict[str, Array]]:
    """Concatenate outputs and sample columns of all batches, sorted by id.

    Columns without one row per id keep their order.
    """
    back = np.argsort(np.concatenate([np.zeros(0, np.int64), *(ids for *_, ids in parts)]), kind="stable")
    outputs, samples = (concatenate_columns(found) for found in ([p[0] for p in parts], [p[1] for p in parts]))
    for found in (outputs, samples):
        found |= {name: values[back] for name, values in found.items() if len(values) == len(back)}
    return outputs, samples


def concatenate_columns(parts: Sequence[dict[str, Array]]) -> dict[str, Array]:
    """Concatenate the columns of several batches; without batches, return {}."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}
