"""Decoding of picture files with Pillow, and resizing to a common shape."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from ....data.columns import Array
from ....errors import UserError
from ....files.packages import broken, require

FORMATS = ("PNG", "JPEG", "TIFF", "BMP", "PPM", "GIF", "WEBP")
PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".pgm", ".ppm", ".gif", ".webp")
PILLOW_MODES = {  # Pillow mode -> mode to convert to, number of channels, dtype
    **dict.fromkeys(("1", "L", "LA", "La"), ("L", 1, "uint8")),
    **dict.fromkeys(("RGB", "RGBA", "RGBa", "RGBX", "P", "PA", "CMYK", "YCbCr", "LAB", "HSV"), ("RGB", 3, "uint8")),
    **dict.fromkeys(("I;16", "I;16L", "I;16B", "I;16N"), ("", 1, "uint16")),
    "I": ("", 1, "int32"),
    "F": ("", 1, "float32"),
}
MAX_PAGES = 4096  # largest number of pages of a TIFF file
END_MARKER_BYTES = 1024  # bytes at the end of a file searched for the end marker
DIGEST_BYTES = 1 << 16  # bytes hashed at either end of a large file
STRIP_TAGS = ((273, 6), (324, 1))  # TIFF tags of strip and tile offsets; distance to the tag of byte counts
TRANSPOSED_ORIENTATIONS = (5, 6, 7, 8)  # EXIF orientations that swap height and width
LUMA_WEIGHTS = (0.299, 0.587, 0.114)  # ITU-R 601, as in Pillow


@dataclass(frozen=True)
class Resizer:
    """Resize images and convert their channels.

    shape      (height, width): images are scaled to fill this area and cropped around the centre; None keeps the size
    channels   1 converts colour to grey, 3 repeats grey; None keeps the channels
    """

    shape: tuple[int, int] | None = None
    channels: int | None = None

    def __call__(self, image: Array) -> Array:
        """Resize and convert images (..., height, width, channels)."""
        if self.shape is not None and image.shape[-3:-1] != self.shape:
            image = _resize(image, self.shape)
        if self.channels in (None, image.shape[-1]):
            return image
        if self.channels == 1 and image.shape[-1] == 3:
            return _round(image.astype(np.float32) @ np.array(LUMA_WEIGHTS, np.float32)[:, None], image.dtype)
        if image.shape[-1] == 1:
            return np.repeat(image, self.channels or 1, -1)
        counts = f"an image with {image.shape[-1]} channels cannot be converted to {self.channels} channels"
        message = f"{counts} (data.channels)"
        raise UserError(message, key="data.channels")

    def output_shapes(self, shapes: Array) -> Array:
        """Height, width and channels (n, 3) after resizing."""
        made = shapes.copy()
        if self.shape is not None:
            made[:, :2] = self.shape
        if self.channels is not None:
            made[:, 2] = self.channels
        return made


def _cover_box(shape: tuple[int, int], wanted: tuple[int, int]) -> tuple[float, float, float, float]:
    """Largest centred box (top, left, height, width) of the wanted aspect ratio."""
    scale = max(wanted[0] / shape[0], wanted[1] / shape[1])
    height, width = min(shape[0], wanted[0] / scale), min(shape[1], wanted[1] / scale)
    return (shape[0] - height) / 2, (shape[1] - width) / 2, height, width


def _resize(image: Array, wanted: tuple[int, int]) -> Array:
    """Resize with antialiasing and crop the centre: (..., h, w, c) -> (..., H, W, c)."""
    top, left, height, width = _cover_box((image.shape[-3], image.shape[-2]), wanted)
    down = _triangle_weights(image.shape[-3], top, height, wanted[0])
    aside = _triangle_weights(image.shape[-2], left, width, wanted[1])
    exact = image.astype(np.result_type(image.dtype, np.float32))
    return _round(np.einsum("yh,...hwc,xw->...yxc", down, exact, aside, optimize=True), image.dtype)


def _triangle_weights(count: int, start: float, length: float, wanted: int) -> Array:
    """Weights (wanted, count) of the triangle filter along an axis, as in Pillow."""
    scale = length / wanted
    centre = start + (np.arange(wanted)[:, None] + 0.5) * scale
    weights = np.maximum(0, 1 - np.abs((np.arange(count) + 0.5 - centre) / max(scale, 1.0)))
    return np.asarray(weights / weights.sum(1, keepdims=True))


def _round(values: Array, dtype: np.dtype[Any]) -> Array:
    """Cast values to a dtype; integers are rounded and clipped to its range."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        values = np.clip(np.rint(values), limits.min, limits.max)
    return values.astype(dtype)


class ImageHeader(NamedTuple):
    """Header of a file with one image.

    size      bytes of the file
    digest    hash of the file, to find duplicates
    reduced   whether Pillow reads only 8 of 16 bits of each colour
    animated  whether the picture is an animation; only its first frame is read
    cards     keywords of a FITS header
    """

    height: int
    width: int
    channels: int
    dtype: str
    size: int
    digest: int
    reduced: bool = False
    animated: bool = False
    cards: dict[str, Any] | None = None


def pillow() -> Any:
    """Import `PIL.Image`; an error names the extra to install."""
    return require("PIL.Image", "PNG, JPEG and TIFF files", "'sciformer[images]'")


def read_header(path: Path, pixels: int, deep: bool = False) -> ImageHeader:
    """Read the header of a picture; refuse a picture of more than `pixels` pixels.

    deep    always decode the pixels as a check (default: only if the file looks incomplete)
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        with _open_picture(file, path, pixels) as (image, pages):
            _, channels, dtype = PILLOW_MODES[image.mode]
            width, height = image.size
            if image.format in ("JPEG", "MPO", "WEBP") or "exif" in image.info:
                turned = image.format != "TIFF" and image.getexif().get(274) in TRANSPOSED_ORIENTATIONS
                width, height = (height, width) if turned else (width, height)
            raw = str(image.tile[0][3] if image.tile else "")
            reduced = ";16" in raw and dtype == "uint8"
            whole = _is_complete(image, file, size)
            animated = bool(getattr(image, "is_animated", False)) and image.format != "TIFF"
        digest = file_digest(file, size)
        found = ImageHeader(height, width, channels * pages, dtype, size, digest, reduced, animated)
    if deep or not whole:
        decode_image(path, pixels)
    return found


def decode_image(path: Path, pixels: int, fit: Resizer | None = None) -> Array:
    """Decode the pixels (height, width, channels) of a picture, without transparency.

    The EXIF orientation is applied. Grey TIFF pages of one size become channels; of other files only the first page is
    read.
    """
    from PIL import ImageOps

    with path.open("rb") as file, _open_picture(file, path, pixels) as (image, pages):
        if pages > 1:
            layers = []
            for number in range(pages):
                image.seek(number)
                layers.append(_pixel_array(_plain(image)))
            made = np.concatenate(layers, -1)
        else:
            ImageOps.exif_transpose(image, in_place=True)
            plain, shape = _plain(image), None if fit is None else fit.shape
            if shape is not None and PILLOW_MODES[image.mode][0] and plain.size[::-1] != shape:
                top, left, height, width = _cover_box(plain.size[::-1], shape)
                box = (left, top, left + width, top + height)
                plain = plain.resize(shape[::-1], pillow().Resampling.BILINEAR, box)
            made = _pixel_array(plain)
    return made if fit is None else fit(made)


def _plain(image: Any) -> Any:
    """Convert a picture to a supported Pillow mode."""
    target = PILLOW_MODES[image.mode][0]
    return image.convert(target) if target and image.mode != target else image


def _pixel_array(image: Any) -> Array:
    _, channels, dtype = PILLOW_MODES[image.mode]
    found = np.asarray(image).astype(dtype, copy=False)
    return found.reshape(*found.shape[:2], channels)


@contextmanager
def _open_picture(file: IO[bytes], path: Path, pixels: int) -> Iterator[tuple[Any, int]]:
    """Open a picture, check its header, and count its pages with channels."""
    module = pillow()
    bombs = (module.DecompressionBombError, module.DecompressionBombWarning)
    try:
        with module.open(file, formats=FORMATS) as image:
            pages = _channel_pages(image, pixels)
            if image.size[0] * image.size[1] * pages > pixels:
                raise _too_many_pixels(path, pixels, image.size[0] * image.size[1] * pages)
            if image.mode not in PILLOW_MODES:
                message = f"{path} has pixels of Pillow mode {image.mode!r}, which is not supported"
                raise UserError(message, hint="Convert it to grey or RGB.", file=path)
            yield image, pages
    except UserError:
        raise
    except bombs as error:
        told = re.search(r"\d+", str(error))
        raise _too_many_pixels(path, pixels, int(told[0]) if told else pixels + 1) from error
    except module.UnidentifiedImageError as error:
        file.seek(0)
        begin = file.read(12)
        found, hint = f"it begins with {begin!r}" if begin else "it is empty", ""
        if begin.startswith((b"II*\0", b"MM\0*")):
            found = "it is a TIFF variant that Pillow cannot read"
            hint = "Save it as NPY, HDF5 or FITS, which hold any channels and types."
        message = f"{path} is not a readable picture ({', '.join(FORMATS)}): {found}"
        raise UserError(message, hint=hint, file=path) from error
    except Exception as error:  # Pillow raises many types of error for damaged files
        raise broken(path, "picture", error) from error


def _too_many_pixels(path: Path, pixels: int, found: int) -> UserError:
    words = f"{path} has {found:,} pixels, more than the {pixels:,} of data.pixels"
    return UserError(words, key="data.pixels", file=path)


def _channel_pages(image: Any, pixels: int) -> int:
    """Number of pages read as channels: all grey TIFF pages of one size, otherwise 1."""
    count = int(getattr(image, "n_frames", 1)) if image.format == "TIFF" else 1
    size, mode = image.size, image.mode
    if count == 1 or PILLOW_MODES.get(mode, ("", 3, ""))[1] > 1:
        return 1
    if count > MAX_PAGES or count * size[0] * size[1] > pixels:
        return count  # too many pixels: the caller refuses it
    for number in range(1, count):
        image.seek(number)
        if (image.size, image.mode) != (size, mode):
            count = 1
            break
    image.seek(0)
    return count


def _is_complete(image: Any, file: IO[bytes], size: int) -> bool:
    """Whether a file is complete, by its end marker or its last TIFF strip."""
    if image.format in ("PNG", "JPEG", "MPO"):
        at = file.tell()
        file.seek(max(0, size - END_MARKER_BYTES))
        tail = file.read(END_MARKER_BYTES)
        file.seek(at)
        return (b"IEND" if image.format == "PNG" else b"\xff\xd9") in tail
    tags = image.tag_v2 if image.format == "TIFF" else {}
    ends = [np.atleast_1d(tags[first]) + np.atleast_1d(tags[first + on]) for first, on in STRIP_TAGS if first in tags]
    return bool(ends) and all(int(end.max()) <= size for end in ends)


def file_digest(file: IO[bytes], size: int) -> int:
    """Hash of the size and the bytes of a file.

    Of a large file, only the beginning and the end are read.
    """
    file.seek(0)
    hashed = hashlib.blake2b(str(size).encode(), digest_size=8)
    hashed.update(file.read(2 * DIGEST_BYTES if size <= 2 * DIGEST_BYTES else DIGEST_BYTES))
    if size > 2 * DIGEST_BYTES:
        file.seek(size - DIGEST_BYTES)
        hashed.update(file.read(DIGEST_BYTES))
    return int.from_bytes(hashed.digest(), "little") >> 1
