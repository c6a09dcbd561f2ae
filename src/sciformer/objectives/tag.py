"""Classification of words: named entities, parts of speech."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ..data.batch import Batch, ModelInputs, StreamView
from ..data.columns import Array
from ..data.dataset import Dataset
from ..data.random import SampleRandom
from ..data.token_labels import ITEMS
from ..metrics.text import entities
from ..nn import TagHead
from ..nn.losses import IGNORE_INDEX
from ..tokens.base import Tokens
from .base import ANSWER, Objective, Outputs, Rows, check_classes, missing_truth

OUTSIDE = "O"


class Tag(Objective):
    """Cross-entropy -sum_w ln p(tag of word w), from the first token of each word.

    Each sample has a list of tags, one for each word (or one for each token, if tokens are not parts of words). Tags
    that are missing in the training data count as errors in the metrics, but not in the loss.
    """

    unit: ClassVar[str] = "tags"
    standard: ClassVar[tuple[str, ...]] = ("entity_f1", "entity_precision", "entity_recall", "token_accuracy")

    label: str = "tags"
    """Column with a list of tags for each sample, one for each word, e.g. B-place, I-place, O (default: tags)."""
    hidden: int | None = Field(default=None, ge=1)
    """Width of the hidden layer of the head (default: a linear head)."""

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.label,)

    def chosen(self) -> list[str]:
        """Names of the metrics; metrics of entities only if the tags mark entities."""
        if not self.metrics and self.state and not self.spans:
            return ["token_accuracy"]
        return super().chosen()

    def fit(self, train: Dataset) -> None:
        lists = train.sample_column(self.label)
        tags = sorted({str(tag) for tags in lists for tag in tags})
        check_classes(self.label, "tags", tags)
        self.state["tags"] = tags

    @property
    def answers(self) -> list[str]:
        return list(self.state["tags"])

    @property
    def spans(self) -> bool:
        """Whether the tags mark entities: `O`, or position and type (`B-place`)."""
        return all(tag == OUTSIDE or tag[:2] in ("B-", "I-", "E-", "S-") for tag in self.answers)

    def corrupt(self, batch: Batch, tokens: Mapping[str, Tokens], rng: SampleRandom) -> Batch:
        """Add the tag number at the first token of each word; no token is hidden."""
        lists = batch.samples.get(self.label)
        if lists is None:
            return batch
        name, tags = self.asked_stream(batch.streams), np.array(self.answers)
        stream = batch.streams[name]
        first = stream.columns["item"] >= 0
        size = np.array([len(one) for one in lists], np.int64)
        flat = np.array([str(tag) for one in lists for tag in one], str)
        number = np.searchsorted(tags, flat)
        known = tags[np.minimum(number, len(tags) - 1)] == flat
        number = np.where(known, number, len(tags))  # unknown tags get an extra number
        answer = np.full(len(first), IGNORE_INDEX, np.int64)
        answer[first] = number[(size.cumsum() - size)[stream.sample[first]] + stream.columns["item"][first]]
        return batch.with_columns(stream.with_columns(**{ANSWER: answer}), name)

    def count(self, batch: Batch) -> float:
        """Number of words with a known tag."""
        answer = batch.streams[self.asked_stream(batch.streams)].columns.get(ANSWER)
        if answer is None:
            raise missing_truth(self.label, key="objective.label")
        return float(((answer >= 0) & (answer < len(self.answers))).sum())

    def heads(self, dim: int, tokens: Tokens) -> dict[str, nn.Module]:
        return {"tag": TagHead(dim, len(self.answers), self.hidden)}

    def step(self, model: Any, inputs: ModelInputs, outputs: bool) -> tuple[Tensor, Outputs]:
        view = inputs.view(self.stream)
        logits = model.heads["tag"](model.tokens(model.encode(view))).float()
        answer = _without_padding(view.columns[ANSWER], view, IGNORE_INDEX)
        target = answer.masked_fill(answer >= logits.shape[-1], IGNORE_INDEX)
        flat = logits.flatten(0, -2)
        if not outputs:
            return F.cross_entropy(flat, target.flatten(), ignore_index=IGNORE_INDEX, reduction="sum"), {}
        loss = F.cross_entropy(flat, target.flatten(), ignore_index=IGNORE_INDEX, reduction="none").view_as(target)
        best = logits.argmax(-1)
        found = {"loss": loss, "correct": best == answer, "count": answer != IGNORE_INDEX}
        sums = {name: view.pad(part).sum(1) for name, part in found.items()}
        return loss.sum(), {**sums, **_tags_of_words(best, view)}

    def predict(self, model: Any, inputs: ModelInputs) -> Outputs:
        view = inputs.view(self.stream)
        return _tags_of_words(model.heads["tag"](model.tokens(model.encode(view))).argmax(-1), view)

    def units(self, outputs: dict[str, Array], samples: Mapping[str, Array]) -> dict[str, Array]:
        """Lists of tag names, one for each word; "" for words outside this window."""
        tags, found = np.array(self.answers), dict(outputs)
        numbers, items = (found.pop(name).astype(np.int64) for name in ("tag", "item"))
        named = np.empty(len(numbers), object)
        for row, size in enumerate(samples[ITEMS]):
            here = items[row] >= 0
            named[row] = np.full(int(size), "", tags.dtype)
            named[row][items[row][here]] = tags[numbers[row][here]]
        found["tags"] = named
        if self.label in samples:
            found["truth"] = samples[self.label]
        return found

    def merge(self, values: Array, which: Array, count: int) -> Array:
        """Sum the counts and join the lists of windows; words without tokens get `O`."""
        if values.dtype != object:
            return super().merge(values, which, count) * np.bincount(which)
        merged = np.empty(count, object)
        for row, one in zip(which, values):
            merged[row] = one if merged[row] is None else np.where(merged[row] == "", one, merged[row])
        rest = OUTSIDE if OUTSIDE in self.answers else self.answers[0]
        merged[:] = [np.where(one == "", rest, one) for one in merged]
        return merged

    def details(self, outputs: Mapping[str, Array], samples: Mapping[str, Array] | None = None) -> dict[str, Rows]:
        """Precision, recall and F1 of each entity type."""
        if not self.spans or "truth" not in outputs:
            return {}
        found = entities(outputs["tags"], outputs["truth"])
        rows = [
            {"entity": kind, "precision": one.precision, "recall": one.recall, "F1": one.f1}
            | {"predicted": one.predicted, "true": one.true}
            for kind, one in found.items()
        ]
        return {"Entities": rows}


def _without_padding(column: Tensor, view: StreamView, none: int) -> Tensor:
    return column if view.real is None else column.masked_fill(~view.real, none)


def _tags_of_words(best: Tensor, view: StreamView) -> Outputs:
    """Tag of each token (B, N), and number of the word that begins there (else -1)."""
    item = _without_padding(view.columns["item"], view, -1) + 1  # padding is 0, so that it becomes -1 below
    return {"tag": view.pad(best), "item": view.pad(item) - 1}
