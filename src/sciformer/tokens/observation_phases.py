"""The periods of series, found once, and what they tell each observation: its phase."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..data.batch import Stream
from ..errors import UserError
from .base import Array
from .periodogram import Search, periods

if TYPE_CHECKING:
    from .observation_points import Points
    from .observations import Observations

FITTED = 300  # series from which the usual period is learned
KEPT = 200_000  # series whose periods are remembered
TOLD = ("sin half", "cos half", "sin", "cos", "sin twice", "cos twice", "ln", "power")
COLUMNS = ("phase", "period", "power")
_known: OrderedDict[tuple[bytes, Search], Array] = OrderedDict()


def names(number: int) -> list[str]:
    """The features that so many periods add, in their order."""
    return [f"{what} of period {one + 1}" for one in range(number) for what in TOLD]


def search_of(tokens: Observations, cadence: float | None = None) -> Search:
    """Which periods are looked for; of a regular series, whose cadence may be given, none shorter than two steps."""
    made = Search(tokens.periods, tokens.shortest, tokens.longest)
    step = 2 * (cadence or tokens.spacing)
    return replace(made, shortest=max(made.shortest, step)) if tokens.patch > 1 else made


def refuse(number: int) -> None:
    """Refuse periods where values are hidden."""
    if number:
        raise UserError(
            f"tokens.periods: {number} cannot be used with an objective that hides values, because periods come from "
            "all values, the hidden values too",
            hint="Leave out tokens.periods, or choose an objective that hides nothing.",
            key="tokens.periods",
        )


def phased(stream: Stream, tokens: Observations) -> Stream:
    """The same with the columns `phase`, in turns of twice the period, `period` and `power`, each (T, K): from all
    values of a sample but limits. All three are 0 where there is no period."""
    columns, size = stream.columns, tokens.patch
    slot = (np.arange(size) - (size - 1) / 2) * tokens.spacing * (size > 1)
    value, error = (columns[name].reshape(-1, size) for name in ("value", "error"))
    there = np.isfinite(value)
    if "limit" in columns:
        there &= ~columns["limit"][:, None]
    time = columns["at"][:, None] + slot
    band = np.broadcast_to(columns["band"][:, None], value.shape)[there] if "band" in columns else None
    lengths = np.bincount(stream.sample, there.sum(1), len(stream)).astype(np.int64)
    found = _all(lengths, time[there], value[there], error[there], band, search_of(tokens))
    period, epoch, power = (part[stream.sample] for part in found)
    own = np.isfinite(period)
    if "entry" in columns:
        own &= (columns["entry"] == 0)[:, None]
    phase = (columns["at"][:, None] - epoch) / (2 * np.where(own, period, 1)) % 1.0
    made = {"phase": phase, "period": period, "power": power}
    return stream.but(**{name: np.where(own, part, 0).astype(np.float32) for name, part in made.items()})


def learned(parts: Iterable[Points], search: Search) -> list[float]:
    """Mean and deviation of ln(period) of the first series."""
    logs, left = [np.zeros(0)], FITTED
    for part in parts:
        some = part.lengths[:left]
        left -= len(some)
        seen = ~part.limit[: int(some.sum())]
        columns = (part.time, part.columns["value"], part.columns["error"], part.band)
        time, value, error, band = (column[: len(seen)][seen] for column in columns)
        lengths = np.bincount(np.repeat(np.arange(len(some)), some)[seen], minlength=len(some))
        period = _all(lengths, time, value, error, band if part.band.any() else None, search)[0]
        logs.append(np.log(period[np.isfinite(period)]))
    found = np.concatenate(logs)
    return [float(found.mean()), float(max(found.std(), 0.1))] if len(found) else [0.0, 1.0]


def features(stream: Stream, usual: tuple[float, float]) -> Array:
    """(T, 8 K) what `names` says; zeros where there is no period."""
    phase, period, power = (stream.columns[name].astype(np.float64) for name in COLUMNS)
    there = period > 0
    turn = 2 * np.pi * phase
    logs = np.clip((np.log(np.where(there, period, 1)) - usual[0]) / usual[1], -5, 5)
    waves = [wave(times * turn) for times in (1, 2, 4) for wave in (np.sin, np.cos)]
    made = np.stack([np.where(there, part, 0) for part in (*waves, logs, power)], -1)
    return made.reshape(len(made), made.shape[1] * len(TOLD))


def described(tokens: Observations) -> str:
    """How these features are made, for programs without this library."""
    search = search_of(tokens)
    longest = "the span of the series" if search.longest is None else f"{search.longest:g}"
    return (
        f"; of period 1 to {tokens.periods}, found from all values of the whole series but limits: the periods P of "
        "the highest peaks of its generalised Lomb-Scargle periodogram (floating mean, each band less its own mean, "
        "weights 1 / (error^2 + median error^2)), "
        f"from {search.shortest:g} to {longest}, {search.oversampling:g} frequencies in 1 / span, refined to the best "
        "fit of two harmonics, in the order of what four harmonics explain and 0.3 of what a sine does; sin and cos of "
        "2 pi x for half: x = (time - E) / 2P, with the time E at which a fit of four harmonics of 1 / 2P is highest, "
        "the same of 2 x, and twice: of 4 x; ln: clip((ln P - learned.period[0]) / learned.period[1], -5, 5); power: "
        "share of the variance that a sine of P explains; all 0 without a period (fewer than five points, no variation)"
    )


def _all(
    lengths: Array, time: Array, value: Array, error: Array, band: Array | None, search: Search
) -> tuple[Array, Array, Array]:
    """Period, epoch and power (B, K) of all series, those of before from memory."""
    made = np.zeros((len(lengths), 3, search.number))
    stops = np.cumsum(lengths)
    for row, (start, stop) in enumerate(zip(stops - lengths, stops)):
        mine = time[start:stop], value[start:stop], error[start:stop], None if band is None else band[start:stop]
        digest = hashlib.blake2b(digest_size=16)
        for column in mine:
            digest.update(b"" if column is None else column.tobytes())
        key = digest.digest(), search
        if key not in _known:
            _known[key] = np.stack(periods(*mine, search))
            if len(_known) > KEPT:
                _known.popitem(last=False)
        made[row] = _known[key]
    return made[:, 0], made[:, 1], made[:, 2]
