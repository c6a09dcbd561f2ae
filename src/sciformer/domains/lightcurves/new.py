"""A recipe for light curves: which columns are times, values, errors, bands, classes; how long curves are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...data.columns import Array, Lists, Table
from ...data.readers.series.names import LABEL, QUALITY, Names, hits, plain
from ...data.readers.series.plan import CurveFile, Objects, open_curves
from ...data.readers.series.reader import SeriesFiles
from ...data.source import Splits
from ...data.split import Split
from ...errors import UserError
from ...recipe.page import (
    GUESSES_NOTE,
    RELATIVE_PATHS_NOTE,
    SKIP_BAD_FILES,
    Guess,
    Line,
    file_lines,
    group_by_part,
    line_of,
    name_files,
    open_readable,
    write,
)

TARGET_NAMES = (
    "redshift",
    "z",
    "hostgalz",
    "zspec",
    "period",
    "logg",
    "numax",
    "teff",
    "metallicity",
    "feh",
    "target",
    "y",
)
MIN_OBJECTS, MIN_OBJECTS_PER_CLASS, MAX_CLASSES = 10, 10, 200  # objects worth training on; of a class; classes
MAX_CLASS_SHARE = 0.9  # share of a class beside which others are not learned
MAX_WINDOW = 512  # points of a window
MAX_INSPECTED_FILES = 20  # files that are looked at, of those to train on
QUESTION_WORDS = {"classify": "class", "regress": "values", "masked": "hidden points"}


class FoundCurves(NamedTuple):
    """What was found in the files."""

    table: Table
    objects: int
    file: CurveFile
    opened: Splits
    lengths: Array
    skips: bool


def lightcurves_recipe(names: list[str], paths: list[Path]) -> str:
    """A transformer on the light curves of the files."""
    names, objects = separate_object_table(names)
    paths = [path for path in paths if not objects or path != Path(objects).expanduser()]
    parts = group_by_part(names)
    seen = inspect_files(parts["train"], objects)
    own, ask, middle = seen.file.names, _find_question(seen), int(np.median(seen.lengths))
    given = {field.name: getattr(own, field.name) for field in fields(own)}
    given |= {"label": own.label if ask.label == "label" and own.label else "", "quality": _flag_column(seen.file)}
    head = [
        f"A transformer for the light curves of {name_files(paths)}, written by `sciformer new lightcurves`.",
        f"Found: {seen.objects:,} objects, half of them with {middle:,} points or more; {_file_layout(seen.file)}.",
        *_band_names(seen.table),
        *ask.notes,
        *seen.opened.notes,
        "",
        GUESSES_NOTE,
        "All other keys and their meaning: sciformer recipes lightcurves/transformer",
    ]
    lines = [
        Line("about"),
        Line("title", f"{QUESTION_WORDS[ask.kind]} of light curves in {name_files(paths)}", "", 2),
        Line("data", f"{name_files(paths)}, {seen.objects:,} objects", "", 2),
        Line("data"),
        Line("kind", "series", "", 2),
        *(file_lines(parts) if len(parts) > 1 else [Line("files", parts["train"], RELATIVE_PATHS_NOTE, 2)]),
        *([Line("objects", objects, "a row for each object, found by its name", 2)] if objects else []),
        *([SKIP_BAD_FILES] if seen.skips else []),
        *(line for role, why in COLUMN_REASONS.items() for line in line_of(given, role, why)),
        *_split_lines(parts, seen.objects, ask),
        Line("tokens"),
        Line("kind", "observations", "a token is one observation", 2),
        Line("window", _window_lines(seen.lengths), _is_long(seen.lengths), 2),
        *_value_lines(seen),
        Line("extra", [], f"columns that enter as tokens of their own{_other_columns(seen, ask)}", 2),
        Line("model"),
        Line("kind", "encoder", "", 2),
        *_model_lines(seen.objects),
        Line("objective"),
        *ask.lines,
        *_train_lines(seen.objects, ask.kind),
    ]
    return write(head, lines)


COLUMN_REASONS = {
    "id": "the column that tells the object",
    "time": "in days, kept in double precision",
    "value": "magnitudes or fluxes",
    "error": "",
    "band": "",
    "limit": "true where the value is an upper limit",
    "label": "the class of an object",
    "quality": "points where it is not 0 are left out",
}


def separate_object_table(names: list[str]) -> tuple[list[str], str]:
    """The names of curves, and that of a table of objects beside them, if there is one: without times."""
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
    """The curves of the files to train on, or of some of many."""
    places = np.unique(np.linspace(0, len(names) - 1, MAX_INSPECTED_FILES).astype(int))
    some = [names[place] for place in places]
    section = SeriesFiles(kind="series", files=some, objects=objects, split=Split(valid=0, test=0))
    opened, skips = open_readable(section)
    source: Any = opened.sources["train"]
    count = round(sum(source.sizes) * len(names) / len(some))
    if count < MIN_OBJECTS:
        raise UserError(
            f"training needs {MIN_OBJECTS} objects or more, not {count}",
            hint=" ".join(["Bring more of them.", *opened.notes[:4]]),
        )
    table, scans = source.load(0), list(source.scans.values())
    time = table["time"]
    assert isinstance(time, Lists)
    file = open_curves(scans[0].path, Names())
    return FoundCurves(table, count, file, opened, time.lengths, skips)


def _file_layout(file: CurveFile) -> str:
    if file.single:
        return "an object in each file"
    return "a row for each object" if file.listed else "a row for each observation"


def _flag_column(file: CurveFile) -> str:
    """A column of flags, if there is one beside the points."""
    beside = [name for name, kind in file.table.kinds.items() if kind.listed == file.listed and not kind.words]
    found = hits(QUALITY, beside)
    return found[0] if found else ""


def _band_names(table: Table) -> list[str]:
    band = table.get("band")
    if not isinstance(band, Lists):
        return []
    names, counts = np.unique(band.values, return_counts=True)
    shown = ", ".join(f"{name} ({100 * share:.0f} %)" for name, share in zip(names[:12], counts / counts.sum()))
    return [f"Bands: {shown}{' and others' if len(names) > 12 else ''}."]


class Question(NamedTuple):
    """The question of a recipe, and what is said about it."""

    kind: str
    label: str
    lines: list[Line]
    notes: list[str]


def _find_question(seen: FoundCurves) -> Question:
    single = {name: column for name, column in seen.table.items() if isinstance(column, np.ndarray) and name != "id"}
    values = [name for target in TARGET_NAMES for name in single if plain(name) == target and _is_real(single[name])]
    also = f" Values that could be learned: {', '.join(values)}." if values else ""
    label = next((name for name in ("label", *hits(LABEL, single)) if name in single), "")
    if label:
        names, counts = np.unique(single[label].astype(str)[single[label].astype(str) != ""], return_counts=True)
        if 2 <= len(names) <= MAX_CLASSES and not (values and counts.max() > MAX_CLASS_SHARE * counts.sum()):
            return _class_question(label, names, counts, also)
    if values:
        lines = [
            Line("kind", "regress", f"`{values[0]}` has values", 2),
            Line("targets", values[:1], "columns with the values, one or several", 2),
        ]
        why = "No classes were found" if not label else f"Nearly all objects are of one class of `{label}`"
        return Question("regress", "", lines, [f"{why}: the values of `{values[0]}` are learned."])
    note = "Neither classes nor values were found: hidden points are asked for. For classes, name their column in"
    more = "data.label, a table of objects in data.objects, or the class before the names of files: RRAB:rr/*.fits"
    hide = Line("mask_ratio", 0.5, "of the points are hidden", 2)
    return Question("masked", "", [Line("kind", "masked", "no column to learn was found", 2), hide], [note, more])


def _class_question(label: str, names: Array, counts: Array, also: str) -> Question:
    shown = ", ".join(f"{name} ({count:,})" for name, count in zip(names[:12], counts))
    notes = [f"Classes in the curves looked at: {shown}{' and others' if len(names) > 12 else ''}.{also}"]
    if rare := int((counts < MIN_OBJECTS_PER_CLASS).sum()):
        notes.append(
            f"{rare} of {len(names)} have fewer than {MIN_OBJECTS_PER_CLASS} objects there: too few to be learned and "
            "judged."
        )
    uneven = bool(counts.max() > 3 * counts.min())
    balance = Line("balance", "classes" if uneven else "none", "each class counts alike; none: each object", 2)
    lines = [
        Line("kind", "classify", f"{len(names)} classes", 2),
        *([Line("label", label, "the column with the class", 2)] if label != "label" else []),
        balance,
    ]
    return Question("classify", label, lines, notes)


def _same_values(column: Array, other: Any) -> bool:
    return isinstance(other, np.ndarray) and bool((column.astype(str) == other.astype(str)).all())


def _is_real(column: Array) -> bool:
    return (
        column.dtype.kind == "f"
        and bool(np.isfinite(column).mean() > 0.9)
        and len(np.unique(column)) > MAX_CLASSES // 10
    )


def _other_columns(seen: FoundCurves, ask: Question) -> str:
    """Further columns of objects, in a few words."""
    taken = {"id", "label", ask.label, *(line.value[0] for line in ask.lines if line.key == "targets")}
    known = [seen.table[name] for name in ("id", "label") if name in seen.table]  # a table of objects has them again
    found = [
        name
        for name, column in seen.table.items()
        if isinstance(column, np.ndarray) and name not in taken and not any(_same_values(column, one) for one in known)
    ]
    return f"; there are {', '.join(found[:8])}" if found else ""


def _split_lines(parts: Mapping[str, list[str]], count: int, ask: Question) -> list[Line]:
    shares = {"valid": (0.1, "to choose the best model"), "test": (0.1, "to judge it in the end")}
    if count < 100:
        shares["test"] = (0.0, "too few for one")
    left = [Line(part, *share, 3) for part, share in shares.items() if part not in parts]
    if not left:
        return []
    even = [Line("stratify", ask.label, "each class has the same share in every part", 3)] if ask.label else []
    return [Line("split", None, f"of {count:,} objects; curves of one stay together", 2), *left, *even]


def _window_lines(lengths: Array) -> int:
    return int(min(MAX_WINDOW, max(16, -(-np.quantile(lengths, 0.99) // 8) * 8)))


def _is_long(lengths: Array) -> str:
    window, longest = _window_lines(lengths), int(lengths.max())
    if longest <= window:
        return f"points seen at once; the longest curve has {longest:,}"
    longer = int((lengths > window).sum())
    return f"points seen at once; {longer:,} of {len(lengths):,} curves are longer: cut in windows"


def _value_lines(seen: FoundCurves) -> list[Line]:
    """Whether values are magnitudes, and what they are centred and divided by."""
    column = seen.table["value"]
    assert isinstance(column, Lists)
    name = plain(seen.file.names.value)
    magnitudes = "mag" in name or name == "m"
    negative = float((column.values < 0).mean())
    why = "by its name" if magnitudes else f"{100 * negative:.0f} % of the values are negative"
    transient = negative > 0.02 and not magnitudes
    return [
        Line("magnitudes", magnitudes, why, 2),
        Line(
            "centre",
            "none" if transient else "mean",
            "differences of images: 0 means something" if transient else "of each window; none keeps the level",
            2,
        ),
        Line("scale", "deviation" if not magnitudes else "learned", SCALE_REASONS[magnitudes], 2),
    ]


SCALE_REASONS = {True: "the same for all: amplitudes tell", False: "of each window: fluxes differ by much"}


def _model_lines(count: int) -> list[Line]:
    dim, depth, heads = (32, 2, 4) if count < 500 else (64, 3, 4) if count < 20_000 else (128, 4, 8)
    return [
        Line("dim", dim, f"for {count:,} objects", 2),
        Line("depth", depth, "blocks", 2),
        Line("heads", heads, "", 2),
        Line("dropout", 0.1, "against learning by heart", 2),
    ]


def _train_lines(count: int, kind: str) -> list[Line]:
    batch = 128 if count >= 20_000 else 32 if count >= 320 else 8
    steps = int(np.clip(40 * count // batch, 100, 20_000))
    return [
        Line("train"),
        Line("steps", steps, f"about {steps * batch / count:.0f} times through the data", 2),
        Line("batch", batch, "", 2),
        Line("packed", True, "curves end to end: nothing is spent on padding", 2),
        Line("warmup", max(1, steps // 10), "a tenth of the steps", 2),
        Line("evaluate_every", max(10, steps // 20), "twenty times in all", 2),
        Line("best", "macro_f1" if kind == "classify" else "loss", "decides which model is kept", 2),
    ]


LIGHTCURVES = Guess(lightcurves_recipe, tagged=True)
