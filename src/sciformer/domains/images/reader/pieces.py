"""Images of many sets in pieces that fit into memory, mixed so that each piece is like the whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ....data.columns import Array, Lists, Table
from ....data.random import key, mix
from ....errors import UserError
from .collection import ImageSet, common_dtype
from .listing import BadFiles, bad_files_error
from .resize import Resizer

CHUNK_BYTES = 64 << 20  # of the pixels of a piece, unless its number of images is given
MIXED_SETS, RUNS_PER_CHUNK = 16, 8  # sets of which each piece has some; places of an array from which it has neighbours
SetRows = tuple[ImageSet, Array]
"""A set, and the numbers of its rows."""


class ImageFormat:
    """What all images have in common: their shape, if it is one, their channels and the type of their pixels."""

    def __init__(self, sets: Sequence[ImageSet], fit: Resizer, notes: list[str]) -> None:
        shapes = np.concatenate([fit.output_shapes(one.shapes) if fit.channels else one.shapes for one in sets])
        channels = np.unique(shapes[:, 2]).tolist()
        if channels == [1, 3]:
            fit = Resizer(fit.shape, 3)
            count = int((shapes[:, 2] == 1).sum())
            notes.append(f"{count:,} of {len(shapes):,} images are grey: they are read as colours (data.channels 3).")
        elif len(channels) > 1:
            examples = [
                f"{c} in {_first_with_channels(one, c)}" for c in channels for one in sets if c in one.shapes[:, 2]
            ]
            raise UserError(f"all images must have the same number of channels, not {', '.join(examples[:4])}")
        self.fit = fit
        for one in sets:
            for odd in np.unique(one.shapes[:, 2]).tolist():
                if fit.channels not in (None, odd) and odd != 1 and (odd, fit.channels) != (3, 1):
                    path = _first_with_channels(one, odd)
                    raise UserError(
                        f"{path} has {odd} channels, which cannot be read as {fit.channels} (data.channels)",
                        hint="Only grey images and images in colours are read as each other.",
                        key="data.channels",
                        file=path,
                    )
        made = fit.output_shapes(shapes)
        self.varying = bool((made[:, :2] != made[0, :2]).any())
        self.dtype = common_dtype({one.dtype.str: one.name for one in reversed(sets)})
        self.bytes = float(made.astype(np.float64).prod(1).mean()) * self.dtype.itemsize

    def piece(self, given: int | None) -> int:
        """Images in a piece."""
        return given or max(16, int(CHUNK_BYTES / self.bytes))


def _first_with_channels(one: ImageSet, channels: int) -> str:
    """The first image of a set with so many channels."""
    return one.locations(np.flatnonzero(one.shapes[:, 2] == channels)[:1])[0]


class ImageChunks:
    """Images of sets, read a piece at a time.

    blank    what stands for pixels that are not finite; None: they are refused
    """

    def __init__(
        self,
        parts: Sequence[SetRows],
        form: ImageFormat,
        columns: Sequence[str],
        piece: int,
        blank: float | None = None,
        mixed: bool = True,
        notes: Sequence[str] = (),
    ) -> None:
        self.sets, self.form, self.columns = [one for one, _ in parts], form, list(columns)
        self.blank, self.mixed, self.notes = blank, mixed, list(notes)
        rows = [rows for _, rows in parts]
        self.pieces = mixed_chunks(self.sets, rows, piece) if mixed else ordered_chunks(rows, piece)
        self.sizes = [sum(len(rows) for _, rows in some) for some in self.pieces]

    def load(self, piece: int) -> Table:
        """The images of a piece, and what is known of them."""
        some = self.pieces[piece]
        table = {name: self._column(name, some) for name in self.columns}
        shapes = self._shapes(some)
        flat = np.empty((int(shapes[:, :2].prod(1).sum()), shapes[0, 2]), self.form.dtype)
        at = 0
        for image in self._read(some):
            size = image.shape[0] * image.shape[1]
            flat[at : at + size] = image.reshape(size, -1)
            at += size
        self._fill_blanks(flat, shapes, some)
        if self.form.varying:
            lengths = shapes[:, :2].prod(1).astype(np.int64)
            return {"image": Lists(flat, lengths), "image_shape": shapes[:, :2].astype(np.int32), **table}
        height, width, channels = shapes[0].tolist()
        shape = (len(shapes), height, width, channels)
        return {"image": flat.reshape(shape if channels > 1 else shape[:3]), **table}

    def known_column(self, name: str, lists: bool = False) -> Array | None:
        """A column of all images, or their heights and widths as `image_shape`, for which none is unpacked."""
        if name == "image_shape" and not lists:
            return np.concatenate([self._shapes(some) for some in self.pieces])[:, :2].astype(np.int32)
        if lists or name not in self.columns:
            return None
        return np.concatenate([self._column(name, some) for some in self.pieces])

    def blanks(self) -> tuple[int, int]:
        """How many pixels of all images are not finite, and in how many images; all are read."""
        pixels = images = 0
        for some in self.pieces:
            for image in self._read(some):
                count = int((~np.isfinite(image)).sum())
                pixels, images = pixels + count, images + (count > 0)
        return pixels, images

    def _shapes(self, some: Sequence[tuple[int, Array]]) -> Array:
        """(n, 3) heights, widths and channels of these rows."""
        return np.concatenate([self.form.fit.output_shapes(self.sets[number].shapes[rows]) for number, rows in some])

    def _column(self, name: str, some: Sequence[tuple[int, Array]]) -> Array:
        return np.concatenate([self.sets[number].column(name, rows) for number, rows in some])

    def _read(self, some: Sequence[tuple[int, Array]]) -> Iterator[Array]:
        """The images of these rows; those that cannot be read are named all at once."""
        bad: BadFiles = []
        for number, rows in some:
            one = self.sets[number]
            for row, found in zip(rows, one.read(rows, self.form.fit)):
                if isinstance(found, UserError):
                    bad.append((one.locations(np.array([row]))[0], found))
                elif not bad:
                    yield found
        if bad:
            raise bad_files_error(bad, sum(len(rows) for _, rows in some), self.mixed)

    def _fill_blanks(self, flat: Array, shapes: Array, some: Sequence[tuple[int, Array]]) -> None:
        """Put the blank where pixels are not finite, or refuse them."""
        if flat.dtype.kind != "f" or np.isfinite(flat.sum(dtype=np.float64)):
            return
        odd = ~np.isfinite(flat)
        if self.blank is not None:
            flat[odd] = self.blank
            return
        ends = shapes[:, :2].prod(1).cumsum()
        rows = np.unique(np.searchsorted(ends, np.flatnonzero(odd.any(1)), side="right"))
        names = self._column("file", some)[rows]
        more = f" and {len(rows) - 1:,} more" if len(rows) > 1 else ""
        raise UserError(
            f"{int(odd.sum()):,} of {odd.size:,} pixels are not finite, in {names[0]}{more}",
            hint="Say what stands for them: --data.blank 0",
            key="data.blank",
            file=str(names[0]),
        )


def ordered_chunks(rows: Sequence[Array], piece: int) -> list[list[tuple[int, Array]]]:
    """Pieces that keep the order of the images."""
    which = np.repeat(np.arange(len(rows)), [len(some) for some in rows])
    flat = np.concatenate(rows) if rows else np.zeros(0, np.int64)
    made = []
    for start in range(0, len(flat), piece):
        part = which[start : start + piece]
        made.append([(int(n), flat[start : start + piece][part == n]) for n in dict.fromkeys(part.tolist())])
    return made


def mixed_chunks(sets: Sequence[ImageSet], rows: Sequence[Array], piece: int) -> list[list[tuple[int, Array]]]:
    """Pieces that have their share of every set: of pictures any, of arrays neighbours from several places."""
    total = sum(len(some) for some in rows)
    count = -(-total // piece)
    if count <= 1:
        return [[(number, some) for number, some in enumerate(rows) if len(some)]] if total else []
    turn = np.argsort(mix(key("chains") ^ mix(np.arange(len(sets)))), kind="stable")
    pieces: list[dict[int, list[Array]]] = [{} for _ in range(count)]
    for chain in (turn[first::MIXED_SETS] for first in range(min(MIXED_SETS, len(sets)))):
        flat = np.concatenate([_mixed_rows(sets[number], rows[number]) for number in chain])
        which = np.repeat(chain, [len(rows[number]) for number in chain])
        for number, places in enumerate(np.array_split(np.arange(len(flat)), count * RUNS_PER_CHUNK)):
            for owner in dict.fromkeys(which[places].tolist()):
                mine = places[which[places] == owner]
                pieces[number % count].setdefault(owner, []).append(flat[mine])
    return [[(n, np.concatenate(some)) for n, some in piece.items()] for piece in pieces if piece]


def _mixed_rows(one: ImageSet, rows: Array) -> Array:
    """The rows in the order in which they are dealt."""
    return rows[np.argsort(mix(key("dealt") ^ mix(rows)), kind="stable")] if one.random_access else rows


def common_columns(sets: Sequence[ImageSet]) -> list[str]:
    """Columns that all sets have, and the name of the file."""
    names = [name for name in sets[0].columns if all(name in one.columns for one in sets)]
    return ["file", *(name for name in names if name != "file")]


def is_missing(column: Any) -> Array:
    """Which images have no class, or a value that is not finite."""
    found = np.asarray(column)
    if found.dtype.kind == "f":
        return ~np.isfinite(found)
    return found == "" if found.dtype.kind == "U" else np.zeros(len(found), bool)
