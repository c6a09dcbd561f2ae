"""Files that are there whole or not at all, and folders to write them into."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import UserError

ELSEWHERE = "Name another place with --out."


def make_folder(path: Path, advice: str = ELSEWHERE) -> Path:
    """A folder to write into."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = "a file of that name" if isinstance(error, FileExistsError) else f"{error.strerror}"
        raise UserError(f"a folder {path} to write into", why, advice) from error
    return path


def check_name(path: Path, endings: Sequence[str], what: str = "a file") -> None:
    """Refuse a name that does not end as it should, or is that of a folder, before the work of filling the file."""
    if path.is_dir():
        raise UserError(f"{what} to write", f"the folder '{path}'", f"Name one in it: {path / f'NAME{endings[0]}'}")
    if path.suffix not in endings:
        listed = " or ".join(filter(None, [", ".join(endings[:-1]), endings[-1]]))
        raise UserError(f"{what} named {listed}", str(path), f"Call it {path.with_suffix(endings[0])}")


@contextmanager
def whole(path: Path, expected: str = "", advice: str = ELSEWHERE) -> Iterator[Path]:
    """A name beside that of a file: what is written there takes its place in the end, or goes when something fails."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    except OSError as error:
        raise UserError(expected or f"to write {path}", f"{error.strerror or error}", advice) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
