"""A table of objects with pictures, light curves and numbers; some objects lack some of them."""

import csv

import numpy as np
from PIL import Image

NO_PICTURE, NO_CURVE, NO_MASS = (1, 5), (2, 5), (3, 5)  # object 5 has nothing


def write_objects(folder, count=24, seed=0):
    """Write objects.csv, pictures/ and curves.csv; pictures and curves are brighter in class b."""
    rng = np.random.default_rng(seed)
    (folder / "pictures").mkdir(parents=True)
    rows, curves = [], []
    for i in range(count):
        bright = i % 2
        name = "" if i in NO_PICTURE else f"pictures/{i}.png"
        if name:
            pixels = rng.integers(0, 100, (8, 8)) + 100 * bright
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name)
        if i not in NO_CURVE:
            curves += [[f"o{i}", t, rng.normal(20 - bright), 0.1, "gr"[t % 2]] for t in range(4 + i % 3)]
        mass = "" if i in NO_MASS else f"{rng.normal(10 + bright):.3f}"
        rows.append([f"o{i}", name, mass, f"{rng.normal():.3f}", "ab"[bright], i // 2])
    _write(folder / "objects.csv", ["name", "picture", "mass", "size", "label", "field"], rows)
    _write(folder / "curves.csv", ["id", "time", "value", "error", "band"], curves)
    return folder


def _write(path, names, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *rows])


def data_keys(folder, **changes):
    """The section `data:` for these objects."""
    streams = {
        "image": {"kind": "images", "column": "picture"},
        "curve": {"kind": "series", "files": str(folder / "curves.csv"), "column": "name"},
    }
    return {"kind": "join", "files": [str(folder / "objects.csv")], "streams": streams, **changes}
