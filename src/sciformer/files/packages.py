"""Errors for missing packages and for files that packages cannot read."""

from __future__ import annotations

import importlib
import re
from importlib import metadata
from pathlib import Path
from typing import Any

from ..errors import UserError


def broken(path: Path, form: str, error: Exception) -> UserError:
    """The error for a file that cannot be read."""
    words = " ".join(str(error).split()) or type(error).__name__
    return UserError(
        f"{path} is not a whole {form} file: {words[:200]}",
        hint="Was it cut off? Fetch or write it again.",
        file=path,
    )


def require(module: str, what: str, install: str = "") -> Any:
    """Import an optional module, or raise an error with the command that installs it.

    what      a plural that needs the package: `ROOT files`, `BLEU scores`
    install   words after `pip install` (default: the extra of this library that has the package, or its name)
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
    """The extra of this library that has a package; empty where none has it, or several."""
    try:
        needed = metadata.requires("sciformer") or []
    except metadata.PackageNotFoundError:
        return ""
    lines = (re.fullmatch(rf"{re.escape(package)}\b[^;]*;.*extra == ['\"](\w+)['\"].*", line) for line in needed)
    extras = {found[1] for found in lines if found}
    return extras.pop() if len(extras) == 1 else ""
