"""Captions of simulated scenes: exact captions, attributes, pointing, retrieval, zero-shot classes, linear probes.

    COMMIT=1a2b3c4 python benchmarks/captions.py run --seconds 520 --copy OUT    three seeds of all models on one GPU
    python benchmarks/captions.py take OUT                                       rows of OUT into benchmarks/results
    python benchmarks/captions.py look OUT                                       pointing of the kept weights, on a CPU
    python benchmarks/captions.py draw OUT                                       docs/pictures/images-captions.png

`run` simulates the scenes once and trains `images/coca`, `images/show-attend-tell` and `images/caption-transformer` as
they are shipped, and CoCa's image encoder on labels alone, each in a process, side by side. A training that is not
complete at --train-share of the time is stopped, and its best weights so far are evaluated. Results of all processes
are in OUT/captions.json, written again every few seconds; the runs of the first seed in OUT/MODEL.tar. `look` measures
where the attention of these is at a colour word and one word before it; `draw` shows it for a scene.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from matplotlib.figure import Figure

from call import Call, Found, unpack
from captions_tasks import (
    KEEP_SEED,
    MODELS,
    SIZES_OF_PARTS,
    pieces_of,
    pointing,
    scenes_of,
    simulate,
    work,
)
from measure import RESULTS, ROOT, Row, commit, hardware, record, versions
from sciformer.domains.images.simulate.scenes import Scenes
from sciformer.inspection.alignment import align
from sciformer.inspection.attention import excess_over, relative_to_uniform

PICTURE = ROOT / "docs" / "pictures" / "images-captions.png"
NAMES = {"coca": "CoCa", "transformer": "Transformer", "show_attend_tell": "Show, Attend\nand Tell"}
DRAWN_SEED, DRAWN_WORDS = 3, 9  # of the drawn scene


# All models on one GPU


def run_all(options: argparse.Namespace) -> None:
    """Simulate the scenes once, and train all models side by side."""
    call = Call("captions", options.out, options.seconds, options.copy, shortly, [f"*-{KEEP_SEED}/*.tar"])
    cache = str(call.out / "scenes")
    pieces = [(cache, options.tiny, *piece) for piece in pieces_of(cache, options.tiny)]
    call.simulate(simulate, pieces, options.simulators)
    until = call.began + options.train_share * options.seconds
    for seed in options.seeds:
        for model in options.only:
            name = f"{model}-{seed}"
            words = [sys.executable, __file__, "work", model, str(seed), "--out", str(call.out / name)]
            words += ["--cache", cache, "--device", options.device, "--until", str(until)]
            call.start(name, [*words, *(["--tiny"] if options.tiny else [])])
    call.watch()


def shortly(one: dict[str, Any]) -> str:
    """Most important figures of a run in a line."""
    wanted = {
        "exact": ("captions", "exact"),
        "unseen": ("captions_unseen", "exact"),
        "thing": ("captions", "thing"),
        "relation": ("captions", "relation"),
        "pointing": ("pointing", "share"),
        "area": ("pointing", "area"),
        "recall1": ("retrieval", "recall1"),
        "shape0": ("zero_shot", "shape"),
        "colour0": ("zero_shot", "colour"),
        "probe": ("probe", "mean"),
    }
    found = {name: one.get(part, {}).get(key) for name, (part, key) in wanted.items()}
    words = [f"{name} {value:.3f}" for name, value in found.items() if value is not None]
    return ", ".join(words + [f"ERRORS {one['errors']}" for _ in one.get("errors", {})][:1])


# Rows

BARS = {"captions.coca.exact": 0.95, "captions.show_attend_tell.exact": 0.85}
RUN = "python benchmarks/captions.py run --copy OUT"
LOOK = "python benchmarks/captions.py look OUT"
ABOUT = ("asked_steps", "batch", "learning_rate", "scenes", "parameters")
ABOUT_SEEDS = ("steps", "best_step", "complete", "train_s")
ROWS: dict[str, tuple[str, Callable[[Found], float], str]] = {
    "exact": ("captions", lambda found: found["exact"], "share of captions"),
    "exact_unseen": ("captions_unseen", lambda found: found["exact"], "share of captions"),
    "attributes": (
        "captions",
        lambda found: statistics.mean(found[name] for name in ("colour", "shape", "size", "count")),
        "share of right colours, shapes, sizes and counts",
    ),
    "pointing": ("pointing", lambda found: found["share"], "share of the attention inside the boxes"),
    "recall1": ("retrieval", lambda found: found["recall1"], "recall@1 among 1,000 captions"),
    "zero_shot": ("zero_shot", lambda found: (found["shape"] + found["colour"]) / 2, "accuracy of shape and colour"),
    "zero_shot_unseen": (
        "zero_shot_unseen",
        lambda found: (found["shape"] + found["colour"]) / 2,
        "accuracy of shape and colour",
    ),
    "probe": ("probe", lambda found: found["mean"], "mean accuracy of four linear probes"),
}
BEFORE = ("pointing", lambda found: found["before"], "share of the attention inside the boxes, a word earlier")
LEFT_OUT = ("written", "captions", "every_head", "seconds", "frequent")
BEST = re.compile(r"^step ([\d,]+): validation.*\(best so far\)$", re.MULTILINE)


def take(folder: Path, out: Path) -> None:
    """Write the rows of the results in a folder."""
    found, best = json.loads((folder / "captions.json").read_text()), best_steps(folder / "captions-log.txt")
    runs = [one | {"best_step": best[f"{one['model']}-{one['seed']}"]} for one in found]
    rows = [make_row(model, name, runs, ROWS[name], RUN) for model in MODELS for name in ROWS]
    record(out, [row for row in rows if row])


def make_row(
    model: str, name: str, found: list[Found], what: tuple[str, Callable[[Found], float], str], command: str
) -> Row:
    """Row of a figure of a model over its seeds; empty if no run has the part."""
    part, value, unit = what
    runs = [one for one in found if one["model"] == model and part in one]
    if not runs:
        return {}
    values = [value(one[part]) for one in runs]
    row: Row = {"id": f"captions.{model}.{name}", "value": round(statistics.mean(values), 4), "better": "higher"}
    row |= {"unit": unit, "spread": round(statistics.stdev(values), 4) if len(values) > 1 else None}
    row |= {"seeds": len(runs), "values": [round(x, 4) for x in values], "command": command}
    row |= {key: runs[0]["origin"][key] for key in ("hardware", "versions", "commit")}
    row |= {"bar": BARS[row["id"]]} if row["id"] in BARS else {}
    row |= {key: runs[0][key] for key in ABOUT} | {key: [one[key] for one in runs] for key in ABOUT_SEEDS}
    print(f"{row['id']:36} {row['value']:.4f} {row['values']} {row.get('bar', '')}")
    return row | {"more": averages([one[part] for one in runs])}


def averages(runs: list[Found]) -> Found:
    """Mean over seeds of all numbers of a part."""
    found: Found = {}
    for name, first in runs[0].items():
        values = [one[name] for one in runs]
        if name in LEFT_OUT:
            continue
        numbers = all(isinstance(value, (int, float)) for value in values)
        found[name] = round(statistics.mean(values), 4) if numbers else first
    return found


def best_steps(log: Path) -> dict[str, int]:
    """Step of the kept weights of each process, by the lines of its training."""
    parts = re.split(r"^== (\S+)$", log.read_text(), flags=re.MULTILINE)[1:]
    steps = {name: BEST.findall(text) for name, text in zip(parts[::2], parts[1::2])}
    return {name: int(found[-1].replace(",", "")) for name, found in steps.items() if found}


# Attention of the kept runs


def look(folder: Path, out: Path) -> None:
    """Write rows of the attention one word before each colour, for the kept runs of a folder."""
    torch.set_num_threads(1)
    best, rows = best_steps(folder / "captions-log.txt"), []
    found = {
        one["model"]: one for one in json.loads((folder / "captions.json").read_text()) if one["seed"] == KEEP_SEED
    }
    with TemporaryDirectory() as cache:
        table = dict(scenes_of(cache, False).make(SIZES_OF_PARTS["looked"], part="test"))
        for model in MODELS:
            if (folder / f"{model}.tar").exists():
                seen = pointing(unpack(folder / f"{model}.tar", Path(cache, model)), table)
                one = found[model] | {"best_step": best[f"{model}-{KEEP_SEED}"], "pointing": seen}
                one["origin"] = {"hardware": hardware("cpu"), "versions": versions(), "commit": commit()}
                rows.append(make_row(model, "pointing_before", [one], BEFORE, LOOK))
    record(out, rows)


def draw(folder: Path, picture: Path) -> None:
    """Draw a scene with the attention of its written words, for the kept captioners of a folder."""
    torch.set_num_threads(1)
    figure = Figure(figsize=(DRAWN_WORDS + 1, 1.35 * len(NAMES)), layout="constrained")
    lines = figure.subplots(len(NAMES), DRAWN_WORDS + 1, squeeze=False)
    with TemporaryDirectory() as cache:
        scene = dict(Scenes(seed=DRAWN_SEED, things=(2, 2)).make(1))
        for axes, (model, name) in zip(lines, NAMES.items()):
            found = align(unpack(folder / f"{model}.tar", Path(cache, model)), {"image": scene["image"]})
            assert found.sample is not None
            assert found.draw is not None
            found.draw(found.sample, None, axes[0])
            axes[0].set_title("")
            axes[0].set_ylabel(name, fontsize=7)
            for word, weights, one in zip(found.target[:DRAWN_WORDS], found.mean.float().numpy(), axes[1:]):
                excess, most = excess_over(relative_to_uniform(weights))
                found.draw(found.sample, excess, one)
                one.set_title(f"{word}\n{most:.1f} ×", fontsize=7)
    figure.savefig(picture, dpi=90)
    print(f"{picture}: {picture.stat().st_size:,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS / "captions.json")
    parts = parser.add_subparsers(dest="part", required=True)
    part = parts.add_parser("run", help="train and evaluate all models side by side")
    part.add_argument("--seconds", type=float, default=520)
    part.add_argument("--train-share", type=float, default=0.8, help="share of the time after which trainings stop")
    part.add_argument("--seeds", type=lambda text: [int(word) for word in text.split(",")], default=[0, 1, 2])
    part.add_argument("--only", type=lambda text: text.split(","), default=list(MODELS), help=f"of {', '.join(MODELS)}")
    part.add_argument("--out", type=Path, default=Path("runs/captions"), help="folder of the runs; it is emptied")
    part.add_argument("--copy", type=Path, help="folder for copies of the results, the log and some weights")
    part.add_argument("--device", default="cuda")
    part.add_argument("--simulators", type=int, default=11, help="processes that simulate scenes")
    part.add_argument("--tiny", action="store_true", help="a few steps, to try the script")
    part = parts.add_parser("work", help="one model (called by run)")
    part.add_argument("model", choices=MODELS)
    part.add_argument("seed", type=int)
    part.add_argument("--out", type=Path, required=True)
    part.add_argument("--cache", required=True)
    part.add_argument("--device", default="cuda")
    part.add_argument("--until", type=float, default=1e12)
    part.add_argument("--tiny", action="store_true")
    for name, words in (("take", "write rows"), ("look", "measure the pointing of kept weights"), ("draw", "draw it")):
        part = parts.add_parser(name, help=words)
        part.add_argument("folder", type=Path)
        if name == "draw":
            part.add_argument("--out", type=Path, default=PICTURE)
    chosen = parser.parse_args()
    if chosen.part == "run":
        run_all(chosen)
    elif chosen.part == "work":
        where = chosen.out, chosen.cache, chosen.tiny, chosen.device, chosen.until
        work(chosen.model, chosen.seed, *where)
    elif chosen.part == "take":
        take(chosen.folder, chosen.results)
    elif chosen.part == "look":
        look(chosen.folder, chosen.results)
    elif chosen.part == "draw":
        draw(chosen.folder, chosen.out)


if __name__ == "__main__":
    main()
