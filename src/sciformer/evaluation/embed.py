"""Embedding vectors of samples, for search, clustering and classifiers.

vectors = embed(Run("runs/bert"), ["sentences.txt"]).vectors        # (n, D), in the order of the samples
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ..assembly import windowed_streams
from ..data.batch import StreamView, stream_name
from ..data.columns import Array
from ..data.dataset import ADDED_COLUMNS, Dataset
from ..data.readers.text_parts import read_lines, strings
from ..data.source import Memory, Source, are_files, find_files
from ..data.windows import WINDOW
from ..errors import UserError, one_of
from ..files.atomic import atomic_write, check_name, make_folder
from ..files.formats.frames import read_frame
from ..files.tables import check_table, table_suffixes, write_table
from ..nn import ClassToken, LastPool, MaxPool, MeanPool
from ..tokens.base import Tokens, stream_part
from ..tokens.protocols import Textual
from .evaluate import concatenate_columns

if TYPE_CHECKING:
    from ..run import Run

POOLS = ("model", "mean", "max", "last", "class_token", "projection")
NPY_SUFFIX, TEXT_SUFFIX = ".npy", ".txt"


@dataclass(frozen=True)
class Embedded:
    """Vectors (n, D) in single precision, and the columns of the samples."""

    vectors: Array
    samples: dict[str, Array]


@torch.no_grad()
def embed(
    run: Run,
    what: Any,
    pool: str = "model",
    unit: bool = False,
    batch: int = 64,
    stream: str = "",
    accept_drift: bool = False,
    log: Callable[[str], None] | None = None,
) -> Embedded:
    """Embedding vectors of samples from files, a table of columns or a data frame.

    A stream of texts beside another stream, such as captions of images, is also read from a list of texts, from a table
    in memory with only the column of texts, or from text files (.txt) with a text on each line.

    pool    pooling of tokens: mean, max, last, class_token, or model (the pooling of the model, else mean);
            projection: the unit vectors compared by a contrastive objective
    unit    scale vectors to length 1, so that their dot products are cosines
    stream  stream of tokens to pool (default: the encoded stream, or the stream of the objective)
    accept_drift  embed even if the scale of a column differs from the training data
    log     function for notes on data unlike the training data (default: the notes become warnings)

    Samples keep their order. A sample longer than the context is read in windows: `mean` and `max` pool all its tokens,
    `last` uses its last window. Other poolings average over the windows, weighted by their numbers of tokens.
    """
    one_of("the pooling", pool, POOLS, key="--pool")
    model: Any = run.model
    tokens, alone = run.assembly.tokens, getattr(model, "encodes", "")
    name = stream_name([alone] if alone else tokens, stream or alone or run.assembly.objective.asked_stream(tokens))
    if alone or getattr(model, "separate", False):
        tokens = {name: tokens[name]}
    if not (hasattr(model, "encode") or len(tokens) == 1):
        message = f"`model.kind: {run.recipe.model.kind}` cannot compute embedding vectors: it has no encoder"
        raise UserError(message, key="model.kind")
    watch = run.assembly.compare(accept_drift)
    windows = {name: one.make_windows() for name, one in windowed_streams(tokens).items()}
    double = run.recipe.train.double
    dataset = Dataset(_source(run, what, tokens), tokens, windows=windows, watch=watch, double=double)
    pooling = _pooling(model, "model" if pool == "projection" else pool, name)
    project = _projection(run.assembly.objective, model, name) if pool == "projection" else nn.Identity()
    found, lengths = list[Array](), [np.zeros(0, np.int64)]
    columns: list[dict[str, Array]] = []
    for start in range(0, len(dataset), batch):
        raw = dataset.batch(np.arange(start, min(start + batch, len(dataset))))
        streams = {key: tokens[key].normalise(one) for key, one in raw.streams.items()}
        view = replace(raw, streams=streams).inputs(run.device).view(name)
        found.append(project(_vectors(model, view, pooling)).float().cpu().numpy())
        lengths.append(streams[dataset.windowed or name].lengths)
        columns.append(raw.samples)
    vectors, samples = _merge_windows(
        np.concatenate(found or [np.zeros((0, model.dim), np.float32)]),
        np.concatenate(lengths),
        concatenate_columns(columns),
        pooling,
    )
    for note in [*getattr(dataset.source, "notes", ()), *([] if watch is None else watch.notes)]:
        if log is None:
            warnings.warn(note, stacklevel=2)
        else:
            log(f"note: {note}")
    if unit:
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return Embedded(vectors.astype(np.float32), samples)


def _source(run: Run, what: Any, tokens: Mapping[str, Tokens]) -> Source:
    """Source of the samples of the streams.

    For a single stream of texts, `what` may also be a list of texts, text files, or a table with only the texts.
    """
    (first, *others), texts = tokens.values(), what
    if others or not isinstance(first, Textual) or run.recipe.data.reads_texts:
        return run.source(what, aligned=True)
    columns = first.source_columns
    if isinstance(what, Mapping) and all(name in what for name in columns):
        return Memory(read_frame(what, "the table").data)
    files = [what] if isinstance(what, (str, Path)) else what
    listed = isinstance(files, (list, tuple)) and files and all(isinstance(one, (str, Path)) for one in files)
    if listed and all(Path(one).suffix == TEXT_SUFFIX for one in files):
        texts = [line for path in find_files(files, "text files") for line in read_lines(path)]
    elif not listed or are_files(files):
        return run.source(what, aligned=True)
    return Memory(dict.fromkeys(columns, strings([str(text) for text in texts])))


def _projection(objective: Any, model: Any, stream: str) -> nn.Module:
    if not hasattr(objective, "head"):
        message = f"--pool projection needs a contrastive objective, not `objective.kind: {objective.kind}`"
        raise UserError(message, hint="Try --pool model.", key="--pool")
    head: nn.Module = objective.head(model, stream)
    return head


def _pooling(model: Any, pool: str, stream: str) -> nn.Module:
    own = stream_part(getattr(model, "pooling", None), stream)
    if pool == "class_token" and not isinstance(own, ClassToken):
        raise UserError("--pool class_token needs a model with a class token", hint="Try --pool mean.", key="--pool")
    if pool in ("model", "class_token"):
        return MeanPool() if own is None else own
    return {"mean": MeanPool, "max": MaxPool, "last": LastPool}[pool]()


def _vectors(model: Any, view: StreamView, pooling: nn.Module) -> Tensor:
    if not hasattr(model, "encode"):  # a decoder
        return pooling(model.decode(view), view.valid)
    encoded = model.encode(view)
    if pooling is stream_part(getattr(model, "pooling", None), view.name):
        return model.pool(encoded)
    return pooling(model.tokens(encoded) if hasattr(model, "tokens") else encoded.x, view.valid)


def _merge_windows(
    vectors: Array, lengths: Array, samples: dict[str, Array], pooling: nn.Module
) -> tuple[Array, dict[str, Array]]:
    windows = samples.get(WINDOW)
    samples = {name: column for name, column in samples.items() if name not in ADDED_COLUMNS}
    if windows is None or not len(windows):
        return vectors, samples
    _, first = np.unique(windows, return_index=True)
    samples = {name: column[first] for name, column in samples.items()}
    if isinstance(pooling, LastPool):
        return vectors[np.append(first[1:], len(windows)) - 1], samples
    if isinstance(pooling, MaxPool):
        return np.maximum.reduceat(vectors, first), samples
    weight = np.maximum(lengths, 1).astype(np.float64)
    sums = np.add.reduceat(vectors * weight[:, None], first)
    return sums / np.add.reduceat(weight, first)[:, None], samples


def check_vectors(path: Path) -> None:
    """Refuse an output file with an unknown or unavailable format."""
    suffixes = [".parquet", NPY_SUFFIX, *(suffix for suffix in table_suffixes() if suffix != ".parquet")]
    check_name(path, suffixes)
    if path.suffix != NPY_SUFFIX:
        check_table(path)


def write_vectors(path: Path, found: Embedded) -> int:
    """Write vectors (.npy) or a table with ids and columns; return the number of rows."""
    check_vectors(path)
    count = len(found.vectors)
    if path.suffix != NPY_SUFFIX:
        ids = {"id": found.samples.get("id", np.arange(count))}
        return write_table(path, [{**ids, **found.samples, "vector": found.vectors}], overwrite=True)
    make_folder(path.parent)
    with atomic_write(path) as partial, partial.open("wb") as file:
        np.save(file, found.vectors, allow_pickle=False)
    return count
