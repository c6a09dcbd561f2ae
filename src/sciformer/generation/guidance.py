"""Classifier-free guidance (arXiv 2207.12598).

    y = y_0 + w (y_c - y_0)

y_c is the prediction with the condition, y_0 without it: logits of the next token, or the prediction of a denoiser. The
weight w is 1 without guidance and 0 without condition.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from ..errors import UserError
from ..objectives.base import Objective


def guide(prediction: Tensor, weight: float) -> Tensor:
    """Guided prediction (R, ...).

    prediction  (2 R, ...) predictions with the condition, then predictions without condition
    weight      weight w of the guidance
    """
    given, without = prediction.chunk(2)
    return without + weight * (given - without)


def check_guidance(objective: Objective, weight: float | None) -> float:
    """Weight of the guidance (default: `objective.guidance`).

    A weight other than 1 is refused for a model that was trained without dropped conditions.
    """
    settings: Any = objective
    found: float = getattr(settings, "guidance", 1.0) if weight is None else weight
    if not 0 <= found < math.inf:
        raise UserError(f"the weight of the guidance must be 0 or more and finite, not {found}", key="--guidance")
    if found != 1 and not getattr(settings, "condition_dropout", 0):
        raise UserError(
            f"guidance {found:g} needs a model that also knows samples without a condition, but the run was trained "
            "with objective.condition_dropout: 0",
            hint="Train with --objective.condition_dropout 0.1, or leave out the guidance.",
            key="objective.condition_dropout",
        )
    return found
