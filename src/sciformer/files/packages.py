"""Errors for missing packages and for damaged files."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from ..errors import UserError


@contextmanager
def reading(path: Path, form: str) -> Iterator[None]:
    """Context manager: convert exceptions of a reader to a `UserError`.

    path   file for the message
    form   name of the format, for the message «not a complete ... file»
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # the libraries raise many different exceptions for damaged files
        raise broken(path, form, error) from error


def broken(path: Path, form: str, error: Exception) -> UserError:
    """`UserError` for an unreadable file, with the reason given by the library."""
    words = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, MemoryError):
        hint = "Use a machine with more memory, or divide the file. If the file is damaged, write it again."
        return UserError(f"{path} needs more memory than there is: {words[:200]}", hint=hint, file=path)
    if isinstance(error, KeyError):
        words = f"{words} is missing"
    hint = "It may be incomplete or damaged: download or write it again."
    return UserError(f"{path} is not a complete {form} file: {words[:200]}", hint=hint, file=path)


def require(module: str, what: str, install: str = "") -> Any:
    """Import an optional module, or raise an error with the command to install it.

    what      plural noun for the use of the package: `ROOT files`, `BLEU scores`
    install   arguments of `pip install` (default: the extra of this library that installs the package, or the package)
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = "pillow" if module.startswith("PIL") else module.partition(".")[0]
        extra = extra_of(name)
        own = f"'sciformer[{extra}]'" if extra else name
        message = f"{what} need the package `{name}`, which is not installed"
        raise UserError(message, hint=f"Install it: pip install {install or own}") from error


def extra_of(package: str) -> str:
    """Extra of this library with the package; "" if none or several."""
    try:
        needed = metadata.requires("sciformer") or []
    except metadata.PackageNotFoundError:
        return ""
    lines = (re.fullmatch(rf"{re.escape(package)}\b[^;]*;.*extra == ['\"](\w+)['\"].*", line) for line in needed)
    extras = {found[1] for found in lines if found}
    return extras.pop() if len(extras) == 1 else ""
