"""The kernels `packed_bias` and `flash` on packed sequences, forward and backward. `python benchmarks/packed.py`

512 sequences with lengths of short sets, jets, medium texts and light curves, in bfloat16. Queries, keys and values lie
side by side, as a projection writes them, and calls are recorded as a CUDA graph. Prints microseconds, which decide the
choice between the two kernels (`flash.MIN_MEAN_LENGTH`). With --layouts: times of `packed_bias` for sequences of
several blocks, with one setting of its program layout changed at a time.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch

from sciformer.nn import Documents, Ragged, Request, Sight
from sciformer.nn.attention.kernels import flash, packed_bias

CALLS = 5
HEADS = ((4, 64), (8, 16), (4, 32))  # how many, how wide
BLOCKS = ((64, 64, 4), (64, 32, 4), (128, 64, 8), (128, 32, 8), (32, 64, 4), (32, 32, 2))  # own, others, warps


def lengths() -> dict[str, list[int]]:
    """Lengths of 512 sequences, by kind."""
    rng = np.random.default_rng(0)
    curves = np.exp(np.log(120) + 0.6 * rng.standard_normal(512))
    normal = {name: rng.normal(mean, wide, 512) for name, mean, wide in (("jets", 45, 15), ("short", 30, 8))}
    every = {"curves": curves, **normal, "middle": rng.normal(100, 20, 512)}
    most = {"curves": 200, "jets": 128, "short": 64, "middle": 128}
    return {name: np.clip(drawn.round().astype(int), 2, most[name]).tolist() for name, drawn in every.items()}


def microseconds(kernel: Any, drawn: list[int], heads: int, width: int, back: bool = True) -> float:
    """Time of one call, with or without its gradient."""
    total = sum(drawn)
    ragged = Ragged(torch.tensor(drawn, device="cuda"), total, max(drawn))
    x = torch.randn(1, total, 3 * heads * width, device="cuda", dtype=torch.bfloat16, requires_grad=back)
    up = torch.randn(1, heads, total, width, device="cuda", dtype=torch.bfloat16)

    def once() -> None:
        q, k, v = (part.unflatten(-1, (heads, width)).transpose(1, 2) for part in x.chunk(3, -1))
        out = kernel.run(Request(q, k, v, Sight(Documents(ragged)), qkv=x))
        if back:
            out.backward(up)
            x.grad = None

    for _ in range(CALLS):
        once()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            once()
    graph.replay()
    times = []
    for _ in range(5):
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        graph.replay()
        ended.record()
        torch.cuda.synchronize()
        times.append(float(began.elapsed_time(ended)) / CALLS * 1000)
    return float(np.median(times))


def layouts(drawn: list[int], heads: int, width: int) -> None:
    """Print the times of each program layout."""
    from sciformer.nn.attention.kernels import packed_bias_triton

    def tried(name: str, table: dict[Any, Any], key: Any, way: dict[str, Any], back: bool) -> None:
        before = table[key]
        table[key] = way
        try:
            print(f"{name} {way}: {microseconds(packed_bias, drawn, heads, width, back):.1f}", flush=True)
        except Exception as error:  # too many registers or too much shared memory
            print(f"{name} {way}: {type(error).__name__}", flush=True)
        table[key] = before

    for warps, stages in ((4, 1), (4, 2), (4, 3), (8, 2)):
        way = {"num_warps": warps, "num_stages": stages}
        tried("forward alone", packed_bias_triton.LAYOUT["along"], packed_bias_triton.BLOCK, way, False)
    for name in ("queries", "keys"):
        for rows, step, warps in BLOCKS:
            for stages in (1, 2):
                way = {"ROWS": rows, "STEP": step, "num_warps": warps, "num_stages": stages}
                tried(name, packed_bias_triton.LONG_LAYOUT, name, way, True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layouts", action="store_true")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("a CUDA device is needed")
    if options.layouts:
        layouts(lengths()["curves"], *HEADS[0])
        return
    for name, drawn in lengths().items():
        for heads, width in HEADS:
            times = {}
            for kernel in (packed_bias, flash):
                alone, both = (microseconds(kernel, drawn, heads, width, back) for back in (False, True))
                times[kernel.__name__.rpartition(".")[2]] = f"{alone:.0f} + {both - alone:.0f}"
            print(
                f"{name}: {heads} heads of width {width}, {np.mean(drawn):.0f} tokens on average, "
                f"forwards + backwards: {times}",
                flush=True,
            )


if __name__ == "__main__":
    main()
