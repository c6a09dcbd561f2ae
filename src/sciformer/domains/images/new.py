"""Guessed recipes for images: pictures in folders, tables of pictures, arrays."""

from __future__ import annotations

import math
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from ...data.batch import describe
from ...data.columns import Array, Lists, rows_of
from ...data.readers.arrays import Arrays
from ...data.source import Splits
from ...errors import UserError
from ...recipe import guess
from ...recipe.given import Given
from ...recipe.page import Found, Page
from .reader.listing import (
    captions_beside,
    is_image,
    is_table,
    list_image_files,
    lists_images,
    table_in_folder,
    unreadable_tables,
)
from .reader.pieces import ImageChunks
from .reader.reader import ImageFiles
from .reader.sets import is_missing
from .tokens import Patches

SIZES: guess.Sizes = {0: (64, 2, 4), 2000: (96, 4, 4), 20_000: (192, 6, 6)}
EPOCHS, BATCHES = 30, {0: 4, 100: 16, 640: 64, 20_000: 128}
MAX_SHOWN_COLUMNS = 20  # columns listed in the notes
MAX_SIDE = 224  # largest proposed side; larger images are resized to save time
PATCH_SIDES = (1, 2, 4, 7, 8, 14, 16, 32)
TARGET_TOKENS = 64  # approximate number of patches of an image
MAX_INTEGER_CLASSES = 20  # columns with more distinct integers are values
IDENTIFIER_NAMES = ("id", "index", "number", "row", "object", "objid", "object_id", "dr7objid", "sourceid", "source_id")
IMAGE_NAMES = ("image", "images", "img", "picture", "pictures", "pixels", "spins", "map", "x", "array")
CAPTION_NAMES = ("caption", "captions", "sentence", "description", "text", "title")
SHIPPED = "images/caption-transformer"
MIN_RARE_CAPTIONS = 5000  # captions from which words that occur once are unknown
CAPTION = "caption"  # column of texts beside the pictures
LABEL_NAMES = ("label", "labels", "class", "classes", "category", "phase", "type", "y", "target", "truth")
VALUE_NAMES = ("target", "targets", "value", "y", "label")
GROUP_NAMES = ("chain", "group", "object", "patient", "subject", "source", "series", "run", "field", "id")
NO_CLASSES = "No classes were found. Use a folder for each class, or a table with a column `label`."
BINARY_SCALE = ("none", "values are -1 and 1")
CHANNEL_SCALE = ("channel", "mean 0 and deviation 1 for each channel")
CHANNEL_REASONS = {1: "colour is converted to grey", 3: "grey is converted to colour"}
AUTOENCODER_KEYS = (
    Found("tokens.target", "patch", "masked patches normalised by their own mean and deviation"),
    Found("model.kind", "masked_autoencoder", "no classes: pretrain first, then sciformer finetune"),
    Found("model.decoder_depth", 2, "blocks that reconstruct masked patches"),
    Found("objective.mask_ratio", 0.75, "share of masked patches"),
)


def guess_images(names: list[str], paths: list[Path], given: Given) -> Page:
    """Guess a recipe of a vision transformer for image files."""
    parts = given.parts([_table_of_captions(name) or name for name in names])
    section = given.section(ImageFiles, {"kind": "images"}, **guess.part_fields(parts), labels_per_class=None)
    beside = any(captions_beside(entry.path) for entry in list_image_files(section.files, []) if is_image(entry.path))
    section = section.want(["image", CAPTION]) if beside else section
    opened, skips = guess.open_readable(section)
    source = opened.sources["train"]
    assert isinstance(source, ImageChunks)
    count = guess.check_count(sum(source.sizes), "images", opened.notes)
    form = source.form
    shapes, varying = np.concatenate([form.fit.output_shapes(one.shapes) for one in source.sets]), form.varying
    known = {name: source.known_column(name) for name in source.columns if name not in ("file", "entry")}
    flat = {name: _class_or_value_column(name, column) for name, column in known.items() if column is not None}
    blank = [name for name, column in flat.items() if not len(column)]
    flat = {name: column for name, column in flat.items() if len(column)}
    caption = _caption_column(flat, given)
    flat = {name: column for name, column in flat.items() if column.dtype.kind != "U" or not _too_many_classes(column)}
    if caption:
        opened, skips = guess.open_readable(section.want(["image", caption]))
        return _guess_captions(caption, opened, names, parts, skips, given)
    ask = find_question(flat, max(count, 5 * MAX_INTEGER_CLASSES), given)
    label = ask.column if ask.kind == "classify" else ""
    where = "" if label == "label" else f" in `{label}`"
    notes = [
        f"Found: {count:,} images to train on, {_describe_images(shapes, varying)}.",
        *([f"Classes{where}: {guess.list_counts(flat[label])}."] if label else []),
        *([NO_CLASSES] if ask.kind == "masked" else []),
        *(f"Column `{name}` has no entries." for name in blank),
        *(f"Not used: {error}." for name in names for error in unreadable_tables(Path(name).expanduser())),
        *ask.notes,
        *opened.notes,
    ]
    found = [
        Found("data.kind", "images"),
        *guess.files(parts, skips),
        *_reading_keys(source, shapes),
        *guess.split(opened.sources, count, "images", "identical images", stratify=label),
        *vision_keys(_sides(shapes, varying), count, "images", ask.kind, opened.sources),
        *ask.found,
        *(AUTOENCODER_KEYS if ask.kind == "masked" else ()),
    ]
    files, roles = [Path(name) for name in names], {"label" if label else "target": ask.column}
    unused = [name for name in known if name != ask.column]
    return Page("vision transformer", files, f"{count:,} images", notes, "images/vit-tiny", found, roles, unused)


def _sides(shapes: Array, varying: bool) -> tuple[int, int]:
    """Height and width of the images as inputs of the model."""
    side = _target_side(shapes, varying)
    return (side, side) if side else (int(shapes[0, 0]), int(shapes[0, 1]))


def _reading_keys(source: ImageChunks, shapes: Array) -> list[Found]:
    """Recipe keys for the reading of images: size, channels, blank pixels."""
    varying, channels = source.form.varying, int(shapes[0, 2])
    differ = "sizes differ: scaled and cropped to a square; remove the key to keep the sizes"
    return [
        Found("data.size", _target_side(shapes, varying), differ if varying else "large images are scaled down"),
        Found("data.channels", channels if channels in CHANNEL_REASONS else None, CHANNEL_REASONS.get(channels, "")),
        Found("data.blank", 0.0 if _has_blank_pixels(source) else None, "value for pixels that are not finite"),
    ]


def _table_of_captions(name: str | Path) -> str:
    """Name of the table in a folder of images, if it has captions; otherwise ""."""
    table = table_in_folder(Path(name).expanduser())
    return str(table) if table is not None and any(word in table.columns for word in CAPTION_NAMES) else ""


def _caption_column(flat: dict[str, Array], given: Given) -> str:
    """Name of the column with captions, or an empty string."""
    if given.get("objective.kind") not in (None, "translate"):
        return ""
    column = given.get("tokens.target.column")
    texts = [name for name, found in flat.items() if found.dtype.kind == "U"]
    named = [name for word in ([column] if column else CAPTION_NAMES) for name in texts if name.lower() == word.lower()]
    return next((name for name in named if column or any(" " in text for text in flat[name])), "")


def _guess_captions(
    caption: str, opened: Splits, names: list[str], parts: dict[str, list[str]], skips: bool, given: Given
) -> Page:
    source = opened.sources["train"]
    assert isinstance(source, ImageChunks)
    count = guess.check_count(sum(source.sizes), "captions", opened.notes)
    shapes = np.concatenate([source.form.fit.output_shapes(one.shapes) for one in source.sets])
    column = source.known_column(caption)
    assert column is not None
    words = [len(text.split()) for text in column.tolist()]
    different = len({word for text in column.tolist() for word in text.split()})
    longest = max(words)
    sides, varying = _sides(shapes, source.form.varying), source.form.varying
    patch = patch_side(*sides)
    tokens = math.prod(-(-length // patch) for length in sides)
    why = f"captions in `{caption}`; for classes: --objective.kind classify"
    found = [
        Found("data.kind", "images"),
        *guess.files(parts, skips),
        *_reading_keys(source, shapes),
        *guess.split(opened.sources, count, "images", "identical images"),
        Found("tokens.source.kind", "patches", "a token is a square of pixels"),
        Found("tokens.source.patch", patch, f"cuts {sides[0]} x {sides[1]} pixels into {tokens} tokens"),
        Found("tokens.target.kind", "text"),
        Found("tokens.target.unit", "words", f"captions have {different:,} different words"),
        Found("tokens.target.column", caption, "column of the captions"),
        Found("tokens.target.minimum", 2 if count > MIN_RARE_CAPTIONS else 1, "rarer words are unknown"),
        Found("tokens.target.begin", True),
        Found("tokens.target.end", True),
        Found("tokens.target.context", longest + 2, f"the longest caption has {longest} words; longer ones are cut"),
        Found("model.kind", "encoder_decoder"),
        Found("model.position", "learned"),
        *guess.model(count, "images", SIZES),
        Found("objective.kind", "translate", why),
        *guess.training(count, EPOCHS, BATCHES, "loss", opened.sources),
    ]
    notes = [
        f"Found: {count:,} captions of images to train on, {_describe_images(shapes, varying)}.",
        f"Captions have {min(words)} to {longest} words. Each caption of an image makes a sample.",
        *opened.notes,
    ]
    unused = [name for name in source.columns if name not in ("file", "entry", "image", caption)]
    files = [Path(name) for name in names]
    return Page("captions", files, f"{count:,} images", notes, SHIPPED, found, {"caption": caption}, unused)


def vision_keys(sides: tuple[int, int], count: int, unit: str, kind: str, parts: Collection[str] = ()) -> list[Found]:
    """Recipe keys of tokens, model and training, for images of one size."""
    patch = patch_side(*sides)
    tokens = math.prod(-(-length // patch) for length in sides)
    return [
        Found("tokens.kind", "patches", "a token is a square of pixels"),
        Found("tokens.patch", patch, f"cuts {sides[0]} x {sides[1]} pixels into {tokens} tokens"),
        Found("tokens.augment", [], "flip, turn, crop, ...: random changes that keep the label"),
        Found("model.kind", "encoder"),
        *guess.model(count, unit, SIZES),
        *guess.training(count, EPOCHS, BATCHES, "accuracy" if kind == "classify" else "loss", parts),
    ]


def _has_blank_pixels(source: ImageChunks) -> bool:
    try:
        source.load(0)
    except UserError as error:
        if error.key != "data.blank":
            raise
        return True
    return False


def _describe_images(shapes: Array, varying: bool) -> str:
    channels = int(shapes[0, 2])
    word = {1: "grey", 3: "in colours"}.get(channels, f"with {channels} channels")
    low, high = shapes[:, :2].min(0), shapes[:, :2].max(0)
    if not varying:
        return f"{low[0]} x {low[1]} pixels, {word}"
    return f"{low[0]} to {high[0]} pixels high and {low[1]} to {high[1]} wide, {word}"


def _class_or_value_column(name: str, column: Array) -> Array:
    """Column without missing entries, as classes (integers, text) or values (floats).

    Integers with too many distinct values become floats.
    """
    known = column[~is_missing(column)]
    known = known.astype(str) if known.dtype.kind == "O" else known  # long texts are read as objects
    whole = known.dtype.kind in "iu" and name.lower() not in IDENTIFIER_NAMES
    return known.astype(np.float64) if whole and _too_many_classes(known) else known


def _too_many_classes(column: Array) -> bool:
    return len(np.unique(column)) > min(max(MAX_INTEGER_CLASSES, len(column) // 5), len(column) // 2)


def _target_side(shapes: Array, varying: bool) -> int | None:
    """Proposed value of `data.size` if images are large or differ in size; else None."""
    middle = int(np.median(shapes[:, :2].min(1)))
    large = varying or shapes[:, :2].max() > 2 * MAX_SIDE
    return min(MAX_SIDE, max(8, middle - middle % 8)) if large else None


def patch_side(height: int, width: int) -> int:
    """Patch side for about TARGET_TOKENS patches; a divisor of the size if possible."""
    sides = [side for side in PATCH_SIDES if side <= min(height, width)]
    divides = [side for side in sides if height % side == width % side == 0]

    def off(side: int) -> float:
        return abs(math.log(height * width / side**2 / TARGET_TOKENS))

    best = min(sides, key=off)
    near = [side for side in divides if off(side) <= off(best) + math.log(4)]
    return min(near, key=off) if near else best


def is_image_source(name: str) -> bool:
    """Whether a name is an image file, a folder of images, or a table of image files."""
    path = Path(name).expanduser()
    if path.is_dir():
        return bool(list_image_files([path], []))
    return path.exists() and (lists_images(path) if is_table(path) else is_image(path))


def guess_patches(names: list[str], paths: list[Path], given: Given) -> Page:
    """Guess a recipe of a vision transformer for arrays of images."""
    parts = given.parts(names)
    section = given.section(Arrays, {"kind": "arrays"}, **guess.part_fields(parts))
    table: dict[str, Any] = dict(section.read(section.files).load(0))
    count = rows_of(table)
    shapes = {name: f"{column.dtype} {column.shape}" for name, column in table.items()}
    name = _image_column(table, shapes)
    image = table[name]
    if image.ndim == 4 and image.shape[1] <= 4 < image.shape[3]:
        message = f"`{name}` has the shape {image.shape}, but channels must be the last of four axes"
        raise UserError(message, hint=f"Save it with numpy.moveaxis({name}, 1, -1).", file=paths[0])
    Patches(kind="patches", patch=patch_side(*image.shape[1:3])).fit([{"image": image}])  # refuses unsuitable images
    flat = {key: column for key, column in table.items() if not isinstance(column, Lists) and column.ndim == 1}
    words = {**shapes, **{key: f"{shapes[key]}: {text}" for key, text in describe(flat).items()}}
    group = _group_column(flat, count)
    binary = set(np.unique(image[:64]).tolist()) <= {-1.0, 1.0}
    beside = {key: column for key, column in flat.items() if key not in (name, group)}
    ask = find_question(beside, count, given, along=True)
    found = [
        Found("data.kind", "arrays"),
        *guess.files(parts),
        Found("data.rename", {"image": name} if name != "image" else None, f"the images are in `{name}`"),
        *guess.split(parts, count, "samples", by=group),
        *vision_keys(image.shape[1:3], count, "samples", ask.kind),
        Found("tokens.scale", *(BINARY_SCALE if binary else CHANNEL_SCALE)),
        Found("tokens.periodic", False, "true for periodic boundaries"),
        *ask.found,
    ]
    shown = [f"  {key:14} {text}" for key, text in words.items()]
    more = [f"  and {len(shown) - MAX_SHOWN_COLUMNS:,} more"] * (len(shown) > MAX_SHOWN_COLUMNS)
    notes = [f"Found: {count:,} samples in columns", *shown[:MAX_SHOWN_COLUMNS], *more, *ask.notes]
    roles = {"image": name, "label" if ask.kind == "classify" else "target": ask.column, "group": group}
    unused = [key for key in table if key not in roles.values()]
    return Page("vision transformer", paths, f"{count:,} samples", notes, "spins/ising-vit", found, roles, unused)


def _image_column(table: dict[str, Any], found: dict[str, str]) -> str:
    shaped = [n for n, c in table.items() if c.ndim in (3, 4) and c.dtype.kind in "biuf" and min(c.shape[1:3]) > 1]
    if not shaped:
        listed = ", ".join(f"`{name}` {text}" for name, text in found.items())
        shapes = "(n, height, width) or (n, height, width, channels)"
        raise UserError(f"no column has images of shape {shapes}; the columns are {listed}")
    return next((name for name in IMAGE_NAMES if name in shaped), max(shaped, key=lambda name: table[name][:1].size))


def _group_column(flat: dict[str, Array], count: int) -> str:
    """Name of a grouping column (repeated integers or names), or ""."""
    possible = (name for name in GROUP_NAMES if name in flat and flat[name].dtype.kind in "iuU")
    return next((name for name in possible if 10 <= len(np.unique(flat[name])) <= count // 2), "")


def find_question(flat: dict[str, Array], count: int, given: Given, along: bool = False) -> guess.Question:
    """Choose the objective: classification, regression or masked patches.

    along   whether to plot the predictions against a column of values, such as a temperature
    """
    most = min(guess.MAX_CLASSES, max(2, count // 5))
    sizes = {name: len(np.unique(column)) for name, column in flat.items() if guess.is_discrete(column)}
    classes = {name: number for name, number in sizes.items() if 2 <= number <= most}
    values = [name for name, column in flat.items() if column.dtype.kind == "f" and np.isfinite(column).all()]
    values = [name for name in values if name not in classes and np.ptp(flat[name]) > 0]
    first = next((name for name in LABEL_NAMES if name in classes), "")
    aimed = next((name for name in VALUE_NAMES if name in values), "")
    asked = given.get("objective.kind")

    def others(used: str) -> str:
        found = [f"`{name}` ({number} classes)" for name, number in classes.items() if name != used]
        found += [f"`{name}` (values)" for name in values if name != used]
        return f"; other columns: {guess.list_names(found)}" if found else ""

    def classify() -> guess.Question | str:
        texts = [name for name in classes if flat[name].dtype.kind in "Ub"]
        label = given.get("objective.label") or first
        label = label or ("" if aimed and asked is None else next(iter(texts or classes), ""))
        if not label and classes:
            return f"No classes: `{aimed}` has values."
        if not label:
            one = [name for name, number in sizes.items() if number == 1]
            same = f" `{one[0]}` has a single value." if one else ""
            return f"No classes: no column has 2 to {most:,} different names or whole numbers.{same}"
        ask = guess.classify(label, f"`{label}` has {sizes.get(label, 'some')} distinct values{others(label)}")
        why = "the report plots the predictions against this column"
        drawn = Found("objective.plot_against", values[0] if values and along else None, why)
        return ask._replace(found=[*ask.found, drawn])

    def regress() -> guess.Question | str:
        aim = next(iter(given.listed("objective.targets")), aimed or next(iter(values), ""))
        return (
            guess.regress(aim, f"`{aim}` has values{others(aim)}") if aim else "No values: no column has real numbers."
        )

    return guess.choose(
        given, {"classify": classify, "regress": regress, "masked": lambda: guess.masked("patches", 0.5)}
    )


IMAGES = guess.Guess(
    guess_images, find=lambda files: [entry.path for entry in list_image_files(files, [])], recognises=is_image_source
)
PATCHES = guess.Guess(guess_patches)
