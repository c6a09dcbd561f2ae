"""Recipes for arrays in memory: images, or rows of values.

Shapes: images (n, height, width[, channels]), rows (n, values).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import UserError
from ...recipe.estimator import Purpose, Starter

MAX_TOKENS = 64  # about: keeps the training on a CPU short
SIDES = (1, 2, 4, 7, 8, 14, 16, 32, 64, 1 << 16)  # of patches
SMALL_MODEL = {
    "model.dim": 64,
    "model.depth": 2,
    "model.heads": 4,
    "model.dropout": 0.0,
    "model.position": "learned",
    "model.pool": "class_token",
}


def choose(samples: Any, purpose: Purpose) -> Starter | None:
    """Recipe of a small Vision Transformer.

    A row of values becomes an image with one row of pixels; each patch has one or a few of the values.
    """
    if not isinstance(samples, np.ndarray) or samples.dtype.kind not in "biuf" or not 2 <= samples.ndim <= 4:
        return None
    if 0 in samples.shape[1:]:
        raise UserError(f"X has 0 feature(s) (shape={samples.shape}) while a minimum of 1 is required.", key="X")
    axes = "nhwc" if samples.ndim == 4 else "nhw"
    if samples.ndim == 2:
        patch: Any = [1, -(-samples.shape[1] // MAX_TOKENS)]
    else:
        patch = next(side for side in SIDES if _count_tokens(samples.shape, side) <= MAX_TOKENS)
    changes = {"data.axes": axes, "tokens.patch": patch, "tokens.augment": [], "tokens.target": "pixels", **SMALL_MODEL}
    if purpose != "embed":
        return Starter("images/digits-vit", changes, image_column)
    changes |= {"train.epochs": None, "train.steps": 600, "model.decoder_dim": 32, "model.decoder_heads": 2}
    return Starter("images/mnist-mae", changes, image_column)


def image_column(samples: Any) -> dict[str, Any]:
    """Column of images; a row of values becomes an image of one row."""
    if samples.dtype.kind == "b":
        samples = samples.astype(np.uint8)
    return {"image": samples[:, None, :] if samples.ndim == 2 else samples}


def _count_tokens(shape: tuple[int, ...], side: int) -> int:
    return -(-shape[1] // side) * -(-shape[2] // side)
