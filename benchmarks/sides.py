"""Common functions of the comparisons of speed: text, recipe, rows, kernel profile."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from measure import Row, compared
from run import LONG
from sciformer.recipe import Recipe

Times = dict[str, list[float]]


def text(size: int, letters: int) -> tuple[str, Any]:
    """File of random characters, and their ids as uint16.

    letters   number of different characters
    """
    points = np.concatenate([np.arange(*ends) for ends in ((0x4E00, 0x9FA6), (0xAC00, 0xD7A4), (0x20000, 0x2A6D7))])
    ids = np.random.default_rng(0).integers(0, letters, size)
    path = Path(tempfile.mkdtemp()) / "text.txt"
    path.write_text("".join(map(chr, points[ids].tolist())), "utf-8")
    return str(path), ids.astype(np.uint16)


def recipe_of(path: str, sizes: tuple[int, ...], batch: int, device: str, changes: dict[str, Any]) -> Recipe:
    vocabulary, context, dim, depth, heads = sizes
    tree = {
        "data": {"kind": "text", "files": [path]},
        "tokens": {"kind": "text", "context": context, "vocabulary": vocabulary},
        "model": {"kind": "decoder", "dim": dim, "depth": depth, "heads": heads, "bias": False},
        "objective": {"kind": "next_token"},
        "train": {"batch": batch, "learning_rate": 6e-4, "warmup": 0, "schedule": "constant", "device": device},
    }
    return Recipe.from_dict(tree, {**LONG, **changes})


def wall(calls: dict[str, Callable[[], Any]], repeats: int) -> Times:
    """Seconds of calls that end on the host, measured in turns."""
    for call in calls.values():
        call()
    times: Times = {name: [] for name in calls}
    names = list(calls)
    for turn in range(repeats):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            begun = time.perf_counter()
            calls[name]()
            times[name].append(time.perf_counter() - begun)
    return times


def row(name: str, values: list[float], unit: str, options: argparse.Namespace, device: str, **more: Any) -> Row:
    words = f"python benchmarks/speed.py {options.part}" + (f" --variant {options.variant}" if options.variant else "")
    return compared(name, values, unit, device, words, "transformers", processes=options.processes, **more)


class switched:
    """Context with the compiler settings of a variant, for our side alone."""

    def __init__(self, way: dict[str, Any]) -> None:
        import torch._inductor.config as config

        self.patch = config.patch(way.get("switch", {}))

    def __enter__(self) -> None:
        self.patch.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.patch.__exit__(*error)


def profile(call: Callable[[], Any]) -> None:
    """Print the kernels of a call, by their time."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as watch

    call()
    kinds = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])
    with watch(activities=kinds) as seen:
        call()
    key = "self_cuda_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
    print(seen.key_averages().table(sort_by=key, row_limit=40, max_name_column_width=90), file=sys.stderr)
