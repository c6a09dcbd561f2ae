"""Conformance suite for kinds of tokens, built-in or written by users.

    from sciformer.testing import check_tokens

    def test_my_tokens():
        assert check_tokens(Beads(kind="beads", size=3), {"bead": beads}) == []

The suite does not depend on a field of science. Each check tests one property that the rest of the library relies on:
first the core, then a group for each protocol that the kind declares. A failed check adds a sentence to the result.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import tempfile
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from .data.batch import Batch, Stream
from .data.columns import Lists, Table, rows_of, select
from .data.random import SampleRandom
from .data.windows import WindowIndex
from .errors import UserError
from .models.encoder import Encoder
from .objectives.base import PREFIX, Objective
from .objectives.masked import Masked
from .tokens import protocols
from .tokens.base import Tokens, embedded
from .tokens.protocols import overrides
from .training.folder import assert_plain

Problems = Iterator[str]
SEED = 7
MAX_ROWS = 16  # maximum number of samples that are checked one by one


def check_tokens(
    tokens: Tokens, table: Table, *, dim: int = 8, missing: Collection[str] = (), draw: bool = True
) -> list[str]:
    """Run all checks of a `tokens:` section on a small table of different samples.

    dim      width of the test vectors, an even number
    missing  token columns in which NaN means a missing value; the embedding must accept NaN there
    draw     whether to test `draw` too, which is the slowest check

    Returns  failed checks as sentences; empty if all passed
    """
    kind = tokens.kind or type(tokens).__name__
    if rows_of(table) < 2:
        raise UserError(f"check_tokens needs a table with at least two samples, not {rows_of(table)}")
    before = select(table, np.arange(rows_of(table)))
    try:
        case = Case(tokens, table, dim, missing)
        problems = list(_tokenize(case))
    except Exception as error:
        return [f"{kind}: fit or tokenize failed with this table: {_error(error)}"]
    if not problems:  # the other checks rely on a valid stream
        groups = [checks for protocol, checks in PROTOCOL_CHECKS.items() if isinstance(case.tokens, protocol)]
        checks = [*CORE_CHECKS.items(), *(one for group in groups for one in group.items())]
        with torch.random.fork_rng(devices=[]):
            for what, check in [*checks, *([("draw", _draw)] if draw else [])]:
                try:
                    problems += check(case)
                except Exception as error:
                    problems.append(f"{what} failed: {_error(error)}")
    if odd := _different_column(before, table):
        problems.append(f"the table's column {odd} was changed in place: copy it first")
    return [f"{kind}: {problem}" for problem in dict.fromkeys(problems)]


class Case:
    """Tokens fitted on a table, and the tokenised table."""

    def __init__(self, section: Tokens, table: Table, dim: int, missing: Collection[str]) -> None:
        fitted: Any = section.fresh()  # each check knows its protocol
        fitted.fit(iter([table]))
        self.section, self.tokens = section, fitted
        self.table, self.dim, self.missing = table, dim, missing
        self.rows = rows_of(table)
        self.stream = self.tokens.tokenize(table)

    @cached_property
    def seen(self) -> Stream:
        """Samples, or the first window of each sample."""
        if not self.is_windowed:
            return self.stream
        index = WindowIndex(self.tokens.make_windows(), self.tokens.sample_shapes(self.stream))
        starts = np.zeros_like(index.shapes)
        return self.tokens.shift_windows(index.cut(self.stream, np.arange(self.rows), starts), starts)

    @property
    def is_windowed(self) -> bool:
        return isinstance(self.tokens, protocols.Windowed) and self.tokens.window is not None

    @property
    def longest(self) -> Stream:
        """The longest sample or window."""
        return self.seen.take(np.array([int(self.seen.lengths.argmax())]))

    def fixed(self) -> Any:
        """Fitted tokens; the random seed for new weights is set before."""
        torch.manual_seed(SEED)
        return self.tokens


# The core


def _tokenize(case: Case) -> Problems:
    stream, tokens = case.stream, case.tokens
    if not isinstance(stream, Stream):
        yield f"tokenize must return a Stream of columns and lengths, not a {type(stream).__name__}"
        return
    if not isinstance(stream.lengths, np.ndarray) or stream.lengths.dtype.kind != "i" or stream.lengths.ndim != 1:
        yield "the lengths must be a NumPy array of integers, one for each sample (np.int64)"
        return
    if len(stream) != case.rows:
        yield f"tokenize made {len(stream)} samples of a table of {case.rows}"
        return
    if not stream.columns:
        yield "tokenize must return at least one column"
    for name, column in stream.columns.items():
        if not isinstance(column, np.ndarray) or column.dtype.kind not in "biuf":
            found = getattr(column, "dtype", type(column).__name__)
            yield f"the column `{name}` must be a NumPy array of numbers, not {found}"
        elif column.dtype.kind == "f" and name not in case.missing and not np.isfinite(column).all():
            yield f"the column `{name}` has NaN or infinity; if NaN means a missing value, name the column in `missing`"
    for name in tokens.source_columns:
        if name not in case.table:
            yield f"`source_columns` names `{name}`, but the table has no such column"
    if stream.columns and (odd := describe_difference(stream, tokens.tokenize(case.table))):
        yield f"two calls of tokenize differ in {odd}: it must not depend on random numbers or on earlier calls"


def _places(case: Case, stream: Stream | None = None) -> Problems:
    axes, places, stream = case.tokens.axes, case.tokens.grid_shape, case.seen if stream is None else stream
    at = stream.columns.get("at", stream.position)
    if "at" in stream.columns and (1 if at.ndim == 1 else at.shape[-1]) != axes:
        yield f"the column `at` has {1 if at.ndim == 1 else at.shape[-1]} coordinates, but `axes` says {axes}"
    elif places is not None and len(at):
        ends = np.atleast_1d(at.max(0))
        sides = np.atleast_1d(places)
        if len(sides) == len(ends) and (at.min() < 0 or (ends >= sides).any()):
            yield f"positions of tokens go up to {ends.tolist()}, but must be below `grid_shape` {sides.tolist()}"


def _company(case: Case) -> Problems:
    tokens, some = case.tokens, min(case.rows, MAX_ROWS)
    normal = tokens.normalise(case.stream)
    for rows in [*(np.array([i]) for i in range(some)), np.arange(some)[::-1], np.zeros(2, np.int64)]:
        alone = tokens.tokenize(select(case.table, rows))
        if odd := describe_difference(case.stream.take(rows), alone):
            yield (
                f"tokenize of the rows {rows.tolist()} alone differs in {odd} from the same rows in the full table: "
                "a sample must not depend on other samples"
            )
            return
        if odd := describe_difference(normal.take(rows), tokens.normalise(case.stream.take(rows)), close=True):
            yield (
                f"normalise of the rows {rows.tolist()} alone differs in {odd} from the same rows in the full table: "
                "use statistics from `fit`, not from the batch"
            )
            return


def _empty(case: Case) -> Problems:
    none = case.tokens.tokenize(select(case.table, np.zeros(0, np.int64)))
    if len(none) or (odd := describe_difference(case.stream.take(np.zeros(0, np.int64)), none)):
        yield f"a table of 0 samples must give 0 samples with the same columns; it differs in {odd or 'lengths'}"
    case.tokens.normalise(none)


def _state(case: Case) -> Problems:
    try:
        assert_plain(case.tokens.state, "state")
        text = json.dumps(case.tokens.state, allow_nan=False)
    except (AssertionError, ValueError) as error:
        yield f"the `state` learned by fit must be plain JSON (lists, texts, finite numbers): {error}"
        return
    twin = case.section.fresh()  # like a loaded run: not fitted
    twin.state.update(json.loads(text))
    here, there = (one.normalise(one.tokenize(case.table)) for one in (case.tokens, twin))
    if odd := describe_difference(here, there):
        yield f"tokens restored from `state` differ in {odd}: fit must store everything it learns in `state`"


def _embedding(case: Case) -> Problems:
    """Check shape (B, N, D), finite values, gradients, for padded and packed tokens."""
    batch = Batch({"tokens": case.tokens.normalise(case.seen)})
    for asked in (case.dim, 2 * case.dim):
        module, dim = case.fixed().embedding(asked), case.fixed().width(asked)
        if any(is_lazy(weight) for weight in module.parameters()):
            yield "the embedding has lazy parameters, which an optimizer cannot use: learn the sizes in `fit`"
            return
        view = batch.inputs().stream
        x = embedded(module, view.columns, view.valid)
        size = tuple(next(iter(view.columns.values())).shape[:2])
        if tuple(x.shape) != (*size, dim):
            yield f"the embedding must return (B, N, D) = {(*size, dim)}, not {tuple(x.shape)}"
            return
        real = x[view.valid] if isinstance(view.valid, Tensor) else x
        if not torch.isfinite(real).all():
            yield "the embedding returns NaN or infinity: scale large values, and learn a vector for missing values"
            return
    if real.requires_grad:
        real.square().sum().backward()
    yield from _gradients(module, "the embedding")
    ends = batch.inputs(packed=True).stream
    packed = embedded(module, ends.columns, ends.valid)
    # Indices of the tokens in the flattened padded layout.
    places = case.seen.sample * int(case.seen.lengths.max(initial=0)) + case.seen.position
    if packed.shape != (int(case.seen.lengths.sum()), dim) or not _close(packed, x.reshape(-1, dim)[places]):
        yield "the embedding of packed tokens differs from the embedding of padded tokens: write it for (..., N, ...)"


def _padding(case: Case) -> Problems:
    """Check that padding does not change encoder outputs, also with 0 or 1 token."""
    embedded = case.fixed().width(case.dim) == case.dim
    options: dict[str, Any] = {"trunk": "transformer", "heads": 2} if embedded else {"trunk": "deep_sets"}
    section = Encoder(**{"kind": "encoder", "dim": case.dim, "depth": 1, **options})
    network: Any = section.build({"tokens": case.fixed()}, Objective()).eval()
    stream = case.tokens.normalise(case.seen)
    rows = np.arange(min(case.rows, MAX_ROWS))
    places = case.tokens.grid_shape
    most = int(stream.lengths.max(initial=0)) if not isinstance(places, int) else max(1, places - 1)
    wide = places if isinstance(places, int) else most + 5
    lengths = np.minimum(stream.lengths[rows], most)
    lengths[-1] = min(1, lengths[-1])
    short = np.append(lengths, 0)
    batch = Batch({"tokens": stream.cut(np.append(stream.starts[rows], 0), short)})

    def pooled(part: Batch, **layout: Any) -> Tensor:
        view = part.inputs(**layout).stream
        return network.pool(network.encode(view))

    with torch.no_grad():
        padded = pooled(batch)
        if not torch.isfinite(padded).all():
            yield "an encoder returns NaN or infinity for samples with no token or a single token"
        elif not _close(padded, pooled(batch, multiple=wide)):
            yield "more padding changes the result of an encoder: no sum or mean may include padding"
        else:
            for row in rows:
                alone = Batch({"tokens": stream.cut(stream.starts[[row]], lengths[[row]])})
                if not _close(padded[[row]], pooled(alone)):
                    yield f"sample {row} has a different result alone than in a padded batch"
                    return


def _pickled(case: Case) -> Problems:
    twin = pickle.loads(pickle.dumps(case.tokens))
    if odd := describe_difference(case.stream, twin.tokenize(case.table)):
        yield f"a pickled copy, as in data workers, gives different tokens, in {odd}"


def _labels(case: Case) -> Problems:
    one = case.longest
    n = int(one.lengths[0])
    words = case.tokens.token_labels(one)
    if len(words) != n or not all(isinstance(word, str) for word in words):
        yield f"token_labels must return one text for each of the {n} tokens of a sample, not {len(words)}"
    distance = case.tokens.distance(one)
    if distance is not None:
        distance = np.asarray(distance)
        if distance.shape != (n, n) or not np.isfinite(distance).all() or (distance < 0).any():
            yield f"distance must be finite, nonnegative, and of shape {(n, n)}, not {distance.shape}"


def _draw(case: Case) -> Problems:
    one = Batch({"tokens": case.longest}, ids=np.zeros(1, np.int64))
    n = int(one.stream.lengths[0])
    for weights in (None, np.full(n, 1 / max(1, n))):
        figure = Figure(figsize=(3, 3))
        axes = figure.add_subplot()
        case.tokens.draw(one, weights, axes)
        figure.draw_without_rendering()
        if not axes.has_data() and not axes.texts:
            yield "draw leaves the axes empty: draw on the given axes, not with pyplot"
            return


# Pairwise


def _pairs(case: Case) -> Problems:
    """Check shape (B, H, N, N), finite values and gradients of the pair bias."""
    module = case.fixed().pairs(2)
    if module is None:
        return
    view = Batch({"tokens": case.tokens.normalise(case.seen)}).inputs().stream
    bias = module(view.columns, view.valid)
    b, n = next(iter(view.columns.values())).shape[:2]
    if tuple(bias.shape) != (b, 2, n, n):
        yield f"the pair bias must be (B, H, N, N) = {(b, 2, n, n)}, not {tuple(bias.shape)}"
    elif not torch.isfinite(bias).all():
        yield "the pair bias has NaN or infinity, possibly for a token with itself or with padding"
    elif bias.requires_grad:
        bias.square().sum().backward()
        yield from _gradients(module, "the pair bias")


# Maskable


def _hiding(case: Case) -> Problems:
    """Check that a change of hidden values does not change the model's input."""
    tokens, raw = case.tokens, case.seen.columns
    if not tokens.can_hide:
        with contextlib.suppress(UserError):
            tokens.mask_out(case.seen, np.ones(int(case.seen.lengths.sum()), bool))
            yield "`can_hide` is False, but mask_out hides tokens"
        return
    if not tokens.hides:
        yield "the tokens are Maskable, but `hides` is empty"
    for name in tokens.hides:
        if name not in raw:
            yield f"`hides` names `{name}`, but tokenize makes no such column"
            return
    if not tokens.hides or not int(case.seen.lengths.sum()):
        return
    batch, poisoned = hidden_tokens(case), hidden_tokens(case, poison=True)
    for name in tokens.hides:
        left = ~batch.columns["hidden"].astype(bool)
        if not np.array_equal(batch.columns[name][left], raw[name][left], equal_nan=raw[name].dtype.kind == "f"):
            yield f"mask_out changes `{name}` of tokens that are not to be hidden"
    seen, other = (_inputs(tokens.normalise(stream)) for stream in (batch, poisoned))
    if odd := describe_difference(seen, other):
        yield f"hidden values leak: a change of them changes {odd} in the input of the model"
    if overrides(tokens, protocols.Maskable.random_replacement):
        mask, rng = batch.columns["hidden"].astype(bool), SampleRandom(SEED, 0, np.arange(len(case.seen)))
        noisy, again = (case.seen.with_columns(**tokens.random_replacement(case.seen, mask, rng)) for _ in range(2))
        known = Stream({name: noisy.columns[name] for name in raw}, noisy.lengths)
        if (odd := describe_difference(noisy, again)) or (
            odd := describe_difference(case.seen.keep(~mask), known.keep(~mask))
        ):
            yield f"random_replacement must replace only masked tokens, with values from `rng`; it differs in {odd}"


def _masks(case: Case) -> Problems:
    for name, mask in case.tokens.masks.items():
        for share in (0.01, 0.5):
            found = mask(case.seen, share)
            if found.dtype != bool or found.shape != (int(case.seen.lengths.sum()),):
                yield f"the mask `{name}` must be True or False for each token, not {found.dtype} {found.shape}"
                return
            count = np.bincount(case.seen.sample[found], minlength=len(case.seen))
            if (count < np.minimum(1, case.seen.lengths)).any():
                yield f"the mask `{name}` hides no token of a sample: it must hide at least one"
                return


def _readout(case: Case) -> Problems:
    """Check loss, total and predictions of the readout of hidden tokens."""
    if not case.tokens.can_hide:
        return
    tokens = case.tokens
    readout: protocols.Readout = case.fixed().readout(case.dim, tokens.embedding(case.dim))
    view = Batch({"tokens": tokens.normalise(hidden_tokens(case))}).inputs(packed=True).stream
    target = {name: view.columns[PREFIX + name] for name in tokens.hides}
    count = int(case.seen.lengths.sum())
    hidden = torch.randn(count, case.dim, requires_grad=True)
    loss = readout.loss(hidden, target)
    if tuple(loss.shape) != (count,):
        yield f"the readout's loss must be one number for each token ({count},), not {tuple(loss.shape)}"
        return
    if not torch.isfinite(loss).all():
        yield "the readout's loss has NaN or infinity"
        return
    wanted = torch.arange(count) % 3 != 0
    if not _close(readout.total(hidden, target, wanted), loss[wanted].sum()):
        yield "the readout's total is not the sum of its loss over the wanted tokens"
    loss.sum().backward()
    yield from _gradients(readout, "the readout")
    if hidden.grad is None or not hidden.grad.abs().sum() > 0:
        yield "the readout's loss gives the hidden vectors no gradient"
    answer = readout.predict(hidden)
    for name, column in target.items():
        if name not in answer or answer[name].shape != column.shape:
            yield f"the readout's predictions must have the column `{name}` of shape {tuple(column.shape)}"


def hidden_tokens(case: Case, poison: bool = False) -> Stream:
    """Stream with half of the tokens hidden; `poison` first changes the hidden values."""
    tokens, stream = case.tokens, case.seen
    names, rng = {"tokens": tokens}, SampleRandom(SEED, 0, np.arange(len(stream)))
    objective = Masked(kind="masked", mask_ratio=0.5)
    if poison:
        hidden = objective.corrupt(Batch({"tokens": stream}), names, rng).stream.columns["hidden"].astype(bool)
        columns = {name: stream.columns[name].copy() for name in tokens.hides}
        for column in columns.values():  # each gets the value of another hidden token, times 100 if it is a float
            column[hidden] = np.roll(column[hidden], 1, 0) * (100 if column.dtype.kind == "f" else 1)
        stream = stream.with_columns(**columns)
    return objective.corrupt(Batch({"tokens": stream}), names, rng).stream


def _inputs(stream: Stream) -> Stream:
    return Stream({key: value for key, value in stream.columns.items() if not key.startswith(PREFIX)}, stream.lengths)


# Windowed


def _windows(case: Case) -> Problems:
    """Check that evaluation windows contain all tokens and fit into `grid_shape`."""
    if not case.is_windowed:
        return
    tokens, stream = case.tokens, case.stream
    windows, shapes = tokens.make_windows(), tokens.sample_shapes(stream)
    if shapes.shape != (len(stream), len(windows.size)) or (windows.prefix + shapes.prod(1) != stream.lengths).any():
        yield "sample_shapes must return the number of places of each sample along each axis, with one token per place"
        return
    index = WindowIndex(windows, shapes)
    sample, starts = index.find(np.arange(len(index)))
    numbered = index.cut(stream.with_columns(number=np.arange(int(stream.lengths.sum()))), sample, starts)
    shifted = tokens.shift_windows(numbered, starts)
    if not np.array_equal(shifted.lengths, numbered.lengths):
        yield "shift_windows must keep the tokens of each window"
        return
    if set(shifted.columns.get("number", ())) != set(range(int(stream.lengths.sum()))):
        yield "the windows of an evaluation must contain all tokens"
    yield from _places(case, shifted)
    tokens.normalise(Stream({name: shifted.columns[name] for name in stream.columns}, shifted.lengths))


def _truncate(case: Case) -> Problems:
    tokens, stream = case.tokens, case.stream
    if odd := describe_difference(stream, tokens.truncate(stream, np.inf)):
        yield f"truncate at infinity must keep all tokens; it differs in {odd}"
    least = np.minimum(stream.lengths, tokens.prefix_tokens + 1)
    if (tokens.truncate(stream, 0.0).lengths < least).any():
        yield "truncate must keep the first token of each sample, and the prefix before it"


# Augmentable


def _augment(case: Case) -> Problems:
    tokens, stream, ids = case.tokens, case.seen, np.arange(len(case.seen)) + 100
    kept = stream.with_columns(**{name: column.copy() for name, column in stream.columns.items()})
    first, again = (tokens.augment_stream(stream, SampleRandom(SEED, 3, ids)) for _ in range(2))
    if odd := describe_difference(kept, stream):
        yield f"augment_stream changes {odd} in place: copy the column first"
    if len(first) != len(stream) or set(first.columns) < set(stream.columns):
        yield "augment_stream must keep the samples and their columns"
    elif odd := describe_difference(first, again):
        yield f"two calls of augment_stream differ in {odd}: all random numbers must come from `rng`"
    else:
        rows = np.arange(len(stream))[::-2]
        if odd := describe_difference(
            first.take(rows), tokens.augment_stream(stream.take(rows), SampleRandom(SEED, 3, ids[rows]))
        ):
            yield f"augment_stream of a subset of the samples differs in {odd}: draw from `rng` for each sample"
    none = stream.take(np.zeros(0, np.int64))
    tokens.normalise(tokens.augment_stream(none, SampleRandom(SEED, 0, np.zeros(0, np.int64))))


def _mix(case: Case) -> Problems:
    if not overrides(case.tokens, protocols.Augmentable.mix):
        return
    try:
        mixed = case.tokens.mix(case.seen, case.seen, np.full(len(case.seen), 0.3))
    except UserError:  # not allowed with these options
        return
    for name, column in case.seen.columns.items():
        if mixed.columns[name].shape != column.shape or not np.allclose(mixed.columns[name], column, 1e-5, 1e-6, True):
            yield f"a sample mixed with itself must stay the same; it differs in `{name}`"


# Gridded


def _raster(case: Case) -> Problems:
    tokens = case.tokens
    grid, axes = tokens.grid_shape, tokens.axes
    if not isinstance(grid, tuple) or len(grid) != axes or "at" not in case.seen.columns:
        yield f"Gridded tokens need a column `at` and a `grid_shape` of {axes} axes, not {grid}"
    try:
        raster = tokens.raster
    except UserError:  # not allowed with these options
        return
    if len(raster) != axes + 1 or min(raster) < 1:
        yield f"`raster` must have a side for each of the {axes} axes, and the channels, not {raster}"


# Exportable


def _example(case: Case) -> Problems:
    table = case.tokens.example()
    if table is not None and not int(case.tokens.tokenize(table).lengths.sum()):
        yield "example must return samples with tokens, or None"


def _preprocessing(case: Case) -> Problems:
    try:
        json.dumps(case.tokens.preprocessing(), allow_nan=False)
    except (TypeError, ValueError) as error:
        yield f"preprocessing must be plain JSON: {error}"
    files = case.tokens.export_files()
    if not all(isinstance(part, str) for pair in files.items() for part in pair):
        yield "export_files must return texts by name"


# Editable


def _edits(case: Case) -> Problems:
    """Check that `drop`, `move`, `change` edit a copy of the sample, token by token."""
    tokens, stream = case.tokens, case.longest
    n = int(stream.lengths[0])
    first = protocols.prefix_length(tokens)
    kept = stream.with_columns(**{name: column.copy() for name, column in stream.columns.items()})
    fresh = tokens.refresh(stream)
    for token in sorted({first, n // 2, n - 1} - {*range(first), n}):
        less = tokens.drop(stream, token)
        if less.lengths.tolist() != [n - 1] or set(less.columns) != set(stream.columns):
            yield "drop must remove one token and keep the columns"
            return
        if len(where := tokens.where(stream, token)) != len(tokens.coordinates):
            yield f"where must return the {len(tokens.coordinates)} coordinates of a token, not {len(where)} numbers"
            return
        if odd := describe_difference(fresh, tokens.move(stream, token, *where), close=True):
            yield f"moving a token to its own position changes the sample, in {odd}"
        for name in tokens.changeable_columns:
            if name in stream.columns:
                same = tokens.change(stream, token, name, stream.columns[name][token])
                if odd := describe_difference(fresh, same):
                    yield f"changing `{name}` to its own value changes the sample, in {odd}"
        tokens.normalise(less)
    if odd := describe_difference(kept, stream):
        yield f"an edit changes the sample in place, in {odd}"
    try:
        tokens.drop(stream, n)
        yield f"drop must refuse token {n} of {n} with a UserError"
    except UserError:
        pass


# Textual


def _text(case: Case) -> Problems:
    tokens, ids = case.tokens, case.longest.columns.get("ids")
    if ids is None or ids.dtype.kind not in "iu" or not isinstance(tokens.window, int):
        yield "Textual tokens need a column `ids` of integers and a window of one axis"
        return
    text = tokens.decode(ids)
    if tokens.decode(tokens.encode(text)) != text:
        yield "encode and decode must reproduce a decoded text"
    writable = np.asarray(tokens.writable)
    if writable.dtype != bool or int(ids.max(initial=0)) >= len(writable):
        yield "`writable` must be a mask with True or False for each id of the vocabulary"
    elif any(not 0 <= number < len(writable) or writable[number] for number in tokens.specials.values()):
        yield "`specials` must be ids of the vocabulary that are not `writable`"


# Invertible


def _blank(case: Case) -> Problems:
    tokens = case.tokens
    try:
        blank = tokens.blank(3)
    except UserError:  # not allowed with these options
        return
    if len(blank) != 3 or not blank.lengths.all() or any(name not in blank.columns for name in tokens.hides):
        yield f"blank(3) must return 3 samples with tokens and the columns {', '.join(tokens.hides)}"
        return
    view = Batch({"tokens": blank}).inputs().stream
    if not torch.isfinite(embedded(case.fixed().embedding(case.dim), view.columns, view.valid)).all():
        yield "the embedding of the tokens of `blank` has NaN or infinity"
    if tokens.new_tokens and (tokens.allowed is None or not np.asarray(tokens.allowed).any()):
        yield "`allowed` must be a mask of ids if tokens are generated one by one (`new_tokens`)"


def _inverse(case: Case) -> Problems:
    tokens = case.tokens
    try:
        tokens.blank(1)
    except UserError:  # not allowed with these options
        return
    made = tokens.invert(tokens.normalise(case.stream))
    if rows_of(made) != case.rows:
        yield f"invert made {rows_of(made)} samples of the tokens of {case.rows}"
        return
    if odd := describe_difference(case.stream, tokens.tokenize(made), close=True):
        yield f"the tokens of inverted samples differ from the tokens that were inverted, in {odd}"
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{row}{tokens.suffix}" for row in range(case.rows)]
        tokens.write_samples(made, paths)
        if not all(path.exists() for path in paths):
            yield "write_samples must write a file for each sample"


CORE_CHECKS: dict[str, Callable[[Case], Problems]] = {
    "places of tokens": _places,
    "the subset of a table": _company,
    "a table of no samples": _empty,
    "the state": _state,
    "the embedding": _embedding,
    "an encoder of these tokens": _padding,
    "a copy for another process": _pickled,
    "token_labels and distance": _labels,
}
PROTOCOL_CHECKS: dict[Any, dict[str, Callable[[Case], Problems]]] = {
    protocols.Pairwise: {"the pair bias": _pairs},
    protocols.Maskable: {"hiding tokens": _hiding, "named masks": _masks, "the readout": _readout},
    protocols.Windowed: {"windows": _windows, "truncate": _truncate},
    protocols.Augmentable: {"augment_stream": _augment, "mix": _mix},
    protocols.Gridded: {"the raster": _raster},
    protocols.Exportable: {"example": _example, "preprocessing": _preprocessing},
    protocols.Editable: {"edits": _edits},
    protocols.Textual: {"encode and decode": _text},
    protocols.Invertible: {"blank": _blank, "invert": _inverse},
}


def describe_difference(one: Stream, other: Stream, close: bool = False) -> str:
    """Describe the first different column of two streams; empty if they are equal."""
    if not np.array_equal(one.lengths, other.lengths):
        return "lengths"
    if odd := set(one.columns) ^ set(other.columns):
        return f"the column `{sorted(odd)[0]}`"
    return _different_column(one.columns, other.columns, close)


def _different_column(one: Mapping[str, Any], other: Mapping[str, Any], close: bool = False) -> str:
    for name in one:
        a, b = (part[name].values if isinstance(part[name], Lists) else part[name] for part in (one, other))
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"`{name}` ({a.dtype} of shape {a.shape}, and {b.dtype} of shape {b.shape})"
        nan = a.dtype.kind == "f"
        same = np.allclose(a, b, 1e-5, 1e-6, nan) if close and nan else np.array_equal(a, b, equal_nan=nan)
        if not same:
            return f"`{name}`"
    return ""


def _gradients(module: nn.Module, what: str) -> Problems:
    for name, weight in module.named_parameters():
        if weight.grad is None:
            yield f"the parameter `{name}` of {what} has no gradient: no output depends on it"
        elif not torch.isfinite(weight.grad).all():
            yield f"the gradient of the parameter `{name}` of {what} is not finite"


def _close(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-3, atol=1e-4)


def _error(error: Exception) -> str:
    """Error message in one line, with function, line and file."""
    if isinstance(error, UserError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].name}, line {frames[-1].lineno} of {frames[-1].filename})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"
