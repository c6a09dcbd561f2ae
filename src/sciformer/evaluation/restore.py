"""Tasks for a trained masked model: predictions for other masks.

    task = make_task(run, mask="forecast", length=6)
    rows = evaluate_task(run, run.samples("test"), task)

The predictions are in the units of the data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..data.batch import Batch, Stream
from ..data.columns import Array
from ..data.dataset import Dataset
from ..data.random import SampleRandom
from ..errors import UserError, one_of
from ..files.atomic import check_new, check_writable
from ..nn.ragged import Ragged
from ..objectives.masked import Masked
from ..tokens.base import stream_part
from ..tokens.protocols import Change, HiddenTask, Maskable, Restorable
from .evaluate import batches, evaluation_limits

if TYPE_CHECKING:
    from ..run import Run

CHANGE = re.compile(
    r"(?P<name>[^=]+)=\s*(?P<by>[+-](\d+\.?\d*|\.\d+)(e[+-]?\d+)?)(?P<unit>(\s*[^\W\d].*)?)", re.IGNORECASE
)


class MaskedTask(Masked):
    """Masked modelling for predictions, also of tokens without a known value."""

    def candidates(self, tokens: Maskable, stream: Stream) -> Array | None:
        return None


def make_task(
    run: Run, mask: str, length: float | None = None, factor: int | None = None, unknown: bool = False
) -> HiddenTask:
    """Make a task for a run: every masked token is hidden.

    If the mask is for coarse values (`coarse_masks`), masked tokens have coarse values instead.

    mask     name of the mask
    length   length of the mask in units of the data (default: the length in the recipe, if its mask is the same)
    factor   factor of coarse values (default: the factor in the recipe)
    unknown  whether tokens without a known value are predicted too
    """
    assembly = run.assembly
    given: Any = assembly.objective
    if not isinstance(given, Masked):
        message = f"--mask cannot be used: the run was trained with `objective.kind: {given.kind}`"
        raise UserError(message, hint="Train with objective.kind: masked.", key="--mask")
    names = given.predicted_streams(assembly.tokens)
    for name in names:
        tokens = Restorable.require(assembly.tokens[name], "--mask")
        one_of("--mask", mask, tokens.masks, key="--mask")
    usual = given.mask_length if given.mask == mask else None
    length = usual if length is None else length
    plain: dict[str, Any] = {"random": 0.0, "coarse": 0.0, "same": 0.0, "hide_stream": 0.0, "whole_words": False}
    changes: dict[str, Any] = {"mask": mask, "coarse_factor": factor or given.coarse_factor}
    kept: dict[str, Any] = {key: getattr(given, key) for key in ("mask_ratio", "stream", "every_stream")}
    task = (MaskedTask if unknown else Masked)(kind=given.kind, **kept, **plain, **changes)

    def hide(batch: Batch, length: float | None) -> Batch:
        ids = batch.ids if len(batch.ids) else np.arange(len(batch))
        return task.model_copy(update={"mask_length": length}).corrupt(
            batch, assembly.tokens, SampleRandom(assembly.recipe.train.seed, -1, ids)
        )

    def predict(seen: Batch) -> dict[str, dict[str, Array]]:
        return {name: predict_hidden(run.step, assembly, seen, name) for name in names}

    return HiddenTask(mask, length, usual, hide, predict, assembly.recipe.train.batch)


@torch.no_grad()
def predict_hidden(step: Any, assembly: Any, seen: Batch, stream: str) -> dict[str, Array]:
    """Predictions of the readout (A, ...) for the A masked tokens of a stream.

    seen    raw tokens of all streams, after masking; masked tokens have `asked`
    stream  name of the stream
    """
    model, kinds = step.model, assembly.tokens
    streams = {name: kinds[name].normalise(one) for name, one in seen.streams.items()}
    prepared = replace(seen, streams=streams, aside={name: kinds[name].host_columns for name in streams})
    view = prepared.inputs(next(model.parameters()).device).view(stream)
    hidden = model.tokens(model.encode(view))
    if isinstance(view.valid, torch.Tensor):
        hidden = hidden[view.valid]
    elif not isinstance(view.valid, Ragged):
        hidden = hidden.flatten(0, 1)
    asked = torch.as_tensor(seen.streams[stream].columns["asked"].astype(bool), device=hidden.device)
    answer = stream_part(model.readout, stream).predict(hidden[asked])
    return {name: column.float().cpu().numpy() for name, column in answer.items()}


def restored_batches(
    run: Run, dataset: Dataset, task: HiddenTask, limit: int | None = None
) -> Iterator[tuple[Batch, dict[str, dict[str, Array]]]]:
    """Yield masked samples with raw values, and predictions by stream.

    The predictions are in the units of the data.

    limit   maximum number of samples (default: all)
    """
    run.step.eval()
    count = len(dataset) if limit is None else min(limit, len(dataset))
    for ids in batches(dataset, count, *evaluation_limits(dataset, run.device, task.batch)):
        seen = task.hide(dataset.batch(ids), task.length)
        yield seen, restore(run.assembly.tokens, seen, task)


def restore(tokens: Any, seen: Batch, task: HiddenTask) -> dict[str, dict[str, Array]]:
    """Predictions for masked tokens, in the units of the data, by stream."""
    found = {}
    for name, answer in task.predict(seen).items():
        stream = seen.streams[name]
        found[name] = tokens[name].restore_values(stream.keep(stream.columns["asked"].astype(bool)), answer)
    return found


def evaluate_task(run: Run, dataset: Dataset, task: HiddenTask, limit: int | None = None) -> list[dict[str, Any]]:
    """Scores of the hidden values of a task, as rows of a table."""
    kinds: Any = run.assembly.tokens
    scores: dict[str, Any] = {}
    for seen, found in restored_batches(run, dataset, task, limit):
        for name, restored in found.items():
            scores.setdefault(name, kinds[name].hidden_scores(task.mask)).add(seen.streams[name], restored)
    rows = [row for one in scores.values() for row in one.rows()]
    if not rows:
        raise UserError(f"the mask {task.mask} hides no known value of these samples", key="--mask")
    return rows


def write_task(
    run: Run,
    files: Sequence[str | Path],
    out: Path,
    mask: str,
    length: float | None = None,
    factor: int | None = None,
    overwrite: bool = False,
    changes: Sequence[str] = (),
) -> int:
    """Write the predicted hidden values of files; return the number of time steps.

    The values are in the units of the data. For mask, length and factor see `make_task`.

    changes  changes of the input such as `t2m=+2K`; the differences of the predictions are written and drawn too
    """
    check_new(out, overwrite)
    check_writable(out)
    wanted = [parse_change(text) for text in changes]
    if wanted:
        check_new(out.with_suffix(".png"), overwrite)
    task = make_task(run, mask, length, factor, unknown=True)
    run.step.eval()
    assembly = run.assembly
    first = next(iter(assembly.objective.predicted_streams(assembly.tokens)))
    return Restorable.require(assembly.tokens[first], "--mask").write_restored(
        out, assembly.source(files), assembly.tokens, task, wanted
    )


def parse_change(text: str) -> Change:
    """Change of the input from a text such as `t2m=+2`, `t2m=-0.5K` or `msl=+100 Pa`."""
    found = CHANGE.fullmatch(text.strip())
    if found is None:
        hint = "Write a name, an equals sign, and the number to add: --change t2m=+2K"
        raise UserError(f"{text!r} is not a change of the input", hint=hint, key="--change")
    return Change(found["name"].strip(), float(found["by"]), found["unit"].strip())
