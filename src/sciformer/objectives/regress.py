"""Which value is it, and how sure?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from pydantic import Field
from torch import Tensor, nn

from ..data.batch import Batch, Inputs
from ..data.chance import Chance
from ..data.dataset import Dataset
from ..errors import UserError
from ..nn import Gaussian, ValueHead
from ..tokens.base import Tokens
from .base import ANSWER, Array, Objective, Outputs, known


class Regress(Objective):
    """sum_b of ln s + (y - m)^2 / (2 s^2): a Gaussian of mean m and deviation s for each value, both learned."""

    standard: ClassVar[tuple[str, ...]] = ("rmse", "mae", "quantile_error")

    targets: list[str] = Field(default=["target"], min_length=1)
    """Columns with the values of each sample."""
    hidden: int | None = Field(default=None, ge=1)
    """Width of an inner layer of the head; none unless given."""

    @property
    def needs(self) -> tuple[str, ...]:
        """The values."""
        return (*super().needs, *self.targets)

    def fit(self, train: Dataset) -> None:
        """Learn mean and deviation of the values, so that the model works with numbers near one."""
        columns = [train.sample_column(name) for name in self.targets]
        for name, column in zip(self.targets, columns):
            if column.ndim != 1 or column.dtype.kind not in "biuf":
                found = f"{column.dtype} of shape (n, {', '.join(map(str, column.shape[1:]))})"
                raise UserError(f"one number for each sample in column `{name}`", found)
        values = np.stack([column.astype(np.float64) for column in columns], 1)
        if not np.isfinite(values).all():
            bad = int(np.flatnonzero(~np.isfinite(values).all(1))[0])
            raise UserError(f"finite values in {', '.join(self.targets)}", f"NaN or infinity, first in sample {bad}")
        deviation = values.std(0)
        if (deviation == 0).any():
            name = self.targets[int(np.argmin(deviation))]
            raise UserError(
                f"values that differ in column `{name}`", f"{values[0, int(np.argmin(deviation))]} everywhere"
            )
        self.state.update(mean=values.mean(0).tolist(), deviation=deviation.tolist())

    def corrupt(self, batch: Batch, tokens: Mapping[str, Tokens], chance: Chance) -> Batch:
        """Scale the values; nothing is hidden."""
        if any(name not in batch.samples for name in self.targets):
            return batch
        values = np.stack([batch.samples[name].astype(np.float64) for name in self.targets], 1)
        scaled = (values - np.asarray(self.state["mean"])) / np.asarray(self.state["deviation"])
        return batch.but(None, **{ANSWER: scaled})

    def count(self, batch: Batch) -> float:
        """Samples."""
        truth = batch.samples.get(ANSWER)
        if truth is not None and not np.isfinite(truth).all():
            first = int(np.flatnonzero(~np.isfinite(truth).all(1))[0])
            where = batch.ids[first] if len(batch.ids) else first
            raise UserError(f"finite values in {', '.join(self.targets)}", f"NaN or infinity in sample {where}")
        return float(len(batch))

    @property
    def answers(self) -> list[str]:
        """The values."""
        return self.targets

    def heads(self, dim: int, tokens: Tokens) -> dict[str, nn.Module]:
        """Mean and deviation of each value."""
        return {"value": ValueHead(dim, len(self.targets), self.hidden)}

    def units(self, outputs: dict[str, Array], samples: Mapping[str, Array]) -> dict[str, Array]:
        """Means and deviations in the units of the columns: single precision would lose a Julian date."""
        mean, deviation = (np.asarray(self.state[key], np.float64) for key in ("mean", "deviation"))
        found = {**outputs, "mean": outputs["mean"] * deviation + mean, "std": outputs["std"] * deviation}
        if all(name in samples for name in self.targets):
            found["target"] = np.stack([np.asarray(samples[name], np.float64) for name in self.targets], 1)
        return found

    def step(self, model: Any, inputs: Inputs, outputs: bool) -> tuple[Tensor, Outputs]:
        """Negative log likelihood of the scaled values, summed over values and samples."""
        value = model.heads["value"](model.pool(model.encode(inputs.stream)))
        value = Gaussian(value.mean.float(), value.std)
        target = known(inputs, ANSWER, ", ".join(self.targets))
        loss = inputs.counted(value.loss(target).sum(-1))
        if not outputs:
            return loss.sum(), {}
        return loss.sum(), {"mean": value.mean, "std": value.std, "loss": loss}

    def answer(self, model: Any, inputs: Inputs) -> Outputs:
        """Means and deviations, scaled; `units` gives them their units."""
        value = model.heads["value"](model.pool(model.encode(inputs.stream)))
        return {"mean": value.mean, "std": value.std}
