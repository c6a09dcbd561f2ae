"""Pictures and arrays of images for the tests of their reader."""

import gzip
import struct
import zlib

import numpy as np
from astropy.io import fits
from PIL import Image

from sciformer.data.source import pieces
from sciformer.domains.images.reader.reader import ImageFiles

RANDOM = np.random.default_rng(7)


def pixels(*shape, dtype=np.uint8):
    return RANDOM.integers(0, 200, shape).astype(dtype)


def picture(path, image=None, **options):
    """Write a picture, of noise unless given, and return its pixels."""
    image = pixels(8, 8, 3) if image is None else image
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(path, **options)
    return image


def classes(folder, count=6, names=("cat", "dog"), shape=(8, 8, 3)):
    """A folder with a folder of pictures for each class."""
    return {
        f"{folder}/{name}/{number}.png": picture(folder / name / f"{number}.png", pixels(*shape))
        for name in names
        for number in range(count)
    }


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def bomb(path, side):
    """A PNG of a few bytes that says it has side x side pixels."""
    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)


def idx(path, array):
    """An idx file, packed if its name says so."""
    raw = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(raw, mtime=0) if path.suffix == ".gz" else raw)


def write_array(path, array):
    """An NPY, NPZ, FITS or idx file with one array."""
    if path.suffix == ".npy":
        np.save(path, array)
    elif path.suffix == ".npz":
        np.savez(path, image=array)
    elif path.suffix == ".fits":
        fits.PrimaryHDU(array).writeto(path)
    else:
        idx(path, array)


def opened(files, truth=("label",), **options):
    section = ImageFiles(kind="images", files=[str(name) for name in files], **options)
    return section.want(["image"], list(truth)).open()


def read(files, **options):
    """The one table of files, as an answer is asked for."""
    (table,) = pieces(ImageFiles(kind="images", **options).read(files))
    return table
