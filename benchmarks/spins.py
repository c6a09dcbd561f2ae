"""Transformers as wave functions: energies of quantum spins against exact ones, and the ceiling of the Ising table.

    python benchmarks/spins.py run chain12.40 --seeds 0
    python benchmarks/spins.py run chain14.80 --seeds 0 1 2 3 4
    python benchmarks/spins.py rows                 rows of all runs so far, into benchmarks/results/spins.json
    python benchmarks/spins.py list                 names of all runs
    python benchmarks/spins.py picture docs/pictures/spins-correlations.png

Each run writes its scores into benchmarks/kept/spins.json. All runs use one CPU thread and double precision. The exact
energies come from the Lanczos method. The symmetries of a run are those of the ground state: translations and, with the
Marshall sign, the flip of all spins. For 14 spins and J2 = 0.8 the ground state has momentum pi in the Marshall basis,
so that run has no Marshall sign and no flip.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from measure import KEPT, RESULTS, Row, commit, hardware, record, versions, write
from sciformer.domains.spins.quantum.exact import correlations, lowest
from sciformer.domains.spins.quantum.hamiltonian import Hamiltonian
from sciformer.domains.spins.quantum.states import States
from sciformer.recipe import Recipe
from sciformer.run import Run, train

BARS = {0: 1e-4, 40: 1e-4, 50: 1e-4, 80: 1e-3}
NO_MARSHALL = {"objective.marshall": False, "objective.symmetry": ["translation"]}
CHAINS = {
    "data.sampling": "chains",
    "data.chains": 256,
    "objective.measurements": 20,
    "objective.burn_in": 15,
    "objective.phase_spread": 0,
    "train.damping": 1e-2,
    "objective.exact": False,
}


def jobs() -> dict[str, tuple[str, dict[str, Any]]]:
    """Recipe and changes of each run."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for size in (8, 10, 12, 14):
        for j2 in (0, 40, 50, 80):
            steps = (240 if size == 14 else 400) if j2 == 80 else 300
            changes = {"data.size": size, "data.j2": j2 / 100, "train.steps": steps}
            found[f"chain{size}.{j2}"] = "spins/wavefunction", changes | (NO_MARSHALL if (size, j2) == (14, 80) else {})
    for j2 in (0, 50):
        found[f"square4.{j2}"] = "spins/wavefunction-square", {"data.j2": j2 / 100, "train.steps": 250 if j2 else 150}
    field = {"data.interaction": "ising", "data.j2": 0, "objective.marshall": False, "objective.phase_spread": 0}
    found["tfim12"] = "spins/wavefunction", {**field, "train.steps": 150}
    for j2 in (0, 40, 50):
        found[f"chain20.{j2}"] = (
            "spins/wavefunction",
            {**CHAINS, "data.size": 20, "data.j2": j2 / 100, "train.steps": 120},
        )
    found["sampled12.40"] = "spins/wavefunction", {**CHAINS, "objective.exact": True, "train.steps": 120}
    for name in ("chain8.40", "chain10.40"):  # the same without symmetries
        found[f"{name}.plain"] = "spins/wavefunction", found[name][1] | {"objective.symmetry": []}
    found["natural"] = "spins/wavefunction", {"train.steps": 300, "train.evaluate_every": 5}
    for rate in (1e-2, 3e-3, 1e-3):
        adam = {
            "train.optimizer": "adamw",
            "train.learning_rate": rate,
            "train.steps": 1000,
            "train.evaluate_every": 10,
        }
        found[f"adamw.{rate:g}"] = "spins/wavefunction", adam
    found["factored"] = "spins/wavefunction-factored", {"model.mlp_ratio": 3, "train.steps": 300}
    return found


def work(name: str, seed: int, changes: dict[str, Any]) -> dict[str, Any]:
    """Train a run and return its scores."""
    recipe_name, own = jobs()[name]
    base = {"train.device": "cpu", "train.seed": seed, "train.log_every": 1}
    settings = {"train.evaluate_every": own["train.steps"], **base, **own, **changes}
    recipe = Recipe.load(recipe_name, settings)
    began, cpu = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        run = train(recipe, Path(folder) / "run", show=False, report=False)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        found = {"name": name, "seed": seed, "scores": run.scores, "seconds": seconds, "cpu_seconds": cpu}
        found |= {
            "parameters": sum(weight.numel() for weight in run.step.model.parameters()),
            "steps": recipe.train.steps,
        }
        found["history"] = [
            [record["step"], record["valid_energy"]] for record in run.records if "valid_energy" in record
        ]
        found |= exact_values(run, recipe.data)
    return found


def exact_values(run: Run, data: States) -> dict[str, Any]:
    """Exact energy per spin; correlations and their largest error; for Markov chains, the exact sum of the same psi."""
    own = data.hamiltonian()
    truth = lowest(own, 2)
    found: dict[str, Any] = {
        "exact": truth.energies[0] / own.sites,
        "gap": float(truth.energies[1] - truth.energies[0]),
    }
    reference = correlations(own, truth.keys, truth.amplitudes**2)
    outputs = run.evaluate("valid").outputs
    share = outputs["probability"] / outputs["probability"].sum()
    mean = (share @ outputs["correlation"]).reshape(own.shape)
    found["correlation_error"] = float(np.abs(mean - reference).max())
    if data.sampling == "chains":
        found["summed"] = summed_energy(run, own)
    return found


def summed_energy(run: Run, own: Hamiltonian) -> float:
    """Energy per spin of the trained wave function, summed over all states."""
    objective: Any = run.assembly.objective
    summed = objective.sum_of(torch.as_tensor(own.states()))
    wave = objective.log_psi(run.step.model, summed.keys)
    weights = (2 * wave[:, 0] + summed.counts.double().log()).softmax(0)
    return float((weights * objective.local_energy(run.step.model, summed.keys, wave)[:, 0]).sum()) / own.sites


def picture(path: Path) -> None:
    """Train a chain of 14 spins and draw its spin correlations."""
    name, own = jobs()["chain14.40"]
    with tempfile.TemporaryDirectory() as folder:
        run = train(
            Recipe.load(name, {**own, "train.evaluate_every": 100}), Path(folder) / "run", show=False, report=False
        )
        drawn = run.assembly.objective.figures(run.evaluate("valid").outputs, {})
        next(iter(drawn.values()))().savefig(path, dpi=110)


def kept(path: Path) -> list[dict[str, Any]]:
    """Runs that are done."""
    return [row["run"] for row in json.loads(path.read_text())] if path.exists() else []


def first_step(run: dict[str, Any], error: float) -> int | None:
    """First evaluated step with a relative error of at most `error`."""
    steps = (step for step, energy in run["history"] if abs(energy / run["exact"] - 1) <= error)
    return next(steps, None)


def rows_of(runs: list[dict[str, Any]]) -> list[Row]:
    """Rows of the results, from all runs."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for run in sorted(runs, key=lambda run: run["seed"]):
        by_name.setdefault(run["name"], []).append(run)
    rows: list[Row] = []

    def add(name: str, value: float, unit: str, bar: float | None, own: list[dict[str, Any]], **more: Any) -> None:
        row: Row = {"id": f"wavefunction.{name}", "value": float(f"{value:.4g}"), "unit": unit, "better": "lower"}
        row |= {"spread": None, "seeds": len(own), "command": command_of(own[0]["name"])}
        row |= {"hardware": hardware("cpu"), "versions": versions(), "commit": commit()}
        row |= {"cpu_s": round(sum(run["cpu_seconds"] for run in own)), "steps": own[0]["steps"]}
        rows.append(row | ({} if bar is None else {"bar": bar}) | more)

    for name, own in by_name.items():
        errors = [abs(run["scores"]["energy"] / run["exact"] - 1) for run in own]
        more: dict[str, Any] = {"weights": own[0]["parameters"]}
        if name.startswith(("chain", "square", "sampled")) and not name.endswith("plain"):
            j2 = int(name.rpartition(".")[2])
            bar = 1e-3 if name.startswith(("square", "chain20", "sampled")) else BARS[j2]
            if len(own) > 1:
                more |= {"best_of": len(own), "all_seeds": [float(f"{error:.3g}") for error in errors]}
                more["spread"] = float(f"{statistics.stdev(errors):.2g}")
            if "energy_error" in own[0]["scores"]:
                scores = own[0]["scores"]
                off = (scores["energy"] - own[0]["summed"]) / scores["energy_error"]
                more |= {"energy": scores["energy"], "energy_error": scores["energy_error"], "exact": own[0]["exact"]}
                more |= {"summed": own[0]["summed"], "off_in_errors": round(off, 2)}
                more["autocorrelation_time"] = scores["autocorrelation_time"]
            add(f"{name}.relative_error", min(errors), "relative error of the energy", bar, own, **more)
        elif name == "tfim12":
            add("tfim12.relative_error", min(errors), "relative error of the energy", 1e-4, own, **more)
        elif name == "factored" or name.endswith("plain"):
            add(f"{name}.relative_error", min(errors), "relative error of the energy", None, own, **more)
        if name.startswith("chain14") and own[0]["gap"] > 1e-6:
            best = own[int(np.argmin(errors))]
            add(f"{name}.correlation_error", best["correlation_error"], "largest error of <S^z_0 S^z_d>", 1e-2, [best])
        if name.startswith("square"):
            exact = {"square4.0": 0.276527, "square4.50": 0.160152}[name]
            m2 = own[0]["scores"]["staggered_magnetisation"]
            add(f"{name}.m2_error", abs(m2 - exact), "error of m^2", 1e-2, own, m2=m2, exact=exact)
    rows += _speedup(by_name, add, rows)
    return rows


def command_of(name: str) -> str:
    """Command of a run."""
    return f"python benchmarks/spins.py run {name}"


def _speedup(by_name: dict[str, list[dict[str, Any]]], add: Callable[..., None], rows: list[Row]) -> list[Row]:
    """Row of the seconds of AdamW divided by those of natural gradients, to 1e-3 at 12 spins and J2 = 0.4."""
    natural, rivals = by_name.get("natural"), {n: own[0] for n, own in by_name.items() if n.startswith("adamw")}
    if not natural or len(rivals) < 3:
        return []

    def seconds(run: dict[str, Any]) -> float | None:
        step = first_step(run, 1e-3)
        return None if step is None else run["cpu_seconds"] * step / run["steps"]

    found = {name: seconds(run) for name, run in rivals.items()}
    reached = {name: value for name, value in found.items() if value is not None}
    own = seconds(natural[0])
    assert own is not None
    best = (
        min(reached, key=lambda name: reached[name]) if reached else max(rivals, key=lambda n: rivals[n]["cpu_seconds"])
    )
    value = reached.get(best, rivals[best]["cpu_seconds"]) / own
    row: Row = {
        "id": "wavefunction.natural.speedup",
        "value": round(value, 2),
        "unit": "CPU seconds of AdamW / natural",
    }
    row |= {"better": "higher", "spread": None, "seeds": 1, "command": command_of("natural")}
    row |= {"hardware": hardware("cpu"), "versions": versions(), "commit": commit()}
    row |= {"natural_steps": first_step(natural[0], 1e-3), "natural_s": round(own, 1)}
    row |= {"adamw": best, "adamw_steps": first_step(rivals[best], 1e-3), "adamw_reaches": bool(reached)}
    row["adamw_steps_allowed"] = rivals[best]["steps"]
    return [row]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = options.add_subparsers(dest="verb", required=True)
    runner = verbs.add_parser("run", help="train runs and keep their scores")
    runner.add_argument("names", nargs="+")
    runner.add_argument("--seeds", type=int, nargs="+", default=[0])
    runner.add_argument("--set", nargs="*", default=[], help="changes for a test: KEY=VALUE")
    verbs.add_parser("rows", help="write the rows of all runs")
    verbs.add_parser("list", help="print the names of all runs")
    drawer = verbs.add_parser("picture", help="draw the spin correlations of 14 spins")
    drawer.add_argument("file", type=Path)
    for one in verbs.choices.values():
        one.add_argument("--kept", type=Path, default=KEPT / "spins.json")
        one.add_argument("--out", type=Path, default=RESULTS / "spins.json")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    if chosen.verb == "list":
        print("\n".join(jobs()))
    if chosen.verb == "picture":
        picture(chosen.file)
    if chosen.verb == "rows":
        found = rows_of(kept(chosen.kept))
        record(chosen.out, found)
        for row in found:
            bar = f" (bar {row['bar']:g})" if "bar" in row else ""
            print(f"{row['id']:50} {row['value']:.3g}{bar}")
    if chosen.verb == "run":
        changes = {key: json.loads(value) for key, value in (word.split("=", 1) for word in chosen.set)}
        for name in chosen.names:
            for seed in chosen.seeds:
                done = work(name, seed, changes)
                write(chosen.kept, [{"id": f"{name} {seed}", "run": done}])
                error = abs(done["scores"]["energy"] / done["exact"] - 1)
                print(f"{name} seed {seed}: relative error {error:.2e}, {done['cpu_seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
