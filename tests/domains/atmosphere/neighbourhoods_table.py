"""A table of neighbourhoods as the reader makes it."""

import numpy as np

from sciformer.domains.atmosphere.reader.axes import dates


def neighbourhoods(count=5, levels=1, times=6, rows=4, columns=6, missing=True, seed=0):
    """Boxes of a field `t`; some values, and all of the second half of sample 1, are missing."""
    rng = np.random.default_rng(seed)
    shape = (count, levels, times, rows, columns)
    usual = 280 + 5 * rng.random(shape)
    values = usual + 2 * rng.normal(size=shape)
    if missing:
        values[:, 0, 1, 2, 3] = np.nan
        values[1, :, times // 2 :] = np.nan
    hours = 440_000.0 + 7 * np.arange(count)[:, None] + np.arange(times)
    level = [np.nan] if levels == 1 else np.linspace(500, 850, levels)
    return {
        "t": values.astype(np.float32),
        "t climatology": usual.astype(np.float32),
        "t deviation": np.full((count, levels), 2.0, np.float32),
        "t level": np.broadcast_to(level, (count, levels)),
        "hours": hours,
        "date": dates(hours, "standard"),
        "latitude": 50.0 + np.broadcast_to(np.arange(rows), (count, rows)) + np.arange(count)[:, None],
        "longitude": -3.0 + np.broadcast_to(np.arange(columns), (count, columns)),
        "neighbourhood": np.arange(count),
    }
