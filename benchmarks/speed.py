"""Speed against nanoGPT and Hugging Face: `python benchmarks/speed.py PART`

    train       step of a 124 M GPT, 64 x 1024 tokens, against nanoGPT and GPT2LMHeadModel, both compiled     (CUDA)
    decode      256 tokens after 16 by the same model in bfloat16, batch 1 and 32, against `generate`         (CUDA)
    train-cpu   training of GPTs of 4 x 128 and 6 x 384 against nanoGPT's loop
    decode-cpu  64 tokens by the 124 M GPT in float32 against `generate` with its cache

Each part runs in three fresh processes (--processes); the sides take turns call by call. `--variants a,b` tries other
settings on our side, one process each, and records nothing; `--profile` prints the kernels of our side.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from decoding import decode_once, decode_rows
from measure import RESULTS, Row, record
from sides import Times
from training import train_cpu_once, train_cpu_rows, train_once, train_rows

# Other ways on our side: switches of the compiler, and changes of the recipe.
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "train": {
        "plain": {},
        "tuned": {"switch": {"coordinate_descent_tuning": True}},
        "tanh": {"recipe": {"model.activation": "gelu_tanh"}},
        "residual": {"ours": {"residual": True}},
        "tuned-tanh": {"switch": {"coordinate_descent_tuning": True}, "recipe": {"model.activation": "gelu_tanh"}},
        "tuned-tanh-residual": {
            "switch": {"coordinate_descent_tuning": True},
            "recipe": {"model.activation": "gelu_tanh"},
            "ours": {"residual": True},
        },
        "chunk-8k": {"ours": {"chunk": 8192}},
        "chunk-32k": {"ours": {"chunk": 32768}},
        "no-graph": {"recipe": {"train.cuda_graphs": False}},
        "whole": {"recipe": {"train.cuda_graphs": "whole"}},
    },
    "decode": {
        "plain": {"ours": {"compiled": True}},
        "graph": {"ours": {"compiled": False}},
        "pdl": {"ours": {"compiled": True}, "environment": {"TORCHINDUCTOR_ENABLE_PDL": "1"}},
        "autotune": {"ours": {"compiled": True}, "environment": {"TORCHINDUCTOR_MAX_AUTOTUNE": "1"}},
    },
    "train-cpu": {"plain": {}},
    "decode-cpu": {"plain": {"ours": {"compiled": False}}},
}


PARTS: dict[str, tuple[Callable[..., Times], Callable[..., list[Row]]]] = {
    "train": (train_once, train_rows),
    "decode": (decode_once, decode_rows),
    "train-cpu": (train_cpu_once, train_cpu_rows),
    "decode-cpu": (decode_once, decode_rows),
}


def process(options: argparse.Namespace, variant: str) -> Times:
    """Measure one part in a process of its own."""
    words = [sys.executable, __file__, options.part, "--once", "--variant", variant]
    words += ["--repeats", str(options.repeats), "--steps", str(options.steps)]
    words += [f"--{name}" for name in ("tiny", "only", "profile") if getattr(options, name)]
    way = VARIANTS[options.part][variant or "plain"]
    done = subprocess.run(
        words, stdout=subprocess.PIPE, text=True, check=False, env={**os.environ, **way.get("environment", {})}
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words[1:])} ended with {done.returncode}")
    times: Times = json.loads(done.stdout.splitlines()[-1])
    shown = {name: round(statistics.median(taken), 5) for name, taken in times.items()}
    print(variant or "plain", shown, flush=True)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument(
        "--variants", default="", help="variants to try on our side, separated by commas; nothing is recorded"
    )
    parser.add_argument("--variant", default="", help="variant to measure")
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="training steps in a call")
    parser.add_argument("--only", action="store_true", help="measure our side alone")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--tiny", action="store_true", help="small test of the script on the CPU")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--results", type=Path, default=RESULTS / "text-speed.json")
    options = parser.parse_args()
    once, rows = PARTS[options.part]
    for variant in [*options.variants.split(","), options.variant]:
        if variant and variant not in VARIANTS[options.part]:
            parser.error(f"variants of {options.part} are {', '.join(VARIANTS[options.part])}; found {variant}")
    if options.once:
        print(json.dumps(once(options, VARIANTS[options.part][options.variant or "plain"])))
        return
    if options.variants:
        for variant in options.variants.split(","):
            try:
                process(options, variant)
            except RuntimeError as error:
                print(variant, error, flush=True)
        return
    device = "cuda" if options.part in ("train", "decode") and not options.tiny else "cpu"
    samples: list[Times] = []
    for _ in range(options.processes):
        samples.append(process(options, options.variant))
        if not options.only:
            done = argparse.Namespace(
                **vars(options) | {"processes": len(samples)}
            )  # it may be stopped before the last
            record(options.results, found := rows(samples, done, device))
    if not options.only:
        for one in found:
            print(f"{one['id']:36} {one['value']} {one['unit']}  spread {one['spread']}")


if __name__ == "__main__":
    main()
