"""Sets of images, each read by the numbers of its rows: pictures in files of their own, or the rows of one array."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from ....data.columns import Array
from ....data.random import key, mix
from ....errors import UserError, nearest, one_of
from . import decode
from .arrays import ArrayFile, open_arrays
from .decode import ImageHeader
from .resize import Resizer

Axes = Literal["", "hw", "hwc", "chw", "nhw", "nhwc", "nchw"]
IMAGE_NAMES = (
    "image",
    "images",
    "img",
    "imgs",
    "data",
    "x",
    "pixels",
    "cutout",
    "cutouts",
    "picture",
    "pictures",
    "array",
)
LABEL_NAMES = ("label", "labels", "class", "classes", "category", "target", "targets", "y", "type", "morphology")
PART_NAMES = {
    **dict.fromkeys(("train", "training", "trn"), "train"),
    **dict.fromkeys(("valid", "val", "dev", "validation"), "valid"),
    **dict.fromkeys(("test", "tst", "testing", "t10k"), "test"),
}
MAX_CHANNELS, MAX_CHANNEL_STACK = (
    32,
    20,
)  # channels at most, where the order of axes is guessed; a stack so short may be of channels
MAX_THREADS = min(8, os.cpu_count() or 1)
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class ReadOptions:
    """How files are read: the keys of the section that the user gave, and which single values are of use."""

    image: str = ""
    label: str = ""
    axes: Axes = ""
    pixels: int = 1 << 26
    deep: bool = False
    wanted: tuple[str, ...] = ()
    channels: int | None = None
    alone: bool = False
    """Whether a file is one of several, so that a short stack in it is of the channels of one image."""


@dataclass(eq=False)
class ImageSet:
    """A set of images.

    name      of the set, for messages
    shapes    (n, 3) height, width and channels of each
    dtype     of the pixels
    columns   what else is known of each
    groups    (n,) numbers that are equal for images that are the same
    origin    files of many of them, or of what is known of them
    """

    name: str
    shapes: Array
    dtype: np.dtype[Any]
    columns: dict[str, Array]
    groups: Array
    notes: list[str] = field(default_factory=list)
    origin: tuple[Path, ...] = ()

    def __len__(self) -> int:
        return len(self.shapes)

    @property
    def random_access(self) -> bool:
        """Whether any rows are read as quickly as neighbours."""
        return True

    def locations(self, rows: Array) -> list[str]:
        """Where each of these rows stands, for answers and messages."""
        raise NotImplementedError

    def read(self, rows: Array, fit: Resizer) -> Iterator[Array | UserError]:
        """The pixels (height, width, channels) of each of these rows, or why they cannot be read."""
        raise NotImplementedError

    def column(self, name: str, rows: Array) -> Array:
        """A column of these rows."""
        return np.array(self.locations(rows)) if name == "file" else self.columns[name][rows]


class ImageFileSet(ImageSet):
    """Files with one image each."""

    def __init__(
        self,
        name: str,
        paths: Sequence[Path],
        looks: Sequence[ImageHeader],
        columns: dict[str, Array],
        rules: ReadOptions,
    ) -> None:
        shapes = np.array([look[:3] for look in looks], np.int32).reshape(-1, 3)
        kinds = {look.dtype: path for path, look in reversed(list(zip(paths, looks)))}
        groups = np.array([look.digest for look in looks], np.int64)
        super().__init__(name, shapes, common_dtype(kinds) if kinds else np.dtype("uint8"), columns, groups)
        self.paths, self.rules = [str(path) for path in paths], rules  # there may be millions
        self.bytes = np.array([look.size for look in looks], np.int64)
        if reduced := sum(look.reduced for look in looks):
            self.notes.append(f"{reduced:,} pictures have 16 bits for each colour, of which Pillow reads 8.")

    def locations(self, rows: Array) -> list[str]:
        """Names of the files."""
        return [self.paths[row] for row in rows.tolist()]

    def read(self, rows: Array, fit: Resizer) -> Iterator[Array | UserError]:
        """The pixels, unpacked by several threads."""

        def one(row: int) -> Array | UserError:
            path = Path(self.paths[row])
            try:
                if is_picture(path):
                    return decode.decode_image(path, self.rules.pixels, fit)
                ((_, cube),) = find_image_arrays(open_arrays(path), replace(self.rules, alone=True))
                return next(cube.read(np.zeros(1, np.int64), fit))
            except UserError as error:
                return error
            except OSError as error:
                return UserError(f"{path} cannot be read: {error.strerror or error}", file=path)

        several = all(is_picture(Path(self.paths[row])) for row in rows)
        yield from map_in_threads(one, [int(row) for row in rows], several)


class ImageArraySet(ImageSet):
    """An array of a file: images (n, h, w), (n, h, w, c) or (n, c, h, w), or one image without n."""

    def __init__(self, file: ArrayFile, array: str, axes: Axes, rules: ReadOptions, columns: dict[str, Array]) -> None:
        shape, dtype, _ = file.arrays[array]
        sides = dict(zip(axes, shape))
        count = sides.get("n", 1)
        self.file, self.array, self.axes, self.single = file, array, axes, "n" not in axes
        one = (sides["h"], sides["w"], sides.get("c", 1))
        if not min(one):
            raise UserError(f"`{array}` of {file.path} has no pixels: its shape is {shape}", file=file.path)
        if one[0] * one[1] > rules.pixels:
            raise UserError(
                f"images of {file.path} have {one[0]:,} x {one[1]:,} pixels, more than the {rules.pixels:,} of "
                "data.pixels",
                key="data.pixels",
                file=file.path,
            )
        groups = mix(key(str(file.path), array) ^ mix(np.arange(count))) >> np.uint64(1)
        dtype = np.dtype("uint8") if dtype.kind == "b" else dtype.newbyteorder("=")
        shapes = np.tile(np.array([one], np.int32), (count, 1))
        columns = columns if self.single else {"entry": np.arange(count), **columns}
        super().__init__(str(file.path), shapes, dtype, columns, groups.astype(np.int64), origin=(file.path,))

    @property
    def random_access(self) -> bool:
        """Neighbours are read at once."""
        return False

    def locations(self, rows: Array) -> list[str]:
        """The name of the file."""
        return [str(self.file.path)] * len(rows)

    def read(self, rows: Array, fit: Resizer) -> Iterator[Array | UserError]:
        """The pixels, all of a shape."""
        order = np.argsort(rows, kind="stable")
        found = self.file.get(self.array, None if self.single else rows[order])
        found = found[None] if self.single else found
        if "c" not in self.axes:
            found = found[..., None]
        elif self.axes.endswith("chw"):
            found = np.moveaxis(found, -3, -1)
        back = np.empty(len(rows), np.int64)
        back[order] = np.arange(len(rows))
        for row in back:
            yield fit(np.ascontiguousarray(found[row].astype(self.dtype, copy=False)))


def map_in_threads(make: Callable[[Item], Result], items: Sequence[Item], several: bool = True) -> Iterator[Result]:
    """`make` of every item in order; what is slow in it (reading, unpacking) lets other threads work."""
    if not several or len(items) < 2 or MAX_THREADS < 2:
        yield from map(make, items)
        return
    with ThreadPoolExecutor(MAX_THREADS) as pool:
        yield from pool.map(make, items)


def is_picture(path: Path) -> bool:
    """Whether a file is a picture for Pillow, by its name."""
    return path.suffix.lower() in decode.PICTURE_SUFFIXES


def common_dtype(kinds: Mapping[str, object]) -> np.dtype[Any]:
    """The one type of pixels, of which each type found has an example."""
    found = [np.dtype(kind) for kind in kinds]
    if len({kind.kind for kind in found}) > 1 or (found[0].kind != "f" and len(found) > 1):
        words = ", ".join(f"{kind} in {path}" for kind, path in zip(found, kinds.values()))
        raise UserError(
            f"all images must have the same type of pixels, not {words}",
            hint="Save them alike: 8 and 16 bits differ in scale.",
        )
    return np.result_type(*found)


# Which array of a file has the images


def find_image_arrays(file: ArrayFile, rules: ReadOptions) -> list[tuple[str, ImageArraySet]]:
    """The images of a file, and the part they are meant for where the names of arrays tell it (x_train, x_test)."""
    name = rules.image
    if name:
        known = {other.lower(): other for other in reversed(file.arrays)}
        if name.lower() not in known:
            raise UserError(
                f"{file.path} has no array `{name}` (data.image)",
                hint=nearest(name, file.arrays),
                key="data.image",
                file=file.path,
            )
        return [("", _open_image_array(file, known[name.lower()], rules))]
    shaped = [
        name for name, stored in file.arrays.items() if _has_image_shape(stored.shape) and stored.dtype.kind in "biuf"
    ]
    if not shaped:
        listed = ", ".join(f"`{name}` {stored.dtype} {stored.shape}" for name, stored in file.arrays.items())
        raise UserError(
            f"{file.path} has no array of images, (n, height, width): it has {listed or 'no arrays'}", file=file.path
        )
    told = {name: part for name in shaped if (part := _part_of_name(name))}
    if "train" in told.values() and len(set(told.values())) == len(told) > 1:
        return [(part, _open_image_array(file, name, rules)) for name, part in told.items()]
    usual = [name for word in IMAGE_NAMES for name in shaped if name.rpartition("/")[2].lower() == word]
    if not usual and len(shaped) > 1 and file.form != "FITS":
        words = ", ".join(f"`{name}` {file.arrays[name].shape}" for name in shaped[:8])
        raise UserError(
            f"{file.path} has several arrays of images: {words}",
            hint="Say which: --data.image NAME",
            key="data.image",
            file=file.path,
        )
    return [("", _open_image_array(file, (usual or shaped)[0], rules))]


def _has_image_shape(shape: tuple[int, ...]) -> bool:
    return len(shape) in (3, 4) or (len(shape) == 2 and min(shape) > 1)


def _name_words(name: str) -> list[str]:
    return re.split(r"[./_-]", name.lower())


def _part_of_name(name: str) -> str:
    return next((PART_NAMES[word] for word in _name_words(name) if word in PART_NAMES), "")


def _open_image_array(file: ArrayFile, name: str, rules: ReadOptions) -> ImageArraySet:
    shape = file.arrays[name].shape
    axes = rules.axes or guess_axes(shape)
    stack = not rules.axes and axes == "nhw" and shape[0] <= MAX_CHANNEL_STACK
    each = any(stored.shape in (shape[:1], (shape[0], 1)) for stored in file.arrays.values())
    known = rules.alone or 1 < shape[0] == rules.channels
    if known and stack and not each and shape[0] < min(shape[1:]) and file.form != "idx":
        axes = "chw"
    if len(axes) != len(shape):
        raise UserError(
            f"`{name}` of {file.path} cannot have the axes {axes} (data.axes) because its shape is {shape}",
            key="data.axes",
            file=file.path,
        )
    columns = _array_columns(file, name, axes, rules)
    if axes == "hw" and any(len(stored.shape) == 1 and stored.shape[0] == shape[0] for stored in file.arrays.values()):
        advice = "Reshape rows of pixels to (n, height, width)."
        raise UserError(
            f"`{name}` of {file.path} must be images (n, height, width), not of shape {shape}",
            hint=advice,
            file=file.path,
        )
    made = ImageArraySet(file, name, axes, rules, columns)
    made.notes += _unread_label_notes(file, len(made)) if "label" not in columns and not made.single else []
    if stack and axes == "nhw" and not columns:
        sides = f"{shape[1]} x {shape[2]}"
        made.notes.append(
            f"{file.path} has {shape[0]} images of {sides}; if these are channels of one: --data.axes chw"
        )
    return made


def _unread_label_notes(file: ArrayFile, count: int) -> list[str]:
    """Notes on arrays that are called like classes, but have not one for each image."""
    named = {
        name: stored.shape for name, stored in file.arrays.items() if name.rpartition("/")[2].lower() in LABEL_NAMES
    }
    return [
        f"`{name}` of {file.path} has {shape[0]:,} entries, not {count:,} as there are images: it was not read."
        for name, shape in named.items()
        if len(shape) == 1 and shape[0] != count
    ]


def guess_axes(shape: tuple[int, ...]) -> Axes:
    """The likeliest order of the axes."""
    if len(shape) == 2:
        return "hw"
    if len(shape) == 3:
        return "hwc" if shape[2] in (1, 3, 4) and min(shape[:2]) > 4 else "nhw"
    if len(shape) != 4:
        raise UserError(f"an array of images must have 2 to 4 axes, not the shape {shape}")
    first = shape[1] <= MAX_CHANNELS and shape[1] < min(shape[2:])
    last = shape[3] <= MAX_CHANNELS and shape[3] < min(shape[1:3])
    return "nchw" if first and not last else "nhwc"


def _array_columns(file: ArrayFile, image: str, axes: Axes, rules: ReadOptions) -> dict[str, Array]:
    """What else is known of the images of an array: others with an entry for each, or what the header says of one."""
    if "n" not in axes:
        known = {name.lower(): value for name, value in reversed(file.header.items())}
        made = {name: np.array([known[name.lower()]]) for name in rules.wanted if name.lower() in known}
        if rules.label:
            one_of(f"data.label, a keyword of {file.path},", rules.label.lower(), known, key="data.label")
            made["label"] = np.array([known[rules.label.lower()]])
        return made
    count, part = file.arrays[image].shape[0], _part_of_name(image)
    entries = [name for name, stored in file.arrays.items() if stored.shape in ((count,), (count, 1))]
    mine = {name: name for name in entries if not part or _part_of_name(name) == part}
    if part:
        mine = {"_".join(word for word in _name_words(name) if word not in PART_NAMES): name for name in mine}
    made = {new.rpartition("/")[2]: file.get(old).reshape(count) for new, old in mine.items()}
    label = find_label_column(made, rules, f"an array of {file.path}")
    if label and label != "label":
        made["label"] = made.pop(label)
    return made


def find_label_column(columns: Collection[str], rules: ReadOptions, what: str) -> str:
    """The column that has the class: the one given, or one with a usual name; empty where there is none."""
    if rules.label:
        one_of(f"data.label, {what},", rules.label, columns, key="data.label")
        return rules.label
    return next((name for word in LABEL_NAMES for name in columns if name.lower() == word), "")
