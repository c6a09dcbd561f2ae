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
from ..errors import UserError
from ..nn import ClassHead
from ..tokens.base import Tokens
from .base import Objective, Outputs


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

    def fit(self, train: Dataset) -> None:
        """Learn the classes, in sorted order, and how many samples each has."""
        labels = train.sample_column(self.label)
        if labels.dtype.kind == "f" and not (labels == np.round(labels)).all():
            raise UserError(
                f"classes in column `{self.label}`", "real numbers", "For values, use objective.kind: regress."
            )
        classes, counts = np.unique(labels, return_counts=True)
        if len(classes) < 2:
            raise UserError(f"two classes or more in column `{self.label}`", f"{len(classes)}: {classes[:1]}")
        if len(classes) > 10_000:
            raise UserError(f"classes in column `{self.label}`", f"{len(classes)} different values")
        names = [str(name) for name in classes.tolist()]
        self.state.update(classes=names, counts=counts.tolist())

    @property
    def classes(self) -> list[str]:
        """The names of the classes."""
        return list(self.state["classes"])

    def corrupt(self, batch: Batch, tokens: Mapping[str, Tokens], chance: Chance) -> Batch:
        """Number the classes; nothing is hidden."""
        if self.label not in batch.samples:
            return batch
        place = {name: i for i, name in enumerate(self.classes)}
        labels = [str(label) for label in batch.samples[self.label].tolist()]
        number = np.array([place.get(label, -1) for label in labels], np.int64)
        return batch.but(answer=number)

    def count(self, batch: Batch) -> float:
        """Samples, or the sum of their weights."""
        known = batch.samples.get("answer")
        if known is not None and (known < 0).any() and self.state:
            label = batch.samples[self.label][int(np.argmax(known < 0))]
            raise UserError(f"one of the classes of the training data ({', '.join(self.classes[:8])})", f"{label!r}")
        if self.balance and known is not None:
            return float(self._class_weights()[known].sum())
        return float(batch.samples[self.weight].sum()) if self.weight else float(len(batch))

    def _class_weights(self) -> Any:
        counts = np.asarray(self.state["counts"], np.float64)
        return (counts.sum() / (len(counts) * counts)).astype(np.float32)

    def heads(self, dim: int, tokens: Tokens) -> dict[str, nn.Module]:
        """A linear layer, or an MLP."""
        return {"class": ClassHead(dim, len(self.classes), self.hidden)}

    def step(self, model: Any, inputs: Inputs, outputs: bool) -> tuple[Tensor, Outputs]:
        """Cross-entropy of the samples."""
        logits = model.heads["class"](model.pool(model.encode(inputs.stream))).float()
        label = inputs.samples["answer"]
        loss = F.cross_entropy(logits, label, reduction="none", label_smoothing=self.smoothing)
        if self.balance:
            loss = loss * torch.as_tensor(self._class_weights(), device=loss.device)[label]
        if self.weight:
            loss = loss * inputs.samples[self.weight]
        if not outputs:
            return loss.sum(), {}
        return loss.sum(), {"probabilities": logits.softmax(-1), "label": label, "loss": loss}

    def answer(self, model: Any, inputs: Inputs) -> Outputs:
        """Probabilities of the classes."""
        logits = model.heads["class"](model.pool(model.encode(inputs.stream))).float()
        return {"probabilities": logits.softmax(-1)}
