"""Guessed recipes for light curves: columns, classes, lengths, scaling."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...data.columns import Array, Lists, Table
from ...data.fileset import find_tagged_files
from ...data.readers.series.curves import CurveFile, Objects, open_curves
from ...data.readers.series.names import LABEL, NONE, QUALITY, Names, hits, plain
from ...data.readers.series.reader import SeriesFiles
from ...data.source import Splits
from ...errors import UserError
from ...recipe import guess
from ...recipe.given import Given
from ...recipe.page import Found, Page, describe_columns
from .periods import PeriodSearch, find_periods
from .roles import MAX_CLASSES, describe_possible_classes, guess_label, guess_objects, missing_values_of, read_headers

SIZES: guess.Sizes = {0: (32, 2, 4), 500: (64, 3, 4), 20_000: (128, 4, 8)}
BATCHES = {0: 8, 320: 32, 20_000: 128}
EPOCHS, DROPOUT, WEIGHT_DECAY = {0: 15, 1000: 40}, {0: 0.3, 1000: 0.1}, {0: 0.3, 1000: 0.05}
TARGET_NAMES = (
    *("redshift", "z", "hostgalz", "zspec", "period", "logg", "numax", "teff", "metallicity", "feh", "target", "y"),
)
MAX_CLASS_SHARE = 0.9  # largest share of one class that still allows a classification
MAX_WINDOW = 512  # points per window
MAX_INSPECTED_FILES = 20  # training files that are inspected
MAX_PERIOD_CURVES = 40  # inspected curves in which periods are looked for
MIN_PERIODIC_SHARE = 0.2  # share of curves with a significant period that makes periods worth their time
MIN_CYCLES, MAX_FALSE_ALARM = 3, 1e-3  # of a significant period
MIN_LEAD = 0.02  # share of the variance that it explains beyond the best slow period
MAX_FREQUENCIES = 1_000_000  # of a search; a longer series of the other files may need four times as many
FEW_LABELS = 100  # objects per class below which pretraining is proposed
LONGEST_ATTENTION_PERIOD, ATTENTION_RANGE = 1000.0, 20_000  # days; longest over shortest period of the positions
QUESTION_WORDS = {"classify": "class", "regress": "values", "masked": "hidden points"}
CENTRES = {
    True: ("none", "fluxes of difference images: 0 has a meaning"),
    False: ("median", "median of each window; none keeps the level"),
}
SCALES = {
    True: ("learned", "the same for all curves: keeps amplitudes"),
    False: ("deviation", "deviation of each window: fluxes vary widely"),
}
CLASS_HINT = (
    "Set a class column (--data.label) or a table of objects (--data.objects), or tag the files: RRAB:rr/*.fits"
)
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


class Periodic(NamedTuple):
    """Guessed recipe keys of the period features, and notes on them."""

    found: list[Found]
    notes: list[str]


class FoundCurves(NamedTuple):
    """Content of files of light curves, as found by `inspect_files`.

    table    samples of the training part
    samples  number of objects
    file     first file, with its columns and their roles
    opened   parts of the data
    lengths  number of points of each sample
    skips    whether unreadable files are left out
    section  `data:` section with the guessed roles
    headers  keywords of files with one object each
    guessed  notes on roles that were guessed from the contents
    """

    table: Table
    samples: int
    file: CurveFile
    opened: Splits
    lengths: Array
    skips: bool
    section: SeriesFiles
    headers: dict[str, Array]
    guessed: list[str]


def guess_lightcurves(names: list[str], paths: list[Path], given: Given) -> Page:
    """Guess a recipe of a transformer for the light curves in the files."""
    names, objects = separate_object_table(names, given)
    paths = [path for path in paths if not objects or path != Path(objects).expanduser()]
    parts = given.parts(names)
    seen = inspect_files(parts["train"], given, objects)
    ask = _find_question(seen, given)
    periodic = _period_keys(seen, ask, given)
    label = ask.column if ask.kind == "classify" else ""
    window = int(min(MAX_WINDOW, max(16, -(-np.quantile(seen.lengths, 0.99) // 8) * 8)))
    file, middle = seen.file, int(np.median(seen.lengths))
    columns = _roles(file)
    if label != "label":
        columns["label"] = ""
    layout = "one object per file" if file.single else f"one row per {'object' if file.listed else 'observation'}"
    notes = [
        f"Found: {seen.samples:,} objects with a median of {middle:,} points; {layout}.",
        *_band_names(seen.table),
        *seen.guessed,
        *ask.notes,
        *periodic.notes,
        *seen.opened.notes,
    ]
    found = [
        Found("data.kind", "series"),
        *guess.files(parts, seen.skips),
        Found("data.objects", objects or None, "table with one row per object, matched by name"),
        *(Found(f"data.{role}", columns[role] or None, why) for role, why in COLUMN_REASONS.items()),
        Found("data.missing_values", seen.section.missing_values or None, "left out; no other values are near them"),
        *guess.split(parts, seen.samples, "objects", "curves of one", stratify=label),
        Found("tokens.kind", "observations", "one token per observation"),
        Found("tokens.window", window, f"points per window; {_describe_lengths(seen.lengths, window)}"),
        *_value_keys(seen),
        Found("tokens.times", "both", "as positions, and differences as a feature"),
        *periodic.found,
        Found("tokens.extra", [], f"columns added as tokens{_other_columns(seen, ask)}"),
        Found("model.kind", "encoder"),
        *guess.model(seen.samples, "objects", SIZES, guess.at_count(DROPOUT, seen.samples)),
        *_position_keys(seen),
        *ask.found,
        *guess.training(
            seen.samples, guess.at_count(EPOCHS, seen.samples), BATCHES, "macro_f1" if label else "loss", parts
        ),
        Found("train.min_lr_ratio", 0.01, "final learning rate over the highest"),
        Found("train.betas", [0.9, 0.99], "of Adam"),
        Found("train.weight_decay", guess.at_count(WEIGHT_DECAY, seen.samples), "larger for few objects"),
        Found("train.packed", True, "curves are concatenated: no padding"),
    ]
    if ask.kind == "classify":
        classes: Any = seen.headers[ask.column] if ask.column in seen.headers else seen.table[ask.column]
        notes += _pretraining(seen, {one.key: one.value for one in found}, len(np.unique(classes.astype(str))))
    title, amount = f"{QUESTION_WORDS[ask.kind]} of light curves", f"{seen.samples:,} objects"
    aim = {"target": ask.column} if ask.column not in ("", "label", columns["label"]) else {}
    roles, unused = columns | aim, _without_role(file, (columns | aim).values())
    return Page(title, paths, amount, notes, "lightcurves/transformer", found, roles, unused)


def _roles(file: CurveFile) -> dict[str, str]:
    """Column name for each role: time, value, error, band, quality, ..."""
    beside = [name for name, kind in file.columns.items() if kind.listed == file.listed and not kind.words]
    quality = file.names.quality or next(iter(hits(QUALITY, beside)), "")
    return asdict(file.names) | file.header_roles | {"quality": quality}


def _without_role(file: CurveFile, used: Iterable[str]) -> list[str]:
    known = {*used}
    return [name for name in file.columns if name not in known]


def separate_object_table(names: list[str], given: Given) -> tuple[list[str], str]:
    """Separate the files of light curves from a table of objects without times."""
    if objects := given.get("data.objects"):
        return [name for name in names if name != objects], str(objects)
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


def inspect_files(names: Sequence[str], given: Given, objects: str = "") -> FoundCurves:
    """Read the training files, or a sample of them if there are many."""
    places = np.unique(np.linspace(0, len(names) - 1, MAX_INSPECTED_FILES).astype(int))
    some = [names[place] for place in places]
    fixed = {"files": some, "objects": objects, "split": guess.NO_SPLIT, "labels_per_class": None}
    section = given.section(SeriesFiles, {"kind": "series"}, **fixed, valid=[], test=[], extra_parts={})
    guessed = list[str]()
    if "data.id" not in given and (name := _objects_column(section)):
        section = section.model_copy(update={"id": name})
        guessed.append(f"`{name}` tells objects apart, by its contents. If it does not: --data.id none.")
    opened, skips = guess.open_readable(section)
    file, files = _first_file(opened), [scan.file for scan in _source(opened).scans.values()]
    headers = read_headers(files) if file.single else {}
    tagged = any(scan.tag for scan in _source(opened).scans.values())
    if not (tagged or objects or file.names.label or "data.label" in given) and (name := guess_label(headers)):
        section = section.model_copy(update={"label": name})
        guessed.append(f"`{name}` of the file headers has the classes.")
        opened, skips = guess.open_readable(section)
    table = _source(opened).load(0)
    if "data.missing_values" not in given and (codes := _missing_values(table, file)):
        section = section.model_copy(update={"missing_values": codes})
        opened, skips = guess.open_readable(section)
        table = _source(opened).load(0)
    source, file = _source(opened), _first_file(opened)
    count = round(sum(source.sizes) * len(names) / len(some))
    roles = _roles(file)
    told = describe_columns(roles, _without_role(file, roles.values())) if count < guess.MIN_SAMPLES else []
    if told and not roles["id"] and file.table.rows > 1 and not file.listed:
        told = ["If a file has several objects, name the column that tells them apart: --data.id COLUMN.", *told]
    guess.check_count(count, "objects", [*told, *opened.notes])
    return FoundCurves(table, count, file, opened, _points(table, "time").lengths, skips, section, headers, guessed)


def _objects_column(section: Any) -> str:
    """Column of object ids in the first file, if no column has a usual name for ids."""
    with suppress(UserError):
        path = find_tagged_files(section.files[:1], section.what)[0][1]
        file = section.model_copy(update={"label": NONE}).plan(True).open(path)
        return guess_objects(file) if file.single else ""
    return ""


def _source(opened: Splits) -> Any:
    return opened.sources["train"]


def _first_file(opened: Splits) -> CurveFile:
    found: CurveFile = next(iter(_source(opened).scans.values())).file
    return found


def _points(table: Table, name: str) -> Lists:
    column = table[name]
    assert isinstance(column, Lists)
    return column


def _missing_values(table: Table, file: CurveFile) -> list[float]:
    """Codes of missing values in `value` and `error`; refuse a `value` of only codes."""
    value = _points(table, "value").values
    found = missing_values_of(value, _points(table, "error").values if "error" in table else None)
    if found and np.isin(value, np.array(found, np.float32)).all():
        message = f"all values of `{file.names.value}` in {file.path} are {found[0]:.7g}, a code for missing values"
        raise file.error(message, "Choose another column: --data.value NAME.", "data.value")
    return found


def _band_names(table: Table) -> list[str]:
    band = table.get("band")
    if not isinstance(band, Lists):
        return []
    names, counts = np.unique(band.values, return_counts=True)
    shares = 100 * counts / counts.sum()
    return [f"Bands: {guess.list_names(f'{name} ({share:.0f} %)' for name, share in zip(names, shares))}."]


def _find_question(seen: FoundCurves, given: Given) -> guess.Question:
    single = {name: column for name, column in seen.table.items() if isinstance(column, np.ndarray) and name != "id"}
    single |= {name: column for name, column in seen.headers.items() if name not in seen.table}
    values = [name for target in TARGET_NAMES for name in single if plain(name) == target and _is_real(single[name])]
    values = given.listed("objective.targets") or values

    def classify() -> guess.Question | str:
        found = given.listed("objective.label") or [name for name in ("label", *hits(LABEL, single)) if name in single]
        if not found or found[0] not in single:
            varied = hits(LABEL, seen.file.columns)
            if varied and not seen.file.of_object(varied[0]):
                return f"No classes: `{varied[0]}` has several values for the same object{_varied(seen, varied[0])}."
            hint = describe_possible_classes({name: one for name, one in single.items() if name not in values})
            return f"No classes: no column of objects is called label, class or type. {hint or CLASS_HINT}"
        words = single[found[0]].astype(str)
        words = words[words != ""]
        own = seen.file.names.label if found[0] == "label" and seen.file.names.label else found[0]
        counts = np.unique(words, return_counts=True)[1]
        if len(counts) < 2:
            return f"No classes: all objects have the same class in `{own}`{f', {words[0]}' if len(words) else ''}."
        if len(counts) > MAX_CLASSES:
            return f"No classes: `{own}` has {len(counts):,} different values."
        if values and counts.max() > MAX_CLASS_SHARE * counts.sum() and "objective.kind" not in given:
            return f"No classes: nearly all objects have the same class in `{own}`."
        also = f" Columns for a regression: {', '.join(values)}." if values else ""
        notes = [f"Classes of the inspected curves: {guess.list_counts(words)}.{also}"]
        ask = guess.classify(found[0], f"{len(counts)} classes")
        balance = "classes" if counts.max() > 3 * counts.min() else "none"
        even = Found("objective.balance", balance, "classes count equally; none: objects count equally")
        return ask._replace(found=[*ask.found, even], notes=[*notes, *guess.rare_classes(words, "objects")])

    def regress() -> guess.Question | str:
        if not values:
            return f"No values: no column of objects with real numbers is called {', '.join(TARGET_NAMES[:4])}, ..."
        return guess.regress(values[0], f"`{values[0]}` has values")

    def masked() -> guess.Question:
        return guess.masked("points", 0.5)._replace(notes=["The recipe predicts hidden points."])

    return guess.choose(given, {"classify": classify, "regress": regress, "masked": masked})


def _varied(seen: FoundCurves, name: str) -> str:
    """Description of an object with several values in a column; empty without ids."""
    file = seen.file
    if not file.names.id:
        return ""
    columns = file.table.read([file.names.id, name], 0, file.table.rows)
    pairs = np.unique(np.stack([np.asarray(columns[one]).astype(str) for one in (file.names.id, name)], 1), axis=0)
    again = np.flatnonzero(pairs[1:, 0] == pairs[:-1, 0])
    own = pairs[pairs[:, 0] == pairs[again[0], 0]]
    return f", {own[0, 0]}: {guess.list_names(own[:, 1])}"


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


def _position_keys(seen: FoundCurves) -> list[Found]:
    """Guess keys of rotary positions in time, with periods from cadence to span."""
    span = _longest_span(seen.table)
    longest = min(LONGEST_ATTENTION_PERIOD, float(f"{span:.1g}")) if span > 0 else LONGEST_ATTENTION_PERIOD
    shortest = float(f"{longest / ATTENTION_RANGE:.3g}")
    return [
        Found("model.mlp_ratio", 2),
        Found("model.position", "rotary", "attention depends on differences of times"),
        Found("model.periods", [shortest, longest], "of the rotations, in days"),
        Found("model.pool", "mean", "over the points"),
    ]


def _pretraining(seen: FoundCurves, keys: dict[str, Any], classes: int) -> list[str]:
    """Commands for pretraining on simulated stars, if there are few stars per class.

    The list is empty if the curves differ from the simulated stars: magnitudes in one band, with errors and period
    features, and without upper limits.
    """
    bands = len(np.unique(_points(seen.table, "band").values)) if "band" in seen.table else 1
    alike = keys["tokens.magnitudes"] and keys.get("tokens.periods") and "error" in seen.table
    if not alike or bands > 1 or "limit" in seen.table or seen.samples >= FEW_LABELS * classes:
        return []
    dim, depth, heads = guess.at_count(SIZES, seen.samples)
    low, high = keys["model.periods"]
    return [
        f"Fewer than {FEW_LABELS} objects per class: pretraining on simulated stars may help. RECIPE is this file.",
        f"  sciformer train lightcurves/folded --data.number 30000 --tokens.window {keys['tokens.window']} "
        f"--tokens.summary true --model.dim {dim} --model.depth {depth} --model.heads {heads} "
        f"--model.periods [{low:g},{high:g}] --run runs/simulated",
        "  sciformer finetune RECIPE --from runs/simulated --train.learning_rate 1e-4 --train.head_lr_scale 10",
    ]


def _longest_span(table: Table) -> float:
    time = _points(table, "time")
    stops = np.cumsum(time.lengths)
    spans = [float(np.ptp(time.values[a:b])) for a, b in zip(stops - time.lengths, stops) if b > a]
    return max(spans, default=0.0)


def _period_keys(seen: FoundCurves, ask: guess.Question, given: Given) -> Periodic:
    """Guess keys of phase and summary features, if objective and curves allow them."""
    if ask.kind == "masked":
        return Periodic([], ["Periods are not used: they would tell the hidden points."])
    summary = Found("tokens.summary", True, "statistics of the whole curve as features: help with few labels")
    thin = Found("tokens.augment", ["thin"], "random points are left out in training")
    span = _longest_span(seen.table)
    if not span > 0 or "tokens.periods" in given:
        return Periodic([summary, thin], [])
    shortest = max(PeriodSearch.shortest, float(f"{PeriodSearch.oversampling * span / MAX_FREQUENCIES:.2g}"))
    periodic, count = _count_periodic(seen.table, shortest)
    note = (
        f"Periods: {periodic} of {count} inspected curves repeat at least {MIN_CYCLES} times with a significant period."
    )
    if periodic < MIN_PERIODIC_SHARE * count:
        off = Found("tokens.periods", 0, f"{periodic} of {count} curves are periodic; 2 gives each point its phases")
        return Periodic([off, summary, thin], [note])
    more = [
        Found("tokens.periods", 2, f"phases of the two best periods; {periodic} of {count} curves are periodic"),
        Found("tokens.shortest", shortest, "days; shorter periods take longer to search"),
    ]
    return Periodic([*more, summary, thin], [f"{note} Their phases are features (tokens.periods)."])


def _count_periodic(table: Table, shortest: float) -> tuple[int, int]:
    """Number of curves with a significant period, and number of curves inspected.

    A sine of the period explains a share p of the variance of n points. For noise, one of M independent frequencies
    reaches this share with a probability of at most M (1 - p)^((n - 3) / 2) (arXiv 0901.2573). A slow trend has an
    alias with a period of about a day, and the alias explains the same share. A period therefore counts only if its
    share is larger than the share of every slow period.
    """
    time, value = _points(table, "time"), _points(table, "value")
    error, band = table.get("error"), table.get("band")
    stops, found = np.cumsum(time.lengths), 0
    rows = np.unique(np.linspace(0, len(stops) - 1, MAX_PERIOD_CURVES).astype(int))
    for row in rows:
        here = slice(int(stops[row] - time.lengths[row]), int(stops[row]))
        errors = error.values[here] if isinstance(error, Lists) else np.full(time.lengths[row], np.nan)
        bands = np.unique(band.values[here], return_inverse=True)[1] if isinstance(band, Lists) else None
        span = float(np.ptp(time.values[here])) if time.lengths[row] else 0.0
        curve = time.values[here], value.values[here], errors, bands
        best, slow = (
            find_periods(*curve, PeriodSearch(1, low)) for low in (shortest, max(shortest, span / MIN_CYCLES))
        )
        period, power = float(best.period[0]), float(best.power[0])
        alarm = span / shortest * (1 - min(power, 1.0)) ** ((time.lengths[row] - 3) / 2)
        repeats = period * MIN_CYCLES < span and power > float(slow.power[0]) + MIN_LEAD
        found += bool(repeats and alarm < MAX_FALSE_ALARM)
    return found, len(rows)


LIGHTCURVES = guess.Guess(guess_lightcurves, tagged=True)
