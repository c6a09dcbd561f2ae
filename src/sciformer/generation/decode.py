"""Autoregressive decoding, one token per step.

A decoder sees at most `window` tokens. While the window has room, a new token costs a single step, because the keys and
values of earlier tokens are cached. When the window is full, decoding restarts with its second half. So the model
always sees between half a window and a full window of the latest tokens, at positions 0, 1, 2, ... Moving the window by
one token per step would cost a full pass each time, since all positions change. Prompts longer than the window lose
their beginning.

On a CUDA device a step, including the choice of the token, is captured once as a CUDA graph and replayed for each
token. The step can also be compiled. The CPU queues several steps, and reads the tokens of earlier steps while the GPU
is busy.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from ..data.batch import StreamView
from ..data.collate import AsyncTensors
from ..evaluation.evaluate import autocast, one_behind
from ..nn import Transformer
from ..tokens.base import stream_part
from .beam_search import beam_search
from .sampling import Sampling, double_precision

STEPS_PER_BLOCK = 16  # steps queued at once
MIN_CACHE_TOKENS = 64  # minimum capacity of a fixed cache
MAX_RECORDED_STEPS = 4  # CUDA graphs of steps kept for reuse
STEP_NUMBERS = itertools.count()
RecordedSteps = dict[Any, "GraphDecoder"]


class Stepper:
    """State of a batch of texts during decoding, with a method for one step.

    allowed  (V,) mask of tokens that may be written
    """

    def __init__(self, model: Any, batch: int, sampling: Sampling, allowed: Tensor, capacity: int | None) -> None:
        """Allocate tensors; a CUDA graph needs a fixed `capacity`.

        capacity   maximum number of tokens in the cache (default: the cache grows)
        """
        self.model, self.sampling = model, sampling
        self.device = allowed.device
        self.closed, self.capacity = ~allowed, capacity
        self.token = torch.zeros(batch, 1, dtype=torch.long, device=self.device)
        self.place = torch.zeros(1, dtype=torch.long, device=self.device)  # index in the block
        self.uniform = torch.zeros(STEPS_PER_BLOCK, batch, dtype=double_precision(self.device), device=self.device)
        self.written = torch.zeros(batch, STEPS_PER_BLOCK, dtype=torch.long, device=self.device)
        self.pads: Tensor | None = None  # (B, 1) number of padded positions before each text
        self.seen: Tensor | None = None
        if sampling.remembers:
            self.seen = torch.zeros(batch, len(allowed), dtype=torch.bool, device=self.device)
        self.cache: Any = None

    def remember(self, ids: Tensor, pads: Tensor | None = None) -> None:
        """Mark tokens ids (B, N) as used, except `pads` (B,) padding tokens at the start."""
        if self.seen is not None:
            there = torch.ones_like(ids, dtype=torch.bool)
            if pads is not None:
                there = torch.arange(ids.shape[1], device=self.device)[None] >= pads[:, None]
            counted = torch.zeros(self.seen.shape, device=self.device).scatter_add_(1, ids, there.float())
            self.seen.copy_(counted > 0)

    def open(self, uniform: Tensor) -> None:
        """Begin a block of n steps with uniform random numbers (n, B)."""
        self.place.zero_()
        self.uniform[: len(uniform)] = uniform

    def begin(self, ids: Tensor, pads: Tensor | None = None) -> None:
        """Read ids (B, N) with `pads` (B,) padding tokens first; choose the next token."""
        if self.capacity is None or self.cache is None:
            self.cache = self.model.trunk.cache(*([] if self.capacity is None else [self.capacity]))
        else:
            self.cache.reset()
        view, self.pads = StreamView({"ids": ids}, None), None
        if pads is not None:
            self.pads = pads[:, None]
            places = torch.arange(ids.shape[1], device=self.device)[None] - self.pads
            view = StreamView({"ids": ids, "at": places.clamp(min=0)}, places >= 0)
        self.keep(self.logits(view))

    def step(self) -> None:
        self.keep(self.logits(self.view()))

    def view(self) -> StreamView:
        """The last token as input of the model."""
        if self.pads is None:
            return StreamView({"ids": self.token}, None)
        filled = self.cache.length if self.capacity is None else self.cache.slot
        return StreamView({"ids": self.token, "at": filled - self.pads}, None)

    def logits(self, view: StreamView) -> Tensor:
        """Read the tokens of the view; return logits (B, V) of the next token."""
        return self.model.readout(self.model.decode(view, cache=self.cache)[:, -1])

    def keep(self, logits: Tensor) -> None:
        """Choose the next token from logits (B, V) and store it."""
        uniform = self.uniform.index_select(0, self.place)[0]
        choice = self.sampling.choose(logits.masked_fill(self.closed, -torch.inf), uniform, self.seen)[:, None]
        if self.seen is not None:
            self.seen.scatter_(1, choice, True)
        self.written.index_copy_(1, self.place, choice)
        self.token.copy_(choice)
        self.place += 1


class GraphDecoder(Stepper):
    """A `Stepper` on a CUDA device; its step is captured once as a CUDA graph."""

    def __init__(
        self, model: Any, allowed: Tensor, batch: int, sampling: Sampling, capacity: int, padded: bool, compile: bool
    ) -> None:
        super().__init__(model, batch, sampling, allowed, capacity)
        self.kept_pads = torch.zeros(batch, dtype=torch.long, device=self.device) if padded else None
        call = compiled_step(self) if compile else super().step
        self.begin(self.token, self.kept_pads)  # creates the cache
        self.graph = torch.cuda.CUDAGraph()
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                call()
        torch.cuda.current_stream().wait_stream(aside)
        with torch.cuda.graph(self.graph):
            call()

    def begin(self, ids: Tensor, pads: Tensor | None = None) -> None:
        """Read ids (B, N) as in `Stepper.begin`.

        `pads` is copied into a fixed tensor, because a CUDA graph needs fixed addresses.
        """
        if pads is not None:
            assert self.kept_pads is not None
            self.kept_pads.copy_(pads)
        super().begin(ids, self.kept_pads)

    def step(self) -> None:
        self.graph.replay()


def compiled_step(stepper: Stepper) -> Callable[[], None]:
    """Compile a step in two parts: the model, and the choice of the token."""
    logits = compile_whole(lambda: Stepper.logits(stepper, Stepper.view(stepper)))
    keep = compile_whole(lambda logits: Stepper.keep(stepper, logits))
    return lambda: keep(logits())


def compile_whole(call: Any) -> Any:
    """Compile a function as one graph, with tuned kernels for matrix-vector products.

    PyTorch counts recompilations per code object, so each function gets a copy of its code.
    """
    name = f"{call.__name__}_{next(STEP_NUMBERS)}"
    own = FunctionType(call.__code__.replace(co_name=name), call.__globals__, name, None, call.__closure__)
    return torch.compile(own, fullgraph=True, dynamic=False, options={"coordinate_descent_tuning": True})


@torch.no_grad()
def write(
    model: Any,
    ids: Tensor,
    length: int,
    sampling: Sampling,
    uniform: Tensor,
    *,
    allowed: Tensor,
    window: int,
    pads: Tensor | None = None,
    precision: torch.dtype | None = None,
    compiled: bool = False,
    kept: RecordedSteps | None = None,
) -> Iterator[Tensor]:
    """Generate `length` tokens after texts (B, N), in blocks (B, n).

    uniform    (length, B) random numbers in [0, 1) for the choice of the tokens
    allowed    (V,) mask of tokens that may be written, on the device of the model
    pads       (B,) number of padded positions before each text, for texts of different length; with padding, each text
               must fit into the window together with its new tokens
    precision  data type of the weights (default: unchanged)
    compiled   whether to compile a step before its CUDA graph is captured; this takes a minute and saves time for long
               texts
    kept       CUDA graphs of earlier calls, for reuse; new graphs are added
    """
    device = allowed.device
    history, uniform = ids.to(device), uniform.to(double_precision(device)).to(device)
    pads = None if pads is None else pads.to(device)
    begun = history if pads is not None else history[:, -window:]
    size = begun.shape[1] + length if pads is not None else min(window, begun.shape[1] + length)
    if device.type != "cuda" or not isinstance(model.trunk, Transformer) or isinstance(model, Conditioned):
        stepper = Stepper(_cast(model, precision), len(ids), sampling, allowed, None)
    else:
        kept = {} if kept is None else kept
        capacity = max(MIN_CACHE_TOKENS, 1 << (size - 1).bit_length())
        changes = sum(weight._version for weight in model.parameters())  # increases when the weights change
        options = (len(ids), sampling, capacity, pads is not None, compiled)
        key = (id(model), changes, precision, *options)
        if key not in kept:
            for old in list(kept)[: len(kept) - MAX_RECORDED_STEPS + 1]:
                del kept[old]
            kept[key] = GraphDecoder(_cast(model, precision), allowed, *options)
        stepper = kept[key]
        stepper.closed.copy_(~allowed)
    stepper.remember(history, pads)
    block = STEPS_PER_BLOCK if isinstance(stepper, GraphDecoder) else 1
    done = 0
    while done < length:
        room = length if pads is not None else 1 + window - begun.shape[1]
        count = min(room, length - done)
        for first in range(0, count, block):
            steps = min(block, count - first)
            stepper.open(uniform[done : done + steps])
            if first == 0:
                stepper.begin(begun, pads)
            for _ in range(steps - (first == 0)):
                stepper.step()
            written = stepper.written[:, :steps].clone()
            history = torch.cat([history[:, -window:], written], 1)
            done += steps
            yield written
        begun = history[:, -max(1, window // 2) :]


def read_late(blocks: Iterator[Tensor], device: torch.device) -> Iterator[Tensor]:
    """Copy blocks of tokens to the host; on CUDA, one block late.

    The GPU works on the next block during the copy.
    """
    copies = (AsyncTensors({"ids": block}) for block in blocks)
    for arriving in one_behind(copies) if device.type == "cuda" else copies:
        yield arriving.read()["ids"]


def _cast(model: Any, precision: torch.dtype | None) -> Any:
    return model if precision is None else copy.deepcopy(model).to(precision)


class Conditioned(nn.Module):
    """Decoder of one stream, conditioned on a fixed sample of all other streams."""

    def __init__(self, model: nn.Module, stream: str, given: Mapping[str, StreamView]) -> None:
        super().__init__()
        self.model, self.stream, self.given = model, stream, given
        self.trunk, self.readout = (stream_part(getattr(model, part), stream) for part in ("trunk", "readout"))

    def decode(self, view: StreamView, cache: Any = None) -> Tensor:
        """Hidden states (B, N, D) of the tokens in `view`, given the other streams."""
        batch, weight = len(next(iter(view.columns.values()))), next(self.parameters())

        def repeat(column: Tensor) -> Tensor:
            column = column.expand(batch, *column.shape[1:])
            return column.to(weight.dtype) if column.is_floating_point() else column

        streams = {}
        for name, one in self.given.items():
            valid = one.valid.expand(batch, -1) if isinstance(one.valid, Tensor) else None
            streams[name] = StreamView({key: repeat(column) for key, column in one.columns.items()}, valid, name)
        asked = StreamView(view.columns, view.valid, self.stream, {**streams, self.stream: view})
        return self.model.decode(asked, cache=cache)  # type: ignore[operator]


def search_beams(
    model: Any,
    ids: Tensor,
    end: int | None,
    longest: int,
    allowed: Tensor,
    beam: int,
    precision: torch.dtype | None = None,
) -> list[list[int]]:
    """Best continuation of each text in ids (B, N), of at most `longest` tokens.

    A vocabulary without end token gets a virtual end token, with probability 1 after `longest` tokens and 0 before.
    """
    virtual, size, steps = end is None, len(allowed), itertools.count()
    ids, cache = ids.to(allowed.device), model.trunk.cache()

    def logits(ids: Tensor) -> Tensor:
        """Logits (R, V) of the token after ids (R, N)."""
        ids = ids.clamp(max=size - 1) if virtual else ids  # the virtual end token has no embedding
        with autocast(allowed.device, precision):
            found = model.readout(model.decode(StreamView({"ids": ids}, None), cache=cache)[:, -1]).float()
        if not virtual:
            return found
        over = next(steps) == longest
        extra = torch.full_like(found[:, :1], 0.0 if over else -torch.inf)
        return torch.cat([torch.full_like(found, -torch.inf) if over else found, extra], 1)

    found = beam_search(
        lambda last: logits(last[:, None]),
        cache.reorder,
        logits(ids).log_softmax(-1),
        size if end is None else end,
        torch.full((len(ids),), longest),
        beam=beam,
        allowed=torch.cat([allowed, allowed.new_zeros(1)]) if virtual else allowed,
    )
    return [hypotheses[0].ids for hypotheses in found]
