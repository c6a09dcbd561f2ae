"""Attention kernels: time and memory of `attend` beside the raw PyTorch call.

    python benchmarks/attention.py --device cpu       1k to 16k tokens, full, causal and window
    python benchmarks/attention.py --device cuda      1k to 64k tokens

Each cell is measured in three fresh processes; both sides take turns. `raw` is the call without the library:
F.scaled_dot_product_attention for full and causal; for windows SDPA with a dense mask on the CPU, and a compiled
flex_attention with a prepared block mask on CUDA. Our side makes its Sight in every call, as a model does. On CUDA,
calls are queued like the layers of a model (`forward`; `training`: forward and backward). `latency` is one forward call
on an idle GPU, with the time of the host.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import resource
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from measure import RESULTS, Row, commit, hardware, interleave, record, spread, versions
from sciformer.nn import Causal, Full, Pattern, Sight, Window, attend
from sciformer.nn.attention.kernels import flex

WINDOW = 128
SIZES = {"cpu": [1024, 4096, 16384], "cuda": [1024, 4096, 16384, 65536]}
SHAPES = {"cpu": (1, 4, 64), "cuda": (65536, 12, 64)}  # CPU: batch, heads, width; CUDA: tokens in all
PATTERNS: dict[str, Pattern] = {"full": Full(), "causal": Causal(), "window": Window(WINDOW)}
Call = Callable[[], Any]


def cell(device: str, name: str, n: int) -> list[Row]:
    """Measure one pattern at one size, in all directions."""
    first, heads, width = SHAPES[device]
    batch = first if device == "cpu" else first // n
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    q, k, v = (torch.randn(batch, heads, n, width, device=device, dtype=dtype, requires_grad=True) for _ in range(3))
    upstream = torch.randn_like(q)
    pattern = PATTERNS[name]

    def ours() -> Tensor:
        return attend(q, k, v, Sight(pattern))

    def clear() -> None:
        for x in (q, k, v):
            x.grad = None

    # Memory of a training step. Our side is taken before the other exists: on the CPU a process only knows the
    # highest it has ever had.
    base = peak(lambda: None, device)
    memory = {"ours": peak(directed(ours, "training", upstream), device) - base}
    sides: dict[str, Call] = {"ours": ours, "raw": raw(device, name, q, k, v)}
    clear()
    memory["raw"] = peak(directed(sides["raw"], "training", upstream), device) - base
    found = {side: call().detach() for side, call in sides.items()}
    error = (found["ours"] - found["raw"]).abs().max().item()
    assert error < (1e-4 if device == "cpu" else 2e-2), f"{name} at {n} differs from the raw call by {error}"
    del found
    if device == "cpu" and name == "window":
        sides["full"] = lambda: F.scaled_dot_product_attention(q, k, v)
    dense = name != "window" or device == "cpu"  # the window's rivals on the CPU are dense
    work = batch * n * (n if dense else 2 * WINDOW)
    repeats = max(3, min(60, round((3e8 if device == "cpu" else 1e11) / work)))
    rows: list[Row] = []
    for kind in ("forward", "training") if device == "cpu" or n > 4096 else ("forward", "training", "latency"):
        stream = 0.01 if device == "cuda" and kind != "latency" else 0.0
        calls = {side: directed(call, kind, upstream) for side, call in sides.items()}
        times = interleave(calls, repeats, device, stream)
        for side, seconds in times.items():
            row = {"pattern": name, "n": n, "direction": kind, "side": side, "seconds": seconds}
            rows.append({**row, "memory": memory.get(side, 0.0) if kind == "training" else 0.0})
    return rows


def raw(device: str, name: str, q: Tensor, k: Tensor, v: Tensor) -> Call:
    """Attention by PyTorch alone."""
    n = q.shape[2]
    if name != "window":
        return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=name == "causal")
    if device == "cpu":
        place = torch.arange(n, dtype=torch.int16 if n <= 1 << 14 else torch.int32)
        mask = (place[:, None] - place).abs() <= WINDOW
        return lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    def near(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (i - j <= WINDOW) & (j - i <= WINDOW)

    block_mask = torch.compile(create_block_mask)(near, None, None, n, n, device=device)
    compiled = torch.compile(flex_attention)
    return lambda: compiled(q, k, v, block_mask=block_mask)


def directed(call: Call, kind: str, upstream: Tensor) -> Call:
    """Make the call: forward without gradients, or forward and backward."""

    def forward() -> None:
        with torch.no_grad():
            call()

    return (lambda: call().backward(upstream)) if kind == "training" else forward


def peak(call: Call, device: str) -> float:
    """Peak memory after a call, in MiB: allocated on the device, or of the CPU process."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() / 2**20
    call()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def summarise(cells: list[list[Row]], device: str) -> tuple[list[Row], list[Row]]:
    """Pool the processes into a table, and rows for the results file."""
    processes = min(Counter((rows[0]["pattern"], rows[0]["n"]) for rows in cells).values())
    pooled: dict[tuple[str, int, str, str], list[float]] = {}
    memory: dict[tuple[str, int, str, str], float] = {}
    for rows in cells:
        for row in rows:
            key = row["pattern"], row["n"], row["direction"], row["side"]
            pooled.setdefault(key, []).extend(row["seconds"])
            memory[key] = max(memory.get(key, 0.0), row["memory"])
    table = []
    for (pattern, n, direction, side), seconds in pooled.items():
        base = statistics.median(pooled[pattern, n, direction, "raw"])
        middle = statistics.median(seconds)
        row = {"pattern": pattern, "n": n, "direction": direction, "side": side, "ratio": middle / base}
        row |= {"ms": 1e3 * middle, "spread": [1e3 * x for x in spread(seconds)]}
        table.append(row | {"MiB": memory[pattern, n, direction, side]})
    return table, figures(table, device, processes)


def figures(table: list[Row], device: str, processes: int) -> list[Row]:
    """Rows for the results file."""
    about = {
        "settings": f"B x H x E = {SHAPES[device]}, float32" if device == "cpu" else "65,536 tokens, 12 x 64, bfloat16",
        "command": f"python benchmarks/attention.py --device {device}",
        "hardware": hardware(device),
        "versions": versions(),
        "commit": commit(),
        "seeds": 1,
        "processes": processes,
    }
    find = {(r["pattern"], r["n"], r["direction"], r["side"]): r for r in table}
    tag, compared = ("cpu", ("full", "causal")) if device == "cpu" else ("gpu", tuple(PATTERNS))
    ours = [r for r in table if r["side"] == "ours"]
    rows: list[Row] = []
    for name, kinds in (("overhead", ("forward", "training")), ("latency_overhead", ("latency",))):
        cells = [r for r in ours if r["pattern"] in compared and r["direction"] in kinds]
        if cells:
            worst = max(cells, key=lambda r: r["ratio"])
            base = worst["ms"] / worst["ratio"]
            row = {"id": f"attention_{tag}.{name}", "value": round(100 * (worst["ratio"] - 1), 2), "better": "lower"}
            row |= {"spread": [round(100 * (x / base - 1), 2) for x in worst["spread"]], "cells": len(cells)}
            where = f"{worst['pattern']}, {worst['n'] // 1024}k, {worst['direction']}"
            rows.append(row | {"unit": f"% over the raw call, worst cell ({where})"} | about)
    for r in ours:
        other = find[r["pattern"], r["n"], r["direction"], "raw"]
        row = {"id": f"attention_{tag}.{r['pattern']}.{r['n'] // 1024}k.{r['direction']}", "value": round(r["ms"], 4)}
        row |= {"unit": "ms", "better": "lower", "spread": [round(x, 4) for x in r["spread"]]}
        row |= {"ratio_raw": round(r["ratio"], 4), "raw_ms": round(other["ms"], 4)}
        if r["direction"] == "training":
            row |= {"MiB": round(r["MiB"], 1), "raw_MiB": round(other["MiB"], 1)}
        rows.append(row | about)
    if ("window", 16384, "training", "full") in find:
        mine = find["window", 16384, "training", "ours"]
        what = {"raw": ("dense", "SDPA with the window as a dense mask"), "full": ("full", "SDPA without a mask")}
        for side, (name, words) in what.items():
            other = find["window", 16384, "training", side]
            low, high = other["spread"][0] / mine["spread"][1], other["spread"][1] / mine["spread"][0]
            row = {"id": f"window_cpu.16k.ratio_{name}", "value": round(other["ms"] / mine["ms"], 2)}
            row |= {"unit": f"times faster than {words}", "better": "higher", "spread": [round(low, 2), round(high, 2)]}
            rows.append(row | about | {"settings": f"{WINDOW} to each side, forward and backward; {about['settings']}"})
    return rows


def show(table: list[Row]) -> None:
    print(f"{'pattern':8} {'tokens':>7} {'':9} {'side':5} {'ms':>10} {'10-90 %':>21} {'ratio':>7} {'MiB':>9}")
    for r in table:
        low, high = r["spread"]
        print(
            f"{r['pattern']:8} {r['n']:7} {r['direction']:9} {r['side']:5} {r['ms']:10.3f} "
            f"{low:10.3f} {high:10.3f} {r['ratio']:7.3f} {r['MiB']:9.0f}"
        )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options.add_argument("--threads", type=int, default=1, help="CPU threads (one is fastest on small machines)")
    options.add_argument("--processes", type=int, default=3)
    options.add_argument("--largest", type=int, default=1 << 30, help="leave out sizes above this")
    options.add_argument("--out", type=Path, default=RESULTS / "core.json")
    options.add_argument("--log", type=Path, help="append the raw times here, and count in what it already holds")
    options.add_argument("--cells", nargs="+", metavar="PATTERN:N", help="measure these here and print them as JSON")
    chosen = options.parse_args()
    torch.set_num_threads(chosen.threads)
    torch.manual_seed(0)
    if chosen.cells:
        for name, n in (one.split(":") for one in chosen.cells):
            print(f"  {name} {n}", file=sys.stderr, flush=True)
            print(json.dumps(cell(chosen.device, name, int(n))), flush=True)
            torch._dynamo.reset()
            flex.compiled.cache_clear()
        return
    sizes = [n for n in SIZES[chosen.device] if n <= chosen.largest]
    wanted = [f"{name}:{n}" for n in sizes for name in PATTERNS]
    # On the CPU each cell has a process of its own, for the sake of its memory; a CUDA process takes long to start.
    groups = [[one] for one in wanted] if chosen.device == "cpu" else [wanted]
    log = chosen.log
    cells = [json.loads(line) for line in log.read_text().splitlines()] if log and log.exists() else []
    for turn, group in itertools.product(range(chosen.processes), groups):
        print(f"process {turn + 1} of {chosen.processes}: {' '.join(group)}", file=sys.stderr, flush=True)
        command = [sys.executable, __file__, "--device", chosen.device, "--threads", str(chosen.threads)]
        done = subprocess.run([*command, "--cells", *group], stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(group)} failed")
        lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
        cells += [json.loads(line) for line in lines]
        if log:
            with log.open("a") as file:
                file.writelines(line + "\n" for line in lines)
    table, rows = summarise(cells, chosen.device)
    show(table)
    record(chosen.out, rows)
    worst = rows[0]
    print(f"\nworst overhead {worst['value']} % of {worst['cells']} cells (bar: 5 %); rows in {chosen.out.name}")
    assert not math.isnan(worst["value"])


if __name__ == "__main__":
    main()
