"""Features of observations, and targets of hidden observations with their weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...data.batch import Stream
from ...data.columns import Array
from .periods import period_features
from .scaling import Level, error_weights

if TYPE_CHECKING:
    from .tokens import Observations

TARGET_PREFIX = "target "


def observation_features(section: Observations, stream: Stream, value: Array, error: Array) -> Array:
    """(T, F) features listed by the section, from scaled values and errors (T, P)."""
    parts = [np.nan_to_num(value)]
    if section.patch > 1:
        parts.append(np.isnan(value))
    listed = section.input_features
    if "error" in listed:
        assert section.usual_error is not None
        middle, wide = section.usual_error
        known = np.isfinite(error) & (error > 0)
        logs = np.where(known, np.log(np.where(known, error, 1)) - middle, 0).sum(1, keepdims=True)
        number = known.sum(1, keepdims=True)
        parts += [np.clip(logs / np.maximum(number, 1) / wide, -5, 5), number == 0]
    if "since" in listed:
        since = np.diff(stream.columns["at"], prepend=0.0) / section.time_unit
        since[stream.starts[stream.lengths > 0]] = 0
        parts.append(np.log1p(np.maximum(since, 0))[:, None])
    if section.limited:
        parts.append(stream.columns["limit"][:, None])
    if section.periods:
        parts.append(period_features(stream, tuple(section.state["period"])))
    return np.concatenate([part.astype(np.float32) for part in parts], 1)


def hidden_targets(section: Observations, stream: Stream, about: Level) -> dict[str, Array]:
    """Targets: values and errors in the model's units, and the weight of each value."""
    value, error = (stream.columns[TARGET_PREFIX + name] for name in section.hides)
    shape, usual = value.shape, np.exp(section.usual_error[0]) if section.usual_error else 1.0
    wide = value.reshape(-1, section.patch).astype(np.float64)
    there, raw = np.isfinite(wide), error.reshape(wide.shape).astype(np.float64)
    errors = raw / about.scale
    errors = np.where(np.isfinite(errors), errors, usual)
    weight = there.astype(np.float64)
    if section.errors in ("weight", "both") and section.usual_error is not None:
        if section.weighting == "minmax":
            known = np.isfinite(raw) & there
            if "limit" in stream.columns:
                known &= ~stream.columns["limit"][:, None]
            weight *= error_weights(raw, known, stream.sample)
        elif not section.gaussian:
            weight /= errors**2 + (0.1 * usual) ** 2
    found = {"value": np.nan_to_num((wide - about.centre) / about.scale), "error": errors, "weight": weight}
    return {TARGET_PREFIX + name: part.astype(np.float32).reshape(shape) for name, part in found.items()}
