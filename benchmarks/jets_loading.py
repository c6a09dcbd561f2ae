"""Jet loading from ROOT files, against weaver-core: `python benchmarks/jets_loading.py`

Both sides read the same two files (--jets FILE, in JetClass format, repeated to about --number jets), make the 17
features, the momenta and the classes of the full set, shuffle, and yield tensors of 512 jets. That they are equal is
checked first. Each epoch starts with nothing in memory: every jet is read from the files within the measured time. The
sides take turns epoch by epoch, in three fresh processes. Each is timed without and with worker processes, and its
fastest setting counts. Each decompresses with its default: weaver with uproot's, ours with the package isal if it is
installed. `--profile` shows where our time goes.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import logging
import os
import pstats
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from measure import RESULTS, Row, commit, hardware, record, spread, versions

CLASSES = ("QCD", "Hbb", "Hcc", "Hgg", "H4q", "Hqql", "Zqq", "Wqq", "Tbqq", "Tbl")
BATCH, FETCH = 512, 1 / 3  # jets in a batch; share of the files that weaver reads at a time, about a piece of ours
WORKERS = (0, 1, 2)
FEATURES: list[list[Any]] = [
    ["part_pt_log", 1.7, 0.7],
    ["part_e_log", 2.0, 0.7],
    ["part_logptrel", -4.7, 0.7],
    ["part_logerel", -4.7, 0.7],
    ["part_deltaR", 0.2, 4.0],
    *([f"part_{name}", None] for name in ("charge", "isChargedHadron", "isNeutralHadron", "isPhoton")),
    *([f"part_{name}", None] for name in ("isElectron", "isMuon", "d0")),
    ["part_d0err", 0, 1, 0, 1],
    ["part_dz", None],
    ["part_dzerr", 0, 1, 0, 1],
    ["part_deta", None],
    ["part_dphi", None],
]
Times = dict[str, list[float]]


def build(source: Path, folder: Path, number: int) -> list[str]:
    """Write two files with the jets of a small file, shuffled and repeated to whole batches."""
    import awkward  # type: ignore[import-untyped,unused-ignore]
    import uproot  # type: ignore[import-untyped,unused-ignore]

    with uproot.open(source) as file:
        tree = file[next(name for name, kind in file.classnames().items() if kind == "TTree")]
        table = tree.arrays([name for name in tree.keys() if not name.startswith("npart")])  # noqa: SIM118
    rng, names = np.random.default_rng(0), []
    for part in range(2):
        names.append(str(folder / f"jets-{part}.root"))
        with uproot.recreate(names[-1]) as file:
            made, left = (
                file.mktree("tree", {name: table[name].type for name in table.fields}),
                number // 2 // BATCH * BATCH,
            )
            while left:
                some = table[rng.permutation(len(table))[:left]]
                made.extend({name: awkward.to_packed(some[name]) for name in some.fields})
                left -= len(some)
    return names


# The two sides


def ours(files: list[str]) -> Any:
    """One epoch of our batches, with a number of worker processes."""
    from sciformer.assembly import Assembly
    from sciformer.data.loader import Fetch, load
    from sciformer.data.sampler import BatchSampler
    from sciformer.files.formats.base import release
    from sciformer.recipe import Recipe

    data = {"kind": "events", "files": files, "classes": {name: f"label_{name}" for name in CLASSES}}
    recipe = Recipe.load("jets/part", {"data": {**data, "split": {"valid": 0, "test": 0}}, "train.device": "cpu"})
    assembly = Assembly.open(recipe)
    dataset = assembly.dataset("train")
    order = BatchSampler(len(dataset), BATCH, 0, lengths=dataset.lengths, chunks=dataset.sizes)
    fetch = Fetch(dataset, order, assembly.tokens, assembly.objective)

    def epoch(workers: int, each: Callable[[Any], None] = lambda batch: None) -> int:
        dataset.kept.clear()
        release()
        count = 0
        for batch in load(fetch, 0, order.batches, workers=workers):
            each(batch.inputs("cpu", packed=True))
            count += len(batch)
        return count

    return epoch


def weaver(files: list[str], config: Path) -> Any:
    """One epoch of weaver's loader, as in its training."""
    logging.disable(logging.INFO)
    import uproot
    from weaver.utils.dataset import SimpleIterDataset  # type: ignore[import-not-found,import-untyped,unused-ignore]

    config.write_text(json.dumps(description()))

    def epoch(workers: int, each: Callable[[Any], None] = lambda batch: None) -> int:
        uproot.compression._decompress_ZLIB.library = "zlib"  # the default, which our side may change
        dataset = SimpleIterDataset(
            {"all": files}, str(config), batch_size=BATCH, for_training=True, fetch_step=FETCH, name="train"
        )
        loader = torch.utils.data.DataLoader(dataset, batch_size=BATCH, num_workers=workers, drop_last=True)
        count = 0
        for inputs, labels, _ in loader:
            each(inputs)
            count += len(labels["_label_"])
        return count

    return epoch


def description() -> dict[str, Any]:
    """weaver's data file for the full set of features."""
    group: Callable[[list[list[Any]]], dict[str, Any]] = lambda names: {  # noqa: E731
        "length": 128,
        "pad_mode": "wrap",
        "vars": names,
    }
    new = {"mask": "ak.ones_like(part_energy)", "pt": "np.hypot(part_px, part_py)", "pt_log": "np.log(part_pt)"}
    new |= {"e_log": "np.log(part_energy)", "logptrel": "np.log(part_pt/jet_pt)"}
    new |= {"logerel": "np.log(part_energy/jet_energy)", "deltaR": "np.hypot(part_deta, part_dphi)"}
    new |= {"d0": "np.tanh(part_d0val)", "dz": "np.tanh(part_dzval)"}
    return {
        "new_variables": {f"part_{name}": formula for name, formula in new.items()},
        "preprocess": {"method": "manual"},
        "inputs": {
            "pf_points": group([["part_deta", None], ["part_dphi", None]]),
            "pf_features": group(FEATURES),
            "pf_vectors": group([[f"part_{name}", None] for name in ("px", "py", "pz", "energy")]),
            "pf_mask": {**group([["part_mask", None]]), "pad_mode": "constant"},
        },
        "labels": {"type": "simple", "value": [f"label_{name}" for name in CLASSES]},
    }


def agree(our: Any, their: Any) -> float:
    """Largest relative difference between sums of features and momenta of both sides."""
    sums: dict[str, list[Any]] = {"ours": [], "theirs": []}

    def of_ours(inputs: Any) -> None:
        columns = inputs.stream.columns
        numbers = torch.cat([columns["features"], columns["vector"]], -1).double()
        sums["ours"].append(torch.stack([numbers.sum(0), numbers.abs().sum(0)]))

    def of_theirs(inputs: Any) -> None:
        numbers = torch.cat([inputs["pf_features"], inputs["pf_vectors"]], 1).double() * inputs["pf_mask"]
        sums["theirs"].append(torch.stack([numbers.sum((0, 2)), numbers.abs().sum((0, 2))]))

    counts = our(0, of_ours), their(0, of_theirs)
    assert counts[0] == counts[1]
    one, other = (sum(sums[side]) for side in ("ours", "theirs"))
    return float(((one[0] - other[0]).abs() / other[1]).max())


# Measuring


def once(options: argparse.Namespace) -> Times:
    """Seconds per jet for each setting, in this process."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        files = build(options.jets, Path(folder), options.number)
        our, their = ours(files), weaver(files, Path(folder) / "data.yaml")
        apart = agree(our, their)
        if apart > 1e-5:
            raise RuntimeError(f"the sides hold other numbers: sums differ by {apart:.3g}")
        if options.profile:
            show(lambda: our(0))
        times: Times = {}
        for turn in range(options.repeats):
            ways = [(side, call, count) for count in WORKERS for side, call in (("ours", our), ("weaver", their))]
            for side, call, workers in ways[turn % len(ways) :] + ways[: turn % len(ways)]:
                start = time.perf_counter()
                count = call(workers)
                times.setdefault(f"{side}.{workers}", []).append((time.perf_counter() - start) / count)
    return times


def show(call: Callable[[], Any]) -> None:
    """Print the profile of a call."""
    profile = cProfile.Profile()
    profile.runcall(call)
    pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(25)


def rows(samples: list[Times], options: argparse.Namespace) -> list[Row]:
    """Rows: jets/s of each side at its fastest setting, and the ratio."""
    joined = {way: [one for times in samples for one in times[way]] for way in samples[0]}
    best = {
        side: min((way for way in joined if way.startswith(f"{side}.")), key=lambda way: statistics.median(joined[way]))
        for side in ("ours", "weaver")
    }
    import importlib.metadata
    import importlib.util

    found = {**versions(), **{name: importlib.metadata.version(name) for name in ("uproot", "weaver-core")}}
    found["isal"] = importlib.metadata.version("isal") if importlib.util.find_spec("isal") else "none"
    ways = {way: round(1 / statistics.median(taken)) for way, taken in joined.items()}
    settings = (
        f"{options.number:,} jets, batches of {BATCH}; processes beside the loop: ours {best['ours'][-1]}, weaver "
    )
    settings += f"{best['weaver'][-1]} (jets/s of all ways: {ways}); weaver reads {FETCH:.2g} of the files at a time"
    row = {"better": "higher", "seeds": 1, "command": "python benchmarks/jets_loading.py", "hardware": hardware("cpu")}
    row |= {"versions": found, "commit": commit(), "processes": len(samples), "settings": settings}
    ratios = [their / our for our, their in zip(joined[best["ours"]], joined[best["weaver"]])]
    made = {"ratio_weaver": (ratios, "x", 3)}
    made |= {f"{side}.jets_per_s": ([1 / one for one in joined[best[side]]], "jets/s", 0) for side in best}
    return [
        {"id": f"root_loading.{name}", "value": round(statistics.median(values), digits), "unit": unit}
        | {"spread": [round(one, digits) for one in spread(values)], **row}
        for name, (values, unit, digits) in made.items()
    ]


def process(options: argparse.Namespace) -> Times:
    """Measure once in a process of its own."""
    words = [sys.executable, __file__, "--once", "--jets", str(options.jets), "--number", str(options.number)]
    words += ["--repeats", str(options.repeats), *(["--profile"] if options.profile else [])]
    done = subprocess.run(
        words, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    times: Times = json.loads(done.stdout.splitlines()[-1])
    print({way: f"{1 / statistics.median(taken):,.0f} jets/s" for way, taken in times.items()}, flush=True)
    return times


def main() -> None:
    """Measure in three fresh processes, and record the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jets", type=Path, required=True, help="a ROOT file of jets in the form of JetClass")
    parser.add_argument("--number", type=int, default=50_000)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--results", type=Path, default=RESULTS / "jets-loading.json")
    options = parser.parse_args()
    if options.once:
        print(json.dumps(once(options)))
        return
    samples = [process(options) for _ in range(options.processes)]
    record(options.results, found := rows(samples, options))
    for one in found:
        print(f"{one['id']:32} {one['value']} {one['unit']}  spread {one['spread']}")


if __name__ == "__main__":
    main()
