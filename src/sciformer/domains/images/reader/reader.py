"""Reader of images: pictures in folders, tables of picture files, and arrays."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from ....data.columns import Array, Lists, Table
from ....data.fileset import LABEL, Counts, FileSet, known_columns, note_overlaps
from ....data.source import STANDARD_PARTS, Source, Splits, fingerprint_files
from ....data.split import Split
from ....errors import UserError, nearest
from .arrays import open_arrays
from .decode import Resizer
from .listing import is_picture, list_image_files
from .pieces import ImageChunks, ImageFormat
from .sets import Axes, BadFiles, ImageSet, ReadOptions, gather_image_sets

IMAGE = "image"
Side = Annotated[int, Field(ge=1, le=1 << 16)]
LABEL_HINT = (
    "Classes come from folders (FOLDER/CLASS/*.png), from a name before the files (CLASS:FILES), from a table of "
    "images (CSV or Parquet), or from an array or header keyword (--data.label NAME)."
)
TEXTS_HINT = (
    "Texts come from a column of a table of images (CSV, JSON lines or Parquet), or from a text file beside each "
    "picture: name.txt for name.png."
)


class ImageFiles(FileSet):
    """Images from pictures, tables of picture files and array files.

    Columns: `image`; `label`, the class, if known; `file`, the file name; `entry`, the row in an array. All other
    columns of tables and arrays keep their names.

    Pictures (PNG, JPEG, TIFF, BMP, PPM, GIF, WebP) are decoded with Pillow. The EXIF orientation is applied, palettes
    become colours, transparency is dropped. Grey pictures keep 16 bits; colour pictures are read with 8 bits. Grey TIFF
    pages of one size become channels; otherwise only the first page is read. Only the first frame of an animation is
    read. Tables (CSV, TSV, JSON lines, Parquet) have a column `path` or `file` with file names relative to the table.
    Captions are also read from text files beside the pictures: `photo.txt` belongs to `photo.png`. Each line of the
    text file makes a sample. In a table, a caption may be a list in JSON; each entry of the list makes a sample. Images
    with a missing or empty caption are left out.
    Arrays are read from NPY, NPZ, HDF5, FITS and the idx files of MNIST, with the labels stored beside them.

    Pixels are read in chunks; before the training only headers are read. Identical images are kept in the same part.
    """

    unit: ClassVar[str] = "image"
    column_keys: ClassVar[tuple[str, ...]] = ("image", "label")

    files: list[str] = Field(default_factory=list)
    """Training files: names, globs or folders. Subfolders are classes, except train, valid (or val) and test: these are
    parts. The same words mark parts in names of idx files and arrays (x_train, x_test). A name before a colon sets the
    class of all its images: [spiral:spirals/*.png, other:others]."""
    valid: list[str] = Field(default_factory=list)
    """Validation files, to choose the best checkpoint (default: a share of the training files, see `split`)."""
    test: list[str] = Field(default_factory=list)
    """Test files, for the final evaluation (default: a share of the training files, see `split`)."""
    image: str = ""
    """Name of the images: array of an NPZ file, dataset of an HDF5 file, extension or column of a FITS file, or the
    column of a table with file names (default: a usual name like `image` or `path`)."""
    label: str = ""
    """Name of the class: array, column of a table or keyword of a FITS header (default: a usual name like `label`)."""
    axes: Axes = ""
    """Order of the axes of arrays: n images, h height, w width, c channels (default: guessed from the shape). A short
    stack of planes is read as the channels of one image if there are several files, or if its length is `channels`."""
    meta: list[str] = Field(default_factory=list)
    """Keywords of FITS headers to copy to the predictions (default: none). Targets are always read."""
    size: Side | tuple[Side, Side] | None = None
    """Image size in pixels (default: no resizing): the side of a square, or (height, width). Images are scaled to fill
    this area and cropped around the centre."""
    channels: int | None = Field(default=None, ge=1, le=4096)
    """Number of channels: 1 converts colour to grey, 3 repeats grey (default: as stored; if mixed, colour)."""
    pixels: int = Field(default=1 << 26, ge=1, le=178_956_970)
    """Largest number of pixels of an image; larger images are refused before decoding (default: 67,108,864)."""
    blank: float | None = None
    """Value that replaces non-finite pixels (default: none; non-finite pixels are an error). If set, all images are
    read once before the training to count these pixels."""
    labels_per_class: int | None = Field(default=None, ge=1)
    """Training images per class, drawn with split.seed (default: all). A larger number includes all images drawn for a
    smaller number."""
    bad_files: Literal["stop", "skip"] = "stop"
    """Treatment of unreadable files (default: stop). `stop`: raise an error. `skip`: decode all files before the
    training, and leave out the unreadable files with a note."""
    chunk_size: int | None = Field(default=None, ge=16)  # type: ignore[assignment]
    """Images read at a time (default: 64 MiB of pixels). A training keeps several chunks in memory."""

    def open(self, log: Any = None) -> Splits:
        found = super().open(log)
        if self.blank is not None:
            counts = [source.blanks() for source in found.sources.values() if isinstance(source, ImageChunks)]
            pixels, images = (sum(some) for some in zip(*counts))
            said = f"{pixels:,} pixels in {images:,} images are not finite: replaced by {self.blank:g} (data.blank)."
            found.notes.extend([said] if pixels else [])
        return found

    def aligned(self, files: Sequence[str | Path]) -> Source:
        return self.read(files)

    def with_empty(self, files: Sequence[str | Path]) -> Source:
        return self.read(files)

    def with_gaps(self, table: Table, rows: Array) -> Table:
        """Rows of a table; row -1 is a missing image without pixels, of shape (0, 0)."""
        gaps, image = rows < 0, table["image"]
        if not isinstance(image, Lists):
            count, shape = len(image), image.shape[1:3]
            shapes, pixels = np.tile(np.array(shape, np.int32), (count, 1)), np.prod(shape, dtype=np.int64)
            image = Lists(image.reshape(count * pixels, -1), np.full(count, pixels))
        else:
            shapes = np.asarray(table["image_shape"])
        others = {name: column for name, column in table.items() if name not in ("image", "image_shape")}
        found = np.zeros((len(rows), 2), np.int32)
        found[~gaps] = shapes[rows[~gaps]]
        return {**super().with_gaps({"image": image, **others}, rows), "image_shape": found}

    def plan(self, training: bool) -> ReadOptions:
        wanted = (*self.state.get("truth", ()), *self.meta, self.split.by, self.split.stratify)
        words, deep = tuple(filter(None, wanted)), self.bad_files == "skip"
        beside = next(iter(self._further), "")
        return ReadOptions(self.image, self.label, self.axes, self.pixels, deep, words, self.channels, beside)

    @property
    def _further(self) -> list[str]:
        """Columns for the tokens besides the images, such as captions."""
        return [name for name in self.state.get("names", ()) if name not in (IMAGE, LABEL)]

    def scan(self, plan: ReadOptions, log: Any, notes: list[str]) -> dict[str, list[ImageSet]]:  # type: ignore[override]
        """Find the images of each part: by recipe key, folder name or array name."""
        given = self.named()
        sets: dict[str, list[ImageSet]] = {}
        for part, names in given.items():
            made = self._gather(plan, names, notes, part, log)
            told = {own for own, _ in made} - {""}
            for own, one in made:
                if part == "train" and "train" in told:
                    sets.setdefault(own or "train", []).append(one)
                elif part == "train" or part not in told or own == part:
                    sets.setdefault(part, []).append(one)
            if both := [other for other in STANDARD_PARTS[1:] if part == "train" and other in sets and other in given]:
                message = f"the part {both[0]} is defined twice: by data.{both[0]} and in data.files"
                raise UserError(message, key=f"data.{both[0]}")
        truth = [*self.state.get("truth", ()), *self._further]
        for part, some in sets.items():
            for name in truth:
                _require_column(name, some, [*notes, *([TEXTS_HINT] if name in self._further else [])])
            sets[part] = [one.with_values_of(truth) for one in some]
            self._note_counts(sets[part], notes, f" for {part}", "" if part == "train" else f" of {part}")
        return sets

    def scan_others(self, plan: ReadOptions, files: Sequence[str | Path], notes: list[str]) -> list[ImageSet]:  # type: ignore[override]
        sets = [one for _, one in self._gather(plan, files, notes)]
        known = [[name for name in self._further if name in one.columns] for one in sets]
        return [one.with_values_of(names) for one, names in zip(sets, known)]

    def describe_counts(self, counts: Counts, total: int, kept: int, whose: str) -> list[str]:
        return [f"{count:,} of {total:,} images{whose} have no `{name}`: left out." for name, count in counts.items()]

    def agree(self, plan: ReadOptions, scans: Sequence[Any], notes: list[str], training: bool) -> ImageFormat:
        """Determine the common size, channels and dtype of all images."""
        sides = (self.size, self.size) if isinstance(self.size, int) else self.size
        form = ImageFormat(scans, Resizer(sides, self.channels), notes, self.chunk_size, self.blank)
        notes += dict.fromkeys(note for one in scans for note in one.notes)
        return form

    def groups(self, scans: Sequence[Any], split: Split, notes: list[str]) -> tuple[Array | None, Array | None]:
        """Groups of identical images; all images of a group go to the same part."""
        for name in filter(None, (split.by, split.stratify, LABEL if self.labels_per_class else "")):
            _require_column(name, scans)
        by, strata = super().groups(scans, split, notes)
        same = _digests(scans)
        if by is None and (again := len(same) - len(np.unique(same))):
            said = f"{again:,} of {len(same):,} images are duplicates: they stay in the same part"
            notes.append(f"{said}{_conflicting_class_note(scans, same)}.")
            by = same
        return by, strata

    def overlaps(self, scans: Mapping[str, Sequence[Any]]) -> list[str]:
        return note_overlaps({part: _digests(some) for part, some in scans.items()}, "images")

    def fingerprint(self, scans: Sequence[Any]) -> dict[str, str]:
        """Fingerprint of each table and array file, and of all pictures together."""
        found = fingerprint_files([path for one in scans for path in one.origin])
        pictures = sorted(
            row for one in scans for row in zip(one.paths, one.bytes, one.groups.tolist(), one.texts_beside)
        )
        if pictures:
            folders = {os.path.dirname(path) for path, *_ in pictures}
            top = os.path.commonpath([os.path.realpath(folder) for folder in folders])
            hashed = hashlib.sha256()
            for path, size, digest, text in pictures:
                hashed.update(f"{os.path.relpath(path, top)} {size} {digest}\n{text}".encode())
            total = sum(size for _, size, *_ in pictures)
            found[top] = f"{len(pictures):,} pictures, {total:,} bytes, {hashed.hexdigest()[:16]}"
        return found

    def small_files(self, scans: Sequence[Any]) -> list[Path]:
        return list(dict.fromkeys(Path(path) for one in scans for path in one.paths))

    def pieces(self, plan: ImageFormat, parts: Sequence[Any], mixed: bool = True, notes: Sequence[str] = ()) -> Any:
        return ImageChunks(parts, plan, mixed, list(notes))

    def slow(self, source: Any, scans: Sequence[Any], drawn: Sequence[str]) -> list[str]:
        return []

    def _gather(
        self, plan: ReadOptions, names: Sequence[str | Path], notes: list[str], part: str = "", log: Any = None
    ) -> list[tuple[str, ImageSet]]:
        """Find the images in files.

        Unreadable files are an error or are left out, as the key `bad_files` says.
        """
        listed: list[str] = []
        entries = list_image_files(names, listed)
        if log is not None and len(entries) > 1000:
            log(f"reading the headers of {len(entries):,} image files")
        bad = BadFiles()
        made = gather_image_sets(entries, plan, bad)
        if bad and self.bad_files == "stop":
            raise bad.error(sum(one.rows for _, one in made) + len(bad), training=bool(part))
        notes += bad.notes()
        made = [(part, one) for part, one in made if one.rows]
        if not made:
            whose = {"": "the files", "train": "data.files"}.get(part, f"data.{part}")
            raise UserError(f"no image in {whose} can be read", hint=" ".join(notes[:4]))
        notes += listed
        return made


def _digests(sets: Sequence[ImageSet]) -> Array:
    """Hash of every used image; equal for duplicates."""
    return np.concatenate([one.groups[one.kept] for one in sets])


def _conflicting_class_note(train: Sequence[ImageSet], same: Array) -> str:
    if not all(LABEL in one.columns for one in train):
        return ""
    _, label = np.unique(known_columns(train, LABEL), return_inverse=True)
    pairs = np.unique(np.stack([same, label.astype(same.dtype)]), axis=1)
    count = pairs.shape[1] - len(np.unique(pairs[0]))
    return f", but {count:,} of them have different classes" if count else ""


def _require_column(name: str, sets: Sequence[ImageSet], notes: Sequence[str] = ()) -> None:
    for one in sets:
        if name not in one.columns:
            known = [*one.columns]
            if one.paths and not is_picture(first := Path(one.paths[0])):
                known += open_arrays(first).header
            hint = " ".join([*notes, *one.notes, *([LABEL_HINT] if name == "label" else [nearest(name, known)])])
            raise UserError(f"the images of {one.path} have no column `{name}`", hint=hint, file=one.path)
