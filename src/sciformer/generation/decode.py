"""Tokens that go on from others, one step after the other.

A decoder sees at most `window` tokens. Each new one costs a single step while there is room, for keys and values of the
earlier ones are kept. Where the window is full it begins anew with its second half, so that the model always sees
between half a window and a whole one of the latest tokens, at the positions 0, 1, 2, ...; to move the window by one
token at each step would cost a whole pass each time, since all positions change. Beginnings longer than the window are
seen from their end.

On a CUDA device a step, with the choice of the token, is recorded once (a CUDA graph, of a compiled step where that is
wanted) and played again for each token. The host queues some steps, and looks at the tokens of those before while the
device is busy with them.
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
from ..evaluation.evaluate import autocast
from ..nn import Transformer
from ..tokens.base import stream_part
from .beam_search import beam_search
from .sampling import Sampling, double_precision

STEPS_PER_BLOCK = 16  # steps that are queued at once
MIN_CACHE_TOKENS = 64  # tokens a fixed cache holds
MAX_RECORDED_STEPS = 4  # recorded steps that are kept
STEP_NUMBERS = itertools.count()
RecordedSteps = dict[Any, "GraphDecoder"]


class Stepper:
    """A batch of texts in the making: what is known of them, and one step.

    allowed  (V,) which tokens may be written
    """

    def __init__(self, model: Any, batch: int, sampling: Sampling, allowed: Tensor, capacity: int | None) -> None:
        """With a `capacity` for tokens everything stays at its place in memory, as a recorded step needs it."""
        self.model, self.sampling = model, sampling
        self.device = allowed.device
        self.closed, self.capacity = ~allowed, capacity
        self.token = torch.zeros(batch, 1, dtype=torch.long, device=self.device)
        self.place = torch.zeros(1, dtype=torch.long, device=self.device)  # in a block
        self.uniform = torch.zeros(STEPS_PER_BLOCK, batch, dtype=double_precision(self.device), device=self.device)
        self.written = torch.zeros(batch, STEPS_PER_BLOCK, dtype=torch.long, device=self.device)
        self.pads: Tensor | None = None  # (B, 1) how many places before each text are empty
        self.seen: Tensor | None = None
        if sampling.remembers:
            self.seen = torch.zeros(batch, len(allowed), dtype=torch.bool, device=self.device)
        self.cache: Any = None

    def remember(self, ids: Tensor, pads: Tensor | None = None) -> None:
        """The tokens ids (B, N) were there, but for the first `pads` (B,)."""
        if self.seen is not None:
            there = torch.ones_like(ids, dtype=torch.bool)
            if pads is not None:
                there = torch.arange(ids.shape[1], device=self.device)[None] >= pads[:, None]
            counted = torch.zeros(self.seen.shape, device=self.device).scatter_add_(1, ids, there.float())
            self.seen.copy_(counted > 0)

    def open(self, uniform: Tensor) -> None:
        """Begin a block of steps with these numbers (n, B) to draw with."""
        self.place.zero_()
        self.uniform[: len(uniform)] = uniform

    def begin(self, ids: Tensor, pads: Tensor | None = None) -> None:
        """Read ids (B, N), the first `pads` (B,) of which are none, and choose the token that follows."""
        if self.capacity is None or self.cache is None:
            self.cache = self.model.trunk.cache(*([] if self.capacity is None else [self.capacity]))
        else:
            self.cache.reset()
        if pads is None:
            self.pads = None
            self.keep(self.logits(StreamView({"ids": ids}, None)))
            return
        self.pads = pads[:, None]
        places = torch.arange(ids.shape[1], device=self.device)[None] - self.pads
        self.keep(self.logits(StreamView({"ids": ids, "at": places.clamp(min=0)}, places >= 0)))

    def step(self) -> None:
        """Choose one token more."""
        self.keep(self.logits(self.view()))

    def view(self) -> StreamView:
        """The last token, as the model takes it."""
        if self.pads is None:
            return StreamView({"ids": self.token}, None)
        filled = self.cache.length if self.capacity is None else self.cache.slot
        return StreamView({"ids": self.token, "at": filled - self.pads}, None)

    def logits(self, view: StreamView) -> Tensor:
        """(B, V) of the token after those of the view, which the model reads."""
        found: Tensor = self.model.readout(self.model.decode(view, cache=self.cache)[:, -1])
        return found

    def keep(self, logits: Tensor) -> None:
        """Choose a token, and write it down."""
        uniform = self.uniform.index_select(0, self.place)[0]
        choice = self.sampling.choose(logits.masked_fill(self.closed, -torch.inf), uniform, self.seen)[:, None]
        if self.seen is not None:
            self.seen.scatter_(1, choice, True)
        self.written.index_copy_(1, self.place, choice)
        self.token.copy_(choice)
        self.place += 1


class GraphDecoder(Stepper):
    """The same on a CUDA device, with a step that is recorded once."""

    def __init__(
        self, model: Any, batch: int, sampling: Sampling, allowed: Tensor, capacity: int, padded: bool, compile: bool
    ) -> None:
        super().__init__(model, batch, sampling, allowed, capacity)
        self.kept_pads = torch.zeros(batch, dtype=torch.long, device=self.device) if padded else None
        call = compiled_step(self) if compile else super().step
        self.begin(self.token, self.kept_pads)  # makes the cache
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
        """As it is, with the number of empty places where the recorded step looks for it."""
        if pads is not None:
            assert self.kept_pads is not None
            self.kept_pads.copy_(pads)
        super().begin(ids, self.kept_pads)

    def step(self) -> None:
        """Play the recorded step."""
        self.graph.replay()


def compiled_step(stepper: Stepper) -> Callable[[], None]:
    """A step of compiled parts: what the model says, which does not change with the wishes, and the choice."""
    said = compile_whole(lambda: Stepper.logits(stepper, Stepper.view(stepper)))
    keep = compile_whole(lambda logits: Stepper.keep(stepper, logits))
    return lambda: keep(said())


def compile_whole(call: Any) -> Any:
    """A function compiled as a whole. Products of a matrix and a vector become kernels of their own, and are tuned.

    PyTorch counts recompilations by code object, so each function gets a copy of its code.
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
    """The next `length` tokens of texts (B, N) as they come: blocks (B, n) on the CPU.

    uniform    (length, B) in [0, 1), what the choices are drawn with
    allowed    (V,) which tokens may be written, on the model's device
    pads       (B,) empty places before the texts, where they are of different length; then no text with what is
               written may be longer than the window
    precision  of the weights, other than the model's own
    compiled   whether to compile a step before it is recorded: a minute that pays after some ten thousand steps
    kept       where recorded steps are kept for the next time
    """
    device = allowed.device
    history, uniform = ids.to(device), uniform.to(double_precision(device)).to(device)
    pads = None if pads is None else pads.to(device)
    begun = history if pads is not None else history[:, -window:]
    size = begun.shape[1] + length if pads is not None else min(window, begun.shape[1] + length)
    stepper = _stepper(model, len(ids), size, sampling, allowed, pads is not None, precision, compiled, kept)
    stepper.remember(history, pads)
    queue = Queue(device)
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
            yield from queue.put(written)
        begun = history[:, -max(1, window // 2) :]
    yield from queue.rest()


class Queue:
    """Blocks on their way to the host: one comes out when the next one is under way."""

    def __init__(self, device: torch.device) -> None:
        self.cuda = device.type == "cuda"
        self.waiting: list[tuple[Tensor, torch.cuda.Event]] = []

    def put(self, block: Tensor) -> Iterator[Tensor]:
        """Send a block; what has arrived by now."""
        if not self.cuda:
            yield block.cpu()
            return
        host = torch.empty(block.shape, dtype=block.dtype, pin_memory=True)
        host.copy_(block, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        self.waiting.append((host, event))
        if len(self.waiting) > 1:
            yield self._next()

    def rest(self) -> Iterator[Tensor]:
        """All others."""
        while self.waiting:
            yield self._next()

    def _next(self) -> Tensor:
        host, event = self.waiting.pop(0)
        event.synchronize()
        return host


def _stepper(
    model: Any,
    batch: int,
    size: int,
    sampling: Sampling,
    allowed: Tensor,
    padded: bool,
    precision: torch.dtype | None,
    compiled: bool,
    kept: RecordedSteps | None,
) -> Stepper:
    """A new one, or on a CUDA device one that was recorded before."""
    if allowed.device.type != "cuda" or not isinstance(model.trunk, Transformer) or isinstance(model, Conditioned):
        return Stepper(_cast(model, precision), batch, sampling, allowed, None)
    kept = {} if kept is None else kept
    capacity = max(MIN_CACHE_TOKENS, 1 << (size - 1).bit_length())
    changes = sum(weight._version for weight in model.parameters())  # trained on, it is another model
    key = (id(model), changes, batch, capacity, sampling, padded, precision, compiled)
    if key not in kept:
        for old in list(kept)[: len(kept) - MAX_RECORDED_STEPS + 1]:
            del kept[old]
        kept[key] = GraphDecoder(_cast(model, precision), batch, sampling, allowed, capacity, padded, compiled)
    kept[key].closed.copy_(~allowed)
    return kept[key]


def _cast(model: Any, precision: torch.dtype | None) -> Any:
    return model if precision is None else copy.deepcopy(model).to(precision)


class Conditioned(nn.Module):
    """A decoder of several streams that writes one of them; of the others one sample is given, the same for all."""

    def __init__(self, model: nn.Module, stream: str, given: Mapping[str, StreamView]) -> None:
        super().__init__()
        self.model, self.stream, self.given = model, stream, given
        self.trunk, self.readout = (stream_part(getattr(model, part), stream) for part in ("trunk", "readout"))

    def decode(self, view: StreamView, cache: Any = None) -> Tensor:
        """As the decoder does it, with the other streams beside the view."""
        batch, weight = len(next(iter(view.columns.values()))), next(self.parameters())

        def repeat(column: Tensor) -> Tensor:
            column = column.expand(batch, *column.shape[1:])
            return column.to(weight.dtype) if column.is_floating_point() else column

        streams = {}
        for name, one in self.given.items():
            valid = one.valid.expand(batch, -1) if isinstance(one.valid, Tensor) else None
            streams[name] = StreamView({key: repeat(column) for key, column in one.columns.items()}, valid, name)
        asked = StreamView(view.columns, view.valid, self.stream, {**streams, self.stream: view})
        found: Tensor = self.model.decode(asked, cache=cache)  # type: ignore[operator]
        return found


def search_beams(
    model: Any,
    ids: Tensor,
    end: int | None,
    longest: int,
    allowed: Tensor,
    beam: int,
    precision: torch.dtype | None = None,
) -> list[list[int]]:
    """The best hypothesis after each of the texts ids (B, N), with at most `longest` tokens.

    Tokens without an end to a text get one that costs nothing where the text is as long as it may be.
    """
    virtual, size, steps = end is None, len(allowed), itertools.count()
    ids, cache = ids.to(allowed.device), model.trunk.cache()

    def logits(ids: Tensor) -> Tensor:
        """(R, V) of the next token after more tokens (R, N)."""
        ids = ids.clamp(max=size - 1) if virtual else ids  # of hypotheses that are none
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
