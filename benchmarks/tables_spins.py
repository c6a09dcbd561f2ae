"""Tables of spins: energies of wave functions, and the Ising table with its ceiling."""

from __future__ import annotations

from spins_table import MODELS, SETTINGS
from table import figure, markdown, rows

LATTICES = {"chain8": "chain of 8", "chain10": "chain of 10", "chain12": "chain of 12", "chain14": "chain of 14"}
LATTICES |= {"square4": "square of 4 x 4", "chain20": "chain of 20, Markov chains"}
COUPLINGS = ("0", "40", "50", "80")
CHECKS = {
    "sampled12.40.relative_error": "chain of 12 with Markov chains, J2 = 0.4: relative error",
    "tfim12.relative_error": "transverse-field Ising chain of 12, h = 1: relative error",
    "chain14.0.correlation_error": "spin correlations of 14 spins, J2 = 0: largest error",
    "chain14.40.correlation_error": "spin correlations of 14 spins, J2 = 0.4: largest error",
    "chain14.80.correlation_error": "spin correlations of 14 spins, J2 = 0.8: largest error",
    "square4.0.m2_error": "staggered magnetisation m^2 of the square, J2 = 0: error",
    "square4.50.m2_error": "staggered magnetisation m^2 of the square, J2 = 0.5: error",
    "natural.speedup": "time of AdamW divided by natural gradients, to 1e-3 at 12 spins, J2 = 0.4",
    "factored.relative_error": "factored attention at 12 spins, J2 = 0.4: relative error",
    "chain8.40.plain.relative_error": "chain of 8 without symmetries, J2 = 0.4: relative error",
    "chain10.40.plain.relative_error": "chain of 10 without symmetries, J2 = 0.4: relative error",
}


def scientific(value: float) -> str:
    """Format with two digits and an exponent."""
    return f"{value:.1e}"


def wavefunction() -> str:
    """Table of relative errors of energies by lattice and J2."""
    found, lines = rows("spins"), []
    for name, words in LATTICES.items():
        cells = [words]
        for coupling in COUPLINGS:
            row = found.get(f"wavefunction.{name}.{coupling}.relative_error")
            cells.append("" if row is None else scientific(row["value"]))
            if row is not None and "all_seeds" in row:
                cells[-1] += f" ({', '.join(map(scientific, row['all_seeds']))})"
            if row is not None and row["value"] > row["bar"]:
                cells[-1] += " (above the bar)"
        lines.append(cells)
    return markdown(["", *(f"J2 = {int(coupling) / 100:g}" for coupling in COUPLINGS)], lines)


def checks() -> str:
    """Table of further checks, with their bars."""
    found, lines = rows("spins"), []
    for name, words in CHECKS.items():
        row = found.get(f"wavefunction.{name}")
        if row is not None:
            speed = name == "natural.speedup"
            bar = f"at most {row['bar']:g}" if "bar" in row else ""
            lines.append([words, f"{row['value']:.1f}" if speed else scientific(row["value"]), bar])
    return markdown(["", "measured", "bar"], lines)


def ceilings() -> str:
    """Table of accuracies by boundary, model and way, beside the ceiling."""
    found, lines = rows("spins"), []
    for boundary in SETTINGS:
        ceiling = found.get(f"ising_bc.{boundary}.ceiling.accuracy")
        cells = [boundary, figure(ceiling, 3)]
        for model in MODELS:
            for way in ("scratch", "pretrained"):
                row = found.get(f"ising_bc.{boundary}.{model}.{way}.accuracy")
                cells.append("not measured" if row is None else figure(row, 3))
        lines.append(cells)
    heads = [f"{model}, {way}" for model in MODELS for way in ("scratch", "pretrained")]
    return markdown(["", "ceiling", *heads], lines)
