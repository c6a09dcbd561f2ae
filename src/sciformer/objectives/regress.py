"""Regression with uncertainties: Gaussians or quantiles."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import AfterValidator, Field
from torch import Tensor, nn

from ..data.batch import Batch, ModelInputs
from ..data.columns import Array
from ..data.dataset import Dataset
from ..data.random import SampleRandom
from ..errors import UserError
from ..metrics import METRICS
from ..metrics.calibration import spread, stretch
from ..nn import Gaussian, QuantileHead, ValueHead, pinball
from ..nn.losses import at_least_float32
from ..tokens.base import Tokens
from .base import ANSWER, Outputs, Rows, Widths, required_sample_column
from .stream_dropout import StreamDropout

INTERVAL_PERCENTS = (68, 95)  # expected coverage of the intervals, in per cent


def _levels(given: list[float]) -> list[float]:
    even = all(abs(low + high - 1) < 1e-9 for low, high in zip(given, reversed(given)))
    if len(given) % 2 == 0 or len(given) < 3 or sorted(set(given)) != given or not even or not 0 < given[0] < 1:
        raise ValueError(
            "quantiles must be an odd number (at least 3) of ascending values between 0 and 1, symmetric about 0.5, "
            "for example [0.16, 0.5, 0.84]"
        )
    return given


Levels = Annotated[list[float], AfterValidator(_levels)]


class Regress(StreamDropout):
    """Gaussian regression: sum_b ln s + (y - m)^2 / (2 s^2), with predicted m and s.

    Here y is the true value, m the predicted mean and s the predicted standard deviation of sample b.

    With form quantiles, the loss is the pinball loss sum_q max(q (y - z_q), (q - 1) (y - z_q)) of quantiles z_q. No
    distribution is assumed. In this case m is the median, and s is about half the distance between the 16 % and 84 %
    quantiles.
    """

    standard: ClassVar[tuple[str, ...]] = ("rmse", "mae", "quantile_error", "coverage_68", "coverage_95")

    targets: list[str] = Field(default=["target"], min_length=1)
    """Columns with the values to predict (default: [target])."""
    form: Literal["gaussian", "quantiles"] = "gaussian"
    """Form of the uncertainty: a Gaussian for each value, or quantiles (default: gaussian)."""
    quantiles: Levels = Field(default=[0.025, 0.16, 0.5, 0.84, 0.975])
    """Levels of the quantiles, only for form quantiles (default: [0.025, 0.16, 0.5, 0.84, 0.975]). The levels must
    increase and be symmetric about 0.5, with 0.5 in the middle."""
    hidden: Widths | None = None
    """Width of the hidden layer of the head, or a list of widths (default: a linear head)."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout rate in the hidden layers of the head, or at the input of a linear head (default: 0)."""

    @property
    def required_columns(self) -> tuple[str, ...]:
        return (*super().required_columns, *self.targets)

    def fit(self, train: Dataset) -> None:
        """Learn mean and standard deviation of the targets, for standardisation."""
        columns = [train.sample_column(name) for name in self.targets]
        for name, column in zip(self.targets, columns):
            if column.ndim != 1 or column.dtype.kind not in "biuf":
                found = f"{column.dtype} of shape (n, {', '.join(map(str, column.shape[1:]))})"
                raise UserError(
                    f"column `{name}` has {found}, but it must have one number for each sample", key="objective.targets"
                )
        values = np.stack([column.astype(np.float64) for column in columns], 1)
        if not np.isfinite(values).all():
            bad = int(np.flatnonzero(~np.isfinite(values).all(1))[0])
            message = f"the targets {', '.join(self.targets)} have NaN or infinity, first in sample {bad}"
            raise UserError(message, hint="Remove these samples.")
        deviation = values.std(0)
        if (deviation == 0).any():
            name = self.targets[int(np.argmin(deviation))]
            found = f"it has the same value in all samples: {values[0, int(np.argmin(deviation))]}"
            message = f"column `{name}` cannot be a target, because {found}"
            raise UserError(message, key="objective.targets")
        self.state.update(mean=values.mean(0).tolist(), deviation=deviation.tolist())

    def corrupt(self, batch: Batch, tokens: Mapping[str, Tokens], rng: SampleRandom) -> Batch:
        """Standardise the targets; no token is hidden."""
        if any(name not in batch.samples for name in self.targets):
            return batch
        values = np.stack([batch.samples[name].astype(np.float64) for name in self.targets], 1)
        scaled = (values - np.asarray(self.state["mean"])) / np.asarray(self.state["deviation"])
        return batch.with_columns(None, **{ANSWER: scaled})

    def count(self, batch: Batch) -> float:
        truth = batch.samples.get(ANSWER)
        if truth is not None and not np.isfinite(truth).all():
            first = int(np.flatnonzero(~np.isfinite(truth).all(1))[0])
            where = batch.ids[first] if len(batch.ids) else first
            message = f"the targets {', '.join(self.targets)} have NaN or infinity in sample {where}"
            raise UserError(message, hint="Remove this sample.")
        return float(len(batch))

    @property
    def answers(self) -> list[str]:
        return self.targets

    def chosen(self) -> list[str]:
        """Names of the metrics; with quantiles, only coverages of predicted intervals."""
        if self.metrics or self.form == "gaussian":
            return super().chosen()
        had = [f"coverage_{share}" for share in INTERVAL_PERCENTS if self._interval_quantile(share) is not None]
        return ["rmse", "mae", *had]

    def heads(self, dim: int, tokens: Tokens) -> dict[str, nn.Module]:
        count, more = len(self.targets), (self.hidden, self.dropout)
        if self.form == "gaussian":
            return {"value": ValueHead(dim, count, *more)}
        return {"value": QuantileHead(dim, count, len(self.quantiles), len(self.quantiles) // 2, *more)}

    def units(self, outputs: dict[str, Array], samples: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs in the units of the data, in double precision (needed by Julian dates)."""
        mean, deviation = (np.asarray(self.state[key], np.float64) for key in ("mean", "deviation"))
        found = {**outputs, "mean": outputs["mean"] * deviation + mean, "std": outputs["std"] * deviation}
        if "quantiles" in outputs:
            found["quantiles"] = outputs["quantiles"] * deviation[:, None] + mean[:, None]
        if all(name in samples for name in self.targets):
            found["target"] = np.stack([np.asarray(samples[name], np.float64) for name in self.targets], 1)
        return found

    def calibrate(self, outputs: Mapping[str, Array], samples: Mapping[str, Array]) -> dict[str, Any]:
        """Calibration factors of std, or of the distances of quantiles from the median."""
        target = outputs["target"]
        if "quantiles" not in outputs:
            mean, std = outputs["mean"], outputs["std"]
            factors = [spread(mean[:, i], std[:, i], target[:, i]) for i in range(target.shape[1])]
        else:
            place = self._lower_quantile()
            share = self.quantiles[-1 - place] - self.quantiles[place]
            factors = [stretch(outputs["quantiles"][:, i], target[:, i], place, share) for i in range(target.shape[1])]
        return {"spread": factors}

    def calibrated_scores(self, outputs: Mapping[str, Array], samples: Mapping[str, Array]) -> dict[str, float]:
        """Negative log-likelihood of Gaussians; no score for quantiles.

        Quantiles are calibrated to the correct coverage, and not by a score.
        """
        name = "negative_log_likelihood"
        return {} if "quantiles" in outputs else {name: METRICS[name](outputs)}

    def _value(self, model: Any, inputs: ModelInputs) -> Gaussian | Tensor:
        value: Gaussian | Tensor = model.heads["value"](model.pool(model.encode(inputs.view(self.stream))))
        if "spread" not in self.state:
            return value
        if isinstance(value, Gaussian):
            return Gaussian(value.mean, value.std * value.std.new_tensor(self.state["spread"]))
        middle = value[..., len(self.quantiles) // 2, None]
        return middle + (value - middle) * value.new_tensor(self.state["spread"])[:, None]

    def step(self, model: Any, inputs: ModelInputs, outputs: bool) -> tuple[Tensor, Outputs]:
        value = self._value(model, inputs)
        target = required_sample_column(inputs, ANSWER, ", ".join(self.targets))
        if isinstance(value, Gaussian):
            loss = Gaussian(at_least_float32(value.mean), value.std).loss(target)
        else:
            loss = pinball(value, torch.tensor(self.quantiles, device=value.device, dtype=value.dtype), target)
        loss = inputs.counted(loss.sum(-1))
        return loss.sum(), {**self._answers(value), "loss": loss} if outputs else {}

    def predict(self, model: Any, inputs: ModelInputs) -> Outputs:
        """Standardised means, deviations and quantiles; `units` converts to data units."""
        return self._answers(self._value(model, inputs))

    def _answers(self, value: Gaussian | Tensor) -> Outputs:
        if isinstance(value, Gaussian):
            return {"mean": at_least_float32(value.mean), "std": value.std}
        middle, below = len(self.quantiles) // 2, self._lower_quantile()
        wide = NormalDist().inv_cdf(self.quantiles[-1 - below])
        std = (value[..., -1 - below] - value[..., below]) / (2 * wide)
        return {"mean": value[..., middle], "std": std, "quantiles": value}

    def _lower_quantile(self) -> int:
        """Index of the level closest to 16 %: one standard deviation below the median."""
        return int(np.abs(np.array(self.quantiles[: len(self.quantiles) // 2]) - 0.16).argmin())

    def _interval_quantile(self, share: int) -> int | None:
        """Index of the lower quantile of the central interval of `share` %, or None."""
        apart = [abs(level - (1 - share / 100) / 2) for level in self.quantiles]
        return int(np.argmin(apart)) if min(apart) < 1e-3 else None

    def intervals(self, outputs: Mapping[str, Array]) -> dict[str, Array]:
        """Central intervals (n, values): `low_68`, `high_68`, `low_95` and `high_95`."""
        found: dict[str, Array] = {}
        for share in INTERVAL_PERCENTS:
            if "quantiles" in outputs:
                if (place := self._interval_quantile(share)) is None:
                    continue
                low, high = outputs["quantiles"][..., place], outputs["quantiles"][..., -1 - place]
            else:
                far = NormalDist().inv_cdf(0.5 + share / 200) * outputs["std"]
                low, high = outputs["mean"] - far, outputs["mean"] + far
            found |= {f"low_{share}": low, f"high_{share}": high}
        return found

    def score_inputs(self, outputs: Mapping[str, Array]) -> Mapping[str, Array]:
        return {**outputs, **self.intervals(outputs)}

    def details(self, outputs: Mapping[str, Array], samples: Mapping[str, Array] | None = None) -> dict[str, Rows]:
        """Scores of each target, if there are several."""
        if len(self.targets) < 2 or "target" not in outputs:
            return {}
        every = self.score_inputs(outputs)
        names = [name for name in self.chosen() if all(need in every for need in METRICS[name].needs)]
        rows = [
            {"value": target}
            | {name: METRICS[name]({key: every[key][:, i] for key in METRICS[name].needs}) for name in names}
            for i, target in enumerate(self.targets)
        ]
        return {"Targets": rows}
