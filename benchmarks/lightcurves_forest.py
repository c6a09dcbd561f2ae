"""Random forests on features of ASAS curves. `python benchmarks/lightcurves_forest.py --asas asas_variables.parquet`

    forest          ten moments and percentiles of the magnitudes; no time, no period
    forest_period   the same and a Lomb-Scargle periodogram: periods, harmonics, the folded curve

Both use the folds of `lightcurves.py asas`, and with `--sizes 20` the labels and the fold of each seed of
`lightcurves.py new --paired`. The periodogram is that of `tokens.periods`
(`sciformer.domains.lightcurves.periods`), with periods from 1/15 d to 1000 d and five frequencies per peak width.
"""

from __future__ import annotations

import argparse
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from lightcurves_data import FOLDS, Array, asas, confusion, folds, judged, parts
from measure import RESULTS, record
from pool import seeds_row
from sciformer.domains.lightcurves.periods import PeriodSearch, find_peaks, fit_harmonics, periodogram

HIGHEST = 15.0  # cycles/day
LONGEST = 1000.0  # days
SEARCH = PeriodSearch(shortest=1 / HIGHEST, longest=LONGEST, oversampling=5)
PEAKS = 5  # of the periodogram that are looked at
HARMONICS = 4
STATED = {"accuracy": 0.742, "macro_f1": 0.722}  # of another choice of ten such features


def moments(magnitude: Array) -> list[float]:
    """Ten moments and percentiles of the magnitudes, without times."""
    mean, deviation = magnitude.mean(), max(1e-9, magnitude.std())
    z = (magnitude - mean) / deviation
    q = np.percentile(magnitude, [5, 25, 50, 75, 95])
    shape = [mean, deviation, (z**3).mean(), (z**4).mean(), magnitude.max() - q[2], q[2] - magnitude.min()]
    return [float(value) for value in (*shape, *(q[[0, 1, 3, 4]] - q[2]))]


def shape_of(t: Array, y: Array, w: Array, frequency: float) -> tuple[Array, float]:
    """Complex amplitudes of the first harmonics, and their share of the variance.

    m = mean + Re sum_k a_k exp(-2 pi i k f t)
    """
    amplitudes, share = fit_harmonics(t, y, w, np.array([frequency]), HARMONICS)
    return amplitudes[0, 1:], float(share[0])


def folded(t: Array, y: Array, w: Array, frequency: float) -> list[float]:
    """Features of a curve folded with a period.

    They are sizes, ratios and phases of the harmonics, the roughness, and the asymmetry of minima and maxima.
    """
    amplitudes, share = shape_of(t, y, w, frequency)
    size, first = np.abs(amplitudes), max(1e-9, float(np.abs(amplitudes[0])))
    phases = [np.angle(amplitudes[k] * np.conj(amplitudes[0]) ** (k + 1)) for k in (1, 2)]
    order = np.argsort((t * frequency) % 1)
    rough = np.mean(np.diff(y[order], append=y[order[0]]) ** 2) / max(1e-12, y.var())
    x = np.arange(100) / 100
    turn = np.exp(-2j * np.pi * np.outer(x, np.arange(1, HARMONICS + 1)))
    shape = (turn @ amplitudes).real
    faint, bright = x[shape.argmax()], x[shape.argmin()]
    second = shape[(shape.argmax() + 50) % 100]
    above = float((shape > shape.mean()).mean())
    found = [share, *np.log10(size + 1e-4), *np.minimum(size[1:] / first, 20), *np.cos(phases), *np.sin(phases), rough]
    found += [np.ptp(shape), (bright - faint) % 1, second / max(1e-9, float(np.ptp(shape))), above]
    return [float(value) for value in found]


def periodic(t: Array, y: Array, error: Array) -> list[float]:
    """Periods, and features of the curve folded with the best period and its double."""
    error = np.maximum(error, 0.005)
    frequency, power = periodogram(t, y, error, SEARCH)
    best = find_peaks(frequency, power, PEAKS, 2 / max(1.0, t[-1] - t[0]))
    w = 1 / (error**2 + 0.02**2)
    t = t - t[0]
    shares = fit_harmonics(t, y, w, frequency[best], HARMONICS)[1]
    chosen = frequency[best[int(np.argmax(shares))]]
    double = folded(t, y, w, chosen / 2)
    others = [(float(np.log10(frequency[place])), float(power[place])) for place in best[:3]]
    others += [(0.0, 0.0)] * (3 - len(others))
    found = [
        float(np.log10(chosen)),
        max(shares),
        double[0] - max(shares),
        *(value for pair in others for value in pair),
    ]
    neighbours = float(np.mean(np.diff(y) ** 2) / max(1e-12, y.var()))
    slope = float(np.polyfit(t / max(1.0, t[-1]), y, 1)[0])
    return found + [neighbours, slope, float((w * (y - y.mean()) ** 2).mean())] + folded(t, y, w, chosen) + double


def features(curves: list[tuple[Array, Array, Array]]) -> tuple[Array, Array, float]:
    """Moments (n, 10), period features (n, F), and their milliseconds per curve."""
    plain = np.array([moments(y) for _, y, _ in curves])
    began = time.perf_counter()
    more = np.array([periodic(*curve) for curve in curves])
    return plain, more, 1000 * (time.perf_counter() - began) / len(curves)


def forest(x: Array, labels: Array, seed: int, trees: int, jobs: int) -> Array:
    """Confusion matrix over all folds."""
    classes, number = np.unique(labels, return_inverse=True)
    fold, answer = folds(labels), np.zeros(len(labels), np.int64)
    for one in range(FOLDS):
        answer[fold == one] = grown(x[fold != one], number[fold != one], seed, trees, jobs).predict(x[fold == one])
    return confusion(number, answer, len(classes))


def few_labels(x: Array, labels: Array, seed: int, trees: int, jobs: int, size: str) -> Array:
    """Confusion matrix of a forest on a few labels per class, in the fold of the seed."""
    classes, number = np.unique(labels, return_inverse=True)
    rows = parts(labels, seed % FOLDS)
    some, test = rows[f"train-{size}"], rows["test"]
    return confusion(number[test], grown(x[some], number[some], seed, trees, jobs).predict(x[test]), len(classes))


def grown(x: Array, number: Array, seed: int, trees: int, jobs: int) -> Any:
    """A fitted forest."""
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(trees, random_state=seed, n_jobs=jobs).fit(x, number)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--asas", type=Path, required=True, help="the ASAS curves")
    parser.add_argument("--seeds", type=lambda text: [int(word) for word in text.split(",")], default=[0, 1, 2])
    sizes = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--sizes", type=sizes, default=["all", "20"], help="labels per class: all, 20 or 100")
    parser.add_argument("--trees", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=1, help="trees grown at a time")
    parser.add_argument("--cache", type=Path, help="file .npz where features are kept for the next time")
    parser.add_argument("--tiny", action="store_true", help="a version of seconds, to try the script")
    parser.add_argument("--results", type=Path, default=RESULTS / "lightcurves.json")
    options = parser.parse_args(arguments)
    labels, curves = asas(options.asas)
    if options.tiny:
        some = np.random.default_rng(0).permutation(len(labels))[:160]
        labels, curves, options.trees = labels[some], [curves[row] for row in some], 20
    if options.cache is not None and options.cache.exists():
        kept = np.load(options.cache)
        plain, more, took = kept["plain"], kept["more"], float(kept["took"])
    else:
        plain, more, took = features(curves)
        if options.cache is not None:
            np.savez(options.cache, plain=plain, more=more, took=took)
    from importlib.metadata import version

    classes = [str(name) for name in np.unique(labels)]
    inputs = {"forest": plain, "forest_period": np.concatenate([plain, more], 1)}
    for size, (name, x) in product(options.sizes, inputs.items()):
        ways = options.trees, options.jobs
        if size == "all":
            matrices = [forest(x, labels, seed, *ways) for seed in options.seeds]
        else:
            matrices = [few_labels(x, labels, seed, *ways, size) for seed in options.seeds]
        scores = [judged(matrix) for matrix in matrices]
        about: dict[str, Any] = {"features": x.shape[1], "trees": options.trees, "classes": classes}
        about |= {"confusion": np.mean(matrices, 0).round(1).tolist(), "scikit-learn": version("scikit-learn")}
        if name == "forest_period":
            about["periodogram_ms"] = round(took, 1)
        rows = []
        for metric in ("macro_f1", "accuracy") if size == "all" else ("macro_f1",):
            more_said = about | (
                {"paired": True} if size != "all" else {"stated": STATED[metric]} if name == "forest" else {}
            )
            values = [score[metric] for score in scores]
            command = "python benchmarks/lightcurves_forest.py"
            about_size = "asas" if size == "all" else f"asas_new.{size}"
            rows.append(
                seeds_row(f"{about_size}.{name}.{metric}", values, "share", "higher", command, "cpu", **more_said)
            )
            print(f"{rows[-1]['id']:32} {rows[-1]['value']:.4f} ± {rows[-1]['spread']}", flush=True)
        if not options.tiny:
            record(options.results, rows)


if __name__ == "__main__":
    main()
