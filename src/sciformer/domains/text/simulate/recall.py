"""Recall: a symbol is shown, noise follows, and then it is asked for. What can a model remember, and for how long?

    Cfaahbe...gd?        the value, `lag` symbols of noise, the question

The noise knows nothing of the value, so that whoever has forgotten it can do no better than chance, one in `symbols`.
It is the long time lag of Hochreiter and Schmidhuber (1997) and the copying memory of arXiv 1511.06464, with one symbol
to keep.
"""

from __future__ import annotations

import string
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....errors import UserError

QUESTION = "?"


def recall(lag: int, symbols: int = 8, number: int = 1000, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Columns `text` (of lag + 2 characters), `value` (the symbol to be recalled) and `lag`, for `number` sequences."""
    if not 2 <= symbols <= 26:
        raise UserError(f"symbols must be from 2 to 26, the letters there are, not {symbols}")
    if lag < 0 or number < 0:
        raise UserError(f"lag and number must be 0 or more, not {lag} and {number}")
    drawn = np.random.default_rng(seed).integers(symbols, size=(number, lag + 1))
    value = np.array(list(string.ascii_uppercase))[drawn[:, 0]]
    rows = np.empty((number, lag + 2), "U1")
    rows[:, 0], rows[:, -1] = value, QUESTION
    rows[:, 1:-1] = np.array(list(string.ascii_lowercase))[drawn[:, 1:]]
    text = np.empty(number, object)
    text[:] = rows.view(f"U{lag + 2}")[:, 0].tolist()
    return {"text": text, "value": value, "lag": np.full(number, lag)}
