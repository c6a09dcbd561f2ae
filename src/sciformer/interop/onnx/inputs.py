"""Inputs of an ONNX graph: columns read by the model, token grids, test samples."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ...data.batch import Batch, ModelInputs, StreamView, stream_name
from ...data.columns import rows_of
from ...data.dataset import Dataset
from ...data.prepare import prepare
from ...data.random import SampleRandom
from ...errors import UserError
from ...models.encoder import Encoded
from ...nn import MeanPool
from ...nn.positions import grid
from ...objectives.base import Step
from ...run import Run
from ...tokens.protocols import Exportable, Gridded, Preprocessing

Columns = dict[str, Tensor]
Made = TypeVar("Made")
VALID_NAME = "valid"
PLACE_NAME = "at"
FEATURES = "features"  # output of the encoder of an encoder-decoder
CHECKED_SIZES = ((1, 1), (5, 17), (3, 128), (1, 17))  # numbers of samples and tokens to check a graph with
CHECKED_SAMPLES = (1, 3, 17)  # numbers of samples if tokens fill a grid


class SourceEncoder(nn.Module):
    """Encoder of an encoder-decoder, as a model of its own.

    The outputs are the encoded tokens (B, N, D) of the source, and their mean (B, D).
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.mean, self.heads = model, MeanPool(), nn.ModuleDict()

    def encode(self, view: StreamView) -> Encoded:
        found: Encoded = self.model.encode(view)  # type: ignore[operator]
        return found

    def pool(self, encoded: Encoded) -> Tensor:
        """Mean (B, D) of the encoded tokens."""
        pooled: Tensor = self.mean(encoded.x, encoded.valid)
        return pooled

    def features(self, encoded: Encoded) -> Tensor:
        """Encoded tokens (B, N, D)."""
        return encoded.x


def run_of_stream(run: Run, stream: str = "") -> Run:
    """Run with a single stream, for models with an encoder for this stream alone.

    These are models with an encoder for each stream, and models that encode only one stream. Other runs are returned
    unchanged.

    stream   name of the stream (default: the stream that the model encodes, else the stream of the objective)
    """
    tokens, objective = run.assembly.tokens, run.assembly.objective
    alone = getattr(run.model, "encodes", "")
    if not (alone or getattr(run.model, "separate", False)):
        if stream:
            stream_name(tokens, stream)
            message = f"--stream cannot be used: `model.kind: {run.recipe.model.kind}` has no encoder for each stream"
            raise UserError(message, key="--stream")
        return run
    name = stream_name([alone] if alone else tokens, stream or alone or objective.asked_stream(tokens))
    own = objective.model_copy(update={"stream": ""})
    own.restore(objective.state)
    made, assembly = copy.copy(run), copy.copy(run.assembly)
    assembly.tokens, assembly.objective = {name: tokens[name]}, own
    made.assembly = assembly
    if alone:
        made.step = Step(SourceEncoder(run.model), own).to(run.device).eval()
    made.data = run.data  # type: ignore[method-assign]  # opened with all streams
    return made


def grid_shape(run: Run, stream: str = "") -> tuple[int, int] | None:
    """Rows and columns of tokens if the model needs complete images, otherwise None."""
    stream = stream_name(run.assembly.tokens, stream)
    tokens, model = run.assembly.tokens[stream], run.recipe.model.for_stream(stream)
    places = tokens.grid_shape
    if not isinstance(places, tuple) or len(places) != 2:
        return None
    patches = tokens if isinstance(tokens, Gridded) else None
    if model.trunk not in ("convolution", "resnet2d") and not (patches and patches.mixes_tokens):
        return None
    if patches and patches.varies:
        raise UserError("an ONNX graph of this model needs images of equal size, but the run has several sizes")
    return places[0], places[1]


def exported_tokens(run: Run) -> dict[str, Exportable]:
    """Tokens of a run, by stream; error if a stream does not support the export."""
    return {name: Exportable.require(tokens, "`--format onnx`") for name, tokens in run.assembly.tokens.items()}


def by_stream(run: Run, make: Callable[[str], Made]) -> Made | dict[str, Made]:
    """Results of `make`, by stream; for a run with a single stream, the result alone."""
    made = {stream: make(stream) for stream in run.assembly.tokens}
    return made if len(made) > 1 else next(iter(made.values()))


def input_name(run: Run, stream: str, column: str) -> str:
    """Name of an input: COLUMN, or STREAM.COLUMN if there are several streams."""
    return f"{stream}.{column}" if len(run.assembly.tokens) > 1 else column


def export_files(run: Run) -> dict[str, str]:
    """Additional files of the tokens, such as a vocabulary, as {name: text}."""
    return {
        input_name(run, stream, name): text
        for stream, tokens in run.assembly.tokens.items()
        if isinstance(tokens, Exportable)
        for name, text in tokens.export_files().items()
    }


def max_places(run: Run, stream: str) -> int | None:
    """Maximum number of token positions; None for grids and without a maximum."""
    found = run.assembly.tokens[stream].grid_shape
    return found if isinstance(found, int) else None


class StreamInputs(NamedTuple):
    """Inputs of a graph for one stream.

    columns   example columns (T, ...) that the model reads
    names     names of the inputs, by column
    filled    rows and columns of a complete grid of tokens, or None
    most      maximum number of tokens, or None
    raw       graph that computes the columns from raw samples, or None
    """

    columns: Columns
    names: dict[str, str]
    filled: tuple[int, int] | None
    most: int | None
    raw: Preprocessing | None = None

    def size(self, tokens: int) -> int:
        """Number of tokens of a sample, limited by the grid or position table."""
        if self.filled is not None:
            return self.filled[0] * self.filled[1]
        return tokens if self.most is None else min(tokens, self.most)

    def make(self, samples: int, tokens: int, seed: int) -> Columns:
        """Random inputs by name, with at most `tokens` tokens in each sample."""
        made = make_inputs(self.columns, samples, tokens, seed, filled=self.filled is not None)
        return {self.names[name]: column for name, column in made.items()}

    def view(self, given: Columns) -> StreamView:
        """Convert inputs to a `StreamView`; a grid is complete and row by row."""
        columns = {name: given[self.names[name]] for name in self.columns}
        if self.filled is None:
            return StreamView(columns, given[self.names[VALID_NAME]])
        samples = next(iter(columns.values())).shape[0]
        return StreamView({**columns, PLACE_NAME: grid(self.filled)[None].expand(samples, -1, -1)}, None)


Inputs = dict[str, StreamInputs]


def checked_sizes(streams: Inputs) -> Iterator[tuple[int, dict[str, int]]]:
    """Sizes of the test inputs: number of samples, and number of tokens by stream."""
    whole = all(one.filled for one in streams.values())
    for samples, tokens in [(samples, 0) for samples in CHECKED_SAMPLES] if whole else CHECKED_SIZES:
        yield samples, {name: one.size(tokens + i) for i, (name, one) in enumerate(streams.items())}


def graph_inputs(run: Run) -> Inputs:
    """Inputs of the exported graph, by stream."""
    found = {}
    for stream in run.assembly.tokens:
        columns, raw = example_columns(run, stream), exported_tokens(run)[stream].preprocessing_module()
        if raw is not None and not (places_between(run, stream) or grid_shape(run, stream)):
            raw = None  # at other sizes the positions would lie between the positions in training
        if raw is not None and PLACE_NAME in columns:
            columns[PLACE_NAME] = columns[PLACE_NAME].float()
        names = {column: input_name(run, stream, column) for column in (*columns, VALID_NAME)}
        found[stream] = StreamInputs(columns, names, grid_shape(run, stream), max_places(run, stream), raw)
    return found


def prepared(run: Run, dataset: Dataset, most: int) -> Batch:
    """Prepare the first samples of a dataset as input of a graph, without masking."""
    assembly, batch = run.assembly, dataset.batch(np.arange(min(most, len(dataset))))
    batch = replace(batch, streams={name: batch.streams[name] for name in assembly.tokens})
    if assembly.objective.reads_out:
        streams = {name: assembly.tokens[name].normalise(one) for name, one in batch.streams.items()}
        return replace(batch, streams=streams)
    rng = SampleRandom(0, -1, batch.ids)
    return prepare(batch, assembly.tokens, assembly.objective, rng, training=False, counted=False)


def places_between(run: Run, stream: str) -> bool:
    """Whether the model accepts real-valued positions between the trained positions.

    In samples of another size than in training, tokens have the positions 0, 0.5, 1, ... for example.
    """
    table = exported_tokens(run)[stream].example()
    if table is None or len(run.assembly.tokens) > 1:
        return False
    view = prepared(run, run.assembly.samples(table), 1).inputs(run.device).view(stream)
    if PLACE_NAME not in view.columns:
        return True
    columns = {**view.columns, PLACE_NAME: view.columns[PLACE_NAME].float()}
    try:
        summarize(run, run.model, {stream: StreamView(columns, view.valid)})
    except UserError:
        return False
    return True


def example_columns(run: Run, stream: str = "") -> Columns:
    """Example columns (T, ...) of a stream, without columns ignored by the model."""
    assembly, stream = run.assembly, stream_name(run.assembly.tokens, stream)
    tables = [tokens.example() for tokens in exported_tokens(run).values()]
    known = [table for table in tables if table is not None]
    if len(known) == len(tables) and len({rows_of(table) for table in known}) == 1:
        dataset = assembly.samples({name: column for table in known for name, column in table.items()})
    else:
        dataset = run.data().dataset("train")
    made = prepared(run, dataset, 4)
    whole, packed = made.inputs(run.device).streams, made.inputs("cpu", packed=True).streams[stream].columns
    before, filled, view = summarize(run, run.model, whole), grid_shape(run, stream), whole[stream]

    def matters(name: str, column: Tensor) -> bool:
        other = 1.7 * column + 0.3 if column.is_floating_point() else (column.long() - 1).clamp(min=0).to(column.dtype)
        changed = StreamView({**view.columns, name: other}, view.valid)
        try:
            return not torch.equal(before, summarize(run, run.model, {**whole, stream: changed}))
        except (UserError, RuntimeError):  # an error shows that the column is read
            return True

    columns = {name: column for name, column in view.columns.items() if filled is None or name != PLACE_NAME}
    read = [name for name, column in columns.items() if matters(name, column)]
    return {name: packed[name] for name in read or columns}


@torch.no_grad()
def summarize(run: Run, model: Any, streams: dict[str, StreamView]) -> Tensor:
    """Pooled vector (B, D) of the stream of the objective."""
    return model.pool(model.encode(ModelInputs(streams, {}).view(run.assembly.objective.stream)))


def make_inputs(columns: Columns, samples: int, tokens: int, seed: int = 0, filled: bool = False) -> Columns:
    """Random padded inputs (samples, tokens, ...) from columns (T, ...), and `valid`.

    The first sample has the full length; with four or more samples, the last sample is empty. With `filled`, all
    samples have the full length and there is no `valid`.
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
