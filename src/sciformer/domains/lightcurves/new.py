"""Recipe of `sciformer new` for light curves: columns, classes, lengths, scaling."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...data.columns import Array, Lists, Table
from ...data.readers.series.curves import CurveFile, Objects, open_curves
from ...data.readers.series.names import LABEL, QUALITY, Names, hits, plain
from ...data.readers.series.reader import SeriesFiles
from ...data.source import Splits
from ...errors import UserError
from ...recipe import guess
from ...recipe.page import Found, Page

SIZES: guess.Sizes = {0: (32, 2, 4), 500: (64, 3, 4), 20_000: (128, 4, 8)}
EPOCHS, BATCHES = 40, {0: 8, 320: 32, 20_000: 128}
TARGET_NAMES = (
    *("redshift", "z", "hostgalz", "zspec", "period", "logg", "numax", "teff", "metallicity", "feh", "target", "y"),
)
MAX_CLASSES = 200
MAX_CLASS_SHARE = 0.9  # largest share of one class that still allows a classification
MAX_WINDOW = 512  # points per window
MAX_INSPECTED_FILES = 20  # training files that are inspected
QUESTION_WORDS = {"classify": "class", "regress": "values", "masked": "hidden points"}
CENTRES = {
    True: ("none", "fluxes of difference images: 0 has a meaning"),
    False: ("mean", "mean of each window; none keeps the level"),
}
SCALES = {
    True: ("learned", "the same for all curves: keeps amplitudes"),
    False: ("deviation", "deviation of each window: fluxes vary widely"),
}
COLUMN_REASONS = {
    "id": "column with the name of the object",
    "time": "in days, kept in double precision",
    "value": "magnitudes or fluxes",
    "error": "",
    "band": "",
    "limit": "true if the value is an upper limit",
    "label": "class of the object",
    "quality": "points with a value other than 0 are removed",
}


class FoundCurves(NamedTuple):
    """Contents of the files of light curves."""

    table: Table
    samples: int
    file: CurveFile
    opened: Splits
    lengths: Array
    skips: bool


def guess_lightcurves(names: list[str], paths: list[Path]) -> Page:
    """Recipe page for a transformer on the light curves in the files."""
    names, objects = separate_object_table(names)
    paths = [path for path in paths if not objects or path != Path(objects).expanduser()]
    parts = guess.group_by_part(names)
    seen = inspect_files(parts["train"], objects)
    ask = _find_question(seen)
    label = ask.column if ask.kind == "classify" else ""
    window = int(min(MAX_WINDOW, max(16, -(-np.quantile(seen.lengths, 0.99) // 8) * 8)))
    file, middle = seen.file, int(np.median(seen.lengths))
    beside = [name for name, kind in file.columns.items() if kind.listed == file.listed and not kind.words]
    columns = asdict(file.names) | {"quality": next(iter(hits(QUALITY, beside)), "")}
    if label != "label":
        columns["label"] = ""
    layout = "one object per file" if file.single else f"one row per {'object' if file.listed else 'observation'}"
    notes = [
        f"Found: {seen.samples:,} objects with a median of {middle:,} points; {layout}.",
        *_band_names(seen.table),
        *ask.notes,
        *seen.opened.notes,
    ]
    found = [
        Found("data.kind", "series"),
        *guess.files(parts, seen.skips),
        Found("data.objects", objects or None, "table with one row per object, matched by name"),
        *(Found(f"data.{role}", columns[role] or None, why) for role, why in COLUMN_REASONS.items()),
        *guess.split(parts, seen.samples, "objects", "curves of one", stratify=label),
        Found("tokens.kind", "observations", "one token per observation"),
        Found("tokens.window", window, f"points per window; {_describe_lengths(seen.lengths, window)}"),
        *_value_keys(seen),
        Found("tokens.extra", [], f"columns added as tokens{_other_columns(seen, ask)}"),
        Found("model.kind", "encoder"),
        *guess.model(seen.samples, "objects", SIZES),
        *ask.found,
        *guess.training(seen.samples, EPOCHS, BATCHES, "macro_f1" if label else "loss", parts),
        Found("train.packed", True, "curves are concatenated: no padding"),
    ]
    title, amount = f"{QUESTION_WORDS[ask.kind]} of light curves", f"{seen.samples:,} objects"
    return Page(title, paths, amount, notes, "lightcurves/transformer", found)


def separate_object_table(names: list[str]) -> tuple[list[str], str]:
    """Split file names into light curves and a table of objects (without times)."""
    for name in names if len(names) <= MAX_INSPECTED_FILES else (names[0], names[-1]):
        path = Path(name).expanduser()
        if len(names) == 1 or not path.is_file():
            continue
        try:
            open_curves(path, Names())
        except UserError:
            with suppress(UserError):
                if len(Objects(path, Names()).columns) > 1:
                    return [other for other in names if other != name], name
    return names, ""


def inspect_files(names: Sequence[str], objects: str = "") -> FoundCurves:
    """Read the training files, or a sample of them if there are many."""
    places = np.unique(np.linspace(0, len(names) - 1, MAX_INSPECTED_FILES).astype(int))
    some = [names[place] for place in places]
    opened, skips = guess.open_readable(SeriesFiles(kind="series", files=some, objects=objects, split=guess.NO_SPLIT))
    source: Any = opened.sources["train"]
    count = guess.check_count(round(sum(source.sizes) * len(names) / len(some)), "objects", opened.notes)
    table, scans = source.load(0), list(source.scans.values())
    time = table["time"]
    assert isinstance(time, Lists)
    return FoundCurves(table, count, open_curves(scans[0].path, Names()), opened, time.lengths, skips)


def _band_names(table: Table) -> list[str]:
    band = table.get("band")
    if not isinstance(band, Lists):
        return []
    names, counts = np.unique(band.values, return_counts=True)
    shares = 100 * counts / counts.sum()
    return [f"Bands: {guess.list_names(f'{name} ({share:.0f} %)' for name, share in zip(names, shares))}."]


def _find_question(seen: FoundCurves) -> guess.Question:
    single = {name: column for name, column in seen.table.items() if isinstance(column, np.ndarray) and name != "id"}
    values = [name for target in TARGET_NAMES for name in single if plain(name) == target and _is_real(single[name])]
    label = next((name for name in ("label", *hits(LABEL, single)) if name in single), "")
    why = "No classes were found"
    if label:
        words = single[label].astype(str)
        words = words[words != ""]
        counts = np.unique(words, return_counts=True)[1]
        if 2 <= len(counts) <= MAX_CLASSES and not (values and counts.max() > MAX_CLASS_SHARE * counts.sum()):
            also = f" Columns for a regression: {', '.join(values)}." if values else ""
            notes = [f"Classes of the inspected curves: {guess.list_counts(words)}.{also}"]
            ask = guess.classify(label, f"{len(counts)} classes")
            balance = "classes" if counts.max() > 3 * counts.min() else "none"
            even = Found("objective.balance", balance, "classes count equally; none: objects count equally")
            return ask._replace(found=[*ask.found, even], notes=[*notes, *guess.rare_classes(words, "objects")])
        why = f"Nearly all objects have the same class in `{label}`"
    if values:
        ask = guess.regress(values[0], f"`{values[0]}` has values")
        return ask._replace(notes=[f"{why}: the recipe predicts the values of `{values[0]}`."])
    notes = [
        "Neither classes nor values were found: the recipe predicts hidden points. To classify, set the column",
        "data.label, or a table of objects in data.objects, or put the class before file names: RRAB:rr/*.fits",
    ]
    return guess.masked("points", 0.5)._replace(notes=notes)


def _is_real(column: Array) -> bool:
    many = column.dtype.kind == "f" and len(np.unique(column)) > MAX_CLASSES // 10
    return many and bool(np.isfinite(column).mean() > 0.9)


def _other_columns(seen: FoundCurves, ask: guess.Question) -> str:
    words = {name: column.astype(str) for name, column in seen.table.items() if isinstance(column, np.ndarray)}
    known = [words.pop(name) for name in ("id", "label") if name in words]  # a table of objects repeats them
    found = [name for name, column in words.items() if not any((column == one).all() for one in known)]
    found = [name for name in found if name != ask.column]
    return f"; available: {', '.join(found[:8])}" if found else ""


def _describe_lengths(lengths: Array, window: int) -> str:
    if not (longer := int((lengths > window).sum())):
        return f"the longest curve has {lengths.max():,} points"
    return f"{longer:,} of {len(lengths):,} curves are longer and are cut into windows"


def _value_keys(seen: FoundCurves) -> list[Found]:
    column = seen.table["value"]
    assert isinstance(column, Lists)
    name = plain(seen.file.names.value)
    negative = float((column.values < 0).mean())
    magnitudes = "mag" in name or name == "m"
    why = "from the name of the column" if magnitudes else f"{100 * negative:.0f} % of the values are negative"
    return [
        Found("tokens.magnitudes", magnitudes, why),
        Found("tokens.centre", *CENTRES[negative > 0.02 and not magnitudes]),
        Found("tokens.scale", *SCALES[magnitudes]),
    ]


LIGHTCURVES = guess.Guess(guess_lightcurves, tagged=True)
