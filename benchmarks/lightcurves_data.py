"""Real curves in five folds by object, and simulated curves, as files for `data.kind: series`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sciformer.files.tables import write_table

Array = NDArray[Any]
FOLDS = 5
VALID = 0.1  # of what a fold leaves to train with
FEW = (20, 100)  # labels of each class, or all there are
SEED = 20260201


def asas(path: Path) -> tuple[Array, list[tuple[Array, Array, Array]]]:
    """Labels, and (times, magnitudes, errors) of every object."""
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    table = pq.read_table(path)
    columns = [[np.asarray(one, np.float64) for one in table[name].to_pylist()] for name in ("time", "mag", "magerr")]
    return np.array(table["label"].to_pylist()), list(zip(*columns, strict=True))


def folds(labels: Array, count: int = FOLDS) -> Array:
    """Test fold (n,) of each object, stratified by class.

    The result is the same in every call.
    """
    rng = np.random.default_rng(SEED)
    found = np.zeros(len(labels), np.int64)
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        found[rows] = (np.arange(len(rows)) + rng.integers(count)) % count
    return found


def parts(labels: Array, fold: int) -> dict[str, Array]:
    """Rows of train, valid and test of a fold.

    `train-20`, `valid-20` and so on are subsets with that number of samples per class.
    """
    rng = np.random.default_rng([SEED, fold])
    judged = folds(labels)
    found: dict[str, list[Array]] = {}
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero((labels == label) & (judged != fold)))
        stop = max(1, round(VALID * len(rows)))
        mine = {
            "valid": rows[:stop],
            "train": rows[stop:],
            "test": np.flatnonzero((labels == label) & (judged == fold)),
        }
        mine |= {f"{part}-{few}": mine[part][:few] for part in ("train", "valid") for few in FEW}
        for name, some in mine.items():
            found.setdefault(name, []).append(some)
    return {name: rng.permutation(np.concatenate(rows)) for name, rows in found.items()}


def prepare(source: Path, out: Path, by: str = "label", known: str = "") -> None:
    """Write the parts of every fold as Parquet, once: OUT/0/train.parquet and so on.

    by      column to stratify by
    known   objects without a number in this column are left out
    """
    import pyarrow.parquet as pq

    if (out / "done").exists():
        return
    table = pq.read_table(source)
    if known:
        table = table.take(np.flatnonzero(np.isfinite(np.asarray(table[known], np.float64))))
    labels = np.array(table[by].to_pylist()) if by else np.zeros(table.num_rows, int)
    for fold in range(FOLDS):
        (out / str(fold)).mkdir(parents=True, exist_ok=True)
        for name, rows in parts(labels, fold).items():
            pq.write_table(table.take(rows), out / str(fold) / f"{name}.parquet")
    (out / "done").write_text("")


def keep(section: Any, out: Path) -> None:
    """Write the training part of simulated curves as Parquet, a file per piece, once."""
    if (out / "done").exists():
        return
    source = section.open().sources["train"]
    for piece in range(len(source.sizes)):
        made = {name: column for name, column in source.load(piece).items() if name != "clean"}
        write_table(out / f"{piece:04d}.parquet", [made], overwrite=True)
    (out / "done").write_text("")


def confusion(label: Array, answer: Array, classes: int) -> Array:
    """Confusion matrix (classes, classes): rows are true, columns predicted classes."""
    return np.bincount(label * classes + answer, minlength=classes * classes).reshape(classes, classes)


def judged(matrix: Array) -> dict[str, float]:
    """Accuracy and macro F1 of a confusion matrix."""
    right, said, true = np.diag(matrix), matrix.sum(0), matrix.sum(1)
    f1 = 2 * right / np.maximum(1, said + true)
    return {"accuracy": float(right.sum() / matrix.sum()), "macro_f1": float(f1[true > 0].mean())}
