"""What an objective is: what it hides, what it asks of a model, how it judges the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
from pydantic import Field
from torch import Tensor, nn

from ..data.batch import Batch, ModelInputs, stream_name
from ..data.columns import Array
from ..data.dataset import Dataset
from ..data.random import SampleRandom
from ..errors import UserError, one_of
from ..metrics import METRICS
from ..recipe.registry import Section
from ..tokens.base import Tokens

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Outputs = dict[str, Tensor]
Width = Annotated[int, Field(ge=1)]
Widths = Width | Annotated[list[Width], Field(min_length=1)]  # of one inner layer, or of several
ANSWER = "target answer"  # the column of samples that holds the truth in the model's form
CARRIED = "carried "  # before the name of a carried tensor, among the outputs of a step
PREFIX = "target "  # before the name of a column that holds what was hidden


class ScoreGroup(NamedTuple):
    """Scores of one kind, beside the metrics: the report draws them in one figure and leaves their table to `details`.

    labels   name of the score -> name of its curve
    """

    title: str
    plural: str
    labels: dict[str, str]


class Carried(NamedTuple):
    """A tensor that the steps of a training change, and that checkpoints keep.

    initial   its value before the first step, on the CPU
    divided   whether ranks divide it along its first axis (Markov chains); otherwise all ranks must keep the same value
    """

    initial: Tensor
    divided: bool = False


class Objective(Section):
    """The `objective:` section. The loss is a sum over samples or tokens, divided once by their number in all."""

    section = "objective"
    unit: ClassVar[str] = "samples"
    """What is counted."""
    hides: ClassVar[bool] = False
    """Whether tokens are hidden, so that the model needs something to stand for them."""
    reads_out: ClassVar[bool] = False
    """Whether tokens are asked for, so that the model needs a way back to them."""
    asks: ClassVar[str] = "encode"
    """What a model must be able to do: `encode` a whole sample, or `decode` it token by token."""
    lookahead: ClassVar[int] = 0
    """Tokens wanted beyond a window."""
    standard: ClassVar[tuple[str, ...]] = ()
    """Metrics shown unless a recipe names others."""
    whole_batch: ClassVar[bool] = False
    """Whether the loss compares samples with each other, so that it is no sum over them (contrastive). `step` then has
    the batch in one piece, sees the samples of other ranks through `ModelInputs.gathered`, and returns the same loss on
    each rank."""
    preconditions: ClassVar[bool] = False
    """Whether `precondition` transforms the gradients."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Columns of lists, with a label for each word or token, that the data must bring along."""
        return ()

    @property
    def required_columns(self) -> tuple[str, ...]:
        """Columns of the table that training and judging need beside the tokens."""
        return tuple(name for name in (*self.labels, self.plot_against) if name)

    stream: str = ""
    """Stream of tokens that is asked about (default: the only one)."""
    metrics: list[str] = Field(default_factory=list)
    """What to measure beside the loss; empty: what is usual for this objective."""
    plot_against: str = ""
    """Column of samples against which the report plots the answers (a temperature, an energy); none unless given."""
    reference: float | None = None
    """Known value on that axis, drawn for comparison."""

    def asked_stream(self, streams: Iterable[str]) -> str:
        """The name of the stream that is asked about."""
        return stream_name(streams, self.stream)

    def chosen(self) -> list[str]:
        """The names of the metrics."""
        for name in self.metrics:
            one_of("objective.metrics", name, METRICS)
        return self.metrics or list(self.standard)

    @property
    def measured(self) -> list[str]:
        """The names of all scores but the loss that say which model is better; one can be chosen by any of them."""
        return [name for name in self.chosen() if METRICS[name].better != "neither"]

    @property
    def sends(self) -> tuple[str, ...]:
        """Columns of samples that the loss needs."""
        return (ANSWER,)

    def fit(self, train: Dataset) -> None:
        """Learn from the training data what the question is (the classes, the scale of a value)."""

    def calibrate(self, outputs: Mapping[str, Array], samples: Mapping[str, Array]) -> dict[str, Any]:
        """What is to be added to the state so that answers are as sure as they are right, by judged samples."""
        raise UserError(
            f"objective.kind: {self.kind} cannot be calibrated, because it has no probabilities or deviations "
            "(classify and regress have)",
            key="objective.kind",
        )

    @property
    def mixing(self) -> float:
        """How much training samples are mixed with others (`shares`); 0: they are not."""
        return 0.0

    def mixed(self, batch: Batch, other: Batch, share: Array) -> Batch:
        """Samples with what is asked of the others in them, share (B,) being their own part."""
        raise NotImplementedError

    def corrupt(self, batch: Batch, tokens: Mapping[str, Tokens], rng: SampleRandom) -> Batch:
        """Hide what is to be found; runs before tokens are normalised. Targets are columns named «target ...»."""
        return batch

    def count(self, batch: Batch) -> float:
        """What the sum of the loss is divided by."""
        return float(len(batch))

    def heads(self, dim: int, tokens: Tokens) -> dict[str, nn.Module]:
        """Last layers for the pooled vector."""
        return {}

    @property
    def answers(self) -> list[str]:
        """What the outputs of the heads stand for, in their order; heads are worth keeping where these are the same."""
        return []

    @property
    def head_kind(self) -> str:
        """The kind of objective whose heads these are (default: this one's own)."""
        return self.kind

    def step(self, model: Any, inputs: ModelInputs, outputs: bool) -> tuple[Tensor, Outputs]:
        """The sum of the loss, and (if wanted) what the metrics need: one entry for each sample."""
        raise NotImplementedError

    def carried(self, tokens: Mapping[str, Tokens]) -> dict[str, Carried]:
        """Tensors carried from step to step, by name, with their first values (drawn with the seed of the training).

        `step` finds them as `inputs.carried` and returns the new values among its outputs, named `CARRIED` + name. A
        step that is left out because of its gradient leaves them as they were.
        """
        return {}

    def precondition(self, model: Any, inputs: ModelInputs, gradients: dict[str, Tensor]) -> dict[str, Tensor]:
        """Gradients by name of the weight, between the backward pass and clipping: natural gradients and the like.

        The gradients are those of the mean loss over all ranks. The batch is in one piece; `inputs.carried` has the
        values that the step returned.
        """
        return gradients

    def validate_split(self, part: str, dataset: Dataset) -> None:
        """Refuse a part of the data that cannot be judged, before anything is trained."""

    def units(self, outputs: dict[str, Array], samples: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs in the units of the data, in double precision; `samples` has the columns of the samples, if known."""
        return outputs

    def merge(self, values: Array, which: Array, count: int) -> Array:
        """One entry for each of `count` samples, from the outputs of their windows: the mean, unless given.

        which    (n,) the sample of each window
        """
        sums = np.zeros((count, *values.shape[1:]))
        np.add.at(sums, which, values)
        return sums / np.bincount(which).reshape(-1, *[1] * (values.ndim - 1))

    def details(self, outputs: Mapping[str, Array], samples: Mapping[str, Array] | None = None) -> list[dict[str, Any]]:
        """More than a number: the rows of a table, shown where a trained model is judged.

        samples  columns of the samples, if known
        """
        return []

    def predict(self, model: Any, inputs: ModelInputs) -> Outputs:
        """Predictions, one entry for each sample, where the truth is not known."""
        raise UserError(f"`objective.kind: {self.kind}` has no answer for each sample", key="objective.kind")

    def generation_metrics(self, step: Any, assembly: Any, dataset: Dataset, device: Any) -> dict[str, float]:
        """Scores that take more than one pass (of answers written token by token), when a trained model is judged."""
        return {}

    def score(self, outputs: Mapping[str, Array]) -> dict[str, float]:
        """The metrics of all outputs together."""
        return {name: float(METRICS[name](outputs)) for name in self.chosen()}

    # How scores are shown. Names are those of `score` and `afterwards`, of `METRICS` or of this objective's own.

    def lower_is_better(self, name: str) -> bool:
        """Whether a smaller value of the loss or of a score is the better one."""
        return name not in METRICS or METRICS[name].better == "lower"

    def headline(self, names: Iterable[str]) -> list[str]:
        """The scores that a line about a model shows, of all that were measured."""
        return list(names)

    def score_groups(self, names: Iterable[str]) -> list[ScoreGroup]:
        """Scores of this objective's own, by their kind."""
        return []

    def figures(self, outputs: Mapping[str, Array], samples: Mapping[str, Array]) -> dict[str, Callable[[], Figure]]:
        """Figures of the report for this objective's own scores: caption -> function that draws."""
        return {}

    def summarises_by_median(self, name: str) -> bool:
        """Whether a comparison takes the median of a score over runs, and not the mean."""
        return False

    def summary_note(self, names: Iterable[str]) -> str:
        """A sentence for the caption of a comparison, on how these scores are read."""
        return ""


def required_sample_column(inputs: ModelInputs, column: str, name: str) -> Tensor:
    """A column of samples that the loss needs; `name` is what the user calls it."""
    if column not in inputs.samples:
        there = f"the columns are {', '.join(inputs.samples)}" if inputs.samples else "there are no columns"
        raise UserError(
            f"column `{name}` with the truth to judge by is missing; {there}",
            hint="Files may have their class before their name: NAME:FILE.",
        )
    return inputs.samples[column]


class Step(nn.Module):
    """Model and objective as one module: what is compiled, and wrapped for many devices."""

    def __init__(self, model: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self.objective = objective
        self.still: tuple[nn.Module, ...] = ()
        """Parts that do not learn: they work in training as they do in judging."""

    def train(self, mode: bool = True) -> Self:
        """As modules do, but for what does not learn."""
        super().train(mode)
        for part in self.still:
            part.eval()
        return self

    def forward(self, inputs: ModelInputs, outputs: bool = False) -> tuple[Tensor, Outputs]:
        """The sum of the loss over the batch, and outputs for the metrics if wanted."""
        return self.objective.step(self.model, inputs, outputs)
