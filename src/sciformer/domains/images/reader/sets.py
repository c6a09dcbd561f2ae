"""Image sets, read by row number: files with one image each, or an image array."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from ....data.columns import Array
from ....data.fileset import Counts, Scan, Words
from ....data.random import key, mix
from ....data.readers.part_names import part_of, without_part
from ....errors import UserError, nearest, one_of
from ....files.in_memory import MemoryFile
from . import decode, listing
from .arrays import ArrayFile, open_arrays
from .decode import ImageHeader, Resizer
from .listing import ImageFile, has_pixels, is_picture, is_table

Axes = Literal["", "hw", "hwc", "chw", "nhw", "nhwc", "nchw"]
IMAGE_NAMES = "image images img imgs data x pixels cutout cutouts picture pictures array"
MAX_CHANNELS = 32  # most channels assumed when axes are guessed
MAX_CHANNEL_STACK = 20  # longest stack that may be channels of one image
MAX_LISTED_FILES = 10  # unreadable files listed in a message
MAX_THREADS = min(8, os.cpu_count() or 1)
MAX_PICTURES_PER_TASK = 16  # of a thread
ROWS_CHECKED_AT_ONCE = 1024  # images of an array read at a time to check it
Result = TypeVar("Result")


@dataclass(frozen=True)
class ReadOptions:
    """Keys of the section `data` for reading files.

    wanted  header keywords to read
    deep    whether to decode every picture
    beside  column of texts, in lists of a JSON table or in files beside the pictures
    """

    image: str = ""
    label: str = ""
    axes: Axes = ""
    pixels: int = 1 << 26
    deep: bool = False
    wanted: tuple[str, ...] = ()
    channels: int | None = None
    beside: str = ""
    alone: bool = False
    """Whether each array file has a single image (default: no). If so, a short stack of planes is read as the
    channels of the image."""


class BadFiles(list[tuple[str, UserError]]):
    """Names and errors of unreadable files."""

    def reasons(self) -> list[str]:
        """Lines with the name and the error of the first unreadable files."""
        return [f"{name}: {error.message.removeprefix(f'{name} ')}" for name, error in self[:MAX_LISTED_FILES]]

    def notes(self) -> list[str]:
        more = len(self) - MAX_LISTED_FILES
        rest = [f"left out {more:,} more unreadable files."] if more > 0 else []
        return [f"left out {reason.rstrip('.')}." for reason in self.reasons()] + rest

    def error(self, total: int, training: bool = True) -> UserError:
        """Error with a list of the unreadable files; for a single file, its own error."""
        if len(self) == 1:
            ((_, error),) = self
            hint = "Or skip unreadable files: --data.bad_files skip" if training else "Or predict without this file."
            return error.with_fields(hint=f"{error.hint} {hint if total > 1 else ''}".strip())
        more = [f"and {len(self) - MAX_LISTED_FILES:,} more"] if len(self) > MAX_LISTED_FILES else []
        shown = "".join(f"\n  {line}" for line in self.reasons() + more)
        count = f"{len(self):,} of {total:,}" if len(self) < total else f"{total:,}"
        hint = "Remove or replace them."
        hint += " Or skip them: --data.bad_files skip" if training else " Or predict without them."
        return UserError(f"{count} images cannot be read:{shown}", hint=hint)


@dataclass(frozen=True, eq=False, kw_only=True)
class ImageSet(Scan):
    """Set of images with known shapes: files with one image each, or an array file.

    shapes    (n, 3) height, width and channels of each image
    dtype     type of the pixels
    groups    (n,) hash of each image; duplicates have equal hashes
    paths     file of each image; empty for an array
    bytes     size of each file
    cube      file, name and axes of the array
    origin    array files and tables, for the fingerprint of the data
    """

    shapes: Array
    dtype: np.dtype[Any]
    groups: Array
    options: ReadOptions
    paths: list[str] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    cube: tuple[ArrayFile, str, str] | None = None
    notes: list[str] = field(default_factory=list)
    origin: list[Path] = field(default_factory=list)

    @classmethod
    def of(cls, path: Path, columns: dict[str, Array], shapes: Array, **more: Any) -> ImageSet:
        """Make an image set of all given images."""
        rows = np.arange(len(shapes))
        return cls(path, "", len(rows), rows, rows, dict(columns), shapes=shapes, **more)

    @property
    def single(self) -> bool:
        """Whether the array is a single image, without an axis of images."""
        return self.cube is not None and "n" not in self.cube[2]

    def with_values_of(self, names: Sequence[str]) -> ImageSet:
        """Drop images without a value in one of the columns `names`."""
        missing = {name: is_missing(self.columns[name][:]) for name in names}
        counts = Counts({name: int(lacking.sum()) for name, lacking in missing.items() if lacking.any()})
        if not counts:
            return self
        kept = np.flatnonzero(~np.any(list(missing.values()), 0))
        columns: dict[str, Array | Words] = {name: column[kept] for name, column in self.columns.items()}
        return replace(self, kept=kept, columns=columns, counts=counts)

    @property
    def texts_beside(self) -> list[str]:
        """Texts from files beside the pictures, for the fingerprint of the data."""
        texts = [""] * self.rows
        if not self.origin and self.options.beside in self.columns:
            for row, text in zip(self.kept.tolist(), self.columns[self.options.beside][:]):
                texts[row] = str(text)
        return texts

    def column(self, name: str, rows: Array) -> Array:
        """Values of a column in some rows; the column `file` has the file names."""
        if name != "file":
            return self.columns[name][np.searchsorted(self.kept, rows)]
        return np.array([self.paths[row] for row in rows.tolist()] if self.paths else [str(self.path)] * len(rows))

    def read(self, rows: Array, fit: Resizer) -> Iterator[Array | UserError]:
        """Image (height, width, channels) of each row, or the error of reading it."""
        if self.cube is None:

            def pixels(path: Path) -> Array:
                if is_picture(path):
                    return decode.decode_image(path, self.options.pixels, fit)
                return next(_single_image(path, self.options)._read_array(np.zeros(1, np.int64), fit))

            return map_files(pixels, [Path(self.paths[row]) for row in rows])
        return self._read_array(rows, fit)

    def _read_array(self, rows: Array, fit: Resizer) -> Iterator[Array]:
        assert self.cube is not None
        file, array, axes = self.cube
        order = np.argsort(rows, kind="stable")
        found = file.get(array)[None] if self.single else file.get(array, rows[order])
        for row in np.argsort(order, kind="stable"):
            image = found[row]
            if "c" not in axes:
                image = image[..., None]
            elif axes.endswith("chw"):
                image = np.moveaxis(image, -3, -1)
            yield fit(np.ascontiguousarray(image.astype(self.dtype, copy=False)))


def map_files(make: Callable[[Path], Result], paths: Sequence[Path]) -> Iterator[Result | UserError]:
    """Result of `make` for each file, or its error; pictures are opened in threads."""

    def attempt(path: Path) -> Result | UserError:
        try:
            return make(path)
        except UserError as error:
            return error
        except OSError as error:
            return UserError(f"{path} cannot be read: {error.strerror or error}", file=path)

    if len(paths) < 2 or MAX_THREADS < 2 or not all(map(is_picture, paths)):
        yield from map(attempt, paths)
        return
    # A small picture decodes faster than threads hand it over, so each task has several.
    size = min(MAX_PICTURES_PER_TASK, -(-len(paths) // (4 * MAX_THREADS)))
    tasks = [paths[begin : begin + size] for begin in range(0, len(paths), size)]
    with ThreadPoolExecutor(MAX_THREADS) as pool:
        for results in pool.map(lambda some: [attempt(path) for path in some], tasks):
            yield from results


def common_dtype(kinds: Mapping[str, object]) -> np.dtype[Any]:
    """Common dtype of pixels; `kinds` maps each dtype to an example file."""
    found = [np.dtype(kind) for kind in kinds]
    if len({kind.kind for kind in found}) > 1 or (found[0].kind != "f" and len(found) > 1):
        words = ", ".join(f"{kind} in {path}" for kind, path in zip(found, kinds.values()))
        hint = "Save all images with the same type: 8 and 16 bits differ in scale."
        raise UserError(f"images have different types of pixels: {words}", hint=hint)
    return np.result_type(*found)


def is_missing(column: Array) -> Array:
    """Mask of missing entries: empty strings, NaN and infinite values."""
    if column.dtype.kind == "f":
        return ~np.isfinite(column)
    return column == "" if column.dtype.kind == "U" else np.zeros(len(column), bool)


# Sets from files


def gather_image_sets(entries: Sequence[ImageFile], options: ReadOptions, bad: BadFiles) -> list[tuple[str, ImageSet]]:
    """Group files into image sets, as (part, set); add unreadable files to `bad`."""
    arrays = sum(not is_table(entry.path) and not is_picture(entry.path) for entry in entries)
    options = replace(options, alone=arrays > 1)
    made: list[tuple[str, ImageSet]] = []
    run: list[ImageFile] = []  # consecutive files with one image each
    for entry in entries:
        found: list[tuple[str, ImageSet]] = []
        if is_table(entry.path):
            found = [("", _table_set(entry.path, options, bad))]
        elif not is_picture(entry.path):
            if "labels" in entry.path.name and "ubyte" in entry.path.name:  # read together with its images
                continue
            (opened,) = map_files(partial(_array_sets, options=options), [entry.path])
            if isinstance(opened, UserError):
                bad.append((str(entry.path), opened))
                continue
            found = opened
        if run and (found or run[-1].part != entry.part):
            made.append((run[0].part, _run_set(run, options, bad)))
            run = []
        for part, one in found:
            if entry.tag:
                one.columns["label"] = np.full(one.rows, entry.tag)
            made.append((part or entry.part, one))
        if not found:
            run.append(entry)
    return [*made, (run[0].part, _run_set(run, options, bad))] if run else made


def _run_set(entries: Sequence[ImageFile], options: ReadOptions, bad: BadFiles) -> ImageSet:
    columns: dict[str, Array] = {}
    if any(entry.tag for entry in entries):
        columns["label"] = np.array([entry.tag for entry in entries])
        bare = next((entry.path for entry in entries if not entry.tag), None)
        if bare is not None:
            message = f"{bare} has no class, but other images have one"
            hint = "Put the image into the folder of its class, or name it as CLASS:FILE."
            raise UserError(message, hint=hint, file=bare)
    paths = [entry.path for entry in entries]
    if options.beside:
        texts = [listing.captions_beside(path) or [""] for path in paths]
        if any(some != [""] for some in texts):
            rows = np.repeat(np.arange(len(paths)), [len(some) for some in texts])
            columns = {name: column[rows] for name, column in columns.items()}
            columns[options.beside] = np.array([text for some in texts for text in some])
            paths = [paths[row] for row in rows.tolist()]
    return _file_set(paths[0], paths, columns, options, bad)


def _table_set(path: Path, options: ReadOptions, bad: BadFiles) -> ImageSet:
    paths, columns = listing.read_image_table(path, options.image, options.label, options.beside)
    made = _file_set(path, paths, columns, replace(options, image="", label=""), bad)
    made.origin.append(path)
    return made


def _file_set(
    path: Path, paths: Sequence[Path], columns: dict[str, Array], options: ReadOptions, bad: BadFiles
) -> ImageSet:
    """Make an image set from the headers of files with one image each."""
    found = list(map_files(partial(_header, options=options), paths))
    bad.extend((str(path), error) for path, error in zip(paths, found) if isinstance(error, UserError))
    looks = {number: look for number, look in enumerate(found) if not isinstance(look, UserError)}
    kept, headers = list(looks), list(looks.values())
    columns = {name: column[np.array(kept, np.int64)] for name, column in columns.items()}
    cards = [look.cards or {} for look in headers]
    known = [card for card in (cards[0] if cards else {}) if all(card in one for one in cards)]
    columns |= {card: np.array([one[card] for one in cards]) for card in known if card not in columns}
    kinds = {look.dtype: paths[row] for row, look in reversed(looks.items())}
    reduced, animated = (sum(getattr(look, name) for look in headers) for name in ("reduced", "animated"))
    notes = [f"{reduced:,} pictures have 16 bits for each colour; Pillow reads only 8."] if reduced else []
    notes += [f"{animated:,} pictures are animations; only their first frame is read."] if animated else []
    return ImageSet.of(
        path,
        columns,
        np.array([look[:3] for look in headers], np.int32).reshape(-1, 3),
        dtype=common_dtype(kinds) if kinds else np.dtype("uint8"),
        groups=np.array([look.digest for look in headers], np.int64),
        options=options,
        paths=[str(paths[row]) for row in kept],
        bytes=[look.size for look in headers],
        notes=notes,
    )


def _header(path: Path, options: ReadOptions) -> ImageHeader:
    if is_picture(path):
        return decode.read_header(path, options.pixels, options.deep)
    one = _single_image(path, options)
    assert one.cube is not None
    if options.deep:
        one.cube[0].get(one.cube[1])
    height, width, channels = one.shapes[0].tolist()
    cards = {name: column[0] for name, column in one.columns.items()}
    with path.open("rb") as file:
        size = path.stat().st_size
        digest = decode.file_digest(file, size)
    return ImageHeader(height, width, channels, one.dtype.str, size, digest, cards=cards)


def _single_image(path: Path, options: ReadOptions) -> ImageSet:
    ((_, found),) = find_image_arrays(open_arrays(path), replace(options, alone=True))
    if not found.single:
        raise UserError(f"{path} has {found.rows:,} images, but files in a list must have a single image", file=path)
    return found


def _array_sets(path: Path, options: ReadOptions) -> list[tuple[str, ImageSet]]:
    """Image sets of an array file; an empty list if the file has a single image."""
    file = open_arrays(path)
    made = find_image_arrays(file, options)
    if any(one.single for _, one in made):
        if isinstance(path, MemoryFile):
            message = f"{path} is a single image, not an array (n, height, width) or (n, height, width, channels)"
            raise UserError(message, hint="Write array[None] for a single image. For other axes set --data.axes.")
        return []
    for _, one in made:
        assert one.cube is not None
        _attach_idx_labels(path, one)
        for start in range(0, one.rows if options.deep else 0, ROWS_CHECKED_AT_ONCE):
            file.get(one.cube[1], np.arange(start, min(start + ROWS_CHECKED_AT_ONCE, one.rows)))
    return made


def _attach_idx_labels(path: Path, images: ImageSet) -> None:
    named = path.name.replace("images", "labels").replace("idx3", "idx1")
    for name in (named, f"{named}.gz", named.removesuffix(".gz")) if "ubyte" in path.name else ():
        if name != path.name and (other := path.with_name(name)).exists():
            labels = open_arrays(other).get("array")
            if labels.shape != (images.rows,):
                message = f"{other} has labels of shape {labels.shape}, but {path.name} has {images.rows:,} images"
                raise UserError(message, file=other)
            images.columns["label"] = labels.astype(np.int64)
            images.origin.append(other)
            return


# Images among the arrays of a file


def find_image_arrays(file: ArrayFile, options: ReadOptions) -> list[tuple[str, ImageSet]]:
    """Find the arrays of images in a file, and the part of each array.

    The part (train, valid or test) is taken from the array name, such as `x_train`; it is empty if no name has a part.
    """
    if options.image:
        known = {name.lower(): name for name in reversed(file.arrays)}
        if options.image.lower() not in known:
            message = f"{file.path} has no array `{options.image}` (data.image)"
            raise UserError(message, hint=nearest(options.image, file.arrays), key="data.image", file=file.path)
        return [("", _array_set(file, known[options.image.lower()], options))]
    shaped = [
        name
        for name, (shape, dtype) in file.arrays.items()
        if (dtype.kind in "biuf" and (len(shape) in (3, 4) or (len(shape) == 2 and min(shape) > 1)))
        or (isinstance(file.path, MemoryFile) and _has_pixels(file, name))
    ]
    if not shaped:
        listed = ", ".join(f"`{name}` {stored.dtype} {stored.shape}" for name, stored in file.arrays.items())
        message = f"{file.path} has no array of images (n, height, width); it has {listed or 'no arrays'}"
        raise UserError(message, file=file.path)
    told = {name: part for name in shaped if (part := part_of(name))}
    if "train" in told.values() and len(set(told.values())) == len(told) > 1:
        return [(part, _array_set(file, name, options)) for name, part in told.items()]
    usual = [name for word in IMAGE_NAMES.split() for name in shaped if name.rpartition("/")[2].lower() == word]
    if not usual and len(shaped) > 1 and file.form != "FITS":
        words = ", ".join(f"`{name}` {file.arrays[name].shape}" for name in shaped[:8])
        message, hint = f"{file.path} has several arrays of images: {words}", "Choose an array: --data.image NAME"
        raise UserError(message, hint=hint, key="data.image", file=file.path)
    return [("", _array_set(file, (usual or shaped)[0], options))]


def _array_set(file: ArrayFile, name: str, options: ReadOptions) -> ImageSet:
    shape, dtype = file.arrays[name]
    if dtype.kind == "O":
        return _varying_set(file, name, options)
    axes = options.axes or guess_axes(shape)
    stack = not options.axes and axes == "nhw" and shape[0] <= MAX_CHANNEL_STACK
    each = any(stored.shape in (shape[:1], (shape[0], 1)) for stored in file.arrays.values())
    known = options.alone or 1 < shape[0] == options.channels
    if known and stack and not each and shape[0] < min(shape[1:]) and file.form != "idx":
        axes = "chw"
    what, sides = f"`{name}` of {file.path}", dict(zip(axes, shape))
    if len(axes) != len(shape):
        message = f"the axes {axes} (data.axes) do not match {what}, which has the shape {shape}"
        raise UserError(message, key="data.axes", file=file.path)
    columns = _array_columns(file, name, axes, options)
    if axes == "hw" and any(len(stored.shape) == 1 and stored.shape[0] == shape[0] for stored in file.arrays.values()):
        hint = "Reshape the array to (n, height, width)."
        raise UserError(f"{what} has flattened images: its shape is {shape}", hint=hint, file=file.path)
    count, height, width = sides.get("n", 1), sides["h"], sides["w"]
    if not min(height, width, sides.get("c", 1)):
        raise UserError(f"{what} has no pixels: its shape is {shape}", file=file.path)
    if height * width > options.pixels:
        most = f"the {options.pixels:,} pixels of data.pixels"
        message = f"images of {file.path} have {height:,} x {width:,} pixels, more than {most}"
        raise UserError(message, key="data.pixels", file=file.path)
    notes = []
    if "n" in axes:
        notes += _unread_label_notes(file, count) if "label" not in columns else []
        if stack and axes == "nhw" and not columns:
            said = f"{shape[0]} images of {height} x {width}; if these are channels of one image: --data.axes chw"
            notes.append(f"{file.path} has {said}")
        columns = {"entry": np.arange(count), **columns}
    return ImageSet.of(
        file.path,
        columns,
        np.tile(np.array([(height, width, sides.get("c", 1))], np.int32), (count, 1)),
        dtype=np.dtype("uint8") if dtype.kind == "b" else dtype.newbyteorder("="),
        groups=(mix(key(str(file.path), name) ^ mix(np.arange(count))) >> np.uint64(1)).astype(np.int64),
        options=options,
        cube=(file, name, axes),
        notes=notes,
        origin=[file.path],
    )


def _varying_set(file: ArrayFile, name: str, options: ReadOptions) -> ImageSet:
    """Image set from a table in memory with images of different shapes."""
    images = file.get(name)
    what = f"`{name}` of {file.path}"
    if not isinstance(images[0], np.ndarray):
        raise UserError(f"{what} must have an array for each image", key="data.image")
    channels = images[0].ndim == 3
    axes = (options.axes.removeprefix("n") or ("hwc" if channels else "hw")) if channels else "hw"
    for number, one in enumerate(images):
        if one.ndim != len(axes) or not one.size:
            found = f"the shape {one.shape}" if one.size else "no pixels"
            raise UserError(f"image {number} of {what} must have the axes {axes}, but has {found}", key="data.axes")
    sides = [dict(zip(axes, one.shape)) for one in images]
    for number, side in enumerate(sides):
        if side["h"] * side["w"] > options.pixels:
            most = f"the {options.pixels:,} pixels of data.pixels"
            message = f"image {number} of {what} has {side['h']:,} x {side['w']:,} pixels, more than {most}"
            raise UserError(message, key="data.pixels")
    columns = {"entry": np.arange(len(images)), **_array_columns(file, name, "nhw", options)}
    kinds = {one.dtype.str: f"image {number}" for number, one in reversed(list(enumerate(images)))}
    return ImageSet.of(
        file.path,
        columns,
        np.array([(side["h"], side["w"], side.get("c", 1)) for side in sides], np.int32),
        dtype=np.dtype("uint8") if common_dtype(kinds).kind == "b" else common_dtype(kinds),
        groups=(mix(key(str(file.path), name) ^ mix(np.arange(len(images)))) >> np.uint64(1)).astype(np.int64),
        options=options,
        cube=(file, name, f"n{axes}"),
        origin=[file.path],
    )


def _unread_label_notes(file: ArrayFile, count: int) -> list[str]:
    return [
        f"`{name}` of {file.path} has {shape[0]:,} entries, not {count:,} as the images: it was not read."
        for name, (shape, _) in file.arrays.items()
        if name.rpartition("/")[2].lower() in listing.LABEL_NAMES and len(shape) == 1 and shape[0] != count
    ]


def _has_pixels(file: ArrayFile, name: str) -> bool:
    assert isinstance(file.path, MemoryFile)
    return file.arrays[name].dtype.kind == "O" and has_pixels(file.path.columns[name])


def guess_axes(shape: tuple[int, ...]) -> Axes:
    """Guess the order of the axes from the shape."""
    if len(shape) == 2:
        return "hw"
    if len(shape) == 3:
        return "hwc" if shape[2] in (1, 3, 4) and min(shape[:2]) > 4 else "nhw"
    if len(shape) != 4:
        raise UserError(f"an array of images must have 2 to 4 axes, but its shape is {shape}")
    first = shape[1] <= MAX_CHANNELS and shape[1] < min(shape[2:])
    last = shape[3] <= MAX_CHANNELS and shape[3] < min(shape[1:3])
    return "nchw" if first and not last else "nhwc"


def _array_columns(file: ArrayFile, image: str, axes: Axes, options: ReadOptions) -> dict[str, Array]:
    """Columns of an image array: arrays with an entry per image, and header keywords."""
    if "n" not in axes:
        known = {name.lower(): value for name, value in reversed(file.header.items())}
        made = {name: np.array([known[name.lower()]]) for name in options.wanted if name.lower() in known}
        if options.label:
            one_of(f"data.label, a keyword of {file.path},", options.label.lower(), known, key="data.label")
            made["label"] = np.array([known[options.label.lower()]])
        return made
    count, part = file.arrays[image].shape[0], part_of(image)
    entries = [
        name
        for name, stored in file.arrays.items()
        if stored.shape in ((count,), (count, 1))
        and not (isinstance(file.path, MemoryFile) and _has_pixels(file, name))
    ]
    mine = {name: name for name in entries if not part or part_of(name) == part}
    if part:
        mine = {without_part(name): name for name in mine}
    read = file.get_all(list(mine.values()))
    made = {new.rpartition("/")[2]: read[old].reshape(count) for new, old in mine.items()}
    label = listing.find_label_column(made, options.label, f"an array of {file.path}")
    if label and label != "label":
        made["label"] = made.pop(label)
    return made
