"""A small table of made-up series: irregular times around MJD 60,000, several bands, errors, limits."""

import numpy as np

from sciformer.data.columns import Lists
from sciformer.domains.lightcurves.tokens import Observations


def fitted(table, **fields):
    tokens = Observations(kind="observations", **fields)
    tokens.fit([table])
    return tokens


def series(times, values, lengths=None, **columns):
    """A table of these points, by default one series."""
    lengths = np.array([len(times)] if lengths is None else lengths)
    columns = {"time": np.asarray(times, float), "value": np.asarray(values, np.float32), **columns}
    return {name: Lists(np.asarray(column), lengths) for name, column in columns.items()}


def curves(lengths=(14, 1, 9, 3, 20), seed=0, bands=(), errors=True, limits=False, extra=False, clean=False):
    """Sines of different period about different levels."""
    rng = np.random.default_rng(seed)
    lengths = np.asarray(lengths, np.int64)
    total, sample = int(lengths.sum()), np.repeat(np.arange(len(lengths)), lengths)
    time = 60000 + rng.uniform(0, 400, total)
    time = time[np.lexsort((time, sample))]
    period = rng.uniform(2, 30, len(lengths))
    truth = 15 + sample + np.sin(2 * np.pi * time / period[sample])
    error = rng.uniform(0.02, 0.2, total)
    table = {
        "time": Lists(time, lengths),
        "value": Lists((truth + error * rng.normal(size=total)).astype(np.float32), lengths),
        "period": period,
    }
    if errors:
        table["error"] = Lists(error.astype(np.float32), lengths)
    if bands:
        table["band"] = Lists(np.concatenate([bands, rng.choice(bands, total)])[:total], lengths)
    if limits:
        table["limit"] = Lists(rng.random(total) < 0.25, lengths)
    if extra:
        table["redshift"] = np.where(np.arange(len(lengths)) == 1, np.nan, rng.uniform(0, 1, len(lengths)))
        table["field"] = np.array(["north", "south"])[np.arange(len(lengths)) % 2]
    if clean:
        table["clean"] = Lists(truth.astype(np.float32), lengths)
    return table


def regular(lengths=(40, 7, 25), seed=0, share=0.2, cadence=0.02, hole=True):
    """Regular series with a share of the points missing, and in the first one a long hole."""
    rng = np.random.default_rng(seed)
    times, values, counts = [], [], []
    for row, long in enumerate(lengths):
        here = rng.random(long) >= share
        here[0] = True
        if hole and row == 0:
            here[12:24] = False
        place = np.flatnonzero(here)
        times.append(60000 + row + cadence * place + rng.normal(0, 0.02 * cadence, len(place)))
        values.append(1000 + 10 * np.sin(place / 3) + rng.normal(size=len(place)))
        counts.append(len(place))
    return series(np.concatenate(times), np.concatenate(values), counts, error=np.ones(sum(counts), np.float32))
