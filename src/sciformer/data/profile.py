"""Profile of the columns of the training data, and comparison of new data with it.

A profile is plain JSON, stored with the statistics of a run. It is made from the first pieces of the training data as
they are loaded, with a bounded number of values. Every sample has a location (mean of its values) and a level (mean
magnitude of its values). Their distributions over the samples show whether new data have the same scale, even if the
new samples are few or all of one class.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, Field, ValidationError, field_validator

from ..errors import UserError
from ..files.seal import Damaged
from ..tokens.base import Tokens
from .batch import Stream
from .columns import Array, Lists, Table, sum_lists
from .random import key, mix

DRIFT = "drift"  # sample column of a prediction
SHARES = (0.0, 0.001, 0.01, 0.05, 0.16, 0.5, 0.84, 0.95, 0.99, 0.999, 1.0)  # levels of the stored quantiles
LOWEST, LOW, MIDDLE, HIGH, HIGHEST = 0, 3, 5, 7, 10  # indices in SHARES
MAX_PIECES, MAX_SAMPLES, MAX_VALUES = 4, 2048, 1 << 19  # pieces of the training data; samples and values of a piece
MAX_VALUES_COMPARED, MIN_VALUES_OF_SAMPLE = 1 << 23, 16  # values of a piece of new data, and of each of its samples
MIN_SAMPLES, MIN_DRIFTING = 20, 5  # minimum samples to know a distribution, and to note a drift
MAX_HASHED_TOKENS, MAX_HASHED_VALUES, MAX_HASHES = 1 << 20, 16, 2048  # limits for recognising training samples
MIN_SHARE_RECOGNISED = 0.05  # a smaller share of recognised training samples is not noted
LEVEL_MARGIN = math.log(3)  # a level this far (ln) outside the range in training is on another scale
DRIFT_MARGIN, MIN_LEVEL_DRIFT = 0.25, math.log(1.5)  # margins of a drift: share of the range in training; ln of levels
UNIT_FACTORS = (100, 255, 1440, 3600, 65535, 86400, *(10**power for power in range(3, 19)))
MIN_SHIFT_FACTOR = 1000  # smallest factor for columns without an origin, because spans vary more than levels
MIN_CODES, MIN_SHARE_OF_CODE = 10, 0.005  # least number and share of a code within the range of the other values
MIN_SHARE_DIFFERENT = 0.25  # least number of different values per value of a column without rounded values
SCALE, SHIFT, NONE = "scale", "shift", ""  # invariances of tokens


Quantiles = Annotated[list[float], Field(min_length=len(SHARES), max_length=len(SHARES))]
Share = Annotated[float, Field(ge=0, le=1)]


class StoredWords(BaseModel, extra="forbid"):
    """Profile of a column of strings."""

    dtype: str
    values: int
    frequent: tuple[str, Share]


class StoredNumbers(BaseModel, extra="forbid"):
    """Profile of a column of numbers, made by `summary`."""

    dtype: str
    values: int
    finite: Share
    frequent: tuple[float, Share]
    codes: list[float]
    code_share: Share
    samples: int
    quantiles: Quantiles | None = None
    location: Quantiles | None = None
    level: Quantiles | None = None

    @field_validator("dtype")
    @classmethod
    def _known_dtype(cls, name: str) -> str:
        try:
            return np.dtype(name).name
        except TypeError as error:
            raise ValueError(str(error)) from error


class StoredNothing(BaseModel, extra="forbid"):
    """Profile of a column of numbers without a finite value."""

    dtype: str
    values: int
    finite: Literal[0]


class StoredProfile(BaseModel, extra="forbid"):
    """Profile of the training data, made by `ProfileBuilder`."""

    columns: dict[str, StoredNumbers | StoredWords | StoredNothing]
    tokens: dict[str, list[int]]
    hashes: list[Annotated[int, Field(ge=0, lt=1 << 53)]]
    all_hashes: bool
    complete: bool


class Numbers(NamedTuple):
    """Values (t,) of all samples, and the number of values (n,) in each sample."""

    values: Array
    lengths: Array

    def relative(self, codes: Sequence[float]) -> Numbers:
        """Values minus the mean of their sample; codes of missing values become NaN."""
        location, _ = sample_levels(self, codes)
        values = self.values - np.repeat(location, self.lengths)
        for code in codes:
            values[np.isclose(self.values, code, rtol=1e-6, atol=0)] = np.nan
        return Numbers(values, self.lengths)


def read_numbers(column: Array | Lists, most_samples: int, most: int) -> Numbers | None:
    """Evenly spaced subset of the values of a column; None if not numeric.

    At least `MIN_VALUES_OF_SAMPLE` values are taken from each sample.
    """
    column = column if isinstance(column, Lists) else np.asarray(column)
    values = column.values if isinstance(column, Lists) else column
    if values.dtype.kind not in "iuf" or not len(column):
        return None
    if len(column) > most_samples:
        rows = np.linspace(0, len(column) - 1, most_samples).astype(np.int64)
        column = column.take(rows) if isinstance(column, Lists) else column[rows]
    if isinstance(column, Lists):
        width = math.prod(column.values.shape[1:])
        step = max(1, len(column.values) * width // most)
        stops = column.lengths.cumsum()
        starts = stops - column.lengths
        lengths = (-(-stops // step) - -(-starts // step)).astype(np.int64) * width
        return Numbers(column.values[::step].reshape(-1), lengths)
    flat = column.reshape(len(column), -1)
    wide = max(MIN_VALUES_OF_SAMPLE, most // len(flat))
    step = max(1, flat.shape[1] // wide) | 1  # an odd step reaches all channels and columns
    some = flat[:, ::step]
    return Numbers(some.reshape(-1), np.full(len(some), some.shape[1], np.int64))


def sample_levels(numbers: Numbers, codes: Iterable[float] = ()) -> tuple[Array, Array]:
    """Location (mean of x) and level (mean of |x|) of each sample, (n,).

    Both are NaN for samples without values.

    codes  values of missing entries; these and non-finite values are left out
    """
    values, good = numbers.values.astype(np.float64), np.isfinite(numbers.values)
    for code in codes:
        good &= ~np.isclose(values, code, rtol=1e-6, atol=0)
    values[~good] = 0
    count = sum_lists(good, numbers.lengths)
    with np.errstate(invalid="ignore", over="ignore"):
        count = np.where(count > 0, count, np.nan)
        return sum_lists(values, numbers.lengths) / count, sum_lists(np.abs(values), numbers.lengths) / count


def find_codes(values: Array) -> list[float]:
    """Codes of missing values (-99, 99.999, 1e20, ...) among sorted finite values.

    A code is far from all other values.
    """
    found: list[float] = []
    while len(values):
        below, above = np.searchsorted(values, values[-1]), np.searchsorted(values, values[0], side="right")
        for end, count, rest in ((values[0], above, values[above:]), (values[-1], len(values) - below, values[:below])):
            if is_code(end, int(count)) and _is_far(float(end), rest):
                found.append(float(end))
                values = rest
                break
        else:
            break
    return found + _frequent_codes(values)


def _frequent_codes(values: Array) -> list[float]:
    """Codes of missing values: frequent numbers among mostly distinct, sorted values."""
    if not len(values):
        return []
    ends = np.flatnonzero(np.diff(values, append=np.nan) != 0)
    counts = np.diff(ends, prepend=-1)
    if len(counts) < MIN_SHARE_DIFFERENT * len(values):
        return []
    often = counts >= max(MIN_CODES, MIN_SHARE_OF_CODE * len(values))
    return [float(value) for value in values[ends[often]] if is_code(value, MIN_CODES)]


def is_code(value: Any, count: int) -> bool:
    """Whether a number looks like a code of missing values, such as -99 or 888.

    count   number of occurrences of the number
    """
    if abs(value) >= 1e10:
        return f"{abs(value):.6e}".startswith(("1.000000", "9.999999"))
    digits = f"{abs(value):.7g}".replace(".", "")
    return (count > 1 or len(digits) > 3) and len(digits) > 1 and len(set(digits)) == 1 and digits[0] in "89"


def _is_far(value: float, rest: Array) -> bool:
    """Whether a value is far outside the range of the sorted values `rest`.

    The range leaves out 1 % of the values at each end. «Far» is a distance above the width of the range.
    """
    if not len(rest):
        return True
    low, high = (float(rest[round(share * (len(rest) - 1))]) for share in (0.01, 0.99))
    return not 2 * low - high <= value <= 2 * high - low


def summary(numbers: list[Numbers], relative: bool) -> dict[str, Any]:
    """Make the profile of a column of numbers.

    relative  whether locations and levels refer to values minus the mean of their sample
    """
    values = np.concatenate([one.values for one in numbers])
    finite = np.sort(values[np.isfinite(values)])
    made: dict[str, Any] = {"dtype": values.dtype.name, "values": len(values)}
    made["finite"] = _rounded(len(finite) / max(1, len(values)))
    if not len(finite):
        return made
    ends = np.flatnonzero(np.diff(finite, append=np.nan) != 0)
    counts = np.diff(ends, prepend=-1)
    frequent = int(counts.argmax())
    made["frequent"] = [_rounded(finite[ends[frequent]]), _rounded(counts[frequent] / len(finite))]
    made["codes"] = codes = find_codes(finite)
    made["code_share"] = _rounded(np.isin(finite, codes).mean())
    inside = finite[~np.isin(finite, codes)] if codes else finite
    if len(inside):
        made["quantiles"] = _quantiles(inside, ordered=True)
    whole = Numbers(values, np.concatenate([one.lengths for one in numbers]))
    location, level = sample_levels(whole.relative(codes) if relative else whole, codes)
    made["samples"] = int(np.isfinite(level).sum())
    for name, column in (("location", location), ("level", level)):
        known = column[np.isfinite(column) & ((column > 0) | (name == "location"))]
        if len(known):
            made[name] = _quantiles(known)
    return made


def _quantiles(values: Array, ordered: bool = False) -> list[float]:
    values = values if ordered else np.sort(values)
    places = np.rint(np.array(SHARES) * (len(values) - 1)).astype(np.int64)
    return [_rounded(value) for value in values[places]]


def _rounded(value: Any) -> float:
    return float(f"{value:.9g}")


def hash_samples(streams: Mapping[str, Stream]) -> Array:
    """Hash (n,) of the tokens of each sample, below 2^53; 0 without tokens.

    Samples after the first million tokens are left out. For wide columns, only some values of each token are used.
    """
    total: Array | None = None
    for name in sorted(streams):
        stream = streams[name]
        rows = int(np.searchsorted(stream.lengths.cumsum(), MAX_HASHED_TOKENS, side="right"))
        lengths = stream.lengths[:rows]
        count = int(lengths.sum())
        words = stream.position[:count].astype(np.uint64)
        for title in sorted(stream.columns):
            column = stream.columns[title][:count]
            if column.dtype.kind not in "biuf" or not count:
                continue
            flat = column.reshape(count, -1)
            flat = flat[:, :: max(1, flat.shape[1] // MAX_HASHED_VALUES) | 1]
            weights = mix(key(name, title) + np.arange(flat.shape[1], dtype=np.uint64)) | np.uint64(1)
            with np.errstate(over="ignore"):
                bits = np.ascontiguousarray(flat, np.float32).view(np.uint32)
            for place, weight in enumerate(weights):
                words += bits[:, place].astype(np.uint64) * weight
        made = sum_lists(mix(words), lengths, np.uint64)
        if total is None:
            total = made
        else:
            rows = min(len(total), rows)
            total = total[:rows] * np.uint64(3) + made[:rows]
    hashes = mix(np.zeros(0, np.uint64) if total is None else total) >> np.uint64(11)
    empty = np.sum([stream.lengths[: len(hashes)] for stream in streams.values()], 0) == 0
    return np.asarray(np.where(empty, 0, hashes), np.int64)


class ProfileBuilder:
    """Profile of the training data, built from pieces as they are loaded.

    tokens     token kinds; their columns are profiled, together with `Tokens.invariances` (shift or scale)
    objective  names of further columns to profile, read by the objective
    """

    def __init__(self, tokens: Iterable[Tokens], objective: Iterable[str]) -> None:
        self.invariances = token_columns(tokens)
        self.columns = list(dict.fromkeys([*self.invariances, *objective]))
        self.numbers: dict[str, list[Numbers]] = {}
        self.words: dict[str, list[Array]] = {}
        self.lengths: dict[str, list[Array]] = {}
        self.hashes: list[Array] = []
        self.pieces = 0

    def __call__(self, table: Table, streams: Mapping[str, Stream]) -> dict[str, Array]:
        """Add a piece of the training data; return {}, as no sample columns are added."""
        if self.pieces >= MAX_PIECES:
            return {}
        self.pieces += 1
        for name in self.columns:
            column = table.get(name)
            if column is None:
                continue
            if (found := read_numbers(column, MAX_SAMPLES, MAX_VALUES)) is not None:
                self.numbers.setdefault(name, []).append(found)
            elif not isinstance(column, Lists) and column.dtype.kind == "U" and name not in self.invariances:
                self.words.setdefault(name, []).append(column)
        for name, stream in streams.items():
            self.lengths.setdefault(name, []).append(stream.lengths)
        self.hashes.append(hash_samples(streams))
        return {}

    def finish(self, samples: int) -> dict[str, Any]:
        """Finished profile of `samples` training samples, as plain JSON."""
        columns = {n: summary(some, self.invariances.get(n) == SHIFT) for n, some in self.numbers.items()}
        for name, some in self.words.items():
            words, counts = np.unique(np.concatenate(some), return_counts=True)
            most = counts.argmax()
            frequent = [str(words[most]), _rounded(counts[most] / counts.sum())]
            columns[name] = {"dtype": "strings", "values": int(counts.sum()), "frequent": frequent}
        hashes, counts = np.unique(np.concatenate([np.zeros(0, np.int64), *self.hashes]), return_counts=True)
        hashes = hashes[(counts == 1) & (hashes > 0)]  # a sample that occurs twice may also occur in other data
        lengths = {name: np.concatenate(some) for name, some in self.lengths.items()}
        return {
            "columns": columns,
            "tokens": {name: [int(one) for one in _quantiles(some)] for name, some in lengths.items() if len(some)},
            "hashes": hashes[:MAX_HASHES].tolist(),
            "all_hashes": len(hashes) <= MAX_HASHES,
            "complete": sum(map(len, self.hashes)) == samples,
        }


def check_profile(profile: Mapping[str, Any]) -> None:
    """Refuse a damaged profile, with missing or wrong entries."""
    try:
        StoredProfile.model_validate(profile)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        hint = "The run is damaged, or from another version of Sciformer: restore it from a copy."
        raise Damaged(f"the stored profile of the training data cannot be read at {where}", hint=hint) from error


def token_columns(tokens: Iterable[Tokens]) -> dict[str, str]:
    """Columns read by the tokens: name -> invariance common to all token kinds."""
    order, made = (NONE, SHIFT, SCALE), dict[str, str]()
    for one in tokens:
        free = one.invariances
        for name in (*one.required_columns, *one.optional_columns):
            made[name] = min(free.get(name, NONE), made.get(name, SCALE), key=order.index)
    return made


def describe_profile(profile: Mapping[str, Any]) -> list[str]:
    """Notes on columns with codes of missing values, and on constant columns."""
    notes = []
    for name, about in profile["columns"].items():
        if not about.get("codes") and about.get("frequent", (0, 0))[1] < 1:
            continue
        value = about["frequent"][0]
        if about.get("codes"):
            notes.append(_describe_codes(name, about["codes"], about["code_share"]))
        elif about["dtype"] != "strings" and about["samples"] >= MIN_SAMPLES and value != 0:
            notes.append(f"Column `{name}` has the same value everywhere, {value:.7g}: nothing can be learned from it.")
    return notes


def _describe_codes(name: str, codes: Iterable[float], share: float) -> str:
    shown = " and ".join(f"{code:.7g}" for code in codes)
    what = "All" if share == 1 else f"{100 * share:.2g} % of the"
    found = f"{what} values of `{name}` are {shown}, which looks like a code for missing values"
    return f"{found}: leave these values out, or replace them."


# Comparison


@dataclass(frozen=True)
class Difference:
    """Usual values of a column in new data (`here`) and in training (`there`).

    `factor` is the ratio of the levels, or 0 for a drift without a change of scale.
    """

    column: str
    factor: float
    here: tuple[float, float]
    there: tuple[float, float]

    def describe(self) -> str:
        """Sentence on the usual values in new data and in training, without a full stop."""
        here, there = (f"{low:.4g} to {high:.4g}" for low, high in (self.here, self.there))
        words = f"most values of `{self.column}` are {here}, but in training they were {there}"
        if not self.factor:
            return words
        times = f"{max(self.factor, 1 / self.factor):,.6g} times {'larger' if self.factor > 1 else 'smaller'}"
        return f"{words}: about {times}"


class Comparison:
    """Comparison of pieces of new data with the profile of a run.

    accept   whether a column on another scale is a note instead of an error
    scores   whether to add the sample column `drift`: the fraction of the values of a sample that lie outside the range
             of the training data, for the data column with the largest fraction
    notes    findings so far
    """

    def __init__(
        self, profile: Mapping[str, Any], tokens: Iterable[Tokens], accept: bool = False, scores: bool = False
    ) -> None:
        columns = profile["columns"]
        self.columns = {n: how for n, how in token_columns(tokens).items() if "quantiles" in columns.get(n, {})}
        self.profile, self.accept, self.scores = profile, accept, scores
        self.found: dict[str, str] = {}
        self.known = np.asarray(profile["hashes"], np.int64)
        self.matched = self.comparable = 0

    @property
    def notes(self) -> list[str]:
        """Notes on the data compared so far."""
        return list(self.found.values())

    def __call__(self, table: Table, streams: Mapping[str, Stream]) -> dict[str, Array]:
        """Compare a piece, and count its samples that are also training samples."""
        self._recognise(streams)
        return self.compare_columns(table)

    def compare_columns(self, table: Table) -> dict[str, Array]:
        """Compare the columns of a piece; return the column `drift` if `scores` is true."""
        outside: list[Array] = []
        differences: list[Difference] = []
        for name, invariance in self.columns.items():
            column = table.get(name)
            if column is None or invariance == SCALE:
                continue
            numbers = read_numbers(column, len(column), MAX_VALUES_COMPARED)
            if numbers is None:
                continue
            about = self.profile["columns"][name]
            codes = [*about["codes"], *self._find_codes(name, numbers, about["codes"])]
            if (found := compare(name, numbers, about, invariance, codes)) is not None:
                differences.append(found)
            if self.scores and invariance == NONE:
                outside.append(_share_outside(numbers, about))
        self._report(differences)
        return {DRIFT: np.max(outside, 0).astype(np.float32)} if outside and DRIFT not in table else {}

    def describe_overlap(self) -> list[str]:
        """Note on the fraction of new samples equal to training samples."""
        share = self.matched / max(1, self.comparable)
        if share < MIN_SHARE_RECOGNISED:
            return []
        least = "" if self.profile["complete"] else "at least "
        return [
            f"The model was trained on {least}{100 * share:.0f} % of these samples: "
            "their scores say nothing about new data."
        ]

    def usual_ranges(self) -> Iterator[tuple[str, str, str]]:
        """Name, type and usual range of each compared column."""
        for name, invariance in self.columns.items():
            about = self.profile["columns"][name]
            if invariance == NONE:
                yield name, about["dtype"], f"{about['quantiles'][LOW]:.4g} to {about['quantiles'][HIGH]:.4g}"

    def _recognise(self, streams: Mapping[str, Stream]) -> None:
        hashes = hash_samples(streams)
        last = self.known[-1] if len(self.known) and not self.profile["all_hashes"] else np.iinfo(np.int64).max
        hashes = hashes[(hashes > 0) & (hashes <= last)]
        self.comparable += len(hashes)
        self.matched += int(np.isin(hashes, self.known).sum())

    def _find_codes(self, name: str, numbers: Numbers, known: Sequence[float]) -> list[float]:
        """Add notes on codes of missing values absent from the training data."""
        finite = numbers.values[np.isfinite(numbers.values)]
        if not len(finite) or not any(is_code(end, 2) for end in (finite.min(), finite.max())):
            return []
        codes = find_codes(np.sort(finite[:: max(1, len(finite) // MAX_VALUES)]))
        if new := [code for code in codes if not np.isclose(code, known, rtol=1e-6).any()]:
            self.found.setdefault(f"codes {name}", _describe_codes(name, new, float(np.isin(finite, new).mean())))
        return new

    def _report(self, differences: list[Difference]) -> None:
        wrong = [one for one in differences if one.factor]
        if wrong and not self.accept:
            also = ", ".join(f"`{one.column}`" for one in wrong[1:])
            factor = max(wrong[0].factor, 1 / wrong[0].factor)
            fix = f"{'Divide' if wrong[0].factor > 1 else 'Multiply'} the values by {factor:,.6g}"
            hint = f"{fix}{f' (and check {also})' if also else ''}, or accept them with --accept-drift"
            hint += " (in Python accept_drift=True)."
            raise UserError(wrong[0].describe(), hint=hint, key="--accept-drift")
        for one in differences:
            words = one.describe()
            self.found.setdefault(one.column, f"{words[0].upper()}{words[1:]}: predictions may be wrong.")


def compare(
    name: str, numbers: Numbers, about: Mapping[str, Any], invariance: str, codes: Sequence[float]
) -> Difference | None:
    """Compare the samples of a column with its profile in training."""
    location, level = sample_levels(numbers.relative(codes) if invariance == SHIFT else numbers, codes)
    level, location = level[np.isfinite(level) & (level > 0)], location[np.isfinite(location)]
    if not len(location) or "level" not in about:
        return None

    def ranges() -> dict[str, Any]:
        finite = numbers.values[np.isfinite(numbers.values)]
        own, theirs = _quantiles(finite), about["quantiles"]
        return {"here": (own[LOW], own[HIGH]), "there": (theirs[LOW], theirs[HIGH])}

    least = MIN_SHIFT_FACTOR if invariance == SHIFT else 1
    factor = _find_factor(level, numbers.values.dtype, about, least) if len(level) else 0.0
    if factor:
        return Difference(name, factor, **ranges())
    if about["samples"] < MIN_SAMPLES or len(location) < MIN_DRIFTING:
        return None
    edges = np.log([about["level"][LOWEST], about["level"][HIGHEST]])
    drifts = _mostly_outside(np.log(level), edges, MIN_LEVEL_DRIFT) if len(level) else False
    if invariance == NONE:
        drifts |= _mostly_outside(location, np.array(about["location"])[[LOWEST, HIGHEST]], 0.0)
    return Difference(name, 0.0, **ranges()) if drifts else None


def _mostly_outside(values: Array, edges: Array, least: float) -> bool:
    width = max(least, DRIFT_MARGIN * float(edges[1] - edges[0]), 1e-3 * float(np.abs(edges).max()))
    return bool(((values < edges[0] - width) | (values > edges[1] + width)).mean() > 0.5)


def _find_factor(level: Array, dtype: np.dtype[Any], about: Mapping[str, Any], least: float) -> float:
    """Factor between the units of new and training data, such as 1000; 0 if none."""
    few = min(len(level), about["samples"]) < MIN_SAMPLES
    low, high = (math.log(about["level"][place]) for place in ((LOWEST, HIGHEST) if few else (LOWEST + 1, HIGHEST - 1)))
    new, old = math.log(float(np.median(level))), math.log(about["level"][MIDDLE])
    if low - LEVEL_MARGIN <= new <= high + LEVEL_MARGIN:
        return 0.0
    sign = 1 if new > old else -1
    tops = sorted(_largest(one) for one in (dtype, np.dtype(about["dtype"])))
    own = tops[1] / tops[0]  # factor of the types, such as 255 or 257
    for step in (own, *sorted(UNIT_FACTORS, key=lambda one: abs(abs(new - old) - math.log(one)))):
        moved = new - sign * math.log(step)
        tolerance = math.log(2 if step >= 255 else 1.3)
        fits = abs(moved - old) <= tolerance or (step == own and low <= moved <= high)
        if fits and step >= max(least, 2):
            return float(step if sign > 0 else 1 / step)
    return 0.0


def _largest(dtype: np.dtype[Any]) -> float:
    """Maximum of an unsigned integer dtype of 8 or 16 bits; 1 for other dtypes."""
    return float(np.iinfo(dtype).max) if dtype.kind == "u" and dtype.itemsize <= 2 else 1.0


def _share_outside(numbers: Numbers, about: Mapping[str, Any]) -> Array:
    low, high = about["quantiles"][LOWEST], about["quantiles"][HIGHEST]
    slack = 1e-6 * max(abs(low), abs(high))
    outside = (numbers.values < low - slack) | (numbers.values > high + slack)
    return np.asarray(sum_lists(outside, numbers.lengths) / np.maximum(1, numbers.lengths))
