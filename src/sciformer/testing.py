"""The conformance suite: what every kind of tokens must keep to, those of users too.

    from sciformer.testing import check_tokens

    def test_my_tokens():
        assert check_tokens(Beads(kind="beads", size=3), {"bead": beads}) == []

Nothing here knows a domain. Each check below is one promise on which the rest of the library relies; what breaks it is
a sentence in the answer, never an exception.
"""

from __future__ import annotations

import json
import pickle
import traceback
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from .data.batch import Batch, Stream
from .data.columns import Lists, Table, rows_of, select
from .data.random import SampleRandom
from .errors import UserError
from .models.encoder import Encoder
from .objectives.base import PREFIX, Objective
from .objectives.masked import Masked
from .tokens.base import Readout, Tokens, embedded
from .train.folder import assert_plain


def check_tokens(
    tokens: Tokens,
    table: Table,
    *,
    dim: int = 8,
    missing: Collection[str] = (),
    draw: bool = True,
) -> list[str]:
    """What is wrong with a `tokens:` section, shown on a small table of a few different samples; empty: nothing.

    dim      width of the vectors that are tried, an even number
    missing  columns of tokens in which NaN means that a value is not there; the embedding must bear it
    draw     whether to try the drawing too, which takes longest
    """
    kind = tokens.kind or type(tokens).__name__
    if rows_of(table) < 2:
        raise UserError(f"tokens are checked on a table of two samples or more, not {rows_of(table)}")
    before = _copy(table)
    try:
        case = Case(tokens, table, dim, missing)
    except Exception as error:
        return [f"{kind}: fit and tokenize cannot be done with this table: {_error(error)}"]
    problems = list(_tokenize(case))
    if not problems:  # the others take the form of a stream for granted
        checks: list[tuple[str, Callable[[Case], Problems]]] = [
            ("the subset of a table", _company),
            ("a table of no samples", _empty),
            ("the state", _state),
            ("the embedding", check_embedding),
            ("the bias of pairs", check_pairs),
            ("an encoder of these tokens", check_padding),
            ("augment_stream", _augment),
            ("hiding tokens", _check_hiding),
            ("the readout", check_readout),
            ("a copy for another process", _pickled),
            ("token_labels and distance", _check_token_labels),
        ]
        if draw:
            checks.append(("draw", _draw))
        with torch.random.fork_rng(devices=[]):
            for what, check in checks:
                try:
                    problems += check(case)
                except Exception as error:
                    problems.append(f"{what} failed: {_error(error)}")
    if odd := _describe_change(before, table):
        problems.append(f"the table's column `{odd}` was changed in place: copy it first")
    return [f"{kind}: {problem}" for problem in dict.fromkeys(problems)]


def _tokenize(case: Case) -> Problems:
    stream, tokens = case.stream, case.tokens
    if not isinstance(stream, Stream):
        yield f"tokenize must return a Stream of columns and lengths, not a {type(stream).__name__}"
        return
    if not isinstance(stream.lengths, np.ndarray) or stream.lengths.dtype.kind != "i" or stream.lengths.ndim != 1:
        yield "the lengths must be a NumPy array of whole numbers, one for each sample (np.int64)"
        return
    if len(stream) != case.rows:
        yield f"tokenize made {len(stream)} samples of a table of {case.rows}"
        return
    if not stream.columns:
        yield "tokenize must make one column or more"
    for name, column in stream.columns.items():
        if not isinstance(column, np.ndarray) or column.dtype.kind not in "biuf":
            found = getattr(column, "dtype", type(column).__name__)
            yield f"the column `{name}` must be a NumPy array of numbers, not {found}"
        elif column.dtype.kind == "f" and name not in case.missing and not np.isfinite(column).all():
            yield f"the column `{name}` holds NaN or infinity where the table may not; name it in `missing` if it may"
    for name in tokens.hides:
        if name not in stream.columns:
            yield f"`hides` names `{name}`, but tokenize makes no such column"
    for name in tokens.source_columns:
        if name not in case.table:
            yield f"`source_columns` names `{name}`, but the table has no such column"
    if stream.columns and (odd := describe_difference(stream, tokens.tokenize(case.table))):
        yield f"tokenize twice gives different tokens, in {odd}: it must not depend on chance or on what came before"
    yield from _places(case)


def _places(case: Case) -> Problems:
    axes, places = case.tokens.axes, case.tokens.grid_shape
    at = case.seen.columns.get("at", case.seen.position)
    if "at" in case.seen.columns and (1 if at.ndim == 1 else at.shape[-1]) != axes:
        yield f"the column `at` has {1 if at.ndim == 1 else at.shape[-1]} coordinates, but `axes` says {axes}"
    elif places is not None and len(at):
        ends = np.atleast_1d(at.max(0))
        sides = np.atleast_1d(places)
        if len(sides) == len(ends) and (at.min() < 0 or (ends >= sides).any()):
            yield f"tokens stand at places up to {ends.tolist()}, but `grid_shape` counts {sides.tolist()} from 0"


def _company(case: Case) -> Problems:
    tokens, some = case.tokens, min(case.rows, MAX_ROWS)
    normal = tokens.normalise(case.stream)
    for rows in [*(np.array([i]) for i in range(some)), np.arange(some)[::-1], np.zeros(2, np.int64)]:
        alone = tokens.tokenize(select(case.table, rows))
        if odd := describe_difference(case.stream.take(rows), alone):
            yield (
                f"tokenize of the rows {rows.tolist()} alone differs in {odd} from the same rows among others: "
                "a sample must not depend on its company"
            )
            return
        if odd := describe_difference(normal.take(rows), tokens.normalise(case.stream.take(rows)), close=True):
            yield (
                f"normalise of the rows {rows.tolist()} alone differs in {odd} from the same rows among others: "
                "use what `fit` has learned, not the batch"
            )
            return


def _empty(case: Case) -> Problems:
    none = case.tokens.tokenize(select(case.table, np.zeros(0, np.int64)))
    if len(none) or (odd := describe_difference(case.stream.take(np.zeros(0, np.int64)), none)):
        yield f"a table of 0 samples must give 0 samples with the same columns; it differs in {odd or 'lengths'}"
    case.tokens.normalise(case.tokens.augment_stream(none, SampleRandom(SEED, 0, np.zeros(0, np.int64))))


def _state(case: Case) -> Problems:
    try:
        assert_plain(case.tokens.state, "state")
        text = json.dumps(case.tokens.state, allow_nan=False)
    except (AssertionError, ValueError) as error:
        yield f"what fit learns must be plain JSON in `state` (lists, texts, finite numbers): {error}"
        return
    twin = case.section.fresh()  # as a run finds it: never fitted
    twin.state.update(json.loads(text))
    here, there = (one.normalise(one.tokenize(case.table)) for one in (case.tokens, twin))
    if odd := describe_difference(here, there):
        yield f"restored from its state it makes other tokens, in {odd}: keep all that fit learns in `state`"


def _augment(case: Case) -> Problems:
    tokens, stream, ids = case.tokens, case.seen, np.arange(len(case.seen)) + 100
    kept = stream.with_columns(**{name: column.copy() for name, column in stream.columns.items()})
    first, again = (tokens.augment_stream(stream, SampleRandom(SEED, 3, ids)) for _ in range(2))
    if odd := describe_difference(kept, stream):
        yield f"augment_stream changes the column {odd} in place, so that the next epoch begins from a varied sample"
    if len(first) != len(stream) or set(first.columns) < set(stream.columns):
        yield "augment_stream must keep the samples and their columns"
    elif odd := describe_difference(first, again):
        yield f"augment_stream twice differs in {odd}: all that is random must come from `rng`"
    else:
        rows = np.arange(len(stream))[::-2]
        if odd := describe_difference(
            first.take(rows), tokens.augment_stream(stream.take(rows), SampleRandom(SEED, 3, ids[rows]))
        ):
            yield f"augment_stream of some samples differs in {odd} from the same among others: ask `rng` by sample"


def _check_hiding(case: Case) -> Problems:
    """Poison what is hidden: nothing that the model sees may change."""
    if not case.tokens.hides or not int(case.seen.lengths.sum()):
        return
    batch, poisoned = hidden_tokens(case), hidden_tokens(case, poison=True)
    raw = case.seen.columns
    for name in case.tokens.hides:
        left = ~batch.columns["hidden"].astype(bool)
        if not np.array_equal(batch.columns[name][left], raw[name][left], equal_nan=raw[name].dtype.kind == "f"):
            yield f"mask_out changes `{name}` of tokens that are not to be hidden"
    seen, other = (_inputs(case.tokens.normalise(stream)) for stream in (batch, poisoned))
    if odd := describe_difference(seen, other):
        yield f"hidden values leak: other values under the mask change {odd} of what the model sees"
    if type(case.tokens).random_replacement is not Tokens.random_replacement:
        mask, rng = batch.columns["hidden"].astype(bool), SampleRandom(SEED, 0, np.arange(len(case.seen)))
        noisy, again = (
            case.seen.with_columns(**case.tokens.random_replacement(case.seen, mask, rng)) for _ in range(2)
        )
        known = Stream({name: noisy.columns[name] for name in raw}, noisy.lengths)
        if (odd := describe_difference(noisy, again)) or (
            odd := describe_difference(case.seen.keep(~mask), known.keep(~mask))
        ):
            yield f"random_replacement must replace only the tokens asked for, by what `rng` draws; it differs in {odd}"


def _inputs(stream: Stream) -> Stream:
    return Stream({key: value for key, value in stream.columns.items() if not key.startswith(PREFIX)}, stream.lengths)


def _pickled(case: Case) -> Problems:
    twin = pickle.loads(pickle.dumps(case.tokens))
    if odd := describe_difference(case.stream, twin.tokenize(case.table)):
        yield f"a copy made by pickle, as data workers get it, makes other tokens, in {odd}"


def _check_token_labels(case: Case) -> Problems:
    one = case.seen.take(np.array([int(case.seen.lengths.argmax())]))
    n = int(one.lengths[0])
    words = case.tokens.token_labels(one)
    if len(words) != n or not all(isinstance(word, str) for word in words):
        yield f"token_labels must give one text for each of the {n} tokens of a sample; it gives {len(words)}"
    distance = case.tokens.distance(one)
    if distance is not None:
        distance = np.asarray(distance)
        if distance.shape != (n, n) or not np.isfinite(distance).all() or (distance < 0).any():
            yield f"distance must be finite, not negative, and of shape {(n, n)}, not {distance.shape}"


def _draw(case: Case) -> Problems:
    one = Batch({"tokens": case.seen.take(np.array([int(case.seen.lengths.argmax())]))}, ids=np.zeros(1, np.int64))
    n = int(one.stream.lengths[0])
    for weights in (None, np.full(n, 1 / max(1, n))):
        figure = Figure(figsize=(3, 3))
        axes = figure.add_subplot()
        case.tokens.draw(one, weights, axes)
        figure.draw_without_rendering()
        if not axes.has_data() and not axes.texts:
            yield "draw leaves the axes empty: draw on the axes that are given, not on pyplot's"
            return


def _copy(table: Table) -> dict[str, Array | Lists]:
    return select(table, np.arange(rows_of(table)))


def _describe_change(before: Table, after: Table) -> str:
    for name, column in before.items():
        now: Any = after[name]
        if isinstance(column, Lists):
            column, now = column.values, now.values
        nan = column.dtype.kind == "f"
        if not np.array_equal(column, now, equal_nan=nan):
            return name
    return ""


def _error(error: Exception) -> str:
    """An error in a line, with the place in the file where it was raised."""
    if isinstance(error, UserError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].name}, line {frames[-1].lineno} of {frames[-1].filename})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"


# What every kind of tokens must keep to on its way into a model and back; `testing` has the other promises


Array = NDArray[Any]
Problems = Iterator[str]
SEED = 7
MAX_ROWS = 16  # samples of the table that are looked at one by one, at most


class Case:
    """Tokens fitted on a table, their stream, and the same cut to the tokens a model sees at once."""

    def __init__(self, section: Tokens, table: Table, dim: int, missing: Collection[str]) -> None:
        self.section, self.tokens = section, section.fresh()
        self.tokens.fit(iter([table]))
        self.table, self.dim, self.missing = table, dim, missing
        self.rows = rows_of(table)
        self.stream = self.tokens.tokenize(table)
        most = self.tokens.window
        if isinstance(self.stream, Stream) and most is not None:
            short = np.minimum(self.stream.lengths, most)
            self.seen = self.stream.cut(self.stream.starts, short)
        else:
            self.seen = self.stream

    def fixed(self) -> Tokens:
        """The tokens, with the generator of random weights at its start."""
        torch.manual_seed(SEED)
        return self.tokens


def check_embedding(case: Case) -> Problems:
    """(B, N, D), finite, with gradients to all parameters, padded or packed."""
    batch = Batch({"tokens": case.tokens.normalise(case.seen)})
    for asked in (case.dim, 2 * case.dim):
        module, dim = case.fixed().embedding(asked), case.fixed().width(asked)
        if any(is_lazy(weight) for weight in module.parameters()):
            yield "the embedding has lazy parameters, which an optimizer cannot have: learn the sizes in `fit`"
            return
        view = batch.inputs().stream
        x = embedded(module, view.columns, view.valid)
        size = tuple(next(iter(view.columns.values())).shape[:2])
        if tuple(x.shape) != (*size, dim):
            yield f"the embedding must give (B, N, D) = {(*size, dim)}, not {tuple(x.shape)}"
            return
        real = x[view.valid] if isinstance(view.valid, Tensor) else x
        if not torch.isfinite(real).all():
            yield "the embedding gives NaN or infinity: scale large values, and learn a stand-in for missing ones"
            return
    if real.requires_grad:
        real.square().sum().backward()
    yield from _gradients(module, "the embedding")
    ends = batch.inputs(packed=True).stream
    packed = embedded(module, ends.columns, ends.valid)
    if packed.shape != (int(case.seen.lengths.sum()), dim) or not _close(
        packed, x.reshape(-1, dim)[_real_places(case.seen)]
    ):
        yield "the embedding of tokens laid end to end (T, ...) differs from the padded one: write it for (..., N, ...)"


def check_pairs(case: Case) -> Problems:
    """(B, H, N, N), finite, with gradients."""
    module = case.fixed().pairs(2)
    if module is None:
        return
    view = Batch({"tokens": case.tokens.normalise(case.seen)}).inputs().stream
    bias = module(view.columns, view.valid)
    b, n = next(iter(view.columns.values())).shape[:2]
    if tuple(bias.shape) != (b, 2, n, n):
        yield f"the bias of pairs must be (B, H, N, N) = {(b, 2, n, n)}, not {tuple(bias.shape)}"
    elif not torch.isfinite(bias).all():
        yield "the bias of pairs holds NaN or infinity, maybe of a token with itself or with padding"
    elif bias.requires_grad:
        bias.square().sum().backward()
        yield from _gradients(module, "the bias of pairs")


def check_padding(case: Case) -> Problems:
    """Through a tiny encoder; samples of no tokens and of one are legal."""
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
            yield "an encoder gives NaN or infinity where samples have no token or one"
        elif not _close(padded, pooled(batch, multiple=wide)):
            yield "more padding changes the result of an encoder: nothing may be taken over all places of a batch"
        else:
            for row in rows:
                alone = Batch({"tokens": stream.cut(stream.starts[[row]], lengths[[row]])})
                if not _close(padded[[row]], pooled(alone)):
                    yield f"sample {row} gives another result alone than padded among others"
                    return


def check_readout(case: Case) -> Problems:
    """Loss, total and answer of tokens that were hidden."""
    tokens = case.tokens
    if type(tokens).readout is Tokens.readout:
        return
    if not tokens.hides:
        yield "there is a readout, but `hides` names no column to ask for"
        return
    readout: Readout = case.fixed().readout(case.dim, tokens.embedding(case.dim))
    view = Batch({"tokens": tokens.normalise(hidden_tokens(case))}).inputs(packed=True).stream
    target = {name: view.columns[PREFIX + name] for name in tokens.hides}
    count = int(case.seen.lengths.sum())
    hidden = torch.randn(count, case.dim, requires_grad=True)
    loss = readout.loss(hidden, target)
    if tuple(loss.shape) != (count,):
        yield f"the readout's loss must be one number for each token ({count},), not {tuple(loss.shape)}"
        return
    if not torch.isfinite(loss).all():
        yield "the readout's loss holds NaN or infinity"
        return
    wanted = torch.arange(count) % 3 != 0
    if not _close(readout.total(hidden, target, wanted), loss[wanted].sum()):
        yield "the readout's total is not the sum of its loss over the tokens that are wanted"
    loss.sum().backward()
    yield from _gradients(readout, "the readout")
    if hidden.grad is None or not hidden.grad.abs().sum() > 0:
        yield "the readout's loss gives the hidden vectors no gradient"
    answer = readout.predict(hidden)
    for name, column in target.items():
        if name not in answer or answer[name].shape != column.shape:
            yield f"the readout's answer must have the column `{name}` of shape {tuple(column.shape)}"


def hidden_tokens(case: Case, poison: bool = False) -> Stream:
    """The tokens as an objective hides half of them, or the same with other values where they are hidden."""
    tokens, stream = case.tokens, case.seen
    names, rng = {"tokens": tokens}, SampleRandom(SEED, 0, np.arange(len(stream)))
    objective = Masked(kind="masked", mask_ratio=0.5)
    if poison:
        hidden = objective.corrupt(Batch({"tokens": stream}), names, rng).stream.columns["hidden"].astype(bool)
        columns = {name: stream.columns[name].copy() for name in tokens.hides}
        for column in columns.values():  # values of other hidden tokens, and larger where that can be
            column[hidden] = np.roll(column[hidden], 1, 0) * (100 if column.dtype.kind == "f" else 1)
        stream = stream.with_columns(**columns)
    return objective.corrupt(Batch({"tokens": stream}), names, rng).stream


def _gradients(module: nn.Module, what: str) -> Problems:
    for name, weight in module.named_parameters():
        if weight.grad is None:
            yield f"the parameter `{name}` of {what} has no gradient: nothing depends on it, and training would stop"
        elif not torch.isfinite(weight.grad).all():
            yield f"the gradient of the parameter `{name}` of {what} is not finite"


def describe_difference(one: Stream, other: Stream, close: bool = False) -> str:
    """The first column in which two streams differ, in words; nothing where they are alike."""
    if not np.array_equal(one.lengths, other.lengths):
        return "lengths"
    if odd := set(one.columns) ^ set(other.columns):
        return f"the column `{sorted(odd)[0]}`"
    for name, a in one.columns.items():
        b = other.columns[name]
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"`{name}` ({a.dtype} of shape {a.shape}, and {b.dtype} of shape {b.shape})"
        nan = a.dtype.kind == "f"
        same = np.allclose(a, b, 1e-5, 1e-6, nan) if close and nan else np.array_equal(a, b, equal_nan=nan)
        if not same:
            return f"`{name}`"
    return ""


def _close(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-3, atol=1e-4)


def _real_places(stream: Stream) -> Array:
    """Places of the real tokens in the flattened padded layout."""
    return stream.sample * int(stream.lengths.max(initial=0)) + stream.position
