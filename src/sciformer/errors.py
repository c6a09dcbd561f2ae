"""Errors that a user can correct: what is wrong, where, and what to do."""

from __future__ import annotations

import copyreg
import difflib
import os
import re
from collections.abc import Iterable
from signal import Signals
from typing import Any

OUT_OF_MEMORY = re.compile("out of memory|allocate memory")  # of PyTorch, on a GPU or on the CPU
PREFIX = re.compile(r"(.*[_.])?([^_.]*)", re.DOTALL)  # collection and last word of a name
MIN_CLOSENESS = 0.5  # of the last words of two names that are alike
DOTTED_KEY = re.compile(r"[a-z_]+(\.[a-z_]+)+")
# Control characters, except line end and tab; changes of the direction of writing; halves of characters.
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""Replace control characters by visible text such as \x1b.

    Control characters in a file name could change the terminal.
    """
    return UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error is a lack of GPU memory or of main memory."""
    if isinstance(error, RuntimeError):
        return type(error).__name__ == "OutOfMemoryError" or OUT_OF_MEMORY.search(str(error)) is not None
    return isinstance(error, MemoryError)


class UserError(ValueError):
    """Error for the user to correct; errors of the library itself are assertions.

    message   what is wrong, in one plain sentence without a full stop
    hint      what to do, in one or more sentences; may be empty
    key       the recipe key or option concerned, dotted: `data.split.stratify`
    file      the file or folder concerned
    line      the line in that file

    Control characters in message and hint are escaped.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        key: str | None = None,
        file: str | os.PathLike[str] | None = None,
        line: int | None = None,
    ) -> None:
        self.message = printable(message)
        self.hint = printable(hint)
        self.key = key
        self.file = None if file is None else os.fspath(file)
        self.line = line
        gap = "\n" if "\n" in self.message else ". "
        super().__init__(self.message + (f"{gap}{self.hint}" if self.hint else ""))

    @property
    def fields(self) -> dict[str, Any]:
        """Message and fields as keyword arguments, for `UserError(**error.fields)`."""
        names = ("message", "hint", "key", "file", "line")
        return {name: getattr(self, name) for name in names}

    def with_fields(self, **fields: Any) -> UserError:
        """Copy of the error with changed fields: `error.with_fields(hint="...")`."""
        return UserError(**{**self.fields, **fields})

    def __reduce__(self) -> tuple[Any, ...]:
        # Unpickle without `__init__`, because subclasses have other arguments.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


def one_of(what: str, value: object, names: Iterable[object], *, key: str | None = None) -> None:
    """Raise a `UserError` with the nearest name if `value` is not in `names`."""
    known = [str(name) for name in names]
    if value in known:
        return
    folded = {name.lower(): name for name in reversed(known)}
    near = [folded[name] for name in difflib.get_close_matches(str(value).lower(), folded, n=1)]
    plain = what.strip("`")
    raise UserError(
        f"{what} must be one of {', '.join(known)}, not {value!r}",
        hint=f"Did you mean {near[0]!r}?" if near else "",
        key=key or (plain if DOTTED_KEY.fullmatch(plain) else None),
    )


def nearest(value: str, names: Iterable[str], most: int = 8) -> str:
    """Hint for an unknown name: similar known names, or else the first known names."""
    known = list(names)
    folded = {name.lower(): name for name in reversed(known)}
    close = difflib.get_close_matches(value.lower(), folded, n=3)
    near = [folded[name] for name in close if _are_last_words_close(value.lower(), name)]
    if near:
        return f"Did you mean {' or '.join(repr(name) for name in near)}?"
    return f"There are {list_names(known, most)}." if known else ""


def list_names(names: Iterable[object], most: int = 12, separator: str = ", ") -> str:
    """List the first names, then the number of further names: a, b and 3 more."""
    known = [str(name) for name in names]
    return separator.join(known[:most]) + (f" and {len(known) - most:,} more" if len(known) > most else "")


def _are_last_words_close(one: str, other: str) -> bool:
    """Whether two names are similar apart from a common prefix.

    `part_energy` and `part_py` are not: they share only the prefix `part_`.
    """
    (start, last), (begin, end) = (PREFIX.fullmatch(name).groups() for name in (one, other))  # type: ignore[union-attr]
    return start != begin or not start or difflib.SequenceMatcher(None, last, end).ratio() >= MIN_CLOSENESS


class Stopped(Exception):
    """Exception: a signal has stopped the training, and a checkpoint was saved."""

    def __init__(self, signal: int, step: int) -> None:
        self.signal = signal
        super().__init__(f"stopped by {Signals(signal).name} at step {step}; the same command resumes from there")
