"""Speed against the official Particle Transformer (weaver-core): `python benchmarks/jets_speed.py PART ...`

    train      step on 512 jets in bfloat16 with fused AdamW and dropout 0.1, official model eager         (CUDA)
    compiled   the same against the official model compiled, in each mode that may work                    (CUDA)
    infer      probabilities of 512 jets in bfloat16                                                       (CUDA)
    train-cpu  step on 64 jets in float32
    kernel     times of our attention kernels by the layout of their programs; records nothing             (CUDA)

Jets have realistic multiplicities: normal, mean 45, deviation 15, from 2 to 128. Both sides start from the same
weights, must agree in evaluation, take turns call by call, rotate over eight batches that begin on the host, and run in
three fresh processes (--processes). Our side packs its ragged arrays within the measured time. The official side has
its padded arrays ready in pinned memory, and keeps its trimmer. `--variants a,b` tries other settings on our side and
records nothing; `--profile` prints the kernels of both sides.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from measure import RESULTS, Row, compared, interleave, record, spread
from sides import Times, profile, switched

# Variants on our side: changes of the recipe, switches of the compiler, layout of the attention kernels.
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no-graph": {"recipe": {"train.cuda_graphs": False}},
    "whole": {"recipe": {"train.cuda_graphs": "whole"}},
    "eager": {"recipe": {"train.compile": False}},
    "tuned": {"switch": {"coordinate_descent_tuning": True}},
    "block-32": {"kernel": {"BLOCK": 32}},
    "warps-8": {"layout": {"num_warps": 8}},
    "free-registers": {"layout": {"maxnreg": None}},
    "chunked": {"kernel": {"MAX_LENGTH": 0}},
}
# Ways to compile the official model: as its authors do, for any length at once, and for each length.
PEERS: dict[str, dict[str, Any]] = {"weaver": {}, "dynamic": {"dynamic": True}, "static": {"dynamic": False}}
GPU = ("train", "compiled", "infer", "kernel")
STEPS = {"infer": 16}  # steps in a call, if not 4 (CUDA) or 1; files for inference are long, and the first batch waits


def sides(options: argparse.Namespace, device: str, compiled: dict[str, Any] | None = None) -> tuple[Any, Any, Times]:
    """Both sides with equal weights, checked to agree, and the memory of their steps."""
    import jets_sides

    way = VARIANTS[options.variant or "plain"]
    make_sampler(way)
    size = options.batch or (512 if device == "cuda" else 64)
    batches = [jets_sides.jets(4 if options.tiny else size, seed) for seed in range(8)]
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    call = None if compiled is None else lambda model: torch.compile(model, **compiled)
    model = jets_sides.official(jets_sides.TINY if options.tiny else jets_sides.SIZES, compiled is not None)
    ours = jets_sides.Ours(model, device, batches, way.get("recipe", {}))
    theirs = jets_sides.Official(model, device, batches, call)
    exact = jets_sides.difference(theirs, ours, torch.float64, "cpu")
    assert exact < 1e-6, f"in double precision the two models differ by {exact} in a probability"
    near = jets_sides.difference(theirs, ours, torch.bfloat16 if device == "cuda" else torch.float32, device)
    assert near < 0.1, f"the two models differ by {near} in a probability"
    times: Times = {"difference": [exact], "difference_working": [near]}
    name = "infer" if options.part == "infer" else "train"
    for side, one in {"official": theirs, "ours": ours}.items():
        if options.only and side != "ours":
            continue
        before = allocated(device, reset=True)
        with switched(way if side == "ours" else {}):
            getattr(one, name)(8)  # the official trimmer only watches the first five
        times[f"{side} MiB"] = [allocated(device) - before]
        if options.profile:
            profile(lambda one=one: getattr(one, name)(2))  # type: ignore[misc]
    return theirs, ours, times


def allocated(device: str, reset: bool = False) -> float:
    """Peak memory on the GPU in MiB since the last reset.

    reset   start a new peak and return the present memory
    """
    if device != "cuda":
        return 0.0
    if not reset:
        return torch.cuda.max_memory_allocated() / 2**20
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated() / 2**20


def make_sampler(way: dict[str, Any]) -> None:
    """Set the layout of the attention kernels for a variant."""
    if "kernel" not in way and "layout" not in way:
        return
    from sciformer.nn.attention.kernels import packed_bias

    for name, value in way.get("kernel", {}).items():
        if name == "MAX_LENGTH":
            packed_bias.MAX_LENGTH = value
            continue
        from sciformer.nn.attention.kernels import packed_bias_triton

        setattr(packed_bias_triton, name, value)
    for name, value in way.get("layout", {}).items():
        from sciformer.nn.attention.kernels import packed_bias_triton

        for rows in packed_bias_triton.LAYOUT.values():
            for layout in rows.values():
                layout[name] = value


def once(options: argparse.Namespace, device: str) -> Times:
    """Measure one part in this process."""
    if options.part == "kernel":
        from jets_kernel import table

        return table(device, options.tiny)
    peer = PEERS[options.peer] if options.part == "compiled" else None
    theirs, ours, times = sides(options, device, peer)
    name = "infer" if options.part == "infer" else "train"
    calls: dict[str, Callable[[], Any]] = {"ours": lambda: getattr(ours, name)(options.steps)}
    if not options.only:
        calls["official"] = lambda: getattr(theirs, name)(options.steps)
    times |= interleave(calls, options.repeats, device)
    times["jets"] = [float(len(ours.batches[0]) * options.steps)]
    return times


def rows(samples: list[Times], options: argparse.Namespace, device: str) -> list[Row]:
    """Rows: ratios to the official model, jets/s of both sides, memory."""
    prefix = {"train": "part_train_gpu", "compiled": "part_train_gpu", "infer": "part_infer_gpu"}.get(
        options.part, "part_train_cpu"
    )
    size, kind = round(samples[0]["jets"][0] / options.steps), "bfloat16 autocast" if device == "cuda" else "float32"
    said: dict[str, Any] = {
        "settings": f"{size} jets a step, multiplicities normal(45, 15) in 2..128, {kind}, fused AdamW, dropout 0.1; "
        "official: weaver-core, trimmer on, padded batches ready on the host; ours: packed from ragged arrays within "
        "the time",
        "difference": [samples[0]["difference"][0], samples[0]["difference_working"][0]],
    }
    ratios = [b / a for sample in samples for a, b in zip(sample["ours"], sample["official"])]
    if options.part == "compiled":
        return [
            row(f"{prefix}.ratio_official_compiled", ratios, "x", options, device, bar=1.0, way=options.peer, **said)
        ]
    bar = {"train": 4.0, "infer": 4.0, "train-cpu": 1.2}.get(options.part)
    made = [row(f"{prefix}.ratio_official", ratios, "x", options, device, **said | ({"bar": bar} if bar else {}))]
    for side in ("ours", "official"):
        speeds = [sample["jets"][0] / seconds for sample in samples for seconds in sample[side]]
        name = "jets_per_s" if side == "ours" else "official_jets_per_s"
        made.append(row(f"{prefix}.{name}", speeds, "jets/s", options, device, digits=1))
    if options.part == "train":
        fast = [spread(sample["official"])[0] / statistics.median(sample["ours"]) for sample in samples]
        made.append(row(f"{prefix}.ratio_official_p10", fast, "x", options, device, **said))
    if samples[0]["official MiB"][0]:
        shares = [sample["ours MiB"][0] / sample["official MiB"][0] for sample in samples]
        peaks = {f"{side}_MiB": round(max(s[f"{side} MiB"][0] for s in samples)) for side in ("ours", "official")}
        more: dict[str, Any] = peaks | ({"bar": 0.5} if options.part == "train" else {})
        made.append(row(f"{prefix}.memory_ratio", shares, "share", options, device, better="lower", **more))
    return made


def row(name: str, values: list[float], unit: str, options: argparse.Namespace, device: str, **more: Any) -> Row:
    words = f"python benchmarks/jets_speed.py {options.part}" + (
        f" --variant {options.variant}" if options.variant else ""
    )
    counts = {"processes": options.processes, "repeats": options.repeats, "steps": options.steps}
    return compared(name, values, unit, device, words, "weaver-core", **counts | more)


def process(options: argparse.Namespace, part: str, variant: str = "", peer: str = "") -> Times:
    """Measure one part in a process of its own."""
    words = [sys.executable, __file__, part, "--once", "--repeats", str(options.repeats), "--steps", str(options.steps)]
    words += ["--batch", str(options.batch), "--threads", str(options.threads)]
    words += ["--variant", variant] if variant else []
    words += ["--peer", peer] if peer else []
    words += [f"--{name}" for name in ("tiny", "only", "profile") if getattr(options, name)]
    limit = options.patience if part == "compiled" else None
    around = os.environ | ({"TORCHINDUCTOR_CACHE_DIR": tempfile.mkdtemp()} if options.cold else {})
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False, timeout=limit, env=around)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"not done after {limit} s") from error
    if done.returncode:
        raise RuntimeError(f"{' '.join(words[2:])} ended with {done.returncode}: {done.stdout[-500:]}")
    times: Times = json.loads(done.stdout.splitlines()[-1])
    shown = {name: round(statistics.median(taken), 6) for name, taken in times.items()}
    print(part, peer or variant or "plain", json.dumps(shown), flush=True)
    return times


def measure(options: argparse.Namespace, part: str) -> None:
    """Measure one part in several processes, and record its rows."""
    device = "cuda" if part in GPU and not options.tiny else "cpu"
    options = argparse.Namespace(**{**vars(options), "part": part})
    options.steps = options.steps or STEPS.get(part, 1 if device == "cpu" else 4)
    if part == "kernel":
        process(options, part)
        return
    if options.variants:
        for variant in options.variants.split(","):
            attempt(lambda variant=variant: process(options, part, variant))  # type: ignore[misc]
        return
    found: list[Row] = []
    if part == "compiled":
        tried: dict[str, Any] = {}
        for peer in PEERS:
            options.peer = peer
            try:
                sample = process(options, part, options.variant, peer)
                new = rows([sample], options, device)
                tried[peer] = new[0]["value"]
                if not found or new[0]["value"] < found[0]["value"]:
                    found = new
            except RuntimeError as error:
                tried[peer] = str(error)[-300:]
                print(part, peer, error, flush=True)
        found = [one | {"processes": 1, "tried": tried} for one in found]
    else:
        samples: list[Times] = []
        for _ in range(options.processes):
            samples.append(process(options, part, options.variant))
            done = argparse.Namespace(
                **vars(options) | {"processes": len(samples)}
            )  # it may be stopped before the last
            found = [] if options.only else rows(samples, done, device)
            if not options.tiny:
                record(options.results, found)
    if found and not options.tiny:
        record(options.results, found)
    for one in found:
        print(f"{one['id']:40} {one['value']} {one['unit']}  spread {one['spread']}", flush=True)


def attempt(work: Callable[[], Any]) -> bool:
    """Call a function; print an error, return whether there was none, and continue."""
    try:
        work()
    except Exception:
        print(traceback.format_exc()[-2000:], flush=True)
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=["train", "compiled", "infer", "train-cpu", "kernel"])
    parser.add_argument(
        "--variants", default="", help="variants to try on our side, separated by commas; nothing is recorded"
    )
    parser.add_argument("--variant", default="", choices=["", *VARIANTS], help="variant to measure")
    parser.add_argument("--peer", default="weaver", choices=PEERS, help=argparse.SUPPRESS)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument(
        "--steps", type=int, default=0, help="steps in a call (default: 4 on CUDA, 16 for infer, 1 on the CPU)"
    )
    parser.add_argument("--batch", type=int, default=0, help="jets in a batch (default: 512 on CUDA, 64 on the CPU)")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (default: that of PyTorch)")
    parser.add_argument(
        "--patience", type=float, default=150, help="time limit in seconds to compile the official model"
    )
    parser.add_argument("--cold", action="store_true", help="start every process with an empty compiler cache")
    parser.add_argument("--only", action="store_true", help="measure our side alone")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--tiny", action="store_true", help="small test of the script on the CPU")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--results", type=Path, default=RESULTS / "jets-speed.json")
    options = parser.parse_args()
    for variant in options.variants.split(","):
        if variant and variant not in VARIANTS:
            parser.error(f"variants are {', '.join(VARIANTS)}; found {variant}")
    if options.once:
        options.part = options.parts[0]
        if options.threads:
            torch.set_num_threads(options.threads)
        device = "cuda" if options.part in GPU and not options.tiny else "cpu"
        print(json.dumps(once(options, device)))
        return
    done = [attempt(lambda part=part: measure(options, part)) for part in options.parts]  # type: ignore[misc]
    sys.exit(not all(done))


if __name__ == "__main__":
    main()
