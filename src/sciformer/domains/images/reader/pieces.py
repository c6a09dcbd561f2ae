"""Images in chunks of limited size, shuffled over many files for training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ....data.columns import Array, Lists, Table
from ....data.random import key, mix
from ....errors import UserError, list_names
from ....files.in_memory import MemoryFile
from .decode import Resizer
from .sets import BadFiles, ImageSet, common_dtype

CHUNK_BYTES = 64 << 20  # pixels in a chunk, if data.chunk_size is not set
MIXED_SETS, RUNS_PER_CHUNK = 16, 8  # image sets mixed in a chunk; runs of neighbouring rows in a chunk
Piece = list[tuple[int, Array]]
"""Rows of a chunk, as pairs: number of a set, and row numbers in this set."""


class ImageFormat:
    """Common format of the images of all image sets.

    fit       resizing and conversion of channels
    columns   names of the columns common to all sets
    varying   whether images differ in height or width
    dtype     type of the pixels
    piece     number of images in a chunk (default: CHUNK_BYTES of pixels)
    blank     value that replaces non-finite pixels; None: non-finite pixels are an error
    """

    def __init__(
        self, sets: Sequence[ImageSet], fit: Resizer, notes: list[str], piece: int | None, blank: float | None
    ) -> None:
        shapes = np.concatenate([fit.output_shapes(one.shapes) if fit.channels else one.shapes for one in sets])
        channels = np.unique(shapes[:, 2]).tolist()
        if channels == [1, 3]:
            fit = Resizer(fit.shape, 3)
            count = int((shapes[:, 2] == 1).sum())
            notes.append(f"{count:,} of {len(shapes):,} images are grey: converted to colour (data.channels 3).")
        elif len(channels) > 1:
            examples = [f"{c} in {_first_with(one, c)}" for c in channels for one in sets if c in one.shapes[:, 2]]
            raise UserError(f"images have different numbers of channels: {', '.join(examples[:4])}")
        for one in sets:
            for odd in np.unique(one.shapes[:, 2]).tolist():
                if fit.channels not in (None, odd) and odd != 1 and (odd, fit.channels) != (3, 1):
                    path = _first_with(one, odd)
                    message = f"{path} has {odd} channels, which cannot be converted to {fit.channels} (data.channels)"
                    hint = "Only grey and RGB images can be converted into each other."
                    raise UserError(message, hint=hint, key="data.channels", file=path)
        made = fit.output_shapes(shapes)
        self.fit, self.blank = fit, blank
        self.columns = ["file", *(n for n in sets[0].columns if n != "file" and all(n in one.columns for one in sets))]
        self.varying = bool((made[:, :2] != made[0, :2]).any())
        self.dtype = common_dtype({one.dtype.str: one.path for one in reversed(sets)})
        bytes_each = float(made.astype(np.float64).prod(1).mean()) * self.dtype.itemsize
        self.piece = piece or max(16, int(CHUNK_BYTES / bytes_each))


def _first_with(one: ImageSet, channels: int) -> str:
    return str(one.column("file", np.flatnonzero(one.shapes[:, 2] == channels)[:1])[0])


class ImageChunks:
    """Images read chunk by chunk, shuffled for training and otherwise in order."""

    def __init__(
        self, parts: Sequence[tuple[ImageSet, Array]], form: ImageFormat, mixed: bool, notes: list[str]
    ) -> None:
        self.form, self.columns, self.mixed, self.notes = form, form.columns, mixed, notes
        self.sets, rows = [one for one, _ in parts], [some for _, some in parts]
        self.pieces = _mixed_pieces(self.sets, rows, form.piece) if mixed else _ordered_pieces(rows, form.piece)
        self.sizes = [sum(len(rows) for _, rows in some) for some in self.pieces]

    def load(self, piece: int) -> Table:
        some = self.pieces[piece]
        table = {name: self._column(name, some) for name in self.columns}
        shapes = self._shapes(some)
        lengths = shapes[:, :2].prod(1).astype(np.int64)
        flat = np.empty((lengths.sum(), shapes[0, 2]), self.form.dtype)
        for image, stop, size in zip(self._read(some), lengths.cumsum(), lengths):
            flat[stop - size : stop] = image.reshape(size, -1)
        self._fill_blanks(flat, lengths, some)
        if self.form.varying:
            return {"image": Lists(flat, lengths), "image_shape": shapes[:, :2].astype(np.int32), **table}
        height, width, channels = shapes[0].tolist()
        shape = (len(shapes), height, width, channels)
        return {"image": flat.reshape(shape if channels > 1 else shape[:3]), **table}

    @property
    def rows(self) -> Array | None:
        """Row numbers of the images in a table in memory; None for files."""
        if len(self.sets) != 1 or not isinstance(self.sets[0].path, MemoryFile):
            return None
        return np.concatenate([rows for some in self.pieces for _, rows in some])

    def known_column(self, name: str, lists: bool = False) -> Array | None:
        """Column of all images; None for lists and for columns that need decoded images."""
        if name == "image_shape" and not lists:
            return np.concatenate([self._shapes(some) for some in self.pieces])[:, :2].astype(np.int32)
        if lists or name not in self.columns:
            return None
        return np.concatenate([self._column(name, some) for some in self.pieces])

    def blanks(self) -> tuple[int, int]:
        """Numbers of non-finite pixels, and of images with non-finite pixels.

        This method reads all images.
        """
        if self.form.dtype.kind != "f":
            return 0, 0
        counts = [int((~np.isfinite(image)).sum()) for some in self.pieces for image in self._read(some)]
        return sum(counts), sum(count > 0 for count in counts)

    def _shapes(self, some: Piece) -> Array:
        """Height, width and channels (n, 3) of the rows of a piece."""
        return np.concatenate([self.form.fit.output_shapes(self.sets[number].shapes[rows]) for number, rows in some])

    def _column(self, name: str, some: Piece) -> Array:
        return np.concatenate([self.sets[number].column(name, rows) for number, rows in some])

    def _read(self, some: Piece) -> Iterator[Array]:
        """Read the images of a piece; one error lists all unreadable files."""
        bad = BadFiles()
        for number, rows in some:
            one = self.sets[number]
            for place, found in enumerate(one.read(rows, self.form.fit)):
                if isinstance(found, UserError):
                    bad.append((str(one.column("file", rows[place : place + 1])[0]), found))
                elif not bad:
                    yield found
        if bad:
            raise bad.error(sum(len(rows) for _, rows in some), self.mixed)

    def _fill_blanks(self, flat: Array, lengths: Array, some: Piece) -> None:
        if flat.dtype.kind != "f" or np.isfinite(flat.sum(dtype=np.float64)):
            return
        odd = ~np.isfinite(flat)
        if self.form.blank is not None:
            flat[odd] = self.form.blank
            return
        rows = np.unique(np.searchsorted(lengths.cumsum(), np.flatnonzero(odd.any(1)), side="right"))
        files = self._column("file", some)[rows]
        message = f"{int(odd.sum()):,} of {odd.size:,} pixels are not finite, in {list_names(files, 1)}"
        raise UserError(message, hint="Set a value for them: --data.blank 0", key="data.blank", file=str(files[0]))


def _ordered_pieces(rows: Sequence[Array], piece: int) -> list[Piece]:
    which = np.repeat(np.arange(len(rows)), [len(some) for some in rows])
    flat = np.concatenate(rows) if rows else np.zeros(0, np.int64)
    return [_by_set(which[start : start + piece], flat[start : start + piece]) for start in range(0, len(flat), piece)]


def _by_set(which: Array, rows: Array) -> Piece:
    return [(int(number), rows[which == number]) for number in dict.fromkeys(which.tolist())]


def _mixed_pieces(sets: Sequence[ImageSet], rows: Sequence[Array], piece: int) -> list[Piece]:
    """Divide the images of all sets into shuffled pieces, for training.

    A piece has random picture files and runs of neighbouring rows of arrays.
    """
    total = sum(len(some) for some in rows)
    count = -(-total // piece)
    if count <= 1:
        return [[(number, some) for number, some in enumerate(rows) if len(some)]] if total else []
    turn = np.argsort(mix(key("chains") ^ mix(np.arange(len(sets)))), kind="stable")
    pieces: list[dict[int, list[Array]]] = [{} for _ in range(count)]
    for chain in (turn[first::MIXED_SETS] for first in range(min(MIXED_SETS, len(sets)))):
        flat = np.concatenate([_reading_order(sets[number], rows[number]) for number in chain])
        which = np.repeat(chain, [len(rows[number]) for number in chain])
        for number, places in enumerate(np.array_split(np.arange(len(flat)), count * RUNS_PER_CHUNK)):
            for owner, mine in _by_set(which[places], flat[places]):
                pieces[number % count].setdefault(owner, []).append(mine)
    return [[(n, np.concatenate(some)) for n, some in piece.items()] for piece in pieces if piece]


def _reading_order(one: ImageSet, rows: Array) -> Array:
    """Order the rows of a set: random for picture files, unchanged for an array."""
    return rows[np.argsort(mix(key("dealt") ^ mix(rows)), kind="stable")] if one.cube is None else rows
