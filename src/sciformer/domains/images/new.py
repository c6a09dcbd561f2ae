"""A recipe for images in files: pictures in folders, tables of pictures, arrays."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...data.batch import describe
from ...data.columns import Array, Lists, rows_of
from ...data.readers.arrays import Arrays
from ...data.source import Splits
from ...errors import UserError
from ...recipe.page import (
    GUESSES_NOTE,
    NO_SPLIT,
    RELATIVE_PATHS_NOTE,
    SKIP_BAD_FILES,
    Guess,
    Line,
    group_by_part,
    name_files,
    open_readable,
    write,
)
from .reader.listing import is_image, is_table, list_image_files, lists_images
from .reader.pieces import ImageChunks, is_missing
from .reader.reader import ImageFiles
from .tokens import Patches

MIN_IMAGES = 10  # images worth training on
MAX_SIDE = 224  # side of images, of which more would take long
PATCH_SIDES = (2, 4, 7, 8, 14, 16, 32)  # of patches
TARGET_TOKENS = 64  # patches of an image that are aimed at
MAX_LISTED_CLASSES = 12  # classes that the head of a recipe names
MAX_INTEGER_CLASSES = 20  # different whole numbers, up to which they are classes
IDENTIFIER_NAMES = ("id", "index", "number", "row", "object", "objid", "object_id", "dr7objid", "sourceid", "source_id")


class FoundImages(NamedTuple):
    """What was found in the files."""

    opened: Splits
    total: int
    shapes: Array
    columns: dict[str, Array]
    varying: bool
    blank: bool
    skips: bool


def images_recipe(names: list[str], paths: list[Path]) -> str:
    """A vision transformer on the images of the files."""
    parts = group_by_part(names)
    seen = inspect_images(parts)
    flat = {
        name: _class_or_value_column(name, column)
        for name, column in seen.columns.items()
        if name not in ("file", "entry")
    }
    flat = {name: column for name, column in flat.items() if column.dtype.kind != "U" or not _too_many_classes(column)}
    asked = objective_lines(flat, max(seen.total, 5 * MAX_INTEGER_CLASSES), along=False)
    blind = asked[0].value == "masked"
    label = str(asked[1].value) if asked[0].value == "classify" else ""
    size = _target_size(seen)
    sides = size or (int(seen.shapes[0, 0]), int(seen.shapes[0, 1]))
    side = _patch_side(*sides)
    head = [
        f"A vision transformer for the images of {_files_title(names)}, written by `sciformer new images`.",
        f"Found: {seen.total:,} images to train on, {_describe_images(seen)}.",
        *(_class_lines(label, flat[label]) if label else []),
        *(["No classes were found: a folder for each tells them, or a table with a column `label`."] if blind else []),
        *seen.opened.notes,
        "",
        GUESSES_NOTE,
        "All other keys and their meaning: sciformer recipes images/vit-tiny",
    ]
    channels = int(seen.shapes[0, 2])
    rows, columns = (-(-length // side) for length in sides)
    lines = [
        Line("about"),
        Line("title", f"vision transformer on {_files_title(names)}", "", 2),
        Line("data", f"{_files_title(names)}, {seen.total:,} images", "", 2),
        Line("data"),
        Line("kind", "images", "", 2),
        Line("files", parts["train"], RELATIVE_PATHS_NOTE, 2),
        *(Line(part, parts[part], "by its name", 2) for part in ("valid", "test") if part in parts),
        *([SKIP_BAD_FILES] if seen.skips else []),
        *_size_lines(seen, size),
        *([Line("channels", channels, CHANNEL_REASONS[channels], 2)] if channels in CHANNEL_REASONS else []),
        *([Line("blank", 0.0, "for pixels that are not finite", 2)] if seen.blank else []),
        *_split_lines(seen, label),
        Line("tokens"),
        Line("kind", "patches", "a token is a square of pixels", 2),
        Line("patch", side, f"cuts {sides[0]} x {sides[1]} pixels into {rows * columns} tokens", 2),
        Line("augment", [], "flip, turn, crop, ...: what leaves the answer the same, drawn anew in each epoch", 2),
        *([Line("target", "patch", "hidden patches by their own mean and deviation", 2)] if blind else []),
        Line("model"),
        *(AUTOENCODER_LINES if blind else [Line("kind", "encoder", "", 2)]),
        *_model_lines(seen.total),
        Line("objective"),
        *(MASKED_LINES if blind else asked),
        *_train_lines(seen, str(asked[0].value)),
    ]
    return write(head, lines)


AUTOENCODER_LINES = [
    Line("kind", "masked_autoencoder", "without classes: learn to see first, then sciformer finetune", 2),
    Line("decoder_depth", 2, "blocks that fill in what is hidden", 2),
]
MASKED_LINES = [
    Line("kind", "masked", "no column to learn was found: hidden patches are asked for", 2),
    Line("mask_ratio", 0.75, "of the patches are left out", 2),
]
CHANNEL_REASONS = {1: "grey; colours become grey", 3: "colours; grey becomes colour"}


def inspect_images(parts: dict[str, list[str]]) -> FoundImages:
    """The images of the files to train on, of which headers tell the shapes."""
    given: dict[str, Any] = {"files": parts["train"], "valid": parts.get("valid", []), "test": parts.get("test", [])}
    opened, skips = open_readable(ImageFiles(kind="images", split=NO_SPLIT, **given))
    source = opened.sources["train"]
    assert isinstance(source, ImageChunks)
    every = [found for found in opened.sources.values() if isinstance(found, ImageChunks)]
    count = sum(source.sizes)
    if count < MIN_IMAGES:
        raise UserError(
            f"training needs {MIN_IMAGES} images or more, not {count}",
            hint=" ".join(["Bring more of them.", *opened.notes[:4]]),
        )
    shapes = np.concatenate([source.form.fit.output_shapes(one.shapes) for one in source.sets])
    columns = {name: found for name in source.columns if (found := source.known_column(name)) is not None}
    varying = any(one.form.varying for one in every)
    return FoundImages(opened, count, shapes, columns, varying, _has_blank_pixels(source), skips)


def _has_blank_pixels(source: ImageChunks) -> bool:
    """Whether pixels are not finite, in images of which the first are unpacked; what cannot be is refused here."""
    try:
        source.load(0)
    except UserError as error:
        if error.key != "data.blank":
            raise
        return True
    return False


def _files_title(names: list[str]) -> str:
    first = Path(names[0]).name or Path(names[0]).resolve().name
    return first if len(names) == 1 else f"{first} and {len(names) - 1} more"


def _describe_images(seen: FoundImages) -> str:
    channels = int(seen.shapes[0, 2])
    word = {1: "grey", 3: "in colours"}.get(channels, f"with {channels} channels")
    low, high = seen.shapes[:, :2].min(0), seen.shapes[:, :2].max(0)
    if not seen.varying:
        return f"{low[0]} x {low[1]} pixels, {word}"
    return f"{low[0]} to {high[0]} pixels high and {low[1]} to {high[1]} wide, {word}"


def _class_or_value_column(name: str, column: Array) -> Array:
    """What is known of a column; whole numbers that are too many for classes are values, unless they are called like
    numbers of images."""
    known = column[~is_missing(column)]
    whole = known.dtype.kind in "iu" and name.lower() not in IDENTIFIER_NAMES
    return known.astype(np.float64) if whole and _too_many_classes(known) else known


def _too_many_classes(column: Array) -> bool:
    """Whether a column has too many different values for classes."""
    return len(np.unique(column)) > min(max(MAX_INTEGER_CLASSES, len(column) // 5), len(column) // 2)


def _class_lines(label: str, column: Array) -> list[str]:
    """The classes, and how many images each has."""
    classes, counts = np.unique(column, return_counts=True)
    shown = ", ".join(f"{name} ({count:,})" for name, count in zip(classes[:MAX_LISTED_CLASSES], counts))
    where = "" if label == "label" else f" in `{label}`"
    return [f"Classes{where}: {shown}{' and others' if len(classes) > MAX_LISTED_CLASSES else ''}."]


def _target_size(seen: FoundImages) -> tuple[int, int] | None:
    """The size to which images are scaled: where they differ, or are large."""
    middle = int(np.median(seen.shapes[:, :2].min(1)))
    if not seen.varying and seen.shapes[:, :2].max() <= 2 * MAX_SIDE:
        return None
    side = min(MAX_SIDE, max(8, middle - middle % 8))
    return side, side


def _size_lines(seen: FoundImages, size: tuple[int, int] | None) -> list[Line]:
    if size is None:
        return []
    why = "they differ: scaled and cut to a square; without it each stays as it is" if seen.varying else "large ones"
    return [Line("size", size[0], why, 2)]


def _patch_side(height: int, width: int) -> int:
    """The side of a patch: one that divides the image, of those that give about as many tokens as aimed at."""
    sides = [side for side in PATCH_SIDES if side <= min(height, width)] or [1]
    divides = [side for side in sides if height % side == width % side == 0]

    def off(side: int) -> float:
        return abs(math.log(height * width / side**2 / TARGET_TOKENS))

    best = min(sides, key=off)
    near = [side for side in divides if off(side) <= off(best) + math.log(4)]
    return min(near, key=off) if near else best


def _split_lines(seen: FoundImages, label: str) -> list[Line]:
    left = [Line(part, *share, 3) for part, share in _split_shares(seen).items()]
    if not left:
        return []
    lines = [Line("split", None, f"of {seen.total:,} images; those that are the same stay together", 2), *left]
    return [*lines, Line("stratify", label, "each class has the same share in every part", 3)] if label else lines


def _split_shares(seen: FoundImages) -> dict[str, tuple[float, str]]:
    """Of parts that have no files of their own, what is kept apart for them."""
    shares = {"valid": (0.1, "to choose the best model"), "test": (0.1, "to judge it in the end")}
    if seen.total < 100:
        shares["test"] = (0.0, "too few for one")
    return {part: share for part, share in shares.items() if part not in seen.opened.sources}


def _model_lines(count: int) -> list[Line]:
    dim, depth, heads = (64, 2, 4) if count < 2000 else (96, 4, 4) if count < 20_000 else (192, 6, 6)
    return [
        Line("dim", dim, f"for {count:,} images", 2),
        Line("depth", depth, "blocks", 2),
        Line("heads", heads, f"each of width {dim // heads}", 2),
        Line("dropout", 0.1, "against learning by heart", 2),
    ]


def _train_lines(seen: FoundImages, kind: str) -> list[Line]:
    count = seen.total
    batch = 128 if count >= 20_000 else 64 if count >= 640 else 16 if count >= 100 else 4
    steps = int(np.clip(30 * count // batch, 200, 20_000))
    kept = count * (1 - sum(share for share, _ in _split_shares(seen).values()))
    return [
        Line("train"),
        Line("steps", steps, f"about {steps * batch / kept:.0f} times through what is not kept apart", 2),
        Line("batch", batch, "", 2),
        Line("warmup", max(1, steps // 10), "a tenth of the steps", 2),
        Line("evaluate_every", max(10, steps // 20), "twenty times in all", 2),
        Line("best", "accuracy" if kind == "classify" else "loss", "decides which model is kept", 2),
    ]


def is_image_source(name: str) -> bool:
    """Whether a name is that of images: a folder of them, a picture, a table of pictures."""
    path = Path(name).expanduser()
    if path.is_dir():
        return bool(list_image_files([path]).entries)
    return path.exists() and (lists_images(path) if is_table(path) else is_image(path))


IMAGE_NAMES = ("image", "images", "img", "picture", "pictures", "pixels", "spins", "map", "x", "array")
LABEL_NAMES = ("label", "labels", "class", "classes", "category", "phase", "type", "y", "target", "truth")
VALUE_NAMES = ("target", "targets", "value", "y", "label")
GROUP_NAMES = ("chain", "group", "object", "patient", "subject", "source", "series", "run", "field", "id")


def patches_recipe(names: list[str], paths: list[Path]) -> str:
    """A vision transformer on the images of the files."""
    table: dict[str, Any] = dict(Arrays(kind="arrays").read(list(paths)).load(0))
    count = rows_of(table)
    found = {name: f"{column.dtype} {column.shape}" for name, column in table.items()}
    name = _image_column(table, found)
    image = table[name]
    if image.ndim == 4 and image.shape[1] <= 4 < image.shape[3]:
        raise UserError(
            f"channels must come last in `{name}`, (n, height, width, channels), not {image.shape}",
            hint=f"Save it with numpy.moveaxis({name}, 1, -1).",
            file=paths[0],
        )
    side = _dividing_patch_side(image.shape[1], image.shape[2])
    tokens = Patches(kind="patches", patch=side)
    tokens.fit([{"image": image}])
    flat = {key: column for key, column in table.items() if not isinstance(column, Lists) and column.ndim == 1}
    words = {**found, **{key: f"{found[key]}: {text}" for key, text in describe(flat).items()}}
    group = _group_column(flat, count)
    rows, columns = tokens.grid_shape
    binary = set(np.unique(image[:64]).tolist()) <= {-1.0, 1.0}
    large_one = count >= 20_000
    batch = 64 if count >= 640 else max(2, min(32, 1 << int(math.log2(max(2, count // 10)))))
    steps = min(5000, max(200, 20 * count // batch))
    dim, depth, heads = (128, 4, 4) if large_one else (64, 2, 4)
    head = [
        f"A vision transformer for {name_files(paths)}, written by `sciformer new patches`.",
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
        Line("title", f"vision transformer on {name_files(paths)}", "", 2),
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
        Line("augment", [], "[flip, turn, roll, negate]: what leaves the answer the same, drawn anew in each epoch", 2),
        Line("model"),
        Line("kind", "encoder", "", 2),
        Line("dim", dim, f"{'for' if large_one else 'small, for'} {count:,} samples", 2),
        Line("depth", depth, "", 2),
        Line("heads", heads, "", 2),
        Line("objective"),
        *objective_lines({key: column for key, column in flat.items() if key not in (name, group)}, count),
        Line("train"),
        Line("steps", steps, f"about {steps * batch / count:.0f} times through the data", 2),
        Line("batch", batch, "", 2),
        Line("warmup", max(1, steps // 10), "a tenth of the steps", 2),
    ]
    return write(head, lines)


def _image_column(table: dict[str, Any], found: dict[str, str]) -> str:
    shaped = [n for n, c in table.items() if c.ndim in (3, 4) and c.dtype.kind in "biuf" and min(c.shape[1:3]) > 1]
    if not shaped:
        listed = ", ".join(f"`{name}` {text}" for name, text in found.items())
        raise UserError(
            f"no column holds images, (n, height, width) or (n, height, width, channels): there are {listed}"
        )
    return next((name for name in IMAGE_NAMES if name in shaped), max(shaped, key=lambda name: table[name][:1].size))


def _dividing_patch_side(height: int, width: int) -> int:
    """The side of patches that divide an image into about as many as aimed at."""
    common = math.gcd(height, width)
    sides = [side for side in range(1, common + 1) if common % side == 0]
    return min(sides, key=lambda side: (abs(math.log(height * width / side**2 / TARGET_TOKENS)), side))


def _group_column(flat: dict[str, Array], count: int) -> str:
    """A column whose equal values belong together: whole numbers or names, each several times."""
    for name in GROUP_NAMES:
        if name in flat and flat[name].dtype.kind in "iuU" and 10 <= len(np.unique(flat[name])) <= count // 2:
            return name
    return ""


def objective_lines(flat: dict[str, Array], count: int, along: bool = True) -> list[Line]:
    """Which class or which value; where there is neither, which patches were hidden.

    along   whether classes may change along a column of values, as phases do with a temperature
    """
    classes = {name: len(np.unique(column)) for name, column in flat.items() if _is_discrete(column)}
    classes = {name: number for name, number in classes.items() if 2 <= number <= min(1000, max(2, count // 5))}
    values = [name for name, column in flat.items() if column.dtype.kind == "f" and np.isfinite(column).all()]
    values = [name for name in values if name not in classes and np.ptp(flat[name]) > 0]
    first = next((name for name in LABEL_NAMES if name in classes), "")
    aimed = next((name for name in VALUE_NAMES if name in values), "")
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
                [Line("plot_against", values[0], "the report draws the answers along this column", 2)]
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
        Line("mask_ratio", 0.5, "of the patches are hidden", 2),
    ]


def _is_discrete(column: Array) -> bool:
    """Whether a column holds names or whole numbers."""
    if column.dtype.kind == "f":
        return bool(np.isfinite(column).all() and (column == np.round(column)).all())
    return column.dtype.kind in "iubU"


def _find_image_files(files: list[str | Path]) -> list[Path]:
    return [entry.path for entry in list_image_files(files).entries]


IMAGES = Guess(images_recipe, find=_find_image_files, recognises=is_image_source)
PATCHES = Guess(patches_recipe)
