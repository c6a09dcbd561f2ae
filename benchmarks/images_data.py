"""Files of images for `images.py`: digits, MNIST, simulated galaxies and lenses."""

from __future__ import annotations

import gzip
import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
SEED = 20260101
VALID = 5000  # of the 60,000 images of MNIST that are trained on, kept to choose
FEW = (10, 100)  # labels of each class
FOLDS = 5


def idx(path: Path) -> Array:
    """Read the array of an idx file (the format of MNIST), plain or with .gz."""
    found = path if path.exists() else path.with_name(path.name + ".gz")
    if not found.exists():
        raise SystemExit(f"{path.name} is needed in {path.parent}: see docs/images.md")
    raw = gzip.decompress(found.read_bytes()) if found.suffix == ".gz" else found.read_bytes()
    zero, kind, axes = int.from_bytes(raw[:2], "big"), raw[2], raw[3]
    if zero or kind != 8:
        raise SystemExit(f"{found} is no idx file of bytes")
    shape = [int.from_bytes(raw[4 + 4 * axis : 8 + 4 * axis], "big") for axis in range(axes)]
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(shape)


def mnist(folder: Path, out: Path, seeds: list[int]) -> None:
    """Write train, valid and test, and for each seed subsets with few labels per class."""
    names = {"train": "train", "test": "t10k"}
    images = {part: idx(folder / f"{name}-images-idx3-ubyte") for part, name in names.items()}
    labels = {part: idx(folder / f"{name}-labels-idx1-ubyte") for part, name in names.items()}
    order = np.random.default_rng(SEED).permutation(len(labels["train"]))
    kept = min(VALID, len(order) // 6)
    rows = {"valid": np.sort(order[:kept]), "train": np.sort(order[kept:])}
    rows |= {f"{part}-{few}-{seed}": drawn(labels["train"], rows[part], few, seed) for part in ("train", "valid")
             for few in FEW for seed in seeds}  # fmt: skip
    write(out / "test.npz", images["test"], labels["test"])
    for name, some in rows.items():
        write(out / f"{name}.npz", images["train"][some], labels["train"][some])


def drawn(labels: Array, rows: Array, few: int, seed: int) -> Array:
    """Draw rows of each class; a larger number includes the rows of a smaller number."""
    mixed = np.random.default_rng([SEED, seed]).permutation(rows)
    return np.sort(np.concatenate([mixed[labels[mixed] == label][:few] for label in np.unique(labels)]))


def digits(folder: Path | None, out: Path) -> None:
    """Write the 1,797 digits of scikit-learn, or of FOLDER/digits.npz."""
    if folder is not None and (folder / "digits.npz").exists():
        found = np.load(folder / "digits.npz")
        write(out, found["image"], found["label"])
        return
    from sklearn.datasets import load_digits

    loaded = load_digits()
    write(out, loaded.images.astype(np.uint8), loaded.target)


def write(path: Path, images: Array, labels: Array) -> None:
    """Write one file atomically."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial.npz")
    np.savez(partial, image=images, label=labels)
    partial.replace(path)


def simulated(data: Any, out: Path, sizes: list[int], jobs: int, columns: tuple[str, ...]) -> None:
    """Write simulated images: train-N.npz for each size, valid and test.

    Smaller training sets are the first images of the largest. Pieces are made in parallel.
    """
    if (out / "done").exists():
        return
    out.mkdir(parents=True, exist_ok=True)
    for part, source in data.open().sources.items():
        tables = [(source, piece, columns) for piece in range(len(source.sizes))]
        with multiprocessing.get_context("spawn").Pool(max(1, jobs)) as pool:
            pieces = pool.starmap(_piece, tables) if jobs else [_piece(*table) for table in tables]
        whole = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
        for size in sizes if part == "train" else [len(whole["image"])]:
            name = f"train-{size}" if part == "train" else part
            kept: dict[str, Any] = {key: column[:size] for key, column in whole.items()}
            np.savez(out / f"{name}.npz", **kept)
    (out / "done").write_text("")


def _piece(source: Any, piece: int, columns: tuple[str, ...]) -> dict[str, Array]:
    table = source.load(piece)
    return {name: np.asarray(table[name]) for name in ("image", *columns)}
