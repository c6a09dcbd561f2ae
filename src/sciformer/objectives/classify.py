"""Classification of samples: cross-entropy, weights, label smoothing and mixup."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import BeforeValidator, Field
from torch import Tensor, nn

from ..data.batch import Batch, ModelInputs
from ..data.columns import Array
from ..data.dataset import Dataset
from ..data.random import SampleRandom
from ..errors import UserError, one_of
from ..metrics.calibration import temperature
from ..metrics.classification import class_scores, log_loss
from ..nn import ClassHead
from ..nn.losses import at_least_float32
from ..tokens.base import Tokens
from .base import ANSWER, Fisher, Objective, Outputs, Rows, Widths, check_classes, required_sample_column
from .stream_dropout import StreamDropout

Balance = Annotated[
    Literal["none", "classes"],
    BeforeValidator(lambda given: {True: "classes", False: "none"}[given] if isinstance(given, bool) else given),
]


NO_SCORE = "–"  # precision of a class that is never predicted, recall of a class without samples
PARTNER, SHARE = "target of the other", "share of its own"  # sample columns of mixup


class Classify(StreamDropout):
    """Classification by cross-entropy: -sum_b w_b ln p(class of sample b).

    A head predicts the class probabilities p from the pooled vector of the sample.
    """

    neutral_keys: ClassVar[tuple[str, ...]] = (*Objective.neutral_keys, "curve")
    standard: ClassVar[tuple[str, ...]] = (
        "accuracy",
        "balanced_accuracy",
        "macro_f1",
        "auc",
        "calibration_error",
    )

    label: str = "label"
    """Column with the class of each sample: names or integers (default: label)."""
    smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Label smoothing: share of the target probability spread over all classes (default: 0)."""
    mixup: float = Field(default=0.0, ge=0, le=10)
    """Parameter a of mixup (default: 0, no mixup). The model is trained on mixtures s x + (1 - s) y of two samples x
    and y, with s drawn from Beta(a, a). Usual values are 0.1 to 0.8."""
    balance: Balance = "none"
    """Class weights (default: none). none: all weights are 1; classes: all classes count equally: a class with n_c of
    the n samples gets the weight n / (C n_c), for C classes. true means classes, false means none."""
    weight: str = ""
    """Column with a weight for each sample (default: all weights 1)."""
    hidden: Widths | None = None
    """Width of the hidden layer of the head, or a list of widths (default: a linear head)."""
    activation: Literal["gelu", "relu"] = "gelu"
    """Activation function of the hidden layers (default: gelu)."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout rate in the hidden layers of the head, or at the input of a linear head (default: 0)."""
    curve: str = ""
    """Class for the plot of the probability against `plot_against` in the report (default: the last class)."""

    @property
    def sends(self) -> tuple[str, ...]:
        return (ANSWER, self.weight, PARTNER, SHARE)

    @property
    def mixing(self) -> float:
        return self.mixup

    def mixed(self, batch: Batch, other: Batch, share: Array) -> Batch:
        return batch.with_columns(None, **{PARTNER: other.samples[self.label], SHARE: share})

    @property
    def required_columns(self) -> tuple[str, ...]:
        return (*super().required_columns, *(name for name in (self.label, self.weight) if name))

    def fit(self, train: Dataset) -> None:
        """Learn the sorted class names and the number of samples of each class."""
        labels = train.sample_column(self.label)
        if labels.ndim != 1:
            shape = f"(n, {', '.join(map(str, labels.shape[1:]))})"
            message = f"column `{self.label}` has the shape {shape}, but it must have one class for each sample"
            raise UserError(message, key="objective.label")
        empty = np.isnan(labels) if labels.dtype.kind == "f" else labels == "" if labels.dtype.kind == "U" else None
        if empty is not None and empty.any():
            where = empty.argmax()
            message = f"sample {where} has no class in column `{self.label}`: the cell is empty or NaN"
            raise UserError(message, key="objective.label")
        if labels.dtype.kind == "f" and not (labels == np.round(labels)).all():
            message = f"column `{self.label}` has real numbers, which cannot be classes"
            raise UserError(message, hint="To predict numbers, use objective.kind: regress.", key="objective.label")
        classes, counts = np.unique(labels, return_counts=True)
        check_classes(self.label, "classes", classes)
        self.state.update(classes=_class_names(classes), counts=counts.tolist())

    def validate_split(self, part: str, dataset: Dataset) -> None:
        strange = sorted(set(_class_names(np.unique(dataset.sample_column(self.label)))) - set(self.classes))
        if strange:
            raise UserError(
                f"the part `{part}` has classes that the training part does not have: {', '.join(strange[:8])}; "
                f"the training part has {', '.join(self.classes[:8])}",
                hint="Add samples of these classes to the training part, or remove these classes.",
            )

    @property
    def classes(self) -> list[str]:
        return list(self.state["classes"])

    @property
    def answers(self) -> list[str]:
        return self.classes

    def corrupt(self, batch: Batch, tokens: Mapping[str, Tokens], rng: SampleRandom) -> Batch:
        """Add the class numbers as targets; no token is hidden."""
        if self.label not in batch.samples:
            return batch
        number = {ANSWER: self._numbers(batch.samples[self.label])}
        if PARTNER in batch.samples:
            number[PARTNER] = self._numbers(batch.samples[PARTNER])
        return batch.with_columns(None, **number)

    def _numbers(self, labels: Array) -> Array:
        place = {name: i for i, name in enumerate(self.classes)}
        return np.array([place.get(label, -1) for label in _class_names(labels)], np.int64)

    def count(self, batch: Batch) -> float:
        """Number of samples, or the sum of their weights."""
        number = batch.samples.get(ANSWER)
        if number is None:
            return float(len(batch))
        if (number < 0).any():
            first = int(np.argmax(number < 0))
            found = repr(str(batch.samples[self.label][first]))
            if len(batch.ids):
                found += f" in sample {batch.ids[first]}"
            raise UserError(f"class {found} is unknown; the training data have {', '.join(self.classes[:8])}")
        weights = np.ones(len(number))
        if self.balance != "none":
            each, share = self._class_weights().astype(np.float64), batch.samples.get(SHARE, 1)
            weights = share * each[number] + (1 - share) * each[batch.samples.get(PARTNER, number)]
        if self.weight:
            one_of("objective.weight", self.weight, batch.samples, key="objective.weight")
            if not (batch.samples[self.weight] >= 0).all():
                message = f"column `{self.weight}` has a weight that is negative or NaN"
                raise UserError(message, hint="Weights must be 0 or larger.", key="objective.weight")
            weights = weights * batch.samples[self.weight]
        return float(weights.sum())

    def _class_weights(self) -> Any:
        counts = np.asarray(self.state["counts"], np.float64)
        return (counts.sum() / (len(counts) * counts)).astype(np.float32)

    def heads(self, dim: int, tokens: Tokens) -> dict[str, nn.Module]:
        return {"class": ClassHead(dim, len(self.classes), self.hidden, self.dropout, self.activation)}

    def calibrate(self, outputs: Mapping[str, Array], samples: Mapping[str, Array]) -> dict[str, Any]:
        return {"temperature": temperature(outputs["probabilities"], outputs["label"], samples.get(self.weight))}

    def calibrated_scores(self, outputs: Mapping[str, Array], samples: Mapping[str, Array]) -> dict[str, float]:
        """Log loss with sample weights, but without class weights and label smoothing."""
        return {"log_loss": log_loss(outputs["probabilities"], outputs["label"], samples.get(self.weight))}

    def headline(self, names: Iterable[str]) -> list[str]:
        """Names of the scores in the one-line summary: all except the balanced accuracy."""
        return [name for name in names if name != "balanced_accuracy"]

    def details(self, outputs: Mapping[str, Array], samples: Mapping[str, Array] | None = None) -> dict[str, Rows]:
        """Precision, recall and F1 of each class."""
        return class_table(outputs, self.classes)

    def _logits(self, model: Any, inputs: ModelInputs) -> Tensor:
        logits = at_least_float32(model.heads["class"](model.pool(model.encode(inputs.view(self.stream)))))
        return logits / self.state.get("temperature", 1.0)

    def step(self, model: Any, inputs: ModelInputs, outputs: bool) -> tuple[Tensor, Outputs]:
        logits = self._logits(model, inputs)
        loss, found = self.loss_and_outputs(logits, inputs)
        return loss.sum(), {**found, "loss": loss} if outputs else {}

    def loss_and_outputs(self, logits: Tensor, inputs: ModelInputs) -> tuple[Tensor, Outputs]:
        """Loss (B,) of the logits (B, classes), and the inputs of the metrics."""
        label = required_sample_column(inputs, ANSWER, self.label)
        loss = self._loss(logits, label)
        if PARTNER in inputs.samples:
            share = inputs.samples[SHARE]
            loss = share * loss + (1 - share) * self._loss(logits, inputs.samples[PARTNER])
        if self.weight:
            loss = loss * inputs.samples[self.weight]
        return inputs.counted(loss), {"probabilities": logits.softmax(-1), "label": label}

    def _loss(self, logits: Tensor, label: Tensor) -> Tensor:
        loss = F.cross_entropy(logits, label, reduction="none", label_smoothing=self.smoothing)
        if self.balance == "none":
            return loss
        return loss * torch.as_tensor(self._class_weights(), device=loss.device)[label]

    def fisher(self, model: Any, inputs: ModelInputs) -> Fisher:
        """Fisher information of the class probabilities: F = mean_b J_b^T (diag(p_b) - p_b p_b^T) J_b.

        J_b (classes, P) are the derivatives of the logits. With L = diag(sqrt p) - p sqrt(p)^T, the matrix in the
        middle is L L^T.
        """

        def rows(logits: Tensor, derivatives: Tensor) -> Tensor:
            p = logits.softmax(-1)
            root = p.sqrt().diag_embed() - p[:, :, None] * p.sqrt()[:, None, :]
            return torch.einsum("bkc,bkp->bcp", root, derivatives).flatten(0, 1) / len(p) ** 0.5

        return Fisher(inputs, self._logits, rows)

    def exported(self, model: Any, inputs: ModelInputs) -> Outputs:
        logits = self._logits(model, inputs)
        return {"probabilities": logits.softmax(-1), "logits": logits}

    def predict(self, model: Any, inputs: ModelInputs) -> Outputs:
        return {"probabilities": self._logits(model, inputs).softmax(-1)}


def class_table(outputs: Mapping[str, Array], names: Sequence[str]) -> dict[str, Rows]:
    """Table of the precision, recall, F1 and support of each class: title -> rows."""
    found = class_scores(outputs["probabilities"], outputs["label"]) if "label" in outputs else None
    if found is None:
        return {}
    columns = [[NO_SCORE if value != value else value for value in column.tolist()] for column in found]
    heads = ("class", "precision", "recall", "F1", "samples")
    return {"Classes": [dict(zip(heads, row)) for row in zip(names, *columns)]}


def _class_names(labels: Any) -> list[str]:
    """Class names as text, equal for all stored types: 1 and 1.0, text and bytes."""
    labels = np.asarray(labels)
    if labels.dtype.kind == "f":
        return [str(int(label)) if label.is_integer() else str(label) for label in labels.tolist()]
    if labels.dtype.kind == "S":
        labels = np.char.decode(labels, "utf-8")
    return [str(label) for label in labels.tolist()]
