"""Images in files: pictures in folders, tables of pictures, and arrays of images."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from ....data.columns import Array
from ....data.fileset import TaggedFiles, in_files, note_overlaps
from ....data.source import STANDARD_PARTS, Source, Splits, fingerprint, order_parts
from ....data.split import sample_per_class
from ....errors import UserError, nearest
from .arrays import open_arrays
from .decode import Resizer
from .listing import is_picture, list_image_files
from .pieces import ImageChunks, ImageFormat, is_missing
from .sets import Axes, BadFiles, ImageSet, ReadOptions, gather_image_sets

LABEL_HINT = (
    "Classes are told by folders, FOLDER/CLASS/*.png; by a name before files, CLASS:NAME; by a table of images, CSV or "
    "Parquet; or by an array or a keyword: --data.label NAME"
)


class ImageFiles(TaggedFiles):
    """Images, in a column `image`; their classes, if known, in `label`; their names in `file`, with the number in
    an array in `entry`; others as named.

    PNG, JPEG, TIFF, BMP, PPM and WebP through Pillow: turned as their EXIF says, palettes as colours, transparency
    left out; 16 bits of grey stay, of 16 bits for each colour 8 are read. Pages of a TIFF that are alike and grey are
    channels, of others the first is read. Tables (CSV, TSV, JSON lines, Parquet) with a column `path` or `file`,
    relative to the table. Arrays in NPY, NPZ, HDF5 and FITS, and the idx files of MNIST, with labels beside them.

    Pixels are read piece by piece; before the training headers alone are looked at. Images that are the same stay in
    one part.
    """

    files: list[str] = Field(default_factory=list)
    """Names, globs or folders to train on. Folders in a folder are classes; but train, valid (or val) and test are
    parts, and so they are in names of idx files and of arrays (x_train, x_test). A name before a colon is the class of
    all images in the files: [spiral:spirals/*.png, other:others]."""
    valid: list[str] = Field(default_factory=list)
    """The same to choose the best model with; where none are given or found, see `split`."""
    test: list[str] = Field(default_factory=list)
    """The same for the final judgement; where none are given or found, see `split`."""
    image: str = ""
    """Array, data set, extension or column of a FITS file that has the images, or column of a table that has their
    names; found by a usual name unless given."""
    label: str = ""
    """Array, column of a table or keyword of a FITS header that has the class; found by a usual name unless given."""
    axes: Axes = ""
    """The axes of arrays, in order: n images, height h, width w, c channels; guessed by their lengths unless given (a
    few planes in one of several files, or as many as `channels`, are one image)."""
    meta: list[str] = Field(default_factory=list)
    """Keywords of FITS headers that are carried along to the answers; those that are learned need not be named."""
    size: int | tuple[int, int] | None = None
    """Scale images so that they cover a square of this side, or (height, width), and cut it about their centre; as they
    are unless given."""
    channels: int | None = Field(default=None, ge=1)
    """1 makes colours grey, 3 repeats grey; as they are unless given, but grey among colours becomes colour."""
    pixels: int = Field(default=1 << 26, ge=1, le=178_956_970)
    """Pixels that an image may have; one whose header claims more is refused before it is unpacked."""
    blank: float | None = None
    """Value for pixels that are not finite; they are refused unless given. All images are then read before the
    training, and such pixels counted."""
    labels_per_class: int | None = Field(default=None, ge=1)
    """Train on so many images of each class only, drawn by split.seed; a larger number adds to a smaller."""
    bad_files: Literal["stop", "skip"] = "stop"
    """What to do about files that cannot be read: stop; or unpack all of them before the training, go on without the
    bad ones, and say so."""
    chunk_size: int | None = Field(default=None, ge=16)
    """Images read at a time; as many as have 64 MiB of pixels unless given. A training keeps several such pieces."""

    def open(self, log: Any = None) -> Splits:
        notes: list[str] = []
        sets = self._sets(log, notes)
        everything = [one for some in sets.values() for one in some]
        for name in self.state.get("truth", ()):
            _require_column(name, everything, notes)
        form = self._format(everything, notes)
        rows = self._divided(sets, notes)
        groups = {part: np.concatenate([one.groups for one in some]) for part, some in sets.items()}
        notes += note_overlaps(groups, "images")
        chunks = {}
        for part, kept in rows.items():
            some = sets.get(part, sets["train"])
            chunks[part] = ImageChunks(some, in_files(map(len, some), kept), form)
        if self.blank is not None and form.dtype.kind == "f":
            pixels, images = (sum(some) for some in zip(*(source.blanks() for source in chunks.values())))
            said = f"{pixels:,} pixels in {images:,} images are not finite: read as {self.blank:g} (data.blank)."
            notes += [said] if pixels else []
        notes += dict.fromkeys(note for one in everything for note in one.notes)
        return Splits(order_parts(dict(chunks)), _fingerprints(everything), notes)

    def read(self, files: Sequence[str | Path]) -> Source:
        """The images of other files in their order."""
        notes: list[str] = []
        sets = [one for _, one in self._gathered(files, "the files", notes, training=False)]
        form = self._format(sets, notes)
        notes += dict.fromkeys(note for one in sets for note in one.notes)
        return ImageChunks(sets, [np.arange(len(one)) for one in sets], form, mixed=False, notes=notes)

    def _format(self, sets: Sequence[ImageSet], notes: list[str]) -> ImageFormat:
        sides = (self.size, self.size) if isinstance(self.size, int) else self.size
        if sides is not None and min(sides) < 1:
            raise UserError(f"data.size must be 1 pixel or more, not {self.size}", key="data.size")
        return ImageFormat(sets, Resizer(sides, self.channels), notes, self.chunk_size, self.blank)

    def _gathered(
        self, names: Sequence[str | Path], whose: str, notes: list[str], log: Any = None, training: bool = True
    ) -> list[tuple[str, ImageSet]]:
        """The images of files; bad ones are refused, or told in the notes."""
        listed: list[str] = []
        entries = list_image_files(names, listed)
        if log is not None and len(entries) > 1000:
            log(f"looking at {len(entries):,} files of images")
        wanted = (*self.state.get("truth", ()), *self.meta, self.split.by, self.split.stratify)
        deep, words, bad = self.bad_files == "skip", tuple(filter(None, wanted)), BadFiles()
        options = ReadOptions(self.image, self.label, self.axes, self.pixels, deep, words, self.channels)
        made = gather_image_sets(entries, options, bad)
        if bad and not deep:
            raise bad.error(sum(len(one) for _, one in made) + len(bad), training)
        notes += bad.notes()
        made = [(part, one) for part, one in made if len(one)]
        if not made:
            raise UserError(f"no image in {whose} can be read", hint=" ".join(notes[:4]))
        notes += listed
        return made

    def _sets(self, log: Any, notes: list[str]) -> dict[str, list[ImageSet]]:
        given = self.named()
        sets: dict[str, list[ImageSet]] = {}
        for part, names in given.items():
            made = self._gathered(names, f"data.{'files' if part == 'train' else part}", notes, log)
            told = {own for own, _ in made} - {""}
            for own, one in made:
                if part == "train" and "train" in told:
                    sets.setdefault(own or "train", []).append(one)
                elif part == "train" or part not in told or own == part:
                    sets.setdefault(part, []).append(one)
            if both := [other for other in STANDARD_PARTS[1:] if part == "train" and other in sets and other in given]:
                message = f"the part {both[0]} is given by data.{both[0]} and by data.files too"
                raise UserError(message, key=f"data.{both[0]}")
        return sets

    def _divided(self, sets: dict[str, list[ImageSet]], notes: list[str]) -> dict[str, Array]:
        """The rows of each part, counted over its sets."""
        train = sets["train"]
        count = sum(map(len, train))
        keep = np.ones(count, bool)
        for name in self.state.get("truth", ()):
            lacking = is_missing(_concatenate_column(train, name))
            if lacking.any():
                notes.append(f"{int(lacking.sum()):,} of {count:,} images have no `{name}`: left out.")
            keep &= ~lacking
        kept = np.flatnonzero(keep)
        if not len(kept):
            raise UserError(f"all {count:,} images to train on are left out", hint=" ".join(notes))
        split = self.split.less("valid" in sets, "test" in sets)
        groups = np.concatenate([one.groups for one in train])[kept]
        again = 0 if split.by else len(kept) - len(np.unique(groups))
        if again:
            said = f"{again:,} of {len(kept):,} images are the same as others: these stay in one part"
            notes.append(f"{said}{_conflicting_class_note(train, groups, kept)}.")
        by = _concatenate_column(train, split.by)[kept] if split.by else groups if again else None
        strata = _concatenate_column(train, split.stratify)[kept] if split.stratify else None
        rows = {part: kept[some] for part, some in split.divide(len(kept), by, strata).items()}
        if self.labels_per_class is not None:
            labels = _concatenate_column(train, "label")
            rows["train"] = sample_per_class(labels, rows["train"], self.labels_per_class, split.lot, notes, "image")
        return rows | {part: np.arange(sum(map(len, some))) for part, some in sets.items() if part != "train"}


def _conflicting_class_note(train: Sequence[ImageSet], groups: Array, kept: Array) -> str:
    """Words on images that are the same but have several classes."""
    if not all("label" in one.columns for one in train):
        return ""
    _, label = np.unique(_concatenate_column(train, "label")[kept], return_inverse=True)
    pairs = np.unique(np.stack([groups, label.astype(groups.dtype)]), axis=1)
    count = pairs.shape[1] - len(np.unique(pairs[0]))
    return f", but {count:,} of them have another class" if count else ""


def _concatenate_column(sets: Sequence[ImageSet], name: str) -> Array:
    _require_column(name, sets)
    return np.concatenate([one.columns[name] for one in sets])


def _require_column(name: str, sets: Sequence[ImageSet], notes: Sequence[str] = ()) -> None:
    for one in sets:
        if name not in one.columns:
            known = [*one.columns]
            if one.paths and not is_picture(first := Path(one.paths[0])):
                known += open_arrays(first).header
            hint = " ".join([*notes, *one.notes, LABEL_HINT]) if name == "label" else nearest(name, known)
            raise UserError(f"the images of {one.name} have no column `{name}`", hint=hint, file=one.name)


def _fingerprints(sets: Sequence[ImageSet]) -> dict[str, str]:
    """Fingerprints: of each table and file of arrays; of all pictures together, by their names, sizes and digests."""
    found = {str(path): fingerprint(path) for path in dict.fromkeys(path for one in sets for path in one.origin)}
    pictures = sorted(row for one in sets for row in zip(one.paths, one.bytes, one.groups.tolist()))
    if pictures:
        folders = {os.path.dirname(path) for path, _, _ in pictures}
        top = os.path.commonpath([os.path.realpath(folder) for folder in folders])
        hashed = hashlib.sha256()
        for path, size, digest in pictures:
            hashed.update(f"{os.path.relpath(path, top)} {size} {digest}\n".encode())
        total = sum(size for _, size, _ in pictures)
        found[top] = f"{len(pictures):,} pictures, {total:,} bytes, {hashed.hexdigest()[:16]}"
    return found
