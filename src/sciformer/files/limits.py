"""Memory limits: check the claimed size of a file before unpacking."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..errors import UserError

MAX_UNPACKED_BYTES = 4 << 30  # maximum size of a decompressed gzip file, which is held in memory
MIN_CHECKED_BYTES = 1 << 20  # smaller parts always fit; the free memory is read from the system, which takes time
MAX_RATIO, MIN_SUSPECT_BYTES = 1 << 16, 1 << 30  # compressed data never reach this ratio, except small arrays


def free_memory() -> int:
    """Free memory for this process in bytes, within the limit of its job or container."""
    limits = []
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        limits.append(next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")))
    except (OSError, StopIteration):  # not Linux
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError, ValueError, StopIteration):  # no limit of a job or container
        group = Path("/sys/fs/cgroup", Path("/proc/self/cgroup").read_text().rpartition("::")[2].strip("/\n"))
        used = (line.split() for line in (group / "memory.stat").read_text().splitlines())
        limits.append(int((group / "memory.max").read_text()) - next(int(n) for name, n in used if name == "anon"))
    return min(limits)


def check_memory(path: Path, needed: int, what: str) -> None:
    """Refuse a part of a file larger than the free memory.

    what   noun for the part: "array `x`"
    """
    if needed > MIN_CHECKED_BYTES and needed > (free := free_memory()):
        hint = "Use a machine with more memory, or divide the file. If the file is damaged, write it again."
        raise UserError(f"{what} of {path} needs {needed:,} bytes, but {free:,} are free", hint=hint, file=path)


def check_stored(path: Path, shape: Sequence[int], itemsize: int, stored: int, what: str) -> None:
    """Refuse an array far larger than its stored bytes: damaged header or zip bomb."""
    needed = math.prod(shape) * itemsize
    if needed > MIN_SUSPECT_BYTES and needed > MAX_RATIO * stored:
        message = f"{what} of {path} has {needed:,} bytes according to its header, but {stored:,} bytes are stored"
        raise UserError(message, hint="The file may be damaged: download or write it again.", file=path)
