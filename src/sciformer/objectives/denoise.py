"""Denoising of series, optionally with classification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from ..data.batch import Batch, ModelInputs, StreamView
from ..data.columns import Array
from ..data.dataset import Dataset
from ..data.random import SampleRandom
from ..data.windows import START
from ..errors import UserError
from ..nn import Gaussian, TagHead, ValueHead
from ..tokens.base import Tokens
from ..tokens.protocols import Maskable, prefix_length
from .base import ANSWER, Objective, Outputs, Rows, Widths, missing_truth
from .classify import Balance, Classify

CENTRE, SCALE = "centre of values", "scale of values"  # token columns: values are scaled to (value - centre) / scale
ASKED_TOKENS, OWN_TOKENS = "asked", "own"  # token columns: the truth is known; the token is not a prefix token
NOISE = "target noise"  # sample column with the sum of (value - truth)^2


class Denoise(Objective):
    """Mean squared error (x - m)^2 between noise-free values x and predictions m.

    The values are scaled like the tokens, and m = W h + b for a hidden vector h. With form gaussian, the loss is
    ln s + (x - m)^2 / (2 s^2), with a predicted deviation s. With a label, -w ln p(class) is added to the loss: one
    model then detects a signal and extracts it.
    """

    standard: ClassVar[tuple[str, ...]] = ("scatter", "noise_left", "overlap")

    target: str = "clean"
    """Column of lists with one noise-free value for each observed value (default: clean)."""
    form: Literal["plain", "gaussian"] = "plain"
    """Loss (default: plain). plain: squared error; gaussian: negative log-likelihood with a predicted standard
    deviation."""
    hidden: Widths | None = None
    """Width of the hidden layer of the heads, or a list of widths (default: linear heads)."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout rate in the hidden layers of the heads, or at the input of linear heads (default: 0)."""
    label: str = ""
    """Column with the class of each sample, if the class is also to be predicted (default: no classification)."""
    label_weight: float = Field(default=1.0, gt=0)
    """Weight w of the classification loss (default: 1)."""
    balance: Balance = "none"
    """Class weights (default: none). none: all weights are 1; classes: all classes count equally."""

    @property
    def classification(self) -> Classify | None:
        """Objective `classify` for the label; None without a label."""
        if not self.label:
            return None
        options = {name: getattr(self, name) for name in ("label", "hidden", "dropout", "balance", "stream")}
        made = Classify(kind="classify", **options)
        made.state.update(self.state.get("class", {}))
        return made

    @property
    def required_columns(self) -> tuple[str, ...]:
        return (*super().required_columns, self.target, *([self.label] if self.label else []))

    @property
    def classes(self) -> list[str]:
        """Names of the classes; empty without a label."""
        return [] if self.classification is None else self.classification.classes

    @property
    def answers(self) -> list[str]:
        return [self.target, *self.classes]

    def chosen(self) -> list[str]:
        """Names of the metrics, with metrics of classification if there is a label."""
        if self.metrics or not self.label:
            return super().chosen()
        two = ["efficiency_1"] if len(self.state.get("class", {}).get("classes", ())) == 2 else []
        return [*self.standard, "accuracy", "balanced_accuracy", "auc", *two, "calibration_error"]

    def details(self, outputs: Mapping[str, Array], samples: Mapping[str, Array] | None = None) -> dict[str, Rows]:
        """Precision, recall and F1 of each class, if there is a label."""
        return {} if self.classification is None else self.classification.details(outputs, samples)

    def fit(self, train: Dataset) -> None:
        name = self.asked_stream(train.tokens)
        stream, tokens = train.batch(np.arange(min(1, len(train)))).streams[name], train.tokens[name]
        if self.target not in stream.columns:
            there = f"`tokens.kind: {tokens.kind}` has the columns {', '.join(stream.columns)}"
            message = f"column `{self.target}` with the noise-free values is missing; {there}"
            raise UserError(message, key="objective.target")
        column = stream.columns[self.target]
        self.state["width"] = int(np.prod(column.shape[1:], dtype=np.int64))
        if (asked := self.classification) is not None:
            asked.fit(train)
            self.state["class"] = asked.state

    def validate_split(self, part: str, dataset: Dataset) -> None:
        if self.classification is not None:
            self.classification.validate_split(part, dataset)

    def corrupt(self, batch: Batch, tokens: Mapping[str, Tokens], rng: SampleRandom) -> Batch:
        """Add the scaled noise-free values as targets; no token is hidden."""
        name = self.asked_stream(batch.streams)
        stream = batch.streams[name]
        domain = Maskable.require(tokens[name], f"`objective.kind: {self.kind}`")
        value = stream.columns[domain.hides[0]]
        value = value.reshape(len(value), -1)
        centre, scale = (np.broadcast_to(part, value.shape) for part in domain.centre_and_scale(stream))
        made = {CENTRE: centre, SCALE: scale, OWN_TOKENS: stream.position >= prefix_length(domain)}
        truth, more = stream.columns.get(self.target), dict[str, Array]()
        if truth is not None:
            truth = truth.reshape(centre.shape).astype(np.float64)
            known = np.isfinite(truth) & made[OWN_TOKENS][:, None]
            made |= {ANSWER: np.where(known, (truth - centre) / scale, 0), ASKED_TOKENS: known}
            noise = np.where(known & np.isfinite(value), value - truth, 0)
            more[NOISE] = np.bincount(stream.sample, (noise**2).sum(1), len(stream))
        batch = batch.with_columns(stream.with_columns(**made), name, **more)
        return batch if self.classification is None else self.classification.corrupt(batch, tokens, rng)

    def count(self, batch: Batch) -> float:
        if ASKED_TOKENS not in batch.streams[self.asked_stream(batch.streams)].columns:
            raise missing_truth(self.target, key="objective.target")
        if self.classification is not None:
            self.classification.count(batch)
        return float(len(batch))

    def heads(self, dim: int, tokens: Tokens) -> dict[str, nn.Module]:
        kind = TagHead if self.form == "plain" else ValueHead
        made: dict[str, nn.Module] = {"value": kind(dim, self.state["width"], self.hidden, self.dropout)}
        return made if self.classification is None else made | self.classification.heads(dim, tokens)

    def step(self, model: Any, inputs: ModelInputs, outputs: bool) -> tuple[Tensor, Outputs]:
        """Mean loss over the values of each sample, plus the classification loss."""
        view, (value, logits) = inputs.view(self.stream), self._read(model, inputs)
        target, asked = view.columns[ANSWER].float(), view.columns[ASKED_TOKENS]
        each = value.loss(target) if self.form == "gaussian" else (value.mean - target) ** 2
        count = _sums(asked.float(), view)
        loss = _sums(each.masked_fill(~asked, 0), view) / count.clamp(min=1)
        found: Outputs = {}
        if self.classification is not None:
            own, found = self.classification.loss_and_outputs(logits, inputs)
            loss = loss + self.label_weight * own
        loss = inputs.counted(loss)
        if not outputs:
            return loss.sum(), {}
        centre, scale = (view.columns[name].float() for name in (CENTRE, SCALE))
        there, truth = (part * scale + centre for part in (value.mean, target))
        products = {"inner": there * truth, "power": there**2, "true_power": truth**2, "residual": (there - truth) ** 2}
        sums = {name: _sums(part.masked_fill(~asked, 0), view) for name, part in products.items()}
        return loss.sum(), {**found, **sums, "count": count, "loss": loss}

    def predict(self, model: Any, inputs: ModelInputs) -> Outputs:
        """Denoised values in the units of the data, and class probabilities."""
        view, (value, logits) = inputs.view(self.stream), self._read(model, inputs)
        centre, scale = (view.columns[name].float() for name in (CENTRE, SCALE))
        found = {"recovered": view.pad(value.mean * scale + centre), OWN_TOKENS: view.pad(view.columns[OWN_TOKENS])}
        if self.form == "gaussian":
            found["deviation"] = view.pad(value.std * scale)
        return found if self.classification is None else found | {"probabilities": logits.softmax(-1)}

    def _read(self, model: Any, inputs: ModelInputs) -> tuple[Gaussian, Tensor]:
        """Means and deviations of token values, and class logits.

        Means and deviations are (B, N, P) or (T, P), for P values per token. Without a label, the means are
        returned again in place of the logits.
        """
        encoded = model.encode(inputs.view(self.stream))
        value = model.heads["value"](model.tokens(encoded))
        if not isinstance(value, Gaussian):
            value = Gaussian(value.float(), torch.ones_like(value, dtype=torch.float32))
        value = Gaussian(value.mean.float(), value.std)
        return value, model.heads["class"](model.pool(encoded)).float() if self.label else value.mean

    def units(self, outputs: dict[str, Array], samples: Mapping[str, Array]) -> dict[str, Array]:
        """Series as lists with one entry per value; NaN for values before the window."""
        found = dict(outputs)
        if NOISE in samples and "residual" in found:
            found["noise"] = np.asarray(samples[NOISE])
        if OWN_TOKENS not in found:
            return found
        own = found.pop(OWN_TOKENS) > 0
        for name in [name for name in ("recovered", "deviation") if name in found]:
            rows = np.empty(len(own), object)
            for row, here in enumerate(own):
                values = found[name][row][here]
                before = int(samples[START][row]) * values.shape[-1] if START in samples else 0
                rows[row] = np.concatenate([np.full(before, np.nan), values.ravel()])
            found[name] = rows
        return found

    def merge(self, values: Array, which: Array, count: int) -> Array:
        """Merge the windows of each sample by their mean; for series, point by point."""
        if values.dtype != object:
            return super().merge(values, which, count)
        merged = np.empty(count, object)
        for row in range(count):
            parts = values[which == row]
            whole = np.full((len(parts), max(map(len, parts))), np.nan)
            for line, part in zip(whole, parts):
                line[: len(part)] = part
            number = np.isfinite(whole).sum(0)
            merged[row] = np.where(number > 0, np.nansum(whole, 0) / np.maximum(number, 1), np.nan)
        return merged


def _sums(part: Tensor, view: StreamView) -> Tensor:
    """Sums (B,) over all values of a sample."""
    return view.pad(part).flatten(1).sum(1)
