"""What an ONNX graph is fed: which columns a model reads, whether tokens fill a grid, and made-up samples to try it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...data.batch import StreamView
from ...data.prepare import prepare
from ...data.random import SampleRandom
from ...errors import UserError
from ...nn.positions import grid
from ...run import Run
from ...tokens.protocols import Exportable, Gridded

Columns = dict[str, Tensor]
VALID_NAME = "valid"
PLACE_NAME = "at"
CHECKED_SIZES = ((1, 1), (5, 17), (3, 128), (1, 17))  # samples and tokens with which a graph is checked
CHECKED_SAMPLES = (1, 3, 17)  # the same where tokens fill a grid


def grid_shape(run: Run) -> tuple[int, int] | None:
    """Rows and columns of tokens, where a model takes all of an image at once; None where any tokens will do."""
    (tokens,) = run.assembly.tokens.values()
    model, places = run.recipe.model, tokens.grid_shape
    if not isinstance(places, tuple) or len(places) != 2:
        return None
    patches = tokens if isinstance(tokens, Gridded) else None
    if model.trunk not in ("convolution", "resnet2d") and not (patches and patches.mixes_tokens):
        return None
    if patches and patches.varies:
        raise UserError(
            "an ONNX graph of a model that works on a grid needs images of equal size, but the run has several sizes"
        )
    return places[0], places[1]


def exported_tokens(run: Run) -> Exportable:
    """The tokens of a run, which must say how others make them."""
    (tokens,) = run.assembly.tokens.values()
    return Exportable.require(tokens, "`--format onnx`")


def max_places(run: Run) -> int | None:
    """The most tokens a model has places for, on a line."""
    found = next(iter(run.assembly.tokens.values())).grid_shape
    return found if isinstance(found, int) else None


def checked_sizes(run: Run) -> list[tuple[int, int]]:
    """Samples and tokens to try."""
    filled, most = grid_shape(run), max_places(run)
    if filled is not None:
        return [(samples, filled[0] * filled[1]) for samples in CHECKED_SAMPLES]
    return [(samples, tokens if most is None else min(tokens, most)) for samples, tokens in CHECKED_SIZES]


def view_of(given: Columns, filled: tuple[int, int] | None) -> StreamView:
    """Columns as a model sees them; on a grid all tokens are there, row by row."""
    if filled is None:
        return StreamView({name: column for name, column in given.items() if name != VALID_NAME}, given[VALID_NAME])
    samples = next(iter(given.values())).shape[0]
    return StreamView({**given, PLACE_NAME: grid(filled)[None].expand(samples, -1, -1)}, None)


def example_columns(run: Run) -> Columns:
    """Tokens as a model sees them: of each column that it reads, (T, ...)."""
    assembly, tokens = run.assembly, exported_tokens(run)
    table = tokens.example()
    dataset = run.data().dataset("train") if table is None else assembly.samples(table)
    batch = dataset.batch(np.arange(min(4, len(dataset))))
    if assembly.objective.reads_out:  # nothing is hidden from it here
        made = batch.with_columns(tokens.normalise(batch.stream))
    else:
        rng = SampleRandom(0, -1, batch.ids)
        made = prepare(batch, assembly.tokens, assembly.objective, rng, training=False, counted=False)
    view, packed = made.inputs(run.device).stream, made.inputs("cpu", packed=True).stream.columns
    before, filled = _pooled(run, view), grid_shape(run)

    def matters(name: str, column: Tensor) -> bool:
        other = 1.7 * column + 0.3 if column.is_floating_point() else (column.long() - 1).clamp(min=0).to(column.dtype)
        try:
            return not torch.equal(before, _pooled(run, StreamView({**view.columns, name: other}, view.valid)))
        except (UserError, RuntimeError):  # it was looked at, at any rate
            return True

    columns = {name: column for name, column in view.columns.items() if filled is None or name != PLACE_NAME}
    return {name: packed[name] for name, column in columns.items() if matters(name, column)}


def _pooled(run: Run, view: StreamView) -> Tensor:
    model: Any = run.model
    with torch.no_grad():
        found: Tensor = model.pool(model.encode(view))
    return found


def make_inputs(columns: Columns, samples: int, tokens: int, seed: int = 0, filled: bool = False) -> Columns:
    """Padded tensors (samples, tokens, ...) and `valid`, of tokens drawn from columns (T, ...).

    The first sample is as long as can be, the last one without any token where there are four or more. With `filled`
    all are as long, and `valid` is not needed.
    """
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, tokens + 1, samples)
    lengths[0] = tokens
    if samples > 3:
        lengths[-1] = 0
    valid = torch.from_numpy(np.arange(tokens) < lengths[:, None])
    total = len(next(iter(columns.values())))
    rows = torch.from_numpy(rng.integers(0, total, (samples, tokens)))
    found = {name: column[rows] for name, column in columns.items()}
    if filled:
        return found
    found = {name: c.masked_fill(~valid.view(*valid.shape, *[1] * (c.dim() - 2)), 0) for name, c in found.items()}
    return {**found, VALID_NAME: valid}
