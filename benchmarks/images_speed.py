"""Training speed of ViT-B/16 against timm: `python benchmarks/images_speed.py PART ...`

    train   step on 256 images of 224 x 224 in bfloat16 with fused AdamW; batches on the device                 (CUDA)
    host    the same with scaled batches on the host, timm's in pinned memory                                   (CUDA)
    loop    our training loop from images as bytes, with processes that prepare batches (--workers)             (CUDA)

timm's model is compiled as in its training script (--peer graphs: with CUDA graphs too), ours as in every training.
Both start from the same weights, must agree in evaluation, take turns call by call, and run in three fresh processes
(--processes). `--variants a,b` tries other settings on our side and records nothing; `--profile` prints the kernels of
both sides. If timm cannot be installed, `--timm` names a wheel or a folder of it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from jets_speed import allocated, attempt
from measure import RESULTS, Row, compared, interleave, record
from sides import Times, profile, switched

# Other ways on our side: changes of the recipe, switches of the compiler, columns left out, the environment.
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no-graph": {"recipe": {"train.cuda_graphs": False}},
    "whole": {"recipe": {"train.cuda_graphs": "whole"}},
    "eager": {"recipe": {"train.compile": False}},
    "tuned": {"switch": {"coordinate_descent_tuning": True}},
    "tanh": {"recipe": {"model.activation": "gelu_tanh"}},
    "tuned-tanh": {
        "switch": {"coordinate_descent_tuning": True},
        "recipe": {"model.activation": "gelu_tanh"},
    },
    "autotune": {"environment": {"TORCHINDUCTOR_MAX_AUTOTUNE": "1"}},
    "exact-width": {"recipe": {"train.pad_to_multiple": 1}},
    "counted-places": {"recipe": {"train.pad_to_multiple": 1}, "without": ("at",)},
}
PEERS: dict[str, dict[str, Any]] = {"script": {}, "graphs": {"mode": "reduce-overhead"}}
BAR = 1.05


def once(options: argparse.Namespace, device: str) -> Times:
    """Measure one part in this process."""
    import images_sides

    if options.part == "loop":
        return loop(options, device)
    way = VARIANTS[options.variant or "plain"]
    sizes = images_sides.TINY if options.tiny else images_sides.SIZES
    size = 4 if options.tiny else options.batch
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    batches = [images_sides.images(size, sizes, seed) for seed in range(options.batches)]
    model = images_sides.timm(sizes)
    torch.nn.init.normal_(model.head.weight, std=0.02)  # type: ignore[union-attr, arg-type]
    ours = images_sides.Ours(model, sizes, device, batches, way)
    theirs = images_sides.Timm(model, device, batches, PEERS[options.peer] if device == "cuda" else None)
    times: Times = {}
    if way.get("recipe", {}).keys() <= {"train.cuda_graphs", "train.compile", "train.pad_to_multiple"}:
        exact = images_sides.difference(theirs, ours, torch.float64, "cpu")
        assert exact < 1e-6, f"in double precision the two models differ by {exact}"
        near = images_sides.difference(theirs, ours, torch.bfloat16 if device == "cuda" else torch.float32, device)
        assert near < 0.1, f"the two models differ by {near}"
        times = {"difference": [exact, near]}
    if options.part == "train":
        ours.settle()
        theirs.settle()
    elif device == "cuda":
        theirs.pin()
    found: dict[str, Any] = {"ours": ours} if options.only else {"ours": ours, "timm": theirs}
    for name, side in found.items():
        before = allocated(device, reset=True)
        with switched(way if name == "ours" else {}):
            side.train(4)
        times[f"{name} MiB"] = [allocated(device) - before]
        if options.profile:
            profile(partial(side.train, 2))
    calls = {name: partial(side.train, options.steps) for name, side in found.items()}
    times |= interleave(calls, options.repeats, device)
    return times | {"images": [float(size * options.steps)]}


def loop(options: argparse.Namespace, device: str) -> Times:
    """Time our loop alone: images in memory, prepared by other processes, sent, trained on."""
    import images_sides
    from run import LONG, blocks, engine_of

    sizes = images_sides.TINY if options.tiny else images_sides.SIZES
    size = 4 if options.tiny else options.batch
    path = Path(tempfile.mkdtemp()) / "images.npz"
    np.savez(path, **images_sides.images(size * options.batches * 2, sizes, 0))
    changes = {"data.files": [str(path)], "data.split": {"valid": 0.1, "test": 0}, "train.workers": options.workers}
    way = VARIANTS[options.variant or "plain"].get("recipe", {})
    engine = engine_of(images_sides.recipe(sizes, size, device, {**changes, **LONG, **way}), device)
    steps = options.steps * 8  # processes start anew with each call
    times = interleave({"ours": blocks(engine, steps)}, max(2, options.repeats // 4), device)
    return times | {"images": [float(size * steps)]}


def rows(samples: list[Times], options: argparse.Namespace, device: str) -> list[Row]:
    """Rows: ratios to timm, images/s of both sides, memory."""
    said: dict[str, Any] = {
        "settings": f"{options.batch} images a step, 224 x 224 x 3, patches of 16, 12 x 768, bfloat16 autocast, fused "
        "AdamW, dropout 0"
    }
    said["batches"] = {"train": "on the device", "host": "on the host"}.get(options.part, "from bytes")
    prefix = {"train": "vit_b16_train", "host": "vit_b16_host", "loop": "vit_b16_loop"}[options.part]
    made = []
    if options.part == "loop":
        said["workers"] = options.workers
    else:
        said["settings"] += "; timm: vit_base_patch16_224, torch.compile; ours: the update of a training"
        said |= {"difference": samples[0].get("difference"), "peer": options.peer}
        ratios = [b / a for sample in samples for a, b in zip(sample["ours"], sample["timm"])]
        bar: dict[str, Any] = {"bar": BAR} if options.part == "train" else {}
        made.append(row(f"{prefix}.ratio_timm", ratios, "x", options, device, **said, **bar))
    for side, name in (("ours", "images_per_s"), ("timm", "timm_images_per_s")):
        if side in samples[0]:
            speeds = [sample["images"][0] / seconds for sample in samples for seconds in sample[side]]
            made.append(row(f"{prefix}.{name}", speeds, "images/s", options, device, digits=0, **said))
    if samples[0].get("timm MiB", [0])[0]:
        shares = [sample["ours MiB"][0] / sample["timm MiB"][0] for sample in samples]
        peaks = {f"{side}_MiB": round(max(s[f"{side} MiB"][0] for s in samples)) for side in ("ours", "timm")}
        made.append(row(f"{prefix}.memory_ratio", shares, "share", options, device, better="lower", **peaks))
    return made


def row(name: str, values: list[float], unit: str, options: argparse.Namespace, device: str, **more: Any) -> Row:
    words = f"python benchmarks/images_speed.py {options.part}"
    words += f" --variant {options.variant}" if options.variant else ""
    words += f" --peer {options.peer}" if options.peer != "script" else ""
    counts = {"processes": options.processes, "repeats": options.repeats, "steps": options.steps}
    return compared(name, values, unit, device, words, "timm", **counts | more)


def process(options: argparse.Namespace, variant: str) -> Times:
    """Measure one part in a process of its own."""
    words = [sys.executable, __file__, options.part, "--once", "--peer", options.peer]
    for name in ("repeats", "steps", "batch", "batches", "workers"):
        words += [f"--{name}", str(getattr(options, name))]
    words += ["--variant", variant] if variant else []
    words += ["--timm", str(options.timm)] if options.timm else []
    words += [f"--{name}" for name in ("tiny", "only", "profile") if getattr(options, name)]
    surroundings = {**os.environ, **VARIANTS[variant or "plain"].get("environment", {})}
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False, env=surroundings)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words[2:])} ended with {done.returncode}: {done.stdout[-500:]}")
    times: Times = json.loads(done.stdout.splitlines()[-1])
    shown = {name: round(statistics.median(taken), 6) for name, taken in times.items()}
    print(options.part, variant or "plain", json.dumps(shown), flush=True)
    return times


def measure(options: argparse.Namespace, part: str) -> None:
    """Measure one part in several processes, and record its rows."""
    options = argparse.Namespace(**{**vars(options), "part": part})
    device = "cpu" if options.tiny else "cuda"
    if options.variants:
        for variant in options.variants.split(","):
            attempt(partial(process, options, variant))
        return
    samples: list[Times] = []
    found: list[Row] = []
    for number in range(options.processes):
        samples.append(process(options, options.variant))
        done = argparse.Namespace(**{**vars(options), "processes": number + 1})  # it may be stopped before the last
        found = [] if options.only else rows(samples, done, device)
        if found and not options.tiny:
            record(options.results, found)
    for one in found:
        print(f"{one['id']:32} {one['value']} {one['unit']}  spread {one['spread']}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=["train", "host", "loop"])
    parser.add_argument(
        "--variants", default="", help="variants to try on our side, separated by commas; nothing is recorded"
    )
    parser.add_argument("--variant", default="", choices=["", *VARIANTS], help="variant to measure")
    parser.add_argument("--peer", default="script", choices=PEERS, help="how timm's model is compiled")
    parser.add_argument("--timm", type=Path, help="wheel or folder of timm, if it is not installed")
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--steps", type=int, default=4, help="in a call")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--batches", type=int, default=4, help="different batches, in turns")
    parser.add_argument("--workers", type=int, default=12, help="processes that prepare batches, of loop")
    parser.add_argument("--only", action="store_true", help="measure our side alone")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--tiny", action="store_true", help="small test of the script on the CPU")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--results", type=Path, default=RESULTS / "images-speed.json")
    options = parser.parse_args()
    for variant in options.variants.split(","):
        if variant and variant not in VARIANTS:
            parser.error(f"variants are {', '.join(VARIANTS)}; found {variant}")
    if options.timm:
        sys.path.insert(0, str(options.timm.resolve()))
    if options.once:
        options.part = options.parts[0]
        print(json.dumps(once(options, "cpu" if options.tiny else "cuda")))
        return
    done = [attempt(partial(measure, options, part)) for part in options.parts]
    sys.exit(not all(done))


if __name__ == "__main__":
    main()
