"""Images in files: pictures in folders, tables of pictures, and arrays of images."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from ....data.columns import Array
from ....data.fileset import LABEL, Counts, FileSet, known_columns, note_overlaps
from ....data.source import STANDARD_PARTS, Source, Splits, fingerprint_files
from ....data.split import Split
from ....errors import UserError, nearest
from .arrays import open_arrays
from .decode import Resizer
from .listing import is_picture, list_image_files
from .pieces import ImageChunks, ImageFormat
from .sets import Axes, BadFiles, ImageSet, ReadOptions, gather_image_sets

LABEL_HINT = (
    "Classes are told by folders, FOLDER/CLASS/*.png; by a name before files, CLASS:NAME; by a table of images, CSV or "
    "Parquet; or by an array or a keyword: --data.label NAME"
)


class ImageFiles(FileSet):
    """Images, in a column `image`; their classes, if known, in `label`; their names in `file`, with the number in
    an array in `entry`; others as named.

    PNG, JPEG, TIFF, BMP, PPM and WebP through Pillow: turned as their EXIF says, palettes as colours, transparency
    left out; 16 bits of grey stay, of 16 bits for each colour 8 are read. Pages of a TIFF that are alike and grey are
    channels, of others the first is read. Tables (CSV, TSV, JSON lines, Parquet) with a column `path` or `file`,
    relative to the table. Arrays in NPY, NPZ, HDF5 and FITS, and the idx files of MNIST, with labels beside them.

    Pixels are read piece by piece; before the training headers alone are looked at. Images that are the same stay in
    one part.
    """

    unit: ClassVar[str] = "image"

    files: list[str] = Field(default_factory=list)
    """Training files: names, globs or folders. Subfolders are classes, except train, valid (or val) and test, which are
    parts. These names also mark parts in names of idx files and of arrays (x_train, x_test). CLASS:NAME gives all
    images of a file the class CLASS: [spiral:spirals/*.png, other:others]."""
    valid: list[str] = Field(default_factory=list)
    """Validation files, written like `files` (default: the part found in `files`, else see `split`)."""
    test: list[str] = Field(default_factory=list)
    """Test files, written like `files` (default: the part found in `files`, else see `split`)."""
    image: str = ""
    """Array, dataset, FITS extension or FITS column of the images, or table column of their file names (default: an
    array or column with a usual name)."""
    label: str = ""
    """Array, table column or FITS header keyword of the class (default: an array or column with a usual name)."""
    axes: Axes = ""
    """Order of the axes of arrays: n images, h height, w width, c channels (default: guessed from their lengths). A few
    planes, or as many as `channels`, in one of several files are the channels of one image."""
    meta: list[str] = Field(default_factory=list)
    """FITS header keywords to copy to the predictions (default: none). Keywords used by the objective are always
    read."""
    size: int | tuple[int, int] | None = None
    """Image size: side of a square, or (height, width) (default: unchanged). Images are scaled to cover it and cropped
    about their centre."""
    channels: int | None = Field(default=None, ge=1)
    """Number of channels: 1 converts colour to grey, 3 repeats grey (default: unchanged; grey images among colour
    images become colour)."""
    pixels: int = Field(default=1 << 26, ge=1, le=178_956_970)
    """Maximum number of pixels of an image (default: 2^26). An image whose header claims more is refused before it is
    decompressed."""
    blank: float | None = None
    """Value that replaces non-finite pixels (default: none, such pixels are refused). With a value, all images are read
    before the training and these pixels are counted."""
    labels_per_class: int | None = Field(default=None, ge=1)
    """Number of training images per class (default: all). They are drawn with split.seed; a larger number contains the
    images of a smaller one."""
    bad_files: Literal["stop", "skip"] = "stop"
    """Files that cannot be read: stop refuses them, skip reads all files before the training and leaves bad files out
    with a note (default: stop)."""
    chunk_size: int | None = Field(default=None, ge=16)  # type: ignore[assignment]
    """Number of images read at a time (default: 64 MiB of pixels). A training keeps several chunks in memory."""

    def open(self, log: Any = None) -> Splits:
        found = super().open(log)
        if self.blank is not None:
            counts = [source.blanks() for source in found.sources.values() if isinstance(source, ImageChunks)]
            pixels, images = (sum(some) for some in zip(*counts))
            said = f"{pixels:,} pixels in {images:,} images are not finite: read as {self.blank:g} (data.blank)."
            found.notes.extend([said] if pixels else [])
        return found

    def aligned(self, files: Sequence[str | Path]) -> Source:
        return self.read(files)

    def plan(self, training: bool) -> ReadOptions:
        wanted = (*self.state.get("truth", ()), *self.meta, self.split.by, self.split.stratify)
        words, deep = tuple(filter(None, wanted)), self.bad_files == "skip"
        return ReadOptions(self.image, self.label, self.axes, self.pixels, deep, words, self.channels)

    def scan(self, plan: ReadOptions, log: Any, notes: list[str]) -> dict[str, list[ImageSet]]:  # type: ignore[override]
        """The images of each part; parts are told by keys, by folders and by names of arrays."""
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
                message = f"the part {both[0]} is given by data.{both[0]} and by data.files too"
                raise UserError(message, key=f"data.{both[0]}")
        truth = self.state.get("truth", ())
        for part, some in sets.items():
            for name in truth:
                _require_column(name, some, notes)
            sets[part] = [one.with_values_of(truth) for one in some]
            self._tell(sets[part], notes, f" for {part}", "" if part == "train" else f" of {part}")
        return sets

    def scan_others(self, plan: ReadOptions, files: Sequence[str | Path], notes: list[str]) -> list[ImageSet]:  # type: ignore[override]
        return [one for _, one in self._gather(plan, files, notes)]

    def describe_counts(self, counts: Counts, total: int, kept: int, whose: str) -> list[str]:
        return [f"{count:,} of {total:,} images{whose} have no `{name}`: left out." for name, count in counts.items()]

    def agree(self, plan: ReadOptions, scans: Sequence[Any], notes: list[str], training: bool) -> ImageFormat:
        """What all images have in common."""
        sides = (self.size, self.size) if isinstance(self.size, int) else self.size
        if sides is not None and min(sides) < 1:
            raise UserError(f"data.size must be 1 pixel or more, not {self.size}", key="data.size")
        form = ImageFormat(scans, Resizer(sides, self.channels), notes, self.chunk_size, self.blank)
        notes += dict.fromkeys(note for one in scans for note in one.notes)
        return form

    def groups(self, scans: Sequence[Any], split: Split, notes: list[str]) -> tuple[Array | None, Array | None]:
        """Images that are the same are not put in two parts."""
        for name in filter(None, (split.by, split.stratify, LABEL if self.labels_per_class else "")):
            _require_column(name, scans)
        by, strata = super().groups(scans, split, notes)
        same = _digests(scans)
        if by is None and (again := len(same) - len(np.unique(same))):
            said = f"{again:,} of {len(same):,} images are the same as others: these stay in one part"
            notes.append(f"{said}{_conflicting_class_note(scans, same)}.")
            by = same
        return by, strata

    def overlaps(self, scans: Mapping[str, Sequence[Any]]) -> list[str]:
        return note_overlaps({part: _digests(some) for part, some in scans.items()}, "images")

    def fingerprint(self, scans: Sequence[Any]) -> dict[str, str]:
        """Of each table and file of arrays; of all pictures together, by their names, sizes and digests."""
        found = fingerprint_files([path for one in scans for path in one.origin])
        pictures = sorted(row for one in scans for row in zip(one.paths, one.bytes, one.groups.tolist()))
        if pictures:
            folders = {os.path.dirname(path) for path, _, _ in pictures}
            top = os.path.commonpath([os.path.realpath(folder) for folder in folders])
            hashed = hashlib.sha256()
            for path, size, digest in pictures:
                hashed.update(f"{os.path.relpath(path, top)} {size} {digest}\n".encode())
            total = sum(size for _, size, _ in pictures)
            found[top] = f"{len(pictures):,} pictures, {total:,} bytes, {hashed.hexdigest()[:16]}"
        return found

    def pieces(self, plan: ImageFormat, parts: Sequence[Any], mixed: bool = True, notes: Sequence[str] = ()) -> Any:
        return ImageChunks([one for one, _ in parts], [rows for _, rows in parts], plan, mixed, notes)

    def slow(self, source: Any, scans: Sequence[Any], drawn: Sequence[str]) -> list[str]:
        return []

    def _gather(
        self, plan: ReadOptions, names: Sequence[str | Path], notes: list[str], part: str = "", log: Any = None
    ) -> list[tuple[str, ImageSet]]:
        """The images of files; bad ones are refused, or told in the notes."""
        listed: list[str] = []
        entries = list_image_files(names, listed)
        if log is not None and len(entries) > 1000:
            log(f"looking at {len(entries):,} files of images")
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
    """Of every image that is used, a number that is equal for images that are the same."""
    return np.concatenate([one.groups[one.kept] for one in sets])


def _conflicting_class_note(train: Sequence[ImageSet], same: Array) -> str:
    """Words on images that are the same but have several classes."""
    if not all(LABEL in one.columns for one in train):
        return ""
    _, label = np.unique(known_columns(train, LABEL), return_inverse=True)
    pairs = np.unique(np.stack([same, label.astype(same.dtype)]), axis=1)
    count = pairs.shape[1] - len(np.unique(pairs[0]))
    return f", but {count:,} of them have another class" if count else ""


def _require_column(name: str, sets: Sequence[ImageSet], notes: Sequence[str] = ()) -> None:
    for one in sets:
        if name not in one.columns:
            known = [*one.columns]
            if one.paths and not is_picture(first := Path(one.paths[0])):
                known += open_arrays(first).header
            hint = " ".join([*notes, *one.notes, LABEL_HINT]) if name == "label" else nearest(name, known)
            raise UserError(f"the images of {one.path} have no column `{name}`", hint=hint, file=one.path)
