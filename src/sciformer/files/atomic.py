"""Atomic writes: a file appears under its name only when it is complete."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import UserError

OUT_HINT = "Choose another location with --out."
IMAGE_SUFFIXES = (".png", ".pdf", ".svg")


def make_folder(path: Path, advice: str = OUT_HINT) -> Path:
    """Create a folder and its missing parents."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = "a file of that name exists" if isinstance(error, FileExistsError) else f"{error.strerror}"
        raise UserError(f"the folder {path} cannot be created: {why}", hint=advice, file=path) from error
    return path


def check_name(path: Path, endings: Sequence[str], what: str = "a file") -> None:
    """Refuse early an output file with a wrong suffix, or a folder."""
    if path.is_dir():
        hint = f"Give {what} in it: {path / f'NAME{endings[0]}'}"
        raise UserError(f"'{path}' is a folder, not the name of {what}", hint=hint, file=path)
    if path.suffix not in endings:
        listed = " or ".join(filter(None, [", ".join(endings[:-1]), endings[-1]]))
        hint = f"Use the name {path.with_suffix(endings[0])}"
        raise UserError(f"the name of {what} must end in {listed}, not {path}", hint=hint, file=path)


def check_picture(path: Path) -> None:
    """Refuse a file name without a picture suffix."""
    check_name(path, IMAGE_SUFFIXES, "a picture")


def check_new(path: Path, overwrite: bool) -> None:
    """Refuse to replace an existing file without `--overwrite`."""
    if path.exists() and not overwrite:
        hint = "Choose another file with --out, or replace it with --overwrite."
        raise UserError(f"{path} exists already", hint=hint, file=path)


def check_writable(path: Path) -> None:
    """Refuse early a file that cannot be written."""
    if path.is_dir():
        raise UserError(f"{path} is a folder, not a file to write", file=path)
    make_folder(path.parent)
    if not os.access(path.parent, os.W_OK):
        message = f"no permission to write into the folder {path.parent}"
        raise UserError(message, hint=OUT_HINT, file=path.parent)


@contextmanager
def atomic_write(path: Path, advice: str = OUT_HINT) -> Iterator[Path]:
    """Context with a temporary path: renamed to `path` at the end, removed on error."""
    try:
        with _rename_at_end(path.with_name(f".{path.name}.{os.getpid()}.partial"), path) as partial:
            yield partial
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}", hint=advice, file=path) from error


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, in UTF-8."""
    check_writable(path)
    with atomic_write(path) as partial:
        partial.write_text(text, "utf-8")


def replace(path: Path, text: str | bytes) -> None:
    """Replace the contents of a file, safely even if the power fails.

    Only one process may write the file at a time.
    """
    with _rename_at_end(path.with_name(f".{path.name}.partial"), path) as partial, open(partial, "xb") as file:
        file.write(text.encode() if isinstance(text, str) else text)
        file.flush()
        os.fsync(file.fileno())
    sync(path.parent)


@contextmanager
def _rename_at_end(partial: Path, path: Path) -> Iterator[Path]:
    try:
        partial.unlink(missing_ok=True)  # a file of a killed process, or a malicious link
        yield partial
        os.replace(partial, path)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """Flush a file to disk; for a folder, its list of files."""
    if sys.platform == "win32" and path.is_dir():
        return  # Windows cannot open folders
    descriptor = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot sync a folder; the server already has its entries.
        if path.is_file() or error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
