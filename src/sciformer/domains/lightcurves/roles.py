"""Roles of columns and header keywords of light curves, guessed from contents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from ...data.columns import Array
from ...data.profile import find_codes
from ...data.readers.part_names import name_words
from ...data.readers.series.curves import CurveFile
from ...data.readers.series.names import LABEL, hits, plain
from ...files.formats.memory import words

ID_WORDS = frozenset(("id", "ident", "identifier", "name", "star", "object", "source", "designation", "hip", "gaia"))
NO_OBJECT = frozenset(  # words of ids of other things
    (
        *("obs", "observation", "det", "detection", "visit", "ccd", "chip", "field", "exposure", "exp", "frame"),
        *("image", "night", "alert", "cand", "candidate", "flag", "quality", "filter", "band", "camera", "program"),
    )
)
MAX_INSPECTED_ROWS = 500_000
MIN_OBJECTS = 10  # objects in a column whose name does not say that it has ids
MIN_OVERLAP = 0.5  # share of objects whose times overlap with those of earlier objects
MAX_CLASSES = 200
MAX_SHOWN_CLASSES = 6
NO_CLASS_KEYWORDS = frozenset(plain(one) for one in ("EXTNAME", "DATE", "CHECKSUM", "DATASUM", "ORIGIN", "CREATOR"))


def guess_objects(file: CurveFile) -> str:
    """Column of object ids in a long table; "" if there is none.

    Each object has several points, and the times of objects overlap. Columns with names like id or star come first,
    then the column with the most objects.
    """
    used, table = set(file.names.used().values()), file.table
    stop = min(table.rows, MAX_INSPECTED_ROWS)
    names = [name for name, kind in file.columns.items() if not kind.listed and name not in used]
    if file.listed or not names:
        return ""
    columns = table.read([file.names.time, *names], 0, stop)
    time = np.asarray(columns[file.names.time], np.float64)
    best, found = (False, 0), ""
    for name in names:
        own = set(name_words(name))
        told = bool(own & ID_WORDS) and not own & NO_OBJECT
        count = _objects_of(np.asarray(columns[name]), time)
        if count >= (2 if told else MIN_OBJECTS) and not own & NO_OBJECT and (told, count) > best:
            best, found = (told, count), name
    return found


def _objects_of(column: Array, time: Array) -> int:
    """Number of objects in a column of object ids; 0 for other columns.

    A column of ids has repeated values, and the time ranges of different objects overlap.
    """
    if column.dtype.kind == "f":
        if not (np.isfinite(column).all() and (column == np.round(column)).all()):
            return 0
    elif column.dtype.kind not in "iu":
        column = words(column)
    ids, place = np.unique(column, return_inverse=True)
    known = np.isfinite(time)
    if not 1 < len(ids) <= len(column) // 2 or not known.any():
        return 0
    first, last = np.full(len(ids), np.inf), np.full(len(ids), -np.inf)
    np.minimum.at(first, place[known], time[known])
    np.maximum.at(last, place[known], time[known])
    order = np.argsort(first, kind="stable")
    overlapping = first[order][1:] < np.maximum.accumulate(last[order])[:-1]
    return len(ids) if overlapping.mean() >= MIN_OVERLAP else 0


def read_headers(files: Iterable[CurveFile]) -> dict[str, Array]:
    """Numbers and words in the headers of files with one object each.

    Only keywords with a value in all files are read.
    """
    headers = [file.header for file in files if file.single]
    shared = [name for name in (headers[0] if headers else {}) if all(name in one for one in headers)]
    made = {name: np.array([one[name] for one in headers]) for name in shared}
    return {name: column for name, column in made.items() if column.dtype.kind in "iufU"}


def is_class(column: Array) -> bool:
    """Whether a column has repeated words, as names of classes do."""
    if column.dtype.kind not in "OUS":
        return False
    count = len(np.unique(column.astype(str)))
    return 1 < count <= min(MAX_CLASSES, len(column) // 2)


def guess_label(columns: Mapping[str, Array]) -> str:
    """Column or keyword of classes with a usual name (VARTYPE), or ""."""
    return next(iter(hits(LABEL, [name for name, column in columns.items() if is_class(column)])), "")


def describe_possible_classes(columns: Mapping[str, Array]) -> str:
    """Hint on columns or keywords with repeated words; "" if there are none."""
    shown = []
    for name, column in columns.items():
        if is_class(column) and plain(name) not in NO_CLASS_KEYWORDS:
            known = np.unique(column.astype(str)).tolist()
            shown.append(f"{name} ({', '.join(known[:MAX_SHOWN_CLASSES])}{', ...' * (len(known) > MAX_SHOWN_CLASSES)})")
    return f"Possible classes: {'; '.join(shown[:4])}. Use --data.label NAME." if shown else ""


def missing_values_of(*columns: Array | None) -> list[float]:
    """Codes of missing values (-99, 99.999) in columns of numbers."""
    found: set[float] = set()
    for column in columns:
        if column is not None:
            found |= set(find_codes(np.sort(column[np.isfinite(column)])))
    return sorted(float(f"{one:.7g}") for one in found)
