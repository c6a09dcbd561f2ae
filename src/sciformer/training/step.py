"""Optimizer step: loss, gradient, clipping and update, exact for micro-batches."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import math
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ..assembly import Assembly
from ..data.batch import Batch, ModelInputs
from ..data.collate import AsyncTensors
from ..data.columns import Array
from ..data.prepare import prepare
from ..data.random import SampleRandom
from ..data.sampler import rounded
from ..errors import UserError, is_out_of_memory
from ..evaluation.evaluate import autocast
from ..nn.norms import batch_norms
from ..objectives.base import CARRIED, Objective, Step
from .config import Train
from .cuda_graph import CudaGraphStep
from .distributed import Ranks, is_sharded
from .natural import natural_gradient
from .optimizers import learning_rate

MAX_COMPILED_SHAPES = 512  # batch shapes that a step may be compiled for


class StepResult:
    """Mean loss and gradient norm of a step, copied from the device asynchronously."""

    def __init__(self, loss: Tensor, norm: Tensor) -> None:
        self.values = AsyncTensors({"both": torch.stack([loss.float(), norm.float()])})

    def read(self) -> tuple[float, float]:
        """Wait until the step is done; return its loss and gradient norm."""
        loss, norm = self.values.read()["both"].tolist()
        return loss, norm


class OptimizerStep:
    """Optimizer steps for a module `step` (a model with its objective).

    The loss of a batch is summed over micro-batches and ranks, and divided once by the count of the whole batch. The
    gradient therefore does not depend on the number or the sizes of the micro-batches. After a non-finite gradient no
    weight changes.
    """

    def __init__(
        self,
        step: Step,
        wrapped: nn.Module,
        optimizer: torch.optim.Optimizer,
        settings: Train,
        ranks: Ranks,
        total: int,
        share: int,
        log: Callable[[str], None],
        carried: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Prepare the steps of a training.

        total     number of steps of the whole training
        share     largest number of samples of a batch on one rank
        carried   tensors carried from step to step by the objective, on the device
        """
        self.step, self.wrapped, self.optimizer = step, wrapped, optimizer
        self.settings, self.ranks, self.total, self.share, self.log = settings, ranks, total, share, log
        self.device, self.objective = ranks.device, step.objective
        self.carried = dict(carried or {})
        self.last: ModelInputs | None = None  # inputs of the last pass, if the objective needs them again
        self.one_pass = why_one_pass(step, settings)  # reason why a batch cannot be divided, or an empty string
        check_one_pass(self.one_pass, self.objective, settings, ranks)
        self.micro_batch = settings.micro_batch
        self.precision = working_precision(settings, self.device)
        self.compiled = compiled = (self.device.type == "cuda") if settings.compile is None else settings.compile
        self.pad_to_multiple = settings.pad_to_multiple or (32 if compiled else 1)
        if compiled:
            give_own_code(step)
        self.call: Any = torch.compile(wrapped, dynamic=False) if compiled else wrapped
        # With a small model the GPU waits for the host; a CUDA graph avoids that. Several ranks, micro-batches, and
        # objectives with more than a loss need the host during a step, so they run without CUDA graphs.
        self.natural = settings.optimizer == "natural"
        self.plain = not (self.carried or self.objective.whole_batch or self.objective.preconditions or self.natural)
        graphs = self.plain and compiled and self.device.type == "cuda" and ranks.world == 1
        use_graphs = graphs and settings.cuda_graphs is not False
        self.whole_call: Any = self.call
        self.sharded = settings.shard == "full" and ranks.world > 1
        self.weights = [parameter for parameter in step.parameters() if parameter.requires_grad]
        self.recorded: CudaGraphStep | None = None
        if use_graphs and settings.cuda_graphs == "whole" and self.weights:
            self.recorded = CudaGraphStep(self.call, self.weights, lambda: autocast(self.device, self.precision))
        elif use_graphs:
            self._record_halves()

    def __call__(self, batch: Batch, number: int, count: float) -> StepResult:
        """Run step `number` (counted from 0) on this rank's part of the batch.

        count   divisor of the loss: the sum of `batch.count` over all ranks
        """
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(number, self.total, self.settings) * group.get("scale", 1.0)
        loss = self.gradient(batch, number, count)
        if self.objective.preconditions or self.natural:
            self._precondition()
        norm = torch.nn.utils.get_total_norm([weight.grad for weight in self.weights if weight.grad is not None])
        if is_sharded(norm):
            norm = norm.full_tensor()
        if self.device.type == "cpu" and not self.sharded:  # reading the norm needs no device sync on the CPU
            length = float(norm)
            if math.isfinite(length):
                if self.settings.clip_norm and length + 1e-6 > self.settings.clip_norm:
                    torch.nn.utils.clip_grads_with_norm_(self.weights, self.settings.clip_norm, norm)
                self.optimizer.step()
                self._carry(None)
            return StepResult(loss, norm)
        fine = torch.isfinite(norm)
        self._carry(fine)
        if self.settings.clip_norm:
            torch.nn.utils.clip_grads_with_norm_(self.weights, self.settings.clip_norm, norm)
        if self.sharded or not self.optimizer.defaults.get("fused"):
            if bool(fine):
                self.optimizer.step()
        else:  # the fused optimizer skips a non-finite step by itself, without a device sync
            self.optimizer.grad_scale = None  # type: ignore[attr-defined]
            self.optimizer.found_inf = (~fine).float()  # type: ignore[attr-defined]
            self.optimizer.step()
        return StepResult(loss, norm)

    def _precondition(self) -> None:
        """Transform the gradient, if it is finite: to a natural gradient, or by the objective."""
        assert self.last is not None
        model, weights = self.step.model, dict(self.step.model.named_parameters())
        gradients = {name: weight.grad for name, weight in weights.items() if weight.grad is not None}
        if not torch.isfinite(torch.nn.utils.get_total_norm(gradients.values())):
            return
        if self.natural:
            fisher = self.objective.fisher(model, self.last)
            found = natural_gradient(model, fisher, gradients, self.settings.damping)
        else:
            found = self.objective.precondition(model, self.last, gradients)
        for name, value in found.items():
            weights[name].grad = value.to(weights[name].dtype)

    def _carry(self, fine: Tensor | None) -> None:
        """Keep the new values of the carried tensors if the gradient was finite."""
        if self.last is not None and self.carried:
            new = self.last.carried
            if fine is not None:  # without a device sync
                new = {name: torch.where(fine, value, self.carried[name]) for name, value in new.items()}
            self.carried = new
        self.last = None

    def _record_halves(self) -> None:
        """Compile the step with separate CUDA graphs of forward and backward pass."""
        self.whole_call = torch.compile(self.wrapped, dynamic=False, mode="reduce-overhead")

    def close(self) -> None:
        """Free the compiled step and its CUDA graphs, but no other compiled functions.

        The next call compiles the step again.
        """
        self.recorded = None
        if self.compiled:
            from torch._C._dynamo.eval_frame import reset_code

            reset_code(self.step.forward.__code__)
            gc.collect()  # CUDA graphs are freed with the functions they belong to, which form cycles

    def gradient(self, batch: Batch, number: int, count: float) -> Tensor:
        """Set `.grad` of the weights to the gradient of the mean loss; return the loss.

        If memory runs out, the micro-batch is halved and the gradient is computed again.
        """
        while True:
            try:
                return self._gradient(batch, number, count)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                size = min(self.micro_batch or len(batch), len(batch))
                if self.one_pass:
                    message = f"a batch of {size} samples does not fit into memory, and {self.one_pass}"
                    hint = "Use a smaller train.batch or a smaller model."
                    raise UserError(message, hint=hint, key="train.batch") from error
                if size == 1:
                    hint = "Use a smaller model or shorter samples."
                    raise UserError("a micro-batch of 1 sample does not fit into memory", hint=hint) from error
                if self.ranks.world > 1:
                    message, key = f"a micro-batch of {size} samples does not fit into memory", "train.micro_batch"
                    raise UserError(message, hint=f"Set {key}: {size // 2}", key=key) from error
                self.micro_batch = -(-size // 2)
            # Outside the handler, so that the memory of the failed attempt is free.
            self.optimizer.zero_grad(set_to_none=True)
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            size = self.micro_batch
            self.log(f"out of memory: using micro-batches of {size} samples from now on; the batch size stays the same")

    def _gradient(self, batch: Batch, number: int, count: float) -> Tensor:
        seed_step(self.device, self.settings.seed, number, self.ranks.rank)
        for weight in self.weights:
            weight.grad = None
        pieces = self._pieces(len(batch), self.share if batch.room is None else batch.room[0])
        total: Tensor | None = None
        call = self.whole_call if len(pieces) == 1 else self.call
        if call is not self.call:  # only here: the call imports the compiler
            torch.compiler.cudagraph_mark_step_begin()
        # Ranks average their gradients: each has its share of the loss, or the loss of the whole batch.
        scale = (1 if self.objective.whole_batch else self.ranks.world) / count if count else 0.0
        carried = self.carried
        for i, rows in enumerate(pieces):
            piece = batch if len(pieces) == 1 else batch.take(rows)
            inputs = self.inputs(piece, batch.room)
            if len(pieces) == 1 and (loss := self._replay(inputs, scale)) is not None:
                return loss
            inputs = inputs.to(self.device)
            if not self.plain:
                inputs = replace(inputs, carried=carried, divided=self.ranks.world > 1)
            with self._delay_sync(last=i == len(pieces) - 1), autocast(self.device, self.precision):
                loss, found = call(inputs)
                loss = loss * scale
                loss.backward()
            total = loss.detach() if total is None else total + loss.detach()
            if not self.plain:
                carried = {name: found[CARRIED + name].detach() for name in self.carried}
                self.last = replace(inputs, carried=carried)
        assert total is not None
        return total if self.ranks.world == 1 else total / self.ranks.world

    def _replay(self, inputs: ModelInputs, scale: float) -> Tensor | None:
        """Replay the step as one CUDA graph; return the loss, or None without a graph."""
        if self.recorded is None:
            return None
        try:
            return self.recorded(inputs, scale)
        except RuntimeError as error:  # the step syncs with the GPU, or no memory is left for one more shape
            self.recorded = None
            self._record_halves()
            reason = str(error).splitlines()[0]
            self.log(f"the step cannot be one CUDA graph; its two passes are recorded separately ({reason})")
            return None

    def inputs(self, piece: Batch, room: tuple[int, int] | None = None) -> ModelInputs:
        """Model inputs of a micro-batch, padded to a few shapes for a compiled step.

        room   number of samples and of tokens after padding, for batches of fixed shape
        """
        packed, multiple = self.settings.packed, self.pad_to_multiple
        rows = width = None
        if self.compiled:
            if room is not None:
                rows = max(len(piece), min(room[0], self.micro_batch or room[0]))
            if room is not None and not (packed and self.micro_batch):
                width = room[1]
            elif packed or len(piece.streams) > 1:
                width = int(rounded(np.array(piece.widest(packed)), None if packed else multiple))
        if not len(piece):  # a rank without samples: one row of padding
            rows, width = rows or 1, width or multiple
        return piece.inputs("cpu", multiple, packed, width, rows, moves=self.device.type != "cpu", shares=True)

    def _pieces(self, count: int, share: int) -> list[Any]:
        """Rows of each micro-batch.

        If weights are sharded, all ranks have the same number of micro-batches.
        """
        size = self.micro_batch or max(1, count)
        runs = [np.arange(start, min(start + size, count)) for start in range(0, count, size)]
        wanted = -(-share // size) if self.sharded and self.micro_batch else max(1, len(runs))
        return runs + [np.arange(0)] * (wanted - len(runs))

    def _delay_sync(self, last: bool) -> Any:
        """Context manager: sum gradients over ranks only after the last micro-batch."""
        if self.sharded:
            self.wrapped.set_requires_gradient_sync(last)  # type: ignore[operator]
        if isinstance(self.wrapped, DistributedDataParallel) and not last:
            return self.wrapped.no_sync()
        return contextlib.nullcontext()


def why_one_pass(step: Step, settings: Train) -> str:
    """Reason against dividing a batch into micro-batches; empty if there is none."""
    objective = step.objective
    if settings.optimizer == "natural":
        return "train.optimizer: natural needs the derivatives of all samples of a batch"
    if objective.whole_batch:
        return f"the loss of `objective.kind: {objective.kind}` compares all samples of a batch with each other"
    if objective.preconditions:
        return f"`objective.kind: {objective.kind}` needs all samples of a batch to transform the gradient"
    if batch_norms(step, step.still):
        return "the batch norms of the model take mean and variance over all samples of a batch"
    return ""


def check_one_pass(reason: str, objective: Objective, settings: Train, ranks: Ranks) -> None:
    """Refuse micro-batches or shards without support in objective or model.

    reason   reason from `why_one_pass`; empty if a batch may be divided
    """
    if reason and settings.micro_batch:
        message = f"train.micro_batch cannot be used, because {reason}"
        hint = "Remove train.micro_batch; a smaller train.batch needs less memory."
        raise UserError(message, hint=hint, key="train.micro_batch")
    if settings.optimizer == "natural":
        _check_natural(objective, settings, ranks)
    if objective.preconditions and settings.shard == "full" and ranks.world > 1:
        why = f"`objective.kind: {objective.kind}` transforms the gradient of all weights together"
        message = f"train.shard: full cannot be used, because {why}"
        raise UserError(message, hint="Use train.shard: none.", key="train.shard")


def _check_natural(objective: Objective, settings: Train, ranks: Ranks) -> None:
    """Raise an error if natural gradients cannot be computed."""
    key = "train.optimizer"
    if not objective.has_fisher or objective.preconditions:
        message = f"train.optimizer: natural cannot be used with `objective.kind: {objective.kind}`, which defines"
        message += " another transformation of the gradient" if objective.has_fisher else " no Fisher matrix"
        raise UserError(message, hint="Use train.optimizer: adamw.", key=key)
    if ranks.world > 1:
        message = f"train.optimizer: natural runs in one process, but there are {ranks.world}"
        raise UserError(message, hint="Train on one device, or use train.optimizer: adamw.", key=key)
    if settings.packed:
        message = "train.optimizer: natural needs padded samples, but train.packed is set"
        raise UserError(message, hint="Set train.packed: false.", key=key)


def give_own_code(module: nn.Module) -> None:
    """Give the `forward` method of a module a code object of its own.

    The compiler stores compiled code with the code object of a function. With a separate code object, the compiled code
    of a training can be freed alone, and its recompilations are counted alone.
    """
    old: Any = type(module).forward
    own = types.FunctionType(old.__code__.replace(), old.__globals__, old.__name__, old.__defaults__, old.__closure__)
    module.forward = types.MethodType(own, module)


@contextlib.contextmanager
def allow_many_shapes(compiled: bool) -> Iterator[None]:
    """Context manager: allow compilation for up to `MAX_COMPILED_SHAPES` shapes.

    The default limit of the compiler is lower. Above its limit, the compiler silently stops compiling.
    """
    if not compiled:
        yield
        return
    from torch._dynamo import config

    limit = max(config.recompile_limit, MAX_COMPILED_SHAPES)
    total = max(config.accumulated_recompile_limit, 4 * MAX_COMPILED_SHAPES)
    with config.patch(recompile_limit=limit, accumulated_recompile_limit=total):
        yield


def seed_step(device: torch.device, seed: int, number: int, rank: int) -> None:
    """Seed the random generators from the step number; checkpoints need no RNG state.

    `torch.manual_seed` is not used, because it would seed every kind of device, which takes 0.1 ms.
    """
    text = f"{seed} {number} {rank}".encode()
    word = int.from_bytes(hashlib.blake2b(text, digest_size=7).digest())
    torch.default_generator.manual_seed(word)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index or 0].manual_seed(word)
    elif device.type == "mps":
        torch.mps.manual_seed(word)


def working_precision(settings: Train, device: torch.device) -> torch.dtype | None:
    """Autocast dtype of matrix products; None to use the dtype of the weights."""
    if settings.precision == "auto":
        return torch.bfloat16 if device.type == "cuda" else None
    if settings.precision == "float64" and device.type == "mps":
        message = "train.precision: float64 cannot be used, because the device mps has no double precision"
        raise UserError(message, hint="Use train.device: cpu.", key="train.precision")
    if settings.precision == "bfloat16" and device.type != "cuda":
        message = f"train.precision: bfloat16 needs a CUDA device, but the device is {device}"
        raise UserError(message, hint="Use auto or float32.", key="train.precision")
    return torch.bfloat16 if settings.precision == "bfloat16" else None


@contextlib.contextmanager
def matmul_precision(settings: Train, device: torch.device) -> Iterator[None]:
    """Context manager: TF32 matrix products if `train.precision` is tensorfloat32.

    The precision is a setting of the whole process, so the old setting is restored at the end.
    """
    before = torch.get_float32_matmul_precision()
    if settings.precision == "tensorfloat32" and device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def nonfinite_rows(column: Array) -> Array:
    """Mask of the rows with NaN or infinity in a column."""
    if column.dtype.kind != "f":
        return np.zeros(len(column), bool)
    return np.asarray(~np.isfinite(column).all(tuple(range(1, column.ndim))))


def bad_samples(batch: Batch) -> list[int]:
    """Ids of the samples with NaN or infinity in a batch."""
    bad = np.zeros(len(batch), bool)
    for stream in batch.streams.values():
        for column in stream.columns.values():
            bad |= np.bincount(stream.sample[nonfinite_rows(column)], minlength=len(batch)) > 0
    for column in batch.samples.values():
        bad |= nonfinite_rows(column)
    return [int(number) for number in batch.ids[bad]]


def bad_samples_of(assembly: Assembly, part: str, limit: int | None = None) -> list[int]:
    """Ids of the samples of a part with NaN or infinity in tokens or loss columns."""
    dataset, found = assembly.dataset(part), []
    every = np.arange(len(dataset))[:limit]
    for start in range(0, len(every), 256):
        ids = every[start : start + 256]
        raw, rng = dataset.batch(ids), SampleRandom(assembly.recipe.train.seed, -1, ids)
        made = prepare(raw, assembly.tokens, assembly.objective, rng, training=False, counted=False)
        needed = {name: column for name, column in made.samples.items() if made.sent is None or name in made.sent}
        found += bad_samples(Batch(raw.streams, needed, ids))
    return found
