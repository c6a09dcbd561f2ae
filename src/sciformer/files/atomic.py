"""Files that are there whole or not at all, and folders to write them into."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import UserError

OUT_HINT = "Name another place with --out."


def make_folder(path: Path, advice: str = OUT_HINT) -> Path:
    """A folder to write into."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = "there is a file of that name" if isinstance(error, FileExistsError) else f"{error.strerror}"
        raise UserError(f"the folder {path} cannot be made: {why}", hint=advice, file=path) from error
    return path


def check_name(path: Path, endings: Sequence[str], what: str = "a file") -> None:
    """Refuse a name that does not end as it should, or is that of a folder, before the work of filling the file."""
    if path.is_dir():
        hint = f"Name {what} in it: {path / f'NAME{endings[0]}'}"
        raise UserError(f"'{path}' is a folder, not the name of {what} to write", hint=hint, file=path)
    if path.suffix not in endings:
        listed = " or ".join(filter(None, [", ".join(endings[:-1]), endings[-1]]))
        hint = f"Call it {path.with_suffix(endings[0])}"
        raise UserError(f"the name of {what} must end in {listed}, not {path}", hint=hint, file=path)


@contextmanager
def atomic_write(path: Path, advice: str = OUT_HINT) -> Iterator[Path]:
    """A name beside that of a file: what is written there takes its place in the end, or goes when something fails."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}", hint=advice, file=path) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
