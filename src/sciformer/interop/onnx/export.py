"""Export of runs as ONNX graphs, with a description of inputs and outputs.

    model.onnx           maps columns of tokens (batch, tokens, ...) and `valid` (batch, tokens) to predictions. Both
                         axes are dynamic; for models of complete images, only the batch axis. With several streams,
                         the names are STREAM.column and STREAM.valid
    preprocessing.json   for programs: how to compute the columns from raw data, and the meaning of the outputs
    README.md            the same for people
    preprocessing.onnx   maps raw samples (images of any size) to the columns, if the tokens support it. With `raw`, it
                         is a part of model.onnx instead

Additional files of the tokens, for example a vocabulary, are written too.

The graph is made by `torch.onnx.export(dynamo=True)`. The older exporter (dynamo=False) is deprecated, does not support
RMSNorm and fixes sequence lengths. The new exporter does not support three parts of the model, which are replaced in a
copy: fused kernels that leave rows without keys undefined, batch norms over flattened batches, and heads named by a
Python keyword (`class`).
"""

from __future__ import annotations

import copy
import json
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..._version import __version__
from ...data.batch import ModelInputs
from ...data.columns import Array
from ...errors import UserError
from ...files.packages import require
from ...nn import Attention
from ...nn.norms import BatchNorm
from ...recipe.field import extensions
from ...run import Run
from ...tokens.protocols import Preprocessing
from ...training.folder import Folder
from .card import REQUIRED_PACKAGES, describe_graph, write_card
from .inputs import (
    FEATURES,
    Columns,
    Inputs,
    SourceEncoder,
    StreamInputs,
    checked_sizes,
    export_files,
    graph_inputs,
    input_name,
    prepared,
    summarize,
)

FILE_NAMES = ("model.onnx", "preprocessing.json", "README.md")
RAW_NAME, RAW_PREFIX = "preprocessing.onnx", "preprocessing"
MAX_FILE_BYTES = 1 << 31  # limit of protocol buffers
TOLERANCE = 1e-4  # maximum difference between graph and library
EXAMPLE_TOKENS = 7  # tokens of the traced example: neither 1 nor a typical width of a model


def write_onnx(run: Run, folder: Folder, raw: bool = False) -> list[str]:
    """Write the ONNX graph of a run and its description; return notes.

    The outputs of the graph are compared with the library before anything is written.

    raw   make one graph of preprocessing and model, which takes raw samples
    """
    _check_exportable(run)
    check_packages()
    inputs = graph_inputs(run)
    made = _trace(Graph(run, inputs), inputs)
    _label(made, run)
    used = [value.name for value in made.graph.input]
    content = made.SerializeToString()
    if len(content) >= MAX_FILE_BYTES:
        raise UserError(f"the model has {len(content) / 1e9:.1f} GB, but the limit of an ONNX file is 2 GB")
    apart, rounding = check(content, run, inputs, used)
    _check_close(apart, rounding)
    before: dict[str, bytes] = {}
    for stream, one in inputs.items():
        if one.raw is not None:
            before[input_name(run, stream, RAW_NAME)] = graph = _trace_raw(one, used)
            apart = max(apart, check_raw([graph, content], run, one))
            _check_close(apart, rounding)
    whole = None
    if raw:
        first, whole = _only_raw(run, inputs)
        (graph,) = before.values()
        made = _join(graph, made, whole.source)
        _label(made, run)
        content, before = made.SerializeToString(), {}
        apart = max(apart, check_raw([content], run, first))
        _check_close(apart, rounding)
    folder.path.mkdir(parents=True, exist_ok=True)
    (folder.path / "model.onnx").write_bytes(content)
    for name, graph in before.items():
        (folder.path / name).write_bytes(graph)
    about = describe_graph(run, made, before, whole)
    folder.write("preprocessing.json", json.dumps(about, indent=2, ensure_ascii=False) + "\n")
    folder.write("README.md", write_card(run, about))
    for name, text in export_files(run).items():
        folder.write(name, text)
    return [
        f"checked in onnxruntime: outputs differ by at most {max(apart, 1e-9):.1g} from the library "
        f"(rounding error: {rounding:.1g})"
    ]


def _only_raw(run: Run, inputs: Inputs) -> tuple[StreamInputs, Preprocessing]:
    """Inputs and preprocessing of the only stream, for a graph that takes raw samples.

    Several streams, and tokens without a preprocessing graph, are refused.
    """
    first, *others = inputs.values()
    if others or first.raw is None:
        kinds = ", ".join(tokens.kind for tokens in run.assembly.tokens.values())
        reason = "several streams" if others else f"tokens of `kind: {kinds}` whose preprocessing is not a graph"
        message = f"--raw cannot be used: the run has {reason}"
        raise UserError(message, hint="preprocessing.json describes the preprocessing.", key="--raw")
    return first, first.raw


def _join(first: bytes, second: Any, source: str) -> Any:
    """Join two graphs: outputs of the first graph are inputs of the second graph.

    source   name of the input of the first graph
    """
    from onnx import ModelProto, compose

    before = compose.add_prefix(ModelProto.FromString(first), f"{RAW_PREFIX}/")
    wanted = {value.name for value in second.graph.input}
    names = {value.name: value.name.removeprefix(f"{RAW_PREFIX}/") for value in before.graph.output}
    pairs = [(name, plain) for name, plain in names.items() if plain in wanted]
    made = compose.merge_models(before, second, io_map=pairs)
    old = f"{RAW_PREFIX}/{source}"
    for value in made.graph.input:
        value.name = source if value.name == old else value.name
    for node in made.graph.node:
        node.input[:] = [source if name == old else name for name in node.input]
    return made


def _check_close(apart: float, rounding: float) -> None:
    if not apart <= max(TOLERANCE, 3 * rounding):
        raise UserError(
            f"outputs of the ONNX graph differ by {apart:.2g} from the library (tolerance {TOLERANCE:g}, rounding "
            f"error {rounding:.2g}); nothing was written"
        )


def files(run: Run) -> tuple[str, ...]:
    """Names of the files of an export."""
    raw = [input_name(run, name, RAW_NAME) for name, one in graph_inputs(run).items() if one.raw is not None]
    return (*FILE_NAMES, *raw, *export_files(run))


def check_packages() -> None:
    """Refuse the export if a required package is missing."""
    for name in REQUIRED_PACKAGES:
        require(name, "ONNX graphs", "'sciformer[export]'")


def _check_exportable(run: Run) -> None:
    kind, objective = run.recipe.model.kind, run.recipe.objective
    if kind == "decoder":
        others = dict.fromkeys(f"--format {one.format}" for one in extensions("exporters") if one.accepts(run))
        hint = f"Try {' or '.join(others)}: generation token by token needs a loop outside the graph."
        message = f"the ONNX export supports encoders, not `model.kind: {kind}`"
        raise UserError(message, hint=hint if others else "", key="model.kind")
    if kind not in ("masked_autoencoder", "encoder_decoder") and (objective.reads_out or objective.unit != "samples"):
        raise UserError(
            "the ONNX export supports objectives with one prediction per sample (classify, regress), not "
            f"`objective.kind: {objective.kind}`",
            hint="Fine-tune the run with one of these objectives first: sciformer finetune RECIPE --from RUN",
            key="objective.kind",
        )


class Graph(nn.Module):
    """Model as a function of tensors: columns of each stream, then its mask `valid`."""

    def __init__(self, run: Run, inputs: Inputs) -> None:
        super().__init__()
        model: Any = copy.deepcopy(run.model).cpu().float().eval()
        for part in list(model.modules()):
            if isinstance(part, Attention):
                part.kernel = "reference"
            for name, child in list(part.named_children()):
                if isinstance(child, BatchNorm):
                    setattr(part, name, _FixedBatchNorm(child))
        model.heads = _Heads(model.heads)
        self.model, self.objective, self.inputs = model, run.assembly.objective, inputs
        self.names = [name for one in inputs.values() for name in one.make(1, 1, 0)]
        self.outputs: list[str] = []
        self.eval()

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip(self.names, tensors))
        inputs = ModelInputs({stream: one.view(given) for stream, one in self.inputs.items()}, {})
        encoded = self.model.encode(inputs.view(self.objective.stream))
        pooled = self.model.pool(encoded)
        found: dict[str, Tensor] = {}
        if not self.objective.reads_out:
            # A stand-in for the model with the pooled vectors.
            model = SimpleNamespace(heads=self.model.heads, encode=lambda view: pooled, pool=lambda encoded: encoded)
            found = self.objective.exported(model, inputs)
        elif isinstance(self.model, SourceEncoder):
            found = {FEATURES: self.model.features(encoded)}
        found["summary"] = pooled
        self.outputs = list(found)
        return tuple(found.values())


class _FixedBatchNorm(nn.Module):
    """Batch norm y = (x - mean) scale + shift, without flattening the dynamic axes."""

    scale: Tensor

    def __init__(self, norm: BatchNorm) -> None:
        super().__init__()
        self.norm = norm
        self.register_buffer("scale", (norm.weight / (norm.running_var + norm.epsilon).sqrt()).detach())

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        return (x - self.norm.running_mean) * self.scale + self.norm.bias

    def plain(self, x: Tensor) -> Tensor:
        """Normalise images (B, D, height, width); a runtime fuses this with a convolution."""
        return self.norm.plain(x)


class _Heads(nn.Module):
    """Heads by name, stored by index, because `class` is not a valid attribute name."""

    def __init__(self, heads: nn.ModuleDict) -> None:
        super().__init__()
        self.names = list(heads)
        self.parts = nn.ModuleList(heads.values())

    def __getitem__(self, name: str) -> nn.Module:
        return self.parts[self.names.index(name)]

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def __len__(self) -> int:
        return len(self.names)


def _trace(graph: Graph, inputs: Inputs) -> Any:
    """Export the model graph as an ONNX protocol buffer, without unused inputs."""
    batch, given, free = torch.export.Dim("batch", min=1), Columns(), dict[str, dict[int, Any]]()
    for i, (stream, one) in enumerate(inputs.items()):
        own = one.make(3, one.size(EXAMPLE_TOKENS + 2 * i), 0)
        axis = "tokens" if len(inputs) == 1 else re.sub(r"\W", "_", f"{stream}_tokens")
        axes = {0: batch} if one.filled else {0: batch, 1: torch.export.Dim(axis, min=1)}
        given, free = {**given, **own}, {**free, **dict.fromkeys(own, axes)}
    with torch.no_grad():
        graph(*given.values())  # sets graph.outputs
    try:
        with _quiet_exporter(), torch.no_grad():
            program = torch.onnx.export(
                graph,
                tuple(given.values()),
                dynamo=True,
                input_names=list(given),
                output_names=graph.outputs,
                dynamic_shapes=(tuple(free.values()),),
                verbose=False,
            )
    except Exception as error:  # the exporter raises many kinds of errors
        reason = str(error.__cause__ or error).strip().splitlines()
        message = f"torch.onnx.export failed: {reason[0] if reason else repr(error)}"
        raise UserError(message, hint="Use another model.trunk, or run the model with this library.") from error
    assert program is not None
    made = _without_paths(program.model_proto)
    sizes = {value.name: value.type.tensor_type.shape.dim for value in made.graph.input}
    if fixed := [
        name for name in sizes if not all(one.HasField("dim_param") for one in sizes[name][: len(free[name])])
    ]:
        raise UserError(f"torch.onnx.export made an axis of {', '.join(fixed)} static, but sizes must be dynamic")
    used = {name for node in made.graph.node for name in node.input} | {out.name for out in made.graph.output}
    kept = [value for value in made.graph.input if value.name in used]
    del made.graph.input[:]
    made.graph.input.extend(kept)
    return made


def _without_paths(made: Any) -> Any:
    """Remove the paths of source files from an exported graph."""
    for part in (*made.graph.node, *made.graph.value_info, *(node for one in made.functions for node in one.node)):
        del part.metadata_props[:]
        part.doc_string = ""
    return made


def _trace_raw(one: StreamInputs, used: Sequence[str]) -> bytes:
    """Export the preprocessing graph of a stream, with only the `used` columns."""
    assert one.raw is not None
    module = _ChosenColumns(one.raw.cpu().eval(), {column: name for column, name in one.names.items() if name in used})
    free = {i: torch.export.Dim(name, min=1) for i, name in enumerate(("batch", *one.raw.axes))}
    with _quiet_exporter(), torch.no_grad():
        program = torch.onnx.export(
            module,
            (one.raw.example(3, one.raw.sizes[-1]),),
            dynamo=True,
            input_names=[one.raw.source],
            output_names=list(module.names.values()),
            dynamic_shapes=(free,),
            verbose=False,
        )
    assert program is not None
    content: bytes = _without_paths(program.model_proto).SerializeToString()
    return content


class _ChosenColumns(nn.Module):
    """Preprocessing limited to the columns in `names` (column -> name of the output)."""

    def __init__(self, module: nn.Module, names: dict[str, str]) -> None:
        super().__init__()
        self.module, self.names = module, names

    def forward(self, raw: Tensor) -> tuple[Tensor, ...]:
        found = self.module(raw)
        return tuple(found[column] for column in self.names)


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before):
            logger.setLevel(level)


def _label(made: Any, run: Run) -> None:
    made.producer_name, made.producer_version = "sciformer", __version__
    kinds = ", ".join(tokens.kind for tokens in run.assembly.tokens.values())
    for key, value in {"answers": json.dumps(run.assembly.objective.answers), "tokens": kinds}.items():
        made.metadata_props.add(key=key, value=value)


def check(content: bytes, run: Run, inputs: Inputs, used: Sequence[str]) -> tuple[float, float]:
    """Largest difference between graph and library, and rounding error of the library.

    The rounding error is the largest difference between single and double precision.
    """
    import onnxruntime  # type: ignore[import-untyped]

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    apart = rounding = 0.0
    model = copy.deepcopy(run.model).cpu().eval()
    exact = copy.deepcopy(model).double()
    for samples, sizes in checked_sizes(inputs):
        given: Columns = {}
        for stream, one in inputs.items():
            given |= one.make(samples, sizes[stream], seed=samples + sizes[stream])
        theirs = dict(zip(names, session.run(None, {name: given[name].numpy() for name in used})))
        ours = _answers(run, model, inputs, given)
        double = {name: column.double() if column.is_floating_point() else column for name, column in given.items()}
        apart = max(apart, _largest_difference(theirs, ours))
        rounding = max(rounding, _largest_difference(ours, _answers(run, exact, inputs, double)))
    return apart, rounding


def check_raw(graphs: Sequence[bytes], run: Run, one: StreamInputs) -> float:
    """Largest difference between the library and a chain of graphs.

    The first graph takes raw samples; each further graph takes the outputs of the graph before. Raw samples of several
    sizes are tried.

    one   inputs of the only stream
    """
    import onnxruntime

    assert one.raw is not None
    sessions = [onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"]) for graph in graphs]
    model, apart = copy.deepcopy(run.model).cpu().eval(), 0.0
    for sizes in one.raw.sizes if one.filled is None else one.raw.sizes[:1]:
        raw = one.raw.example(3, sizes).numpy()
        theirs = {one.raw.source: raw}
        for session in sessions:
            theirs = dict(zip([value.name for value in session.get_outputs()], session.run(None, theirs)))
        inputs = prepared(run, run.assembly.samples({one.raw.source: raw}), 3).inputs("cpu")
        apart = max(apart, _largest_difference(theirs, library_outputs(run, model, inputs)))
    return apart


def _answers(run: Run, model: nn.Module, inputs: Inputs, given: Columns) -> dict[str, Array]:
    return library_outputs(run, model, ModelInputs({stream: one.view(given) for stream, one in inputs.items()}, {}))


@torch.no_grad()
def library_outputs(run: Run, model: Any, inputs: ModelInputs) -> dict[str, Array]:
    """Outputs of the library by name, in double precision, to compare with a graph."""
    objective, found = run.assembly.objective, dict[str, Tensor]()
    if not objective.reads_out:
        found = objective.exported(model, inputs)
    elif isinstance(model, SourceEncoder):
        found = {FEATURES: model.features(model.encode(inputs.view(objective.stream)))}
    found["summary"] = summarize(run, model, inputs.streams)
    return {name: values.double().numpy() for name, values in found.items()}


def _largest_difference(some: Mapping[str, Array], others: Mapping[str, Array]) -> float:
    differences = [np.abs(some[name] - one) / np.maximum(1, np.abs(one)) for name, one in others.items()]
    return max(float(one.max(initial=0.0)) for one in differences)
