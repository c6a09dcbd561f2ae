"""Recipes for texts in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...recipe.estimator import Purpose, Starter

SMALL_MODEL = {"model.dim": 128, "model.depth": 2, "model.heads": 4}


def choose(samples: Any, purpose: Purpose) -> Starter | None:
    """Recipe of a small BERT, with subwords learned from the texts."""
    if not isinstance(samples, np.ndarray) or samples.ndim != 1 or samples.dtype.kind != "U":
        return None
    changes: dict[str, Any] = {
        **SMALL_MODEL,
        "tokens.vocabulary": 8000,
        "train.steps": 600,
        "train.warmup": 50,
        "train.learning_rate": 1e-3,
    }
    if purpose == "embed":
        changes |= {"objective": {"kind": "masked"}, "train.best": "loss"}
    return Starter("text/sentiment-scratch", changes, text_column)


def text_column(samples: Any) -> dict[str, Any]:
    """Column of texts."""
    return {"text": np.asarray(samples, str)}
