"""Loss and gradient of a step as one CUDA graph per input shape.

With the CUDA graphs of the compiler, the host still has work in every step: it checks the inputs and passes several
hundred tensors from the forward to the backward pass. With small models, the GPU may wait for the host (see decision
041).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..data.collate import ModelInputs, parts, run_of

MAX_RECORDED_SHAPES = 64  # steps with more shapes than this run without a graph


class CudaGraphStep:
    """Training step recorded as one CUDA graph per input shape.

    call     function of the step, compiled without CUDA graphs
    weights  the trained parameters
    context  context manager around every call
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
        # Loss and gradients are outside the memory pool of the graphs, because they are read between two replays.
        self.loss = torch.zeros((), device=self.device)
        self.grads: list[Tensor] = []

    def __call__(self, inputs: ModelInputs, scale: float) -> Tensor | None:
        """Compute loss times `scale` for inputs on the host, and set the gradients.

        The result is None for the first inputs of a shape. The caller then runs and compiles the step without a graph.
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
        place = run.to(self.device, copy=True)  # valid numbers, although nothing is computed yet
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
    """CUDA graph for a single shape: input memory, replay function, output gradients."""

    place: Tensor
    replay: Callable[[], None]
    grads: list[Tensor | None]


def capture(work: Callable[[], None], pool: Any) -> Callable[[], None]:
    """Capture the kernels of `work` in a CUDA graph; return the replay function."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        work()
    replay: Callable[[], None] = graph.replay
    return replay
