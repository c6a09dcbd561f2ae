"""A few samples of each class: what a model can learn from so many labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from .chance import key, mix
from .split import Rows


def few(labels: Any, rows: Rows, per_class: int | None, seed: int, notes: list[str], unit: str = "sample") -> Rows:
    """Those of `rows` that are trained on: `per_class` of each class, sorted; all where it is None.

    A larger number adds to a smaller one, and the draw of one class does not depend on the others.

    labels  (n,) the class of every sample, of which rows (m,) are chosen
    notes   takes a sentence for each class that has too few
    unit    what a sample is called
    """
    if per_class is None:
        return rows
    label = np.asarray(labels)[rows]
    drawn = mix(key(seed, "labels") ^ mix(rows))
    kept = []
    for name in np.unique(label):
        mine = np.flatnonzero(label == name)
        kept.append(mine[np.argsort(drawn[mine], kind="stable")[:per_class]])
        if len(mine) < per_class:
            notes.append(f"data.labels is {per_class:,}, but class {name} has {len(mine):,} {unit}s to train on.")
    return rows[np.sort(np.concatenate(kept))] if kept else rows
