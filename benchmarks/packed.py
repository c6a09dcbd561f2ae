"""The kernels `sets` and `flash` on packed sequences, forwards and backwards. `python benchmarks/packed.py`

512 sequences of short, jet-like, middle and light-curve lengths, bfloat16, recorded as a CUDA graph. Prints
microseconds; the choice between the two kernels (`flash.LONG`) follows from them.
"""

from __future__ import annotations

import numpy as np
import torch

from sciformer.nn import Documents, Ragged, Sight, attend

CALLS = 5
HEADS = ((4, 64), (8, 16), (4, 32))  # how many, how wide


def lengths() -> dict[str, list[int]]:
    """Kinds of 512 lengths."""
    chance = np.random.default_rng(0)
    curves = np.exp(np.log(120) + 0.6 * chance.standard_normal(512))
    normal = {name: chance.normal(mean, wide, 512) for name, mean, wide in (("jets", 45, 15), ("short", 30, 8))}
    every = {"curves": curves, **normal, "middle": chance.normal(100, 20, 512)}
    most = {"curves": 200, "jets": 128, "short": 64, "middle": 128}
    return {name: np.clip(drawn.round().astype(int), 2, most[name]).tolist() for name, drawn in every.items()}


def microseconds(kernel: str, drawn: list[int], heads: int, width: int) -> float:
    """Time of one call with its gradient."""
    total = sum(drawn)
    ragged = Ragged(torch.tensor(drawn, device="cuda"), total, max(drawn))
    x = torch.randn(1, total, 3, heads, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)

    def once() -> None:
        q, k, v = (x[:, :, i].transpose(1, 2) for i in range(3))
        out = attend(q, k, v, Sight(Documents(ragged)), kernel=kernel)
        out.backward(torch.ones_like(out))
        x.grad = None

    for _ in range(CALLS):
        once()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            once()
    graph.replay()
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    began.record()
    graph.replay()
    ended.record()
    torch.cuda.synchronize()
    return float(began.elapsed_time(ended)) / CALLS * 1000


def main() -> None:
    if not torch.cuda.is_available():
        raise SystemExit("a CUDA device is needed")
    for name, drawn in lengths().items():
        for heads, width in HEADS:
            times = {kernel: round(microseconds(kernel, drawn, heads, width), 1) for kernel in ("sets", "flash")}
            print(
                f"{name}: {heads} heads of width {width}, {np.mean(drawn):.0f} tokens on average: {times}", flush=True
            )


if __name__ == "__main__":
    main()
