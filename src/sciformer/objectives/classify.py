"""Which class is it?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ..data.batch import Batch, Inputs
from ..data.chance import Chance
from ..data.dataset import Dataset
from ..errors import UserError, one_of
from ..nn import ClassHead
from ..tokens.base import Tokens
from .base import ANSWER, Objective, Outputs, known


class Classify(Objective):
    """-sum_b w_b ln p(class of sample b), with p = softmax of a linear head on the pooled vector."""

    standard: ClassVar[tuple[str, ...]] = ("accuracy", "macro_f1", "auc", "calibration_error")

    label: str = "label"
    """Column with the class of each sample: names or whole numbers."""
    smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Share of the probability spread over all classes in the target."""
    balance: bool = False
    """Weigh classes so that each counts alike, however many samples it has."""
    weight: str = ""
    """Column with a weight for each sample."""
    hidden: int | None = Field(default=None, ge=1)
    """Width of an inner layer of the head; none unless given."""
    curve: str = ""
    """Class whose probability the report draws along a column; the last one unless given."""

    @property
    def sends(self) -> tuple[str, ...]:
        """The number of the class, and the weight."""
        return (ANSWER, self.weight)

    def fit(self, train: Dataset) -> None:
        """Learn the classes, in sorted order, and how many samples each has."""
        labels = train.sample_column(self.label)
        if labels.ndim != 1:
            raise UserError(f"one class for each sample in column `{self.label}`", f"shape (n, {labels.shape[1:]})")
        if labels.dtype.kind == "f" and np.isnan(labels).any():
            found = f"none (an empty cell, or NaN) in sample {np.isnan(labels).argmax()}"
            raise UserError(f"a class for each sample in column `{self.label}`", found)
        if labels.dtype.kind == "f" and not (labels == np.round(labels)).all():
            raise UserError(
                f"classes in column `{self.label}`", "real numbers", "For values, use objective.kind: regress."
            )
        classes, counts = np.unique(labels, return_counts=True)
        if len(classes) < 2:
            raise UserError(f"two classes or more in column `{self.label}`", f"{len(classes)}: {classes[:1]}")
        if len(classes) > 10_000:
            raise UserError(f"classes in column `{self.label}`", f"{len(classes)} different values")
        self.state.update(classes=_names(classes), counts=counts.tolist())

    def admit(self, part: str, dataset: Dataset) -> None:
        """Refuse classes that the training part does not have."""
        strange = sorted(set(_names(np.unique(dataset.sample_column(self.label)))) - set(self.classes))
        if strange:
            raise UserError(
                f"in the part `{part}` only classes that the training part has ({', '.join(self.classes[:8])})",
                f"{', '.join(strange[:8])}",
                "Bring more samples of these, or leave them out.",
            )

    @property
    def classes(self) -> list[str]:
        """The names of the classes."""
        return list(self.state["classes"])

    @property
    def answers(self) -> list[str]:
        """The classes."""
        return self.classes

    def corrupt(self, batch: Batch, tokens: Mapping[str, Tokens], chance: Chance) -> Batch:
        """Number the classes; nothing is hidden."""
        if self.label not in batch.samples:
            return batch
        place = {name: i for i, name in enumerate(self.classes)}
        number = np.array([place.get(label, -1) for label in _names(batch.samples[self.label])], np.int64)
        return batch.but(None, **{ANSWER: number})

    def count(self, batch: Batch) -> float:
        """Samples, or the sum of their weights."""
        number = batch.samples.get(ANSWER)
        if number is None:
            return float(len(batch))
        if (number < 0).any():
            first = int(np.argmax(number < 0))
            found = repr(str(batch.samples[self.label][first]))
            if len(batch.ids):
                found += f" in sample {batch.ids[first]}"
            raise UserError(f"one of the classes of the training data ({', '.join(self.classes[:8])})", found)
        weights = self._class_weights()[number].astype(np.float64) if self.balance else np.ones(len(number))
        if self.weight:
            one_of("objective.weight, a column of the samples,", self.weight, batch.samples)
            if not (batch.samples[self.weight] >= 0).all():
                raise UserError(f"weights of 0 or more in column `{self.weight}`", "a negative one, or NaN")
            weights = weights * batch.samples[self.weight]
        return float(weights.sum())

    def _class_weights(self) -> Any:
        counts = np.asarray(self.state["counts"], np.float64)
        return (counts.sum() / (len(counts) * counts)).astype(np.float32)

    def heads(self, dim: int, tokens: Tokens) -> dict[str, nn.Module]:
        """A linear layer, or an MLP."""
        return {"class": ClassHead(dim, len(self.classes), self.hidden)}

    def step(self, model: Any, inputs: Inputs, outputs: bool) -> tuple[Tensor, Outputs]:
        """Cross-entropy of the samples."""
        logits = model.heads["class"](model.pool(model.encode(inputs.stream))).float()
        label = known(inputs, ANSWER, self.label)
        loss = F.cross_entropy(logits, label, reduction="none", label_smoothing=self.smoothing)
        if self.balance:
            loss = loss * torch.as_tensor(self._class_weights(), device=loss.device)[label]
        if self.weight:
            loss = loss * inputs.samples[self.weight]
        loss = inputs.counted(loss)
        if not outputs:
            return loss.sum(), {}
        return loss.sum(), {"probabilities": logits.softmax(-1), "label": label, "loss": loss}

    def answer(self, model: Any, inputs: Inputs) -> Outputs:
        """Probabilities of the classes."""
        logits = model.heads["class"](model.pool(model.encode(inputs.stream))).float()
        return {"probabilities": logits.softmax(-1)}


def _names(labels: Any) -> list[str]:
    """Classes by name, whatever the file stores them as: 1 and 1.0 are the same, bytes are text."""
    labels = np.asarray(labels)
    if labels.dtype.kind == "f":
        return [str(int(label)) if label.is_integer() else str(label) for label in labels.tolist()]
    if labels.dtype.kind == "S":
        labels = np.char.decode(labels, "utf-8")
    if labels.dtype.kind == "b":
        return [str(bool(label)) for label in labels]
    return [str(label) for label in labels.tolist()]
