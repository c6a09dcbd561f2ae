"""What every kind of tokens must keep to on its way into a model and back; `testing` has the other promises."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from .data.batch import Batch, Stream
from .data.chance import Chance
from .data.source import Table, rows_of
from .models.encoder import Encoder
from .objectives.base import PREFIX, Objective
from .objectives.masked import Masked
from .tokens.base import Readout, Tokens, embedded

Array = NDArray[Any]
Problems = Iterator[str]
SEED = 7
ROWS = 16  # samples of the table that are looked at one by one, at most


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
    if packed.shape != (int(case.seen.lengths.sum()), dim) or not _close(packed, x.reshape(-1, dim)[_real(case.seen)]):
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
    trunk: Any = "transformer" if case.fixed().width(case.dim) == case.dim else "sets"
    section = Encoder(kind="encoder", trunk=trunk, dim=case.dim, depth=1, heads=2)
    network: Any = section.build({"tokens": case.fixed()}, Objective()).eval()
    stream = case.tokens.normalise(case.seen)
    rows = np.arange(min(case.rows, ROWS))
    places = case.tokens.places
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
    answer = readout.answer(hidden)
    for name, column in target.items():
        if name not in answer or answer[name].shape != column.shape:
            yield f"the readout's answer must have the column `{name}` of shape {tuple(column.shape)}"


def hidden_tokens(case: Case, poison: bool = False) -> Stream:
    """The tokens as an objective hides half of them, or the same with other values where they are hidden."""
    tokens, stream = case.tokens, case.seen
    names, chance = {"tokens": tokens}, Chance(SEED, 0, np.arange(len(stream)))
    objective = Masked(kind="masked", share=0.5)
    if poison:
        hidden = objective.corrupt(Batch({"tokens": stream}), names, chance).stream.columns["hidden"].astype(bool)
        columns = {name: stream.columns[name].copy() for name in tokens.hides}
        for column in columns.values():  # values of other hidden tokens, and larger where that can be
            column[hidden] = np.roll(column[hidden], 1, 0) * (100 if column.dtype.kind == "f" else 1)
        stream = stream.but(**columns)
    return objective.corrupt(Batch({"tokens": stream}), names, chance).stream


def _gradients(module: nn.Module, what: str) -> Problems:
    for name, weight in module.named_parameters():
        if weight.grad is None:
            yield f"the parameter `{name}` of {what} has no gradient: nothing depends on it, and training would stop"
        elif not torch.isfinite(weight.grad).all():
            yield f"the gradient of the parameter `{name}` of {what} is not finite"


def difference(one: Stream, other: Stream, close: bool = False) -> str:
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


def _real(stream: Stream) -> Array:
    """Places of the real tokens in the flattened padded layout."""
    return stream.sample * int(stream.lengths.max(initial=0)) + stream.position
