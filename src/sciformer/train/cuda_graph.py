"""Loss and gradient of a step as one CUDA graph for each shape of its inputs, started by the host with one call.

The compiler's own recording leaves the host with work in every step: it checks the inputs, and hands some hundred
tensors from the forward to the backward half. Small models may wait for that (decision 041 says what is known of it).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..data.collate import ModelInputs, parts, run_of

MAX_RECORDED_SHAPES = 64  # steps of other shapes are done kernel by kernel


class CudaGraphStep:
    """Steps as recordings.

    call     the step, compiled without a recording of its own
    context  what it is called in
    """

    def __init__(
        self,
        call: Callable[[ModelInputs], tuple[Tensor, Any]],
        weights: list[torch.nn.Parameter],
        context: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        self.call, self.weights, self.context = call, weights, context
        self.device = weights[0].device
        self.seen: set[Any] = set()
        self.kept: dict[Any, _Recording] = {}
        self.pool: Any = None
        # Outside of the memory that recordings share, for they are read between one and the next.
        self.loss = torch.zeros((), device=self.device)
        self.grads: list[Tensor] = []

    def __call__(self, inputs: ModelInputs, scale: float) -> Tensor | None:
        """The loss times `scale` for inputs on the host, its gradient left at the weights.

        None where inputs have this shape for the first time: the step is to be done by other means, which compiles it.
        """
        shape = inputs.shape()
        if shape not in self.kept:
            if shape not in self.seen or len(self.kept) == MAX_RECORDED_SHAPES:
                self.seen.add(shape)
                return None
            self.kept[shape] = self._record(inputs)
        one = self.kept[shape]
        tensors = [*inputs.tensors(), torch.tensor(scale)]
        one.place.copy_(run_of(tensors, pinned=self.device.type == "cuda")[0], non_blocking=True)
        one.replay()
        for weight, grad in zip(self.weights, one.grads):
            weight.grad = grad
        return self.loss

    def _record(self, inputs: ModelInputs) -> _Recording:
        tensors = [*inputs.tensors(), torch.tensor(0.0)]
        run, starts = run_of(tensors, pinned=False)
        place = run.to(self.device, copy=True)  # numbers that make sense, though nothing is computed yet
        *moved, scale = parts(place, tensors, starts)
        self.grads = self.grads or [torch.zeros_like(weight) for weight in self.weights]
        grads: list[Tensor | None] = []

        def work() -> None:
            with self.context():
                loss, _ = self.call(inputs.placed(iter(moved)))
                loss = loss * scale
            found = torch.autograd.grad(loss, self.weights, allow_unused=True)
            grads[:] = [None if one is None else mine for one, mine in zip(found, self.grads)]
            torch._foreach_copy_([one for one in grads if one is not None], [one for one in found if one is not None])
            self.loss.copy_(loss.detach())

        if self.pool is None and self.device.type == "cuda":
            self.pool = torch.cuda.graph_pool_handle()
        return _Recording(place, capture(work, self.pool), grads)


class _Recording(NamedTuple):
    """The graph of one shape: memory of its inputs, replay, and the gradients it writes."""

    place: Tensor
    replay: Callable[[], None]
    grads: list[Tensor | None]


def capture(work: Callable[[], None], pool: Any) -> Callable[[], None]:
    """What repeats the kernels of `work`, with the same addresses."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        work()
    replay: Callable[[], None] = graph.replay
    return replay
