"""One process or many: ranks, sums over them, and the whole of what they share."""

from __future__ import annotations

import atexit
import datetime
import os
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ..errors import UserError

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

PATIENCE_SECONDS = 1800.0  # of silence after which a rank is given up; SCIFORMER_PATIENCE says otherwise
LOST_RANK_ERROR = re.compile("gloo|nccl|connection (closed|reset)|timed out", re.IGNORECASE)
JOINED_HERE: list[bool] = []  # whether the group of processes was joined here, not by the caller
Made = TypeVar("Made")


class Ranks:
    """The processes of a run: this one's rank, their number, and what they do together.

    Under torchrun there are several (WORLD_SIZE); alone, every method does the obvious with one.
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
            # Numbers of the host are summed by gloo also beside GPUs: nobody waits for a device because of them.
            kinds = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
            dist.init_process_group(kinds, timeout=patience())
            atexit.register(_leave)
            JOINED_HERE.append(True)

    @property
    def first(self) -> bool:
        """Whether this rank speaks and writes for all."""
        return self.rank == 0

    def sum(self, *values: float) -> list[float]:
        """Sums over all ranks."""
        if self.world == 1:
            return list(values)
        shared = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(shared)
        return [float(value) for value in shared.tolist()]

    def gather(self, thing: Any) -> list[Any]:
        """What every rank has, in the order of ranks."""
        if self.world == 1:
            return [thing]
        everything: list[Any] = [None] * self.world
        dist.all_gather_object(everything, thing)
        return everything

    def agree(self, thing: Any) -> Any:
        """What the first rank has."""
        if self.world == 1:
            return thing
        box = [thing]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def lead(self, work: Callable[[], Any]) -> None:
        """The first rank does it while the others wait; where it refuses, all do, and nobody waits for ever."""
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
        """The first rank does it, then the others, who find what it made."""
        made: list[Made] = []
        self.lead(lambda: made.append(work()))
        return made[0] if self.first else work()

    def wrap(self, step: nn.Module, shard: str) -> nn.Module:
        """The step for these ranks: as it is, with summed gradients (DDP), or with divided weights (FSDP2)."""
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
            # By default the outermost module stays gathered after a forward pass: judged without a backward pass, it
            # would keep old weights.
            fully_shard(step, mesh=mesh, reshard_after_forward=True)
            return step
        return step if self.world == 1 else DistributedDataParallel(step)

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """After an error, leave the group, so that nobody waits for this rank; say plainly that another one was lost.

        Otherwise the group lasts as long as the process: the next training joins it. (Begun anew after FSDP2, gloo
        waits for ever.)
        """
        if error is not None:
            _leave()
        if self.world > 1 and isinstance(error, RuntimeError) and LOST_RANK_ERROR.search(str(error)):
            why = str(error).strip().splitlines()[0][:200]
            raise UserError(
                f"one of the {self.world} processes of the run is gone, or silent for {patience()} ({why})",
                hint="Its own words may say more. The same command goes on from the last checkpoint.",
            ) from error


def _leave() -> None:
    """Leave the group, if it was joined here."""
    if JOINED_HERE and dist.is_initialized():
        JOINED_HERE.clear()
        dist.destroy_process_group()


def patience() -> datetime.timedelta:
    """How long a silent rank is waited for."""
    given = os.environ.get("SCIFORMER_PATIENCE", "")
    try:
        seconds = float(given or PATIENCE_SECONDS)
        if not 0 < seconds < float("inf"):
            raise ValueError
    except ValueError as error:
        raise UserError(
            f"the environment variable SCIFORMER_PATIENCE must be a number of seconds above 0, not {given!r}"
        ) from error
    return datetime.timedelta(seconds=seconds)


def is_sharded(tensor: Tensor) -> TypeGuard[DTensor]:
    """Whether ranks share a tensor. Where nobody imported those, which takes a second, there are none."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def full_tensor(tensor: Tensor) -> Tensor:
    """A tensor with all its shares, detached; every rank must ask."""
    tensor = tensor.detach()
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def place(value: Tensor, like: Tensor) -> Tensor:
    """A whole tensor where and how another one is; numbers such as a step count stay as they are.

    Every rank cuts its share out of its own copy. Were the shares sent by the first one, all ranks would have to ask
    for the same tensors in the same order, and files do not keep an order.
    """
    value = value.to(like.device)
    if is_sharded(like) and value.shape == like.shape:
        from torch.distributed.tensor import distribute_tensor

        return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)
    return value


def find_device(name: str) -> torch.device:
    """The device of this name; auto is the fastest there is."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UserError(
            f"train.device must be auto, cpu, cuda, cuda:1 or mps, not {name!r}", key="train.device"
        ) from error
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available.get(device.type, True):
        message = f"train.device is {name}, and this machine has no {device.type.upper()} device"
        raise UserError(message, hint="Use train.device: cpu or auto.", key="train.device")
    if device.type == "cuda" and device.index is not None and device.index >= torch.cuda.device_count():
        raise UserError(
            f"train.device is {name}, and the number of CUDA devices of this machine is {torch.cuda.device_count()}",
            hint="They are counted from cuda:0.",
            key="train.device",
        )
    return device


def device_name(device: torch.device) -> str:
    """The name of a GPU; of a CPU, the number of its threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} ({torch.get_num_threads()} threads)" if device.type == "cpu" else device.type
