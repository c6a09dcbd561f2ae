"""Distributed training: ranks, collectives, DDP and FSDP, devices."""

from __future__ import annotations

import atexit
import datetime
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from ..errors import UserError
from ..nn.norms import batch_norms

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

PATIENCE_SECONDS = 1800.0  # timeout of a silent rank; SCIFORMER_PATIENCE overrides it
LOST_RANK_ERROR = re.compile("gloo|nccl|connection (closed|reset)|timed out", re.IGNORECASE)
JOINED_HERE: list[Any] = []  # store of the process group, if this module and not the caller joined it
ROLL_CALL_SECONDS = 5.0  # time that the other ranks have to answer after an error
MIN_ANSWER_SECONDS = 0.1  # time for the answer of a rank after that
Made = TypeVar("Made")


class Ranks:
    """Processes of a run: rank, world size, device, and collective operations.

    Under torchrun there are several processes (WORLD_SIZE). In a single process every method works without
    communication.
    """

    def __init__(self, device: torch.device) -> None:
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        self.local = int(os.environ.get("LOCAL_RANK", "0"))
        self.device = device
        if device.type == "cuda" and (self.world > 1 or device.index is None):
            self.device = torch.device("cuda", self.local)
        if device.type == "cuda":
            torch.cuda.set_device(self.device)
        if self.world > 1 and not dist.is_initialized():
            self._join()

    def _join(self) -> None:
        # gloo sums host numbers even with GPUs, so that they need no device sync.
        kinds = "cpu:gloo,cuda:nccl" if self.device.type == "cuda" else "gloo"
        try:
            store, _, _ = next(rendezvous("env://", timeout=patience()))
            if os.environ.get("GROUP_WORLD_SIZE", "1") == "1":
                # After a restart by torchrun the store still has the addresses of the old processes. With several
                # machines each counts its own restarts, so that the count cannot be the prefix.
                store = PrefixStore(f"restart-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
            dist.init_process_group(kinds, store=store, rank=self.rank, world_size=self.world, timeout=patience())
        except RuntimeError as error:
            why = str(error).strip().splitlines()[0][:200]
            hint = "Did all processes start, and can their machines reach each other? "
            if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")):
                hint += "Restarts on several machines need TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1. "
            hint += "The same command resumes from the last checkpoint."
            raise UserError(f"the {self.world} processes of the run cannot connect: {why}", hint=hint) from error
        atexit.register(_leave)
        JOINED_HERE.append(store)

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which alone prints and writes files."""
        return self.rank == 0

    def sum(self, *values: float) -> list[float]:
        """Sum each value over all ranks."""
        if self.world == 1:
            return list(values)
        shared = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(shared)
        return [float(value) for value in shared.tolist()]

    def gather(self, thing: Any) -> list[Any]:
        """Gather an object from each rank, in the order of the ranks."""
        if self.world == 1:
            return [thing]
        everything: list[Any] = [None] * self.world
        dist.all_gather_object(everything, thing)
        return everything

    def agree(self, thing: Any) -> Any:
        """Broadcast the object of the first rank to all ranks."""
        if self.world == 1:
            return thing
        box = [thing]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def lead(self, work: Callable[[], Any]) -> None:
        """Run `work` on the first rank; its UserError is raised on all ranks."""
        if not self.first:
            refusal = self.agree(None)
            if refusal is not None:
                raise UserError(**refusal)
            return
        try:
            work()
        except UserError as error:
            self.agree(error.fields)
            raise
        self.agree(None)

    def in_turn(self, work: Callable[[], Made]) -> Made:
        """Run `work` on the first rank, then on all other ranks.

        The other ranks can then use the files of the first rank.
        """
        made: list[Made] = []
        self.lead(lambda: made.append(work()))
        return made[0] if self.first else work()

    def wrap(self, step: nn.Module, shard: str) -> nn.Module:
        """Wrap a training step in DDP, or in FSDP2 with `shard: full`, for several ranks.

        The batch norms of the step then use the statistics of all ranks.
        """
        for norm in batch_norms(step):
            norm.over_ranks = self.world > 1
        if shard == "full":
            if self.world == 1:
                return step
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard

            mesh = init_device_mesh(self.device.type, (self.world,))
            for module in list(step.modules()):
                blocks = getattr(module, "blocks", None)
                for block in blocks if isinstance(blocks, nn.ModuleList) else ():
                    fully_shard(block, mesh=mesh)
            # By default the outermost module stays gathered after a forward pass. After an evaluation, which has no
            # backward pass, it would keep old weights.
            fully_shard(step, mesh=mesh, reshard_after_forward=True)
            return step
        return step if self.world == 1 else DistributedDataParallel(step)

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Leave the process group after an error; report a lost rank as a UserError.

        Without an error the group stays until the process ends, and the next training uses it. A new group after FSDP2
        would make gloo hang.
        """
        lost = self.world > 1 and isinstance(error, RuntimeError) and bool(LOST_RANK_ERROR.search(str(error)))
        absent = self._absent_ranks() if lost else []
        if error is not None:
            _leave()
        if lost:
            why = str(error).strip().splitlines()[0][:200]
            names = f"rank {', '.join(map(str, absent))}" if absent else "one"
            raise UserError(
                f"{names} of the {self.world} processes of the run ended or did not respond for {patience()} ({why})",
                hint="See the output of that process. The same command resumes from the last checkpoint.",
            ) from error

    def _absent_ranks(self) -> list[int]:
        """Ranks without a response; empty if the caller has made the process group."""
        if not JOINED_HERE:
            return []
        absent: list[int] = []
        call = threading.Thread(target=_call_roll, args=(JOINED_HERE[-1], self.rank, self.world, absent), daemon=True)
        call.start()
        call.join(2 * ROLL_CALL_SECONDS + MIN_ANSWER_SECONDS * self.world)
        # The first process holds the store. If it is silent, the store's client waits for its answer without end.
        return [0] if call.is_alive() else absent


def _call_roll(store: Any, rank: int, world: int, absent: list[int]) -> None:
    """Announce this rank in the store; add all silent ranks to `absent`."""
    end = time.monotonic() + ROLL_CALL_SECONDS
    try:
        store.set(f"sciformer/present/{rank}", "")
    except RuntimeError:  # the first process holds the store
        absent.append(0)
        return
    for other in range(world):
        left = max(MIN_ANSWER_SECONDS, end - time.monotonic())
        try:
            store.wait([f"sciformer/present/{other}"], datetime.timedelta(seconds=left))
        except RuntimeError:
            absent.append(other)


def _leave() -> None:
    """Leave the process group if this module joined it."""
    if JOINED_HERE and dist.is_initialized():
        JOINED_HERE.clear()
        dist.destroy_process_group()


def patience() -> datetime.timedelta:
    """Maximum waiting time for a rank, from SCIFORMER_PATIENCE in seconds."""
    given = os.environ.get("SCIFORMER_PATIENCE", "")
    try:
        seconds = float(given or PATIENCE_SECONDS)
        if not 0 < seconds < float("inf"):
            raise ValueError
    except ValueError as error:
        raise UserError(f"SCIFORMER_PATIENCE must be a number of seconds above 0, not {given!r}") from error
    return datetime.timedelta(seconds=seconds)


def is_sharded(tensor: Tensor) -> TypeGuard[DTensor]:
    """Whether a tensor is a DTensor (without importing the slow DTensor module)."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def full_tensor(tensor: Tensor) -> Tensor:
    """Detached full tensor, gathered from the shards of a DTensor.

    For a DTensor, all ranks must call this function.
    """
    tensor = tensor.detach()
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def local_tensor(tensor: Tensor) -> Tensor:
    """Detached tensor; for a DTensor, only the shard of this rank."""
    tensor = tensor.detach()
    return tensor.to_local() if is_sharded(tensor) else tensor


def own_part(named: Mapping[str, Tensor], first: bool) -> dict[str, Tensor]:
    """Tensors of this rank for a checkpoint: its shards, and unsharded tensors.

    The shards of all ranks, concatenated along the first axis in the order of the ranks, are the full tensor.

    first   whether this is rank 0; only rank 0 saves the unsharded tensors
    """
    found = {}
    for name, tensor in named.items():
        part = local_tensor(tensor)
        if is_sharded(tensor):
            assert [one.is_shard(0) for one in tensor.placements] == [True], (name, tensor.placements)
        if first or (is_sharded(tensor) and part.numel()):
            found[name] = part
    return found


def place(value: Tensor, like: Tensor) -> Tensor:
    """Move a full tensor to the device of `like`, and shard it if `like` is sharded.

    A tensor of another shape, for example a scalar, is not sharded. Every rank cuts its shard out of its own copy of
    the tensor. If the first rank sent the shards, all ranks would have to read the tensors in the same order, but files
    do not guarantee an order.
    """
    value = value.to(like.device)
    if is_sharded(like) and value.shape == like.shape:
        from torch.distributed.tensor import distribute_tensor

        return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)
    return value


def find_device(name: str) -> torch.device:
    """Torch device with this name; `auto` is CUDA, else MPS, else the CPU."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        message = f"train.device must be auto, cpu, cuda, cuda:1 or mps, not {name!r}"
        raise UserError(message, key="train.device") from error
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available.get(device.type, True):
        message = f"train.device is {name}, but this machine has no {device.type.upper()} device"
        raise UserError(message, hint="Use train.device: cpu or auto.", key="train.device")
    if device.type == "cuda" and device.index is not None and device.index >= torch.cuda.device_count():
        message = f"train.device is {name}, but this machine has {torch.cuda.device_count()} CUDA devices"
        raise UserError(message, hint="The first device is cuda:0.", key="train.device")
    return device


def device_name(device: torch.device) -> str:
    """Name of the GPU, or the number of threads of the CPU."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} ({torch.get_num_threads()} threads)" if device.type == "cpu" else device.type
