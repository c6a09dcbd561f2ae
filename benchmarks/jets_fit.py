"""Fit of the constants of the built-in jets to the training part of the Pythia jets.

    python benchmarks/jets_fit.py --pythia toyjets_pythia8.npz

Least squares from round first guesses. The residuals are differences of five quantiles in units of the spread, for
each observable of jets_generator.py and each class, and of the medians and upper ends of the masses. Spectra of pT and
rapidity follow for each class from means and spreads. Only training jets of benchmarks/jets.py are used, without its
test jets of tops against QCD. The last line evaluates the constants on the other parts too. The printed values go,
rounded, into sciformer/domains/jets/simulate, with a new VERSION.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jets_data import HALVES, SHARES, decoded, parts_of
from jets_generator import SHOWN, Observables, builtin, observables
from sciformer.data.readers.simulation import kept_chunk
from sciformer.domains.jets.simulate import decays, detector, hadrons, jets, shower, systems
from sciformer.domains.jets.simulate.decays import CLASSES

Array = NDArray[Any]
FIRST = {"cut": 0.45, "lambda": 0.3, "frozen": 0.45, "silent": 9.0, "typical": 0.45, "wide": 0.55, "narrow": 0.7}
FIRST |= {"extra": 0.25, "extra_top": 0.5, "power": 0.5, "power_top": 0.35, "split_b": 1.0, "split_c": 1.0}
FIRST |= {"soft": 1.3, "soft_top": 1.3, "soft_pt": 0.65, "gluons": 0.3, "large": 1.1, "pion0": 1.0}
FIRST |= {"neutral": 1.0, "rho": 1.0}
QUANTILES = (10, 30, 50, 70, 90)
NUMBER, STEP = 14_336, 0.12  # jets for each try, and how far a logarithm goes for a slope
DAMPING = (0.03, 0.3, 3.0)
P, P0, K, K0, N, R, R0, E = (
    getattr(hadrons, name) for name in ("PION", "PION0", "KAON", "KAON0", "NEUTRON", "RHO", "RHO0", "ETA")
)
Q = hadrons.PROTON
CHANNELS = {
    (P, P): 18, (P0, P0): 3, (P, P0): 12, (E, P): 2, (E, P0): 1, (R, P): 8, (R, P0): 3, (R0, P): 10, (R0, P0): 3,
    (R, R): 3, (R, R0): 5, (K, P): 7, (K, P0): 3, (K0, P): 9, (K0, P0): 4, (K, R): 3, (K0, R): 3, (K0, R0): 4,
    (K, K): 3, (K0, K0): 4, (K, K0): 4, (Q, Q): 2, (N, N): 3, (Q, N): 4, (Q, P): 5, (N, P): 6,
}  # fmt: skip
SMALL = {(P, P): 5, (P0, P0): 2, (P, P0): 5}


def channels(x: dict[str, float], weights: dict[tuple[int, int], int]) -> dict[tuple[int, int], float]:
    """Decay channels of a cluster, with scaled neutral pions, neutral hadrons and rhos."""
    factor = {P0: x["pion0"], E: x["pion0"], K0: x["neutral"], N: x["neutral"], R: x["rho"], R0: x["rho"]}
    return {pair: weight * factor.get(pair[0], 1) * factor.get(pair[1], 1) for pair, weight in weights.items()}


def put(x: dict[str, float]) -> None:
    """Set the constants of the generator."""
    plain: dict[Any, dict[str, Any]] = {
        shower: {"CUT": x["cut"], "LAMBDA": x["lambda"], "FROZEN": x["frozen"]},
        systems: {"TYPICAL": x["typical"], "WIDE": x["wide"], "NARROW": x["narrow"], "EXTRA": x["extra"]},
        detector: {"SOFT": x["soft"], "SOFT_TOP": x["soft_top"], "SOFT_PT": x["soft_pt"]},
        decays: {"GLUONS": x["gluons"]},
        hadrons: {"LARGE": x["large"]},
    }
    plain[shower]["SILENT"] = {key: x["silent"] * more for key, more in zip(shower.DEAD_CONE_SCALES, (1, 2))}
    plain[systems] |= {"EXTRA_TOP": x["extra_top"], "POWER": x["power"], "POWER_TOP": x["power_top"]}
    plain[systems] |= {"SPLIT_B": (9.0, x["split_b"]), "SPLIT_C": (4.0, x["split_c"])}
    for module, values in plain.items():
        for name, value in values.items():
            setattr(module, name, value)
    shower.MAX_ALPHA_S = shower.ALPHA_S_FACTOR / np.log((x["cut"] ** 2 + x["frozen"] ** 2) / x["lambda"] ** 2)
    shower.SCALE_STEPS = np.array(np.pi / (shower.MAX_ALPHA_S * shower.COLOUR_FACTORS), np.float32)
    shower.MIN_LOG_SCALES = np.array(
        [0, 0, *(np.log(one / x["cut"]) ** 2 for one in shower.DEAD_CONE_SCALES.values())], np.float32
    )
    hadrons.CHANNEL_TABLE = hadrons._channel_lookup(channels(x, CHANNELS))
    hadrons.LIGHT_CHANNEL_TABLE = hadrons._channel_lookup(channels(x, SMALL))
    kept_chunk.cache_clear()


def made(number: int = NUMBER, seed: int = 1) -> tuple[Observables, Array]:
    """Built-in jets and their classes."""
    table = builtin(number, seed)
    return observables(*table) | {"jet_eta": table[1]["jet_eta"]}, table[1]["label"]


def apart(ours: Observables, label: Array, theirs: Observables, truth: Array) -> Array:
    """Residual vector between two sets of observables."""
    found: list[float] = []
    for one in np.unique(truth):
        mine, other = label == one, truth == one
        for name in (name for name in SHOWN if name not in ("electrons", "muons", "jet_pt")):
            a, b = ours[name][mine], theirs[name][other]
            shift = np.percentile(a, QUANTILES) - np.percentile(b, QUANTILES)
            found += list(shift / (b.std() + 1e-9) / np.sqrt(len(QUANTILES)))
            if name in ("mass", "groomed"):
                middle, high = np.percentile(a, (50, 95)) - np.percentile(b, (50, 95))
                found += [np.sqrt(2) * middle / 10, np.sqrt(0.4) * high / 25]
    return np.array(found) / np.sqrt(len(np.unique(truth)))


def spectra(theirs: Observables, truth: Array) -> None:
    """Slopes of pT and spreads of rapidity that match the means and spreads of the classes."""
    for _ in range(6):
        kept_chunk.cache_clear()
        ours, label = made(20_480, 3)
        for place, one in enumerate(CLASSES):
            a, b = label == one, truth == one
            ratio = (theirs["jet_pt"][b].mean() - jets.MIN_PT) / (ours["jet_pt"][a].mean() - jets.MIN_PT)
            decays.PT_SLOPES[place] *= ratio**0.7
            decays.RAPIDITY_SPREADS[place] *= (theirs["jet_eta"][b].std() / ours["jet_eta"][a].std()) ** 0.7
    kept_chunk.cache_clear()


def search(theirs: Observables, truth: Array, rounds: int) -> dict[str, float]:
    """Fit the logarithms of the constants by Gauss-Newton steps of decreasing length."""
    names = list(FIRST)
    decays.PT_SLOPES[:], decays.RAPIDITY_SPREADS[:] = 130, 1

    def at(logs: Array) -> Array:
        put(dict(zip(names, np.exp(logs).tolist())))
        return apart(*made(), theirs, truth)

    x = np.log(list(FIRST.values()))
    at(x)
    spectra(theirs, truth)
    here = at(x)
    print(f"first guesses: {here @ here:.3f}", flush=True)
    for number in range(rounds):
        slopes = np.stack([(at(x + STEP * one) - here) / STEP for one in np.eye(len(x))], 1)
        square = slopes.T @ slopes
        tries: list[tuple[float, Array, Array]] = [(float(here @ here), x, here)]
        for damping in DAMPING:
            step = -np.linalg.solve(square + damping * np.eye(len(x)), slopes.T @ here)
            y = x + np.clip(step, -0.5, 0.5)
            there = at(y)
            tries.append((float(there @ there), y, there))
        best, x, here = min(tries, key=lambda one: one[0])
        shown = {name: round(float(value), 4) for name, value in zip(names, np.exp(x))}
        print(f"round {number + 1}: {best:.3f} {json.dumps(shown)}", flush=True)
    return dict(zip(names, np.exp(x).tolist()))


def evaluate(sides: dict[str, tuple[Observables, Array]]) -> dict[str, float]:
    """Squared residuals of new built-in jets against each part."""
    ours = made(40_960, 9)
    return {name: float(np.square(apart(*ours, *side)).sum()) for name, side in sides.items()}


def main() -> None:
    """Fit, print and evaluate the constants."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pythia", type=Path, required=True, help="the Pythia jets, toyjets_pythia8.npz")
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args()
    part, jet, count = decoded(options.pythia)
    every = observables(part, jet, count) | {"jet_eta": jet["jet_eta"]}
    parts = parts_of(jet["label"], SHARES)
    two = np.flatnonzero(np.isin(jet["label"], ["Tbqq", "QCD"]))
    tops = two[parts_of(jet["label"][two], HALVES)["test"]]
    parts |= {"train": np.setdiff1d(parts["train"], tops), "tops": tops}
    sides = {
        name: ({key: column[rows] for key, column in every.items()}, jet["label"][rows]) for name, rows in parts.items()
    }
    judged = evaluate(sides)
    print("as they are:", json.dumps({name: round(value, 3) for name, value in judged.items()}), flush=True)
    x = search(*sides["train"], options.rounds)
    put(x)
    spectra(*sides["train"])
    print(json.dumps({key: round(value, 4) for key, value in x.items()}, indent=1))
    print("channels", [round(value, 1) for value in channels(x, CHANNELS).values()])
    print("small", [round(value, 1) for value in channels(x, SMALL).values()])
    print("slope", decays.PT_SLOPES.round(1).tolist(), "spread", decays.RAPIDITY_SPREADS.round(2).tolist())
    judged = evaluate(sides)
    print("fitted:", json.dumps({name: round(value, 3) for name, value in judged.items()}))


if __name__ == "__main__":
    main()
