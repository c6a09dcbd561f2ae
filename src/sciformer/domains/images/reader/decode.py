"""Pictures in files, through Pillow: what their headers say, and their pixels."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from ....data.columns import Array
from ....errors import UserError
from ....files.packages import broken, package
from .resize import Resizer, cover_box

FORMATS = ("PNG", "JPEG", "TIFF", "BMP", "PPM", "WEBP")
PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".pgm", ".ppm", ".webp")
PILLOW_MODES = {  # of Pillow: what each is read as, how many channels that has, and of which type
    **dict.fromkeys(("1", "L", "LA", "La"), ("L", 1, "uint8")),
    **dict.fromkeys(("RGB", "RGBA", "RGBa", "RGBX", "P", "PA", "CMYK", "YCbCr", "LAB", "HSV"), ("RGB", 3, "uint8")),
    **dict.fromkeys(("I;16", "I;16L", "I;16B", "I;16N"), ("", 1, "uint16")),
    "I": ("", 1, "int32"),
    "F": ("", 1, "float32"),
}
MAX_PAGES = 4096  # of a TIFF file
END_MARKER_BYTES = 1024  # bytes at the end of a file, in which its last mark stands
DIGEST_BYTES = 1 << 16  # bytes at either end by which long files are told apart
STRIP_TAGS = ((273, 6), (324, 1))  # tags of a TIFF with the places of strips and tiles, and how far on their sizes are
TRANSPOSED_ORIENTATIONS = (5, 6, 7, 8)  # orientations in which height and width change places


class ImageHeader(NamedTuple):
    """What is known of a picture before its pixels are: its shape and type, and what tells it from others.

    reduced   whether it has 16 bits for each colour, of which Pillow reads 8
    """

    height: int
    width: int
    channels: int
    dtype: str
    size: int
    digest: int
    reduced: bool = False


def pillow() -> Any:
    """The package."""

    def load() -> Any:
        from PIL import Image

        return Image

    return package(load, "pillow", "PNG, JPEG and TIFF", "images")


def read_header(path: Path, pixels: int, deep: bool = False) -> ImageHeader:
    """The header of a picture, refused where it claims more pixels than are allowed.

    deep    unpack it too; otherwise that is done only where its end looks as if it was cut off
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
        found = ImageHeader(height, width, channels * pages, dtype, size, file_digest(file, size), reduced)
    if deep or not whole:
        decode_image(path, pixels)
    return found


def decode_image(path: Path, pixels: int, fit: Resizer | None = None) -> Array:
    """The pixels of a picture (height, width, channels), turned as it says, without transparency.

    Pages of a TIFF that are alike and have one channel each are channels; of others the first is read.
    """
    from PIL import ImageOps

    with path.open("rb") as file, _open_picture(file, path, pixels) as (image, pages):
        if pages > 1:
            layers = []
            for number in range(pages):
                image.seek(number)
                layers.append(_pixel_array(image))
            made = np.concatenate(layers, -1)
        else:
            ImageOps.exif_transpose(image, in_place=True)
            target = PILLOW_MODES[image.mode][0]
            plain = image.convert(target) if target and image.mode != target else image
            if fit is not None and fit.shape is not None and target:
                top, left, height, width = cover_box(plain.size[::-1], fit.shape)
                if plain.size[::-1] != fit.shape:
                    box = (left, top, left + width, top + height)
                    plain = plain.resize(fit.shape[::-1], pillow().Resampling.BILINEAR, box)
            made = _pixel_array(plain)
    return made if fit is None else fit(made)


def _pixel_array(image: Any) -> Array:
    target, channels, dtype = PILLOW_MODES[image.mode]
    plain = image.convert(target) if target and image.mode != target else image
    found = np.asarray(plain).astype(dtype, copy=False)
    return found.reshape(*found.shape[:2], channels)


@contextmanager
def _open_picture(file: IO[bytes], path: Path, pixels: int) -> Iterator[tuple[Any, int]]:
    """A picture whose header was read, and how many of its pages are channels."""
    module = pillow()
    bombs = (module.DecompressionBombError, module.DecompressionBombWarning)
    try:
        with module.open(file, formats=FORMATS) as image:
            pages = _channel_pages(image, pixels)
            if image.size[0] * image.size[1] * pages > pixels:
                raise _too_many_pixels(path, pixels, image.size[0] * image.size[1] * pages)
            if image.mode not in PILLOW_MODES:
                raise UserError(
                    f"{path} must have grey or coloured pixels, not those of Pillow's mode {image.mode!r}", file=path
                )
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
            found = "it is a TIFF of a form that Pillow does not read"
            hint = "NPY, HDF5 or FITS hold any channels and types."
        raise UserError(
            f"{path} is not a picture that can be read ({', '.join(FORMATS)}): {found}", hint=hint, file=path
        ) from error
    except Exception as error:  # damaged files make Pillow raise a dozen different ones
        raise broken(path, "picture", error) from error


def _too_many_pixels(path: Path, pixels: int, found: int) -> UserError:
    words = f"{path} has {found:,} pixels, more than the {pixels:,} of data.pixels"
    return UserError(words, key="data.pixels", file=path)


def _channel_pages(image: Any, pixels: int) -> int:
    """The pages of a TIFF, where they are alike and have one channel each; otherwise 1."""
    count = getattr(image, "n_frames", 1) if image.format == "TIFF" else 1
    size, mode = image.size, image.mode
    if count == 1 or PILLOW_MODES.get(mode, ("", 3, ""))[1] > 1:
        return 1
    if count > MAX_PAGES or count * size[0] * size[1] > pixels:
        return int(count)  # refused by its pixels, without a look at every page
    for number in range(1, count):
        image.seek(number)
        if (image.size, image.mode) != (size, mode):
            count = 1
            break
    image.seek(0)
    return int(count)


def _is_complete(image: Any, file: IO[bytes], size: int) -> bool:
    """Whether a file seems to go on to its end: the last mark of a PNG or JPEG, the last strip of others."""
    if image.format in ("PNG", "JPEG", "MPO"):
        at = file.tell()
        file.seek(max(0, size - END_MARKER_BYTES))
        tail = file.read(END_MARKER_BYTES)
        file.seek(at)
        return (b"IEND" if image.format == "PNG" else b"\xff\xd9") in tail
    tags = image.tag_v2 if image.format == "TIFF" else {}
    strips = [
        np.atleast_1d(tags[first]) + np.atleast_1d(tags[first + more]) for first, more in STRIP_TAGS if first in tags
    ]
    return bool(strips) and all(int(stop.max()) <= size for stop in strips)


def file_digest(file: IO[bytes], size: int) -> int:
    """A number that tells a file from others: by its bytes, of long ones those at either end."""
    file.seek(0)
    hashed = hashlib.blake2b(str(size).encode(), digest_size=8)
    hashed.update(file.read(2 * DIGEST_BYTES if size <= 2 * DIGEST_BYTES else DIGEST_BYTES))
    if size > 2 * DIGEST_BYTES:
        file.seek(size - DIGEST_BYTES)
        hashed.update(file.read(DIGEST_BYTES))
    return int.from_bytes(hashed.digest(), "little") >> 1
