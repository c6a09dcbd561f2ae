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
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from .conformance import (
    ROWS,
    SEED,
    Array,
    Case,
    Problems,
    check_embedding,
    check_padding,
    check_pairs,
    check_readout,
    difference,
    hidden_tokens,
)
from .data.batch import Batch, Stream
from .data.chance import Chance
from .data.source import Lists, Table, rows_of, select
from .errors import UserError
from .objectives.base import PREFIX
from .tokens.base import Tokens
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
            ("augment", _augment),
            ("hiding tokens", _hiding),
            ("the readout", check_readout),
            ("a copy for another process", _pickled),
            ("words and distance", _words),
        ]
        if draw:
            checks.append(("draw", _draw))
        with torch.random.fork_rng(devices=[]):
            for what, check in checks:
                try:
                    problems += check(case)
                except Exception as error:
                    problems.append(f"{what} failed: {_error(error)}")
    if odd := _changed(before, table):
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
    for name in tokens.reads:
        if name not in case.table:
            yield f"`reads` names `{name}`, but the table has no such column"
    if stream.columns and (odd := difference(stream, tokens.tokenize(case.table))):
        yield f"tokenize twice gives different tokens, in {odd}: it must not depend on chance or on what came before"
    yield from _places(case)


def _places(case: Case) -> Problems:
    axes, places = case.tokens.axes, case.tokens.places
    at = case.seen.columns.get("at", case.seen.position)
    if "at" in case.seen.columns and (1 if at.ndim == 1 else at.shape[-1]) != axes:
        yield f"the column `at` has {1 if at.ndim == 1 else at.shape[-1]} coordinates, but `axes` says {axes}"
    elif places is not None and len(at):
        ends = np.atleast_1d(at.max(0))
        sides = np.atleast_1d(places)
        if len(sides) == len(ends) and (at.min() < 0 or (ends >= sides).any()):
            yield f"tokens stand at places up to {ends.tolist()}, but `places` counts {sides.tolist()} from 0"


def _company(case: Case) -> Problems:
    tokens, some = case.tokens, min(case.rows, ROWS)
    normal = tokens.normalise(case.stream)
    for rows in [*(np.array([i]) for i in range(some)), np.arange(some)[::-1], np.zeros(2, np.int64)]:
        alone = tokens.tokenize(select(case.table, rows))
        if odd := difference(case.stream.take(rows), alone):
            yield (
                f"tokenize of the rows {rows.tolist()} alone differs in {odd} from the same rows among others: "
                "a sample must not depend on its company"
            )
            return
        if odd := difference(normal.take(rows), tokens.normalise(case.stream.take(rows)), close=True):
            yield (
                f"normalise of the rows {rows.tolist()} alone differs in {odd} from the same rows among others: "
                "use what `fit` has learned, not the batch"
            )
            return


def _empty(case: Case) -> Problems:
    none = case.tokens.tokenize(select(case.table, np.zeros(0, np.int64)))
    if len(none) or (odd := difference(case.stream.take(np.zeros(0, np.int64)), none)):
        yield f"a table of 0 samples must give 0 samples with the same columns; it differs in {odd or 'lengths'}"
    case.tokens.normalise(case.tokens.augment(none, Chance(SEED, 0, np.zeros(0, np.int64))))


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
    if odd := difference(here, there):
        yield f"restored from its state it makes other tokens, in {odd}: keep all that fit learns in `state`"


def _augment(case: Case) -> Problems:
    tokens, stream, ids = case.tokens, case.seen, np.arange(len(case.seen)) + 100
    kept = stream.but(**{name: column.copy() for name, column in stream.columns.items()})
    first, again = (tokens.augment(stream, Chance(SEED, 3, ids)) for _ in range(2))
    if odd := difference(kept, stream):
        yield f"augment changes the column {odd} in place, so that the next epoch begins from a varied sample"
    if len(first) != len(stream) or set(first.columns) < set(stream.columns):
        yield "augment must keep the samples and their columns"
    elif odd := difference(first, again):
        yield f"augment twice differs in {odd}: all that is random must come from `chance`"
    else:
        rows = np.arange(len(stream))[::-2]
        if odd := difference(first.take(rows), tokens.augment(stream.take(rows), Chance(SEED, 3, ids[rows]))):
            yield f"augment of some samples differs in {odd} from the same ones among others: ask `chance` by sample"


def _hiding(case: Case) -> Problems:
    """Poison what is hidden: nothing that the model sees may change."""
    if not case.tokens.hides or not int(case.seen.lengths.sum()):
        return
    batch, poisoned = hidden_tokens(case), hidden_tokens(case, poison=True)
    raw = case.seen.columns
    for name in case.tokens.hides:
        left = ~batch.columns["hidden"].astype(bool)
        if not np.array_equal(batch.columns[name][left], raw[name][left], equal_nan=raw[name].dtype.kind == "f"):
            yield f"blank changes `{name}` of tokens that are not to be hidden"
    seen, other = (_inputs(case.tokens.normalise(stream)) for stream in (batch, poisoned))
    if odd := difference(seen, other):
        yield f"hidden values leak: other values under the mask change {odd} of what the model sees"
    if type(case.tokens).noise is not Tokens.noise:
        mask, chance = batch.columns["hidden"].astype(bool), Chance(SEED, 0, np.arange(len(case.seen)))
        noisy, again = (case.seen.but(**case.tokens.noise(case.seen, mask, chance)) for _ in range(2))
        known = Stream({name: noisy.columns[name] for name in raw}, noisy.lengths)
        if (odd := difference(noisy, again)) or (odd := difference(case.seen.keep(~mask), known.keep(~mask))):
            yield f"noise must replace only the tokens asked for, by what `chance` draws; it differs in {odd}"


def _inputs(stream: Stream) -> Stream:
    return Stream({key: value for key, value in stream.columns.items() if not key.startswith(PREFIX)}, stream.lengths)


def _pickled(case: Case) -> Problems:
    twin = pickle.loads(pickle.dumps(case.tokens))
    if odd := difference(case.stream, twin.tokenize(case.table)):
        yield f"a copy made by pickle, as data workers get it, makes other tokens, in {odd}"


def _words(case: Case) -> Problems:
    one = case.seen.take(np.array([int(case.seen.lengths.argmax())]))
    n = int(one.lengths[0])
    words = case.tokens.words(one)
    if len(words) != n or not all(isinstance(word, str) for word in words):
        yield f"words must give one text for each of the {n} tokens of a sample; it gives {len(words)}"
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


def _changed(before: Table, after: Table) -> str:
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
