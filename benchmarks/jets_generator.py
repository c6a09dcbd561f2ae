"""Built-in jets beside those of Pythia 8, and the speed of the generator.

    python benchmarks/jets_generator.py --pythia toyjets_pythia8.npz --picture jets.png
    python benchmarks/jets_generator.py --record

The table has a row for each observable and class: mean and spread of the built-in jets, and of Pythia's. Below: the
accuracy of a random forest on these observables, trained on either source and tested on both; and the AUC of a forest
that separates built-in from Pythia jets of one class (0.5: indistinguishable). The speed is that of one core, by the
CPU time of three fresh processes that make jets in pieces, as the reader does.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jets_data import decoded
from measure import RESULTS, commit, hardware, record, spread, versions
from sciformer.data.columns import Lists
from sciformer.domains.jets.features import TYPE_FLAGS
from sciformer.domains.jets.simulate.decays import CLASSES
from sciformer.domains.jets.simulate.detector import DetectedParticles
from sciformer.domains.jets.simulate.jets import Jets, groomed_masses

Array = NDArray[Any]
Observables = dict[str, Array]
COUNTS = ("particles", "charged", "neutral", "photons", "electrons", "muons", "soft", "displaced")
SHARES = ("f_charged", "f_photons", "leptons", "first", "second", "fifth", "pt_d", "girth")
SHOWN = (*COUNTS, *SHARES, "third_d0", "mass", "groomed", "jet_pt")


def observables(part: dict[str, Array], jet: dict[str, Array], count: Array) -> Observables:
    """Observables of each jet, from columns in JetClass names."""
    n = len(count)
    of, first = np.repeat(np.arange(n), count), np.cumsum(count) - count

    def total(values: Array) -> Array:
        found: Array = np.bincount(of, values, n)
        return found

    px, py, pz, energy = (part[f"part_{name}"].astype(np.float64) for name in ("px", "py", "pz", "energy"))
    pt = np.hypot(px, py)
    whole = total(pt)
    x, y, z, e = (total(one) for one in (px, py, pz, energy))
    kinds = [part[f"part_{name}"] > 0 for name in TYPE_FLAGS]
    away = np.hypot(part["part_deta"], part["part_dphi"])
    charged = part["part_charge"] != 0
    sure = np.where(charged, np.abs(part["part_d0val"]) / np.hypot(0.010, 0.080 / pt), 0)
    ranked = sure[np.lexsort((-sure, of))]
    made = {"jet_pt": jet["jet_pt"], "particles": count}
    made |= {name: total(kind) for name, kind in zip(("charged", "neutral", "photons", "electrons", "muons"), kinds)}
    made |= {"f_charged": total(pt * charged) / whole, "f_photons": total(pt * kinds[2]) / whole}
    made |= {"leptons": total(pt * (kinds[3] | kinds[4])) / whole}
    for place, name in ((0, "first"), (1, "second"), (4, "fifth")):
        made[name] = np.where(count > place, pt[np.minimum(first + place, len(pt) - 1)], 0) / whole
    made["pt_d"] = np.sqrt(total(pt**2)) / whole
    made["girth"], made["soft"] = total(pt * away) / whole, total(pt < 2)
    made["mass"] = np.sqrt(np.maximum(e**2 - x**2 - y**2 - z**2, 0))
    none = np.zeros(len(pt), np.int8)
    seen = DetectedParticles(pt, away, away, none, none, away, away, of)
    vectors = np.stack([px, py, pz, energy])
    made["groomed"] = groomed_masses(seen, vectors, part["part_deta"], part["part_dphi"], n)
    made["displaced"] = total(sure > 3)
    made["third_d0"] = np.where(count > 2, ranked[np.minimum(first + 2, len(pt) - 1)], 0)
    return made


def builtin(number: int, seed: int) -> tuple[dict[str, Array], dict[str, Array], Array]:
    """Built-in jets in the format of the Pythia jets."""
    table = Jets(seed=seed).make(number)
    part = {name: column.values for name, column in table.items() if isinstance(column, Lists)}
    jet = {name: column for name, column in table.items() if not isinstance(column, Lists)}
    lengths = next(column.lengths for column in table.values() if isinstance(column, Lists))
    return part, jet, lengths


def compare(ours: Observables, label: Array, theirs: Observables, truth: Array) -> None:
    """Print the table of observables."""
    print(f"{'':10} {'':8}" + "".join(f"{name:>16}" for name in CLASSES))
    for name in SHOWN:
        for who, found, classes in (("built-in", ours, label), ("Pythia", theirs, truth)):
            cells = [found[name][classes == one] for one in CLASSES]
            print(f"{name:10} {who:8}" + "".join(f"{np.mean(cell):9.3g} ±{np.std(cell):<5.3g}" for cell in cells))
    for name in ("mass", "groomed"):
        for who, found, classes in (("built-in", ours, label), ("Pythia", theirs, truth)):
            cells = [np.percentile(found[name][classes == one], (16, 50, 84)) for one in CLASSES]
            print(f"{name:10} {who:8}" + "".join(f"{'/'.join(f'{x:.0f}' for x in cell):>16}" for cell in cells))
    print("(the last four rows: 16, 50 and 84 % of the masses)")


def forest(ours: Observables, label: Array, theirs: Observables, truth: Array) -> None:
    """Print how separable the classes are, and how similar the generators."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.metrics import confusion_matrix, roc_auc_score

    def grown(x: Array, y: Array) -> Any:
        return RandomForestClassifier(150, min_samples_leaf=5, random_state=0, n_jobs=1).fit(x, y)

    names = [name for name in SHOWN if name != "jet_pt"]
    rng = np.random.default_rng(0)
    sides: dict[str, tuple[Array, Array, Array]] = {}
    for who, found, classes in (("built-in", ours, label), ("Pythia", theirs, truth)):
        least = min(np.count_nonzero(classes == one) for one in CLASSES)
        rows = np.concatenate([rng.permutation(np.flatnonzero(classes == one))[:least] for one in CLASSES])
        sides[who] = np.stack([found[name] for name in names], 1)[rows], classes[rows], rng.random(len(rows)) < 0.7
    models = {who: grown(x[train], y[train]) for who, (x, y, train) in sides.items()}
    print("\naccuracy of a random forest on the rows above")
    for who, model in models.items():
        for judged, (x, y, train) in sides.items():
            print(f"  trained on {who:8} judged on {judged:8} {model.score(x[~train], y[~train]):.3f}")
    for who, (x, y, train) in sides.items():
        matrix = confusion_matrix(y[~train], models[who].predict(x[~train]), labels=CLASSES, normalize="true")
        print(f"\n{who}: shares of answers (columns) for each class (rows), %")
        print(f"{'':6}" + "".join(f"{name:>6}" for name in CLASSES))
        for name, row in zip(CLASSES, matrix):
            print(f"{name:6}" + "".join(f"{100 * share:6.0f}" for share in row))
    print("\nAUC of built-in against Pythia, class by class")
    for name in CLASSES:
        x = np.concatenate([side[0][side[1] == name] for side in sides.values()])
        y = np.concatenate([np.full(np.count_nonzero(side[1] == name), who) for who, side in sides.items()])
        train = rng.random(len(y)) < 0.7
        score = grown(x[train], y[train]).predict_proba(x[~train])[:, 1]
        print(f"  {name:5} {roc_auc_score(y[~train], score):.2f}")


def picture(path: Path, theirs: tuple[dict[str, Array], dict[str, Array], Array] | None, number: int) -> None:
    """Draw mean images of the classes around the jet axis, and one jet of each."""
    from matplotlib.figure import Figure

    sides = {"built-in": builtin(number, 11)} | ({"Pythia": theirs} if theirs else {})
    figure = Figure(figsize=(2 * len(CLASSES), 2.1 * (len(sides) + 1)), layout="constrained")
    axes = figure.subplots(len(sides) + 1, len(CLASSES), sharex=True, sharey=True)
    for row, (who, (part, jet, count)) in enumerate(sides.items()):
        of = np.repeat(jet["label"], count)
        share = np.hypot(part["part_px"], part["part_py"]) / np.repeat(jet["jet_pt"], count)
        for place, name in zip(axes[row], CLASSES):
            mine = of == name
            grid, *edges = np.histogram2d(
                part["part_deta"][mine], part["part_dphi"][mine], 40, [(-0.8, 0.8)] * 2, weights=share[mine]
            )
            grid = np.log10(np.maximum(grid.T / np.count_nonzero(jet["label"] == name), 1e-6))
            place.pcolormesh(*edges, grid, vmin=-5, vmax=-1.5, cmap="viridis", rasterized=True)
            place.set_title(f"{name}, {who}", fontsize=8)
    part, jet, count = sides["built-in"]
    colours = np.array(["tab:red", "tab:green", "tab:orange", "tab:blue", "black"])
    starts = np.cumsum(count) - count
    for place, name in zip(axes[-1], CLASSES):
        one = int(np.flatnonzero(jet["label"] == name)[0])
        inside = slice(starts[one], starts[one] + count[one])
        kind = np.argmax([part[f"part_{flag}"][inside] for flag in TYPE_FLAGS], 0)
        size = 2 * np.hypot(part["part_px"][inside], part["part_py"][inside])
        place.scatter(part["part_deta"][inside], part["part_dphi"][inside], s=size, c=colours[kind], alpha=0.6, lw=0)
        place.set_title(f"one {name}, {jet['jet_pt'][one]:.0f} GeV", fontsize=8)
    axes[0, 0].set(xlim=(-0.8, 0.8), ylim=(-0.8, 0.8))
    figure.savefig(path, dpi=110)
    print(f"wrote {path}")


def clock(number: int) -> list[float]:
    """Jets per CPU second, several times."""
    Jets().make(1)
    rates = []
    for turn in range(5):
        began = time.process_time()
        for _ in Jets(seed=100 + turn, number=number).tables(".parquet"):
            pass
        rates.append(number / (time.process_time() - began))
    return rates


def measure(number: int, out: Path) -> None:
    """Measure and record the speed."""
    rates: list[float] = []
    for _ in range(3):
        done = subprocess.run([sys.executable, __file__, "--clock", str(number)], capture_output=True, check=True)
        rates += json.loads(done.stdout)
    row = {"id": "simulate_jets.per_s", "value": round(statistics.median(rates)), "better": "higher", "bar": 20_000}
    row |= {"unit": "jets for each second of one core", "spread": [round(x) for x in spread(rates)], "seeds": 1}
    row |= {"command": "python benchmarks/jets_generator.py --record", "hardware": hardware("cpu"), "processes": 3}
    record(out, [row | {"versions": versions() | {"numpy": np.__version__}, "commit": commit(), "jets": number}])
    print(f"{row['value']:,} jets/s on one core, 10-90 % {row['spread']}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--pythia", type=Path, help="the Pythia jets, toyjets_pythia8.npz")
    options.add_argument("--number", type=int, default=20480, help="built-in jets to compare, or to clock")
    options.add_argument("--picture", type=Path, help="draw mean images")
    options.add_argument("--record", action="store_true", help="measure the speed and record it")
    options.add_argument("--clock", type=int, help=argparse.SUPPRESS)
    options.add_argument("--out", type=Path, default=RESULTS / "jets.json")
    chosen = options.parse_args()
    if chosen.clock:
        print(json.dumps(clock(chosen.clock)))
        return
    theirs = decoded(chosen.pythia) if chosen.pythia else None
    if theirs:
        ours = builtin(chosen.number, 7)
        sides = observables(*ours), ours[1]["label"], observables(*theirs), theirs[1]["label"]
        compare(*sides)
        forest(*sides)
    if chosen.picture:
        picture(chosen.picture, theirs, chosen.number)
    if chosen.record:
        measure(chosen.number, chosen.out)


if __name__ == "__main__":
    main()
