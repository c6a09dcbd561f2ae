"""Classification of words: named entities, parts of speech."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ...data.batch import Batch, ModelInputs, StreamView
from ...data.columns import Array, Lists, Table
from ...data.dataset import Dataset
from ...data.random import SampleRandom
from ...data.token_labels import ITEMS
from ...errors import UserError
from ...metrics.text import OUTSIDE, entities, marks_entity
from ...nn import TagHead
from ...nn.losses import IGNORE_INDEX
from ...tokens.base import Tokens
from ..base import ANSWER, Objective, Outputs, Rows, check_classes, missing_truth
from ..viterbi import Transitions, begins_with_position_b, find_transitions, most_probable_tags
from .rows import entity_rows, word_rows

WORDS, ENTITIES = "words", "entities"  # rows of a table of predictions


class Tag(Objective):
    """Cross-entropy -sum_w ln p(tag of word w), from the first token of each word.

    Each sample has a list with one tag for each word (or for each token, if tokens are not parts of words). Tags that
    are not in the training data count as errors in the metrics, and are ignored in the loss. If the tags mark entities
    (B-place, I-place, O), the most probable valid sequence of tags is predicted.
    """

    unit: ClassVar[str] = "tags"
    standard: ClassVar[tuple[str, ...]] = ("entity_f1", "entity_precision", "entity_recall", "token_accuracy")
    row_units: ClassVar[tuple[str, ...]] = (WORDS, ENTITIES)

    label: str = "tags"
    """Column with a list of tags for each sample, with one tag for each word, e.g. B-place, I-place, O (default:
    tags)."""
    hidden: int | None = Field(default=None, ge=1)
    """Width of the hidden layer of the head (default: a linear head)."""
    constrained: bool = True
    """Predict only valid sequences of entity tags: I-place must follow B-place or I-place (default: true). If entities
    begin with I- (scheme IOB1), or if the tags do not mark entities, each tag is predicted separately."""

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
        self.state.update(tags=tags, begins_with_b=begins_with_position_b(lists))

    @property
    def answers(self) -> list[str]:
        return list(self.state["tags"])

    @property
    def spans(self) -> bool:
        """Whether the tags mark entities: `O`, or a position and a type (`B-place`)."""
        return all(map(marks_entity, self.answers))

    @property
    def transitions(self) -> Transitions | None:
        """Rules for valid sequences of tags; None if all sequences are allowed."""
        if not (self.constrained and self.spans and self.state.get("begins_with_b", self._every_type_begins)):
            return None
        return find_transitions(self.answers)

    @property
    def _every_type_begins(self) -> bool:
        """Whether each entity type has a tag with B or S.

        In the scheme IOB1, only some types have a tag with B.
        """
        kinds = {tag[2:]: {other[:1] for other in self.answers if other[1:] == tag[1:]} for tag in self.answers}
        return all(letters & {"B", "S", "U"} for kind, letters in kinds.items() if kind)

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
            hint = "Each line of a file to evaluate needs a word and its tag; an empty line ends a sentence."
            raise missing_truth(self.label, key="objective.label").with_fields(hint=hint)
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
        found = {"loss": loss, "count": answer != IGNORE_INDEX}
        sums = {name: view.pad(part).sum(1) for name, part in found.items()}
        return loss.sum(), {**sums, **self._scores(logits, view)}

    def predict(self, model: Any, inputs: ModelInputs) -> Outputs:
        view = inputs.view(self.stream)
        return self._scores(model.heads["tag"](model.tokens(model.encode(view))).float(), view)

    def _scores(self, logits: Tensor, view: StreamView) -> Outputs:
        """Log probabilities (B, N, K) of K tags, and word numbers (B, N).

        The word number is -1 at a token where no word begins. If every sequence of tags is allowed, only the best tag
        (B, N) and its log probability (B, N, 1) are kept.
        """
        item = _without_padding(view.columns["item"], view, -1) + 1  # padding is 0, so that it becomes -1 below
        scores = view.pad(logits.log_softmax(-1))
        found = {"item": view.pad(item) - 1}
        if self.transitions is not None:
            return {**found, "scores": scores}
        return {**found, "scores": scores.amax(-1, keepdim=True), "tag": scores.argmax(-1)}

    def units(self, outputs: dict[str, Array], samples: Mapping[str, Array]) -> dict[str, Array]:
        """Lists of scores and tag numbers per word; NaN for words outside the window."""
        found = dict(outputs)
        items = found.pop("item").astype(np.int64)
        for name in ("scores", "tag"):
            if name in found:
                found[name] = _by_word(found[name].astype(np.float32), items, samples[ITEMS])
        if self.label in samples:
            found["truth"] = samples[self.label]
        return found

    def merge(self, values: Array, which: Array, count: int) -> Array:
        """Merge the windows of each sample: sum counts, concatenate lists."""
        if values.dtype != object:
            return super().merge(values, which, count) * np.bincount(which)
        merged = np.empty(count, object)
        for row, one in zip(which, values):
            lacks = merged[row] is not None and one.dtype.kind == "f" and np.isnan(merged[row])
            merged[row] = one if merged[row] is None else np.where(lacks, one, merged[row])
        return merged

    def finish(self, outputs: dict[str, Array]) -> dict[str, Array]:
        """Predicted tags by name, and their probabilities.

        A word without tokens is `O`, with the probability NaN.
        """
        if "scores" not in outputs:  # no samples
            return outputs
        found, tags = dict(outputs), np.array(self.answers)
        rest = self.answers.index(OUTSIDE) if OUTSIDE in self.answers else 0
        transitions, scores, numbers = self.transitions, found.pop("scores"), found.pop("tag", None)
        found |= {name: np.empty(len(scores), object) for name in ("tags", "probability")}
        for row, one in enumerate(scores):
            lost = np.isnan(one[:, 0])
            if numbers is not None:
                path = np.where(lost, rest, numbers[row]).astype(np.int64)
                best = one[:, 0]
            else:
                sure = np.where(np.arange(len(tags)) == rest, 0.0, -np.inf)
                path = most_probable_tags(np.where(lost[:, None], sure, one), transitions)
                best = one[np.arange(len(one)), path]
            found["tags"][row], found["probability"][row] = tags[path], np.exp(best)
        if "count" in found:  # an evaluation
            rows = zip(found["tags"], found["truth"], found["probability"])
            found["correct"] = np.array([int((tag == truth)[~np.isnan(p)].sum()) for tag, truth, p in rows])
        return found

    def as_rows(self, unit: str, predictions: Mapping[str, Any], table: Table) -> dict[str, Array | Lists]:
        if unit == ENTITIES and not self.spans:
            message = (
                f"--rows {ENTITIES} needs tags of entities (such as B-place, I-place), but this run has other tags"
            )
            raise UserError(message, hint=f"Write one row per word: --rows {WORDS}", key="--rows")
        given = {name: column for name, column in predictions.items() if name != self.label or name == "tags"}
        return entity_rows(given, table) if unit == ENTITIES else word_rows(given, table)

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


def _by_word(values: Array, items: Array, sizes: Array) -> Array:
    """Lists of token values (B, N, ...) by word, NaN for words without a token.

    items   word that begins with a token (B, N), else -1
    sizes   number of words of each sample
    """
    made = np.empty(len(values), object)
    for row, size in enumerate(sizes):
        here = items[row] >= 0
        made[row] = np.full((int(size), *values.shape[2:]), np.nan, np.float32)
        made[row][items[row][here]] = values[row][here]
    return made
