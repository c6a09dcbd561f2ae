"""A recipe for images, lattices or maps in the columns of .npz files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.batch import describe
from ..data.readers.arrays import Arrays
from ..data.source import Lists, rows_of
from ..errors import UserError
from ..tokens.patches import Patches
from .page import Line, named, write

Array = NDArray[Any]

IMAGE = ("image", "images", "img", "picture", "pictures", "pixels", "spins", "map", "x", "array")
LABEL = ("label", "labels", "class", "classes", "category", "phase", "type", "y", "target", "truth")
VALUE = ("target", "targets", "value", "y", "label")
GROUP = ("chain", "group", "object", "patient", "subject", "source", "series", "run", "field", "id")
TOKENS = 64  # patches of an image that are aimed at


def patches(names: list[str], paths: list[Path]) -> str:
    """A vision transformer on the images of the files."""
    table: dict[str, Any] = dict(Arrays(kind="arrays").read(list(paths)).load(0))
    count = rows_of(table)
    found = {name: f"{column.dtype} {column.shape}" for name, column in table.items()}
    name = _image(table, found)
    image = table[name]
    if image.ndim == 4 and image.shape[1] <= 4 < image.shape[3]:
        raise UserError(
            f"channels must come last in `{name}`, (n, height, width, channels), not {image.shape}",
            hint=f"Save it with numpy.moveaxis({name}, 1, -1).",
            file=paths[0],
        )
    side = _even_side(image.shape[1], image.shape[2])
    tokens = Patches(kind="patches", patch=side)
    tokens.fit([{"image": image}])
    flat = {key: column for key, column in table.items() if not isinstance(column, Lists) and column.ndim == 1}
    words = {**found, **{key: f"{found[key]}: {text}" for key, text in describe(flat).items()}}
    group = _group(flat, count)
    rows, columns = tokens.places
    binary = set(np.unique(image[:64]).tolist()) <= {-1.0, 1.0}
    large_one = count >= 20_000
    batch = 64 if count >= 640 else max(2, min(32, 1 << int(math.log2(max(2, count // 10)))))
    steps = min(5000, max(200, 20 * count // batch))
    dim, depth, heads = (128, 4, 4) if large_one else (64, 2, 4)
    head = [
        f"A vision transformer for {named(paths)}, written by `sciformer new patches`.",
        f"Found: {count:,} samples in columns",
        *(f"  {key:14} {text}" for key, text in words.items()),
        "",
        "Every choice below is a guess from that, with its reason; change what you know better.",
        "All other keys and their meaning: sciformer recipes spins/ising-vit",
    ]
    renamed = [Line("rename", {"image": name}, f"images are read from the column `image`: that is `{name}`", 2)]
    split = [Line("by", group, f"equal values of `{group}` stay together, so that none is both learned and judged", 3)]
    lines = [
        Line("about"),
        Line("title", f"vision transformer on {named(paths)}", "", 2),
        Line("data"),
        Line("kind", "arrays", "", 2),
        Line("files", names, "relative to the folder where you train", 2),
        *(renamed if name != "image" else []),
        Line("split", None, f"of {count:,} samples", 2),
        Line("valid", 0.1, "to choose the best model", 3),
        Line("test", 0.1 if count >= 30 else 0.0, "to judge it in the end" if count >= 30 else "too few for one", 3),
        *(split if group else []),
        Line("tokens"),
        Line("kind", "patches", f"images in `{name}`", 2),
        Line("patch", side, f"divides {image.shape[1]} x {image.shape[2]} into {rows * columns} tokens", 2),
        Line(
            "scale", "none" if binary else "channel", "values are -1 and 1" if binary else "to mean 0, deviation 1", 2
        ),
        Line("periodic", False, "true where opposite edges touch", 2),
        Line("vary", [], "[flip, turn, roll, negate]: what leaves the answer the same, drawn anew in each epoch", 2),
        Line("model"),
        Line("kind", "encoder", "", 2),
        Line("dim", dim, f"{'for' if large_one else 'small, for'} {count:,} samples", 2),
        Line("depth", depth, "", 2),
        Line("heads", heads, "", 2),
        Line("objective"),
        *objective({key: column for key, column in flat.items() if key not in (name, group)}, count),
        Line("train"),
        Line("steps", steps, f"about {steps * batch / count:.0f} times through the data", 2),
        Line("batch", batch, "", 2),
        Line("warmup", max(1, steps // 10), "a tenth of the steps", 2),
    ]
    return write(head, lines)


def _image(table: dict[str, Any], found: dict[str, str]) -> str:
    shaped = [n for n, c in table.items() if c.ndim in (3, 4) and c.dtype.kind in "biuf" and min(c.shape[1:3]) > 1]
    if not shaped:
        listed = ", ".join(f"`{name}` {text}" for name, text in found.items())
        raise UserError(
            f"no column holds images, (n, height, width) or (n, height, width, channels): there are {listed}"
        )
    return next((name for name in IMAGE if name in shaped), max(shaped, key=lambda name: table[name][:1].size))


def _even_side(height: int, width: int) -> int:
    """The side of patches that divide an image into about as many as aimed at."""
    common = math.gcd(height, width)
    sides = [side for side in range(1, common + 1) if common % side == 0]
    return min(sides, key=lambda side: (abs(math.log(height * width / side**2 / TOKENS)), side))


def _group(flat: dict[str, Array], count: int) -> str:
    """A column whose equal values belong together: whole numbers or names, each several times."""
    for name in GROUP:
        if name in flat and flat[name].dtype.kind in "iuU" and 10 <= len(np.unique(flat[name])) <= count // 2:
            return name
    return ""


def objective(flat: dict[str, Array], count: int, along: bool = True) -> list[Line]:
    """Which class or which value; where there is neither, which patches were hidden.

    along   whether classes may change along a column of values, as phases do with a temperature
    """
    classes = {name: len(np.unique(column)) for name, column in flat.items() if _whole(column)}
    classes = {name: number for name, number in classes.items() if 2 <= number <= min(1000, max(2, count // 5))}
    values = [name for name, column in flat.items() if column.dtype.kind == "f" and np.isfinite(column).all()]
    values = [name for name in values if name not in classes and np.ptp(flat[name]) > 0]
    first = next((name for name in LABEL if name in classes), "")
    aimed = next((name for name in VALUE if name in values), "")
    texts = [name for name in classes if flat[name].dtype.kind in "Ub"]
    label = first or ("" if aimed else next(iter(texts or classes), ""))
    others = [f"`{name}` ({number} classes)" for name, number in classes.items() if name != label]
    aim = "" if label else aimed or next(iter(values), "")
    others += [f"`{name}` (values)" for name in values if name != aim]
    also = f"; others: {', '.join(others)}" if others else ""
    if label:
        return [
            Line("kind", "classify", f"`{label}` has {classes[label]} different values{also}", 2),
            Line("label", label, "the column with the class", 2),
            *(
                [Line("along", values[0], "the report draws the answers along this column", 2)]
                if values and along
                else []
            ),
        ]
    if aim:
        return [
            Line("kind", "regress", f"`{aim}` has values{also}", 2),
            Line("targets", [aim], "columns with the values, one or several", 2),
        ]
    return [
        Line("kind", "masked", "no column to learn was found: hidden patches are asked for", 2),
        Line("share", 0.5, "of the patches are hidden", 2),
    ]


def _whole(column: Array) -> bool:
    """Whether a column holds names or whole numbers."""
    if column.dtype.kind == "f":
        return bool(np.isfinite(column).all() and (column == np.round(column)).all())
    return column.dtype.kind in "iubU"
