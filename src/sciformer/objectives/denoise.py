"""What would a series be without its noise, and is there anything in it?"""

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
from .base import ANSWER, Objective, Outputs, Widths
from .classify import Balance, Classify

CENTRE, SCALE = "centre of values", "scale of values"  # columns of tokens: values are scaled (value - centre) / scale
ASKED_TOKENS, OWN_TOKENS = "asked", "own"  # columns of tokens: whose truth is known, and which are not given beside
NOISE = "target noise"  # the column of samples with the sum of (value - truth)^2


class Denoise(Objective):
    """sum_b of the mean over its points of (x - m)^2, x the value without noise, scaled as values are; m = W h + b.

    With a label, also -w ln p(class of sample b): detection and extraction in one. With form gaussian,
    ln s + (x - m)^2 / (2 s^2) in place of the square.
    """

    standard: ClassVar[tuple[str, ...]] = ("scatter", "noise_left", "overlap")

    target: str = "clean"
    """Column of lists with the values without noise, one for each value."""
    form: Literal["plain", "gaussian"] = "plain"
    """Squared error, or a Gaussian for each value, which also says how sure it is."""
    hidden: Widths | None = None
    """Width of an inner layer of the heads, or widths of several; none unless given."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of numbers of the inner layers (without such, of what the heads read) set to zero in training."""
    label: str = ""
    """Column with the class of each sample, to be found too; none unless given."""
    label_weight: float = Field(default=1.0, gt=0)
    """How much the class counts beside the series, w."""
    balance: Balance = "none"
    """classes: weigh the classes so that each counts alike."""

    @property
    def question(self) -> Classify | None:
        """Which class it is, where that is asked too."""
        if not self.label:
            return None
        options = {name: getattr(self, name) for name in ("label", "hidden", "dropout", "balance", "stream")}
        made = Classify(kind="classify", **options)
        made.state.update(self.state.get("class", {}))
        return made

    @property
    def required_columns(self) -> tuple[str, ...]:
        """The values without noise, and the class."""
        return (*super().required_columns, self.target, *([self.label] if self.label else []))

    @property
    def classes(self) -> list[str]:
        """The names of the classes; none where they are not asked for."""
        return [] if self.question is None else self.question.classes

    @property
    def answers(self) -> list[str]:
        return [self.target, *self.classes]

    def chosen(self) -> list[str]:
        """The names of the metrics, those of the class too."""
        if self.metrics or not self.label:
            return super().chosen()
        two = ["efficiency_1"] if len(self.state.get("class", {}).get("classes", ())) == 2 else []
        return [*self.standard, "accuracy", "auc", *two, "calibration_error"]

    def fit(self, train: Dataset) -> None:
        """Learn how many values a token has, and the classes."""
        name = self.asked_stream(train.tokens)
        stream, tokens = train.batch(np.arange(min(1, len(train)))).streams[name], train.tokens[name]
        if self.target not in stream.columns:
            there = f"`tokens.kind: {tokens.kind}` has {', '.join(stream.columns)}"
            raise UserError(
                f"column `{self.target}` with a value for each value of the tokens is missing; {there}",
                key="objective.target",
            )
        column = stream.columns[self.target]
        self.state["width"] = int(np.prod(column.shape[1:], dtype=np.int64))
        if (asked := self.question) is not None:
            asked.fit(train)
            self.state["class"] = asked.state

    def validate_split(self, part: str, dataset: Dataset) -> None:
        """Refuse classes that the training part does not have."""
        if self.question is not None:
            self.question.validate_split(part, dataset)

    def corrupt(self, batch: Batch, tokens: Mapping[str, Tokens], rng: SampleRandom) -> Batch:
        """Scale what is to be found as values are; nothing is hidden."""
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
        return batch if self.question is None else self.question.corrupt(batch, tokens, rng)

    def count(self, batch: Batch) -> float:
        if ASKED_TOKENS not in batch.streams[self.asked_stream(batch.streams)].columns:
            raise UserError(f"column `{self.target}` with the truth to judge by is missing", key="objective.target")
        if self.question is not None:
            self.question.count(batch)
        return float(len(batch))

    def heads(self, dim: int, tokens: Tokens) -> dict[str, nn.Module]:
        """A layer for the values of each token, and one for the class."""
        kind = TagHead if self.form == "plain" else ValueHead
        made: dict[str, nn.Module] = {"value": kind(dim, self.state["width"], self.hidden, self.dropout)}
        return made if self.question is None else made | self.question.heads(dim, tokens)

    def step(self, model: Any, inputs: ModelInputs, outputs: bool) -> tuple[Tensor, Outputs]:
        """The mean loss of the values of each sample, and that of its class."""
        view, (value, logits) = inputs.view(self.stream), self._read(model, inputs)
        target, asked = view.columns[ANSWER].float(), view.columns[ASKED_TOKENS]
        each = value.loss(target) if self.form == "gaussian" else (value.mean - target) ** 2
        count = _sums(asked.float(), view)
        loss = _sums(each.masked_fill(~asked, 0), view) / count.clamp(min=1)
        found: Outputs = {}
        if self.question is not None:
            own, found = self.question.judged(logits, inputs)
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
        """The values without noise, in the units of the data, and probabilities of the classes."""
        view, (value, logits) = inputs.view(self.stream), self._read(model, inputs)
        centre, scale = (view.columns[name].float() for name in (CENTRE, SCALE))
        found = {"recovered": view.pad(value.mean * scale + centre), OWN_TOKENS: view.pad(view.columns[OWN_TOKENS])}
        if self.form == "gaussian":
            found["deviation"] = view.pad(value.std * scale)
        return found if self.question is None else found | {"probabilities": logits.softmax(-1)}

    def _read(self, model: Any, inputs: ModelInputs) -> tuple[Gaussian, Tensor]:
        """Values of the tokens (B, N, P) or (T, P) with deviations, and logits of the classes."""
        encoded = model.encode(inputs.view(self.stream))
        value = model.heads["value"](model.tokens(encoded))
        if not isinstance(value, Gaussian):
            value = Gaussian(value.float(), torch.ones_like(value, dtype=torch.float32))
        value = Gaussian(value.mean.float(), value.std)
        return value, model.heads["class"](model.pool(encoded)).float() if self.label else value.mean

    def units(self, outputs: dict[str, Array], samples: Mapping[str, Array]) -> dict[str, Array]:
        """Series as lists, a value for each of the whole sample; NaN before this window."""
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
        """Means over the windows of a sample; of series, of the windows that have a point."""
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
    """(B,) sums over all values of a sample."""
    return view.pad(part).flatten(1).sum(1)
