"""Base class of objectives: targets, loss, predictions and scores of a model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
from pydantic import Field
from torch import Tensor, nn

from ..data.batch import Batch, ModelInputs, stream_name
from ..data.columns import Array, Lists, Table
from ..data.dataset import Dataset
from ..data.prepare import augmented
from ..data.random import SampleRandom
from ..errors import UserError, one_of
from ..metrics import METRICS
from ..metrics.bootstrap import score_intervals
from ..recipe.registry import Section
from ..tokens.base import Tokens

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Outputs = dict[str, Tensor]
Rows = list[dict[str, Any]]  # rows of a table, with equal keys
Width = Annotated[int, Field(ge=1, le=1 << 20)]
Widths = Width | Annotated[list[Width], Field(min_length=1)]  # of one hidden layer, or of several
ANSWER = "target answer"  # column with the true values, in the form that the model predicts
CARRIED = "carried "  # prefix of carried tensors among the outputs of a step
PREFIX = "target "  # prefix of token columns with the values to predict
MAX_CLASSES = 10_000


class ScoreGroup(NamedTuple):
    """Scores of one figure of the report.

    title    title of the figure
    plural   noun for the caption: "Rejections against step."
    labels   labels of the curves, by score name
    """

    title: str
    plural: str
    labels: dict[str, str]


class Carried(NamedTuple):
    """Tensor carried from one training step to the next, and saved in checkpoints.

    initial   value before the first step, on the CPU
    divided   True: divided over the ranks along the first axis (Markov chains); False: equal on all ranks
    """

    initial: Tensor
    divided: bool = False


class Fisher(NamedTuple):
    """Fisher matrix F = R^T R of a batch, for natural gradients.

    inputs    padded inputs of the model with B samples
    outputs   function (model, inputs) -> outputs (B, K) with gradients; each depends on its own sample only
    rows      function (outputs (B, K), derivatives (B, K, P)) -> R (n, P), for P weights
    """

    inputs: ModelInputs
    outputs: Callable[[Any, ModelInputs], Tensor]
    rows: Callable[[Tensor, Tensor], Tensor]


class Objective(Section):
    """Section `objective:` of a recipe.

    The loss of a training step is the sum of the losses from `step`, divided by the sum of the counts from `count`.
    """

    section = "objective"
    neutral_keys: ClassVar[tuple[str, ...]] = ("plot_against", "reference")
    model_keys: ClassVar[tuple[str, ...]] = ("hidden", "activation", "dropout")
    unit: ClassVar[str] = "samples"
    """Unit over which the loss is averaged."""
    hides: ClassVar[bool] = False
    """Whether tokens are hidden, so that the model needs a mask vector."""
    reads_out: ClassVar[bool] = False
    """Whether tokens are predicted, so that the model needs a readout."""
    asks: ClassVar[str] = "encode"
    """Method of the model that the objective needs: `encode` (default), `decode` or `translate`."""
    lookahead: ClassVar[int] = 0
    """Number of tokens needed after the end of a window."""
    standard: ClassVar[tuple[str, ...]] = ()
    """Metrics to use if the recipe names no metrics."""
    whole_batch: ClassVar[bool] = False
    """Whether the loss compares samples with each other (contrastive loss), instead of being a sum over samples
    (default: no). `step` then gets the batch in one piece, finds the samples of other ranks in `ModelInputs.gathered`,
    and returns the same loss on each rank."""
    needs_all: ClassVar[bool] = False
    """Whether the loss needs all samples of a part together, for example for a partition function. `train.batch` must
    then be at least the number of samples."""
    preconditions: ClassVar[bool] = False
    """Whether `precondition` transforms the gradients."""
    row_units: ClassVar[tuple[str, ...]] = ()
    """Kinds of rows in a table of predictions, besides one row per sample; for example words. `as_rows` writes these
    rows; the first kind is the default."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Columns with lists of labels, one label for each word or token."""
        return ()

    @property
    def required_columns(self) -> tuple[str, ...]:
        """Columns of the table for training and evaluation, besides the tokens."""
        return tuple(name for name in (*self.labels, self.plot_against) if name)

    stream: str = ""
    """Token stream to predict (default: the only stream; the first stream if one trunk reads all streams)."""
    metrics: list[str] = Field(default_factory=list)
    """Metrics besides the loss (default: the standard metrics of the objective)."""
    plot_against: str = ""
    """Sample column for the x-axis of a plot of the predictions in the report, e.g. a temperature (default: no
    plot)."""
    reference: float | None = None
    """Known value on the x-axis of the `plot_against` plot, drawn as a line (default: no line)."""

    def asked_stream(self, streams: Iterable[str]) -> str:
        """Name of the stream to predict: `stream`, or the only stream."""
        return stream_name(streams, self.stream)

    def predicted_streams(self, streams: Iterable[str]) -> tuple[str, ...]:
        """Names of the streams to predict or to pool (default: `asked_stream`)."""
        return (self.asked_stream(streams),)

    def chosen(self) -> list[str]:
        """Names of the metrics to compute."""
        for name in self.metrics:
            one_of("objective.metrics", name, METRICS)
        return self.metrics or list(self.standard)

    @property
    def measured(self) -> list[str]:
        """Names of the scores for the selection of the best model, besides the loss."""
        return [name for name in self.chosen() if METRICS[name].better != "neither"]

    @property
    def sends(self) -> tuple[str, ...]:
        """Names of the sample columns for the loss."""
        return (ANSWER,)

    def fit(self, train: Dataset) -> None:
        """Learn classes or scales from the training data."""

    def calibrate(self, outputs: Mapping[str, Array], samples: Mapping[str, Array]) -> dict[str, Any]:
        """Fit calibration factors for the predicted uncertainties; `state` stores them."""
        message = f"the model cannot be calibrated: `objective.kind: {self.kind}` predicts no uncertainties"
        raise UserError(message, hint="Calibration needs objective.kind: classify or regress.", key="objective.kind")

    def calibrated_scores(self, outputs: Mapping[str, Array], samples: Mapping[str, Array]) -> dict[str, float]:
        """Scores improved by `calibrate`, by name."""
        return {}

    @property
    def mixing(self) -> float:
        """Parameter of the Beta distribution of mixup; 0 (default) means no mixup."""
        return 0.0

    def mixed(self, batch: Batch, other: Batch, share: Array) -> Batch:
        """Mixup of the targets of two batches; `share` (B,) is the weight of `batch`."""
        raise NotImplementedError

    def augment(self, batch: Batch, tokens: Mapping[str, Tokens], rng: SampleRandom, training: bool) -> Batch:
        """Augment the samples (default: in training, by the augmentations of the tokens)."""
        return augmented(batch, tokens, rng) if training else batch

    def corrupt(self, batch: Batch, tokens: Mapping[str, Tokens], rng: SampleRandom) -> Batch:
        """Hide tokens and add target columns, before normalisation (default: no change)."""
        return batch

    def count(self, batch: Batch) -> float:
        """Divisor of the summed loss (default: number of samples)."""
        return float(len(batch))

    def heads(self, dim: int, tokens: Tokens) -> dict[str, nn.Module]:
        """Output layers on the pooled vector, by name."""
        return {}

    def stream_heads(self, dims: Mapping[str, int], tokens: Mapping[str, Tokens]) -> dict[str, nn.Module]:
        """Output layers on the pooled vectors of several streams, by stream.

        Objectives with a single pooled vector refuse this call.

        dims   width of the pooled vector of each stream
        """
        message = f"`objective.kind: {self.kind}` takes one vector per sample, not the vectors of {len(dims)} streams"
        raise UserError(message, hint="Use objective.kind: contrast.", key="objective.kind")

    @property
    def answers(self) -> list[str]:
        """Names of the outputs of the heads; fine-tuning reuses heads with equal names."""
        return []

    @property
    def head_kind(self) -> str:
        """Kind of objective with the same heads (default: this kind)."""
        return self.kind

    def step(self, model: Any, inputs: ModelInputs, outputs: bool) -> tuple[Tensor, Outputs]:
        """Summed loss; if `outputs` is true, also outputs per sample for the metrics."""
        raise NotImplementedError

    def carried(self, tokens: Mapping[str, Tokens]) -> dict[str, Carried]:
        """Initial values of tensors carried from step to step, by name.

        The values are drawn with the training seed. `step` gets the values as `inputs.carried` and returns the new
        values among its outputs, named `CARRIED` + name. If a step is skipped because of its gradient, the values do
        not change.
        """
        return {}

    def precondition(self, model: Any, inputs: ModelInputs, gradients: dict[str, Tensor]) -> dict[str, Tensor]:
        """Transform the gradients between the backward pass and clipping.

        An example is the natural gradient. `gradients` maps weight names to gradients of the mean loss over all ranks.
        The batch is not divided into micro-batches; `inputs.carried` has the values returned by `step`.
        """
        return gradients

    def fisher(self, model: Any, inputs: ModelInputs) -> Fisher:
        """Fisher matrix of a training batch, for `train.optimizer: natural` (default: refused).

        `inputs.carried` has the values returned by `step`.
        """
        raise NotImplementedError

    @property
    def has_fisher(self) -> bool:
        """Whether the objective defines a Fisher matrix."""
        return type(self).fisher is not Objective.fisher

    def validate_split(self, part: str, dataset: Dataset) -> None:
        """Refuse an unsuitable validation or test part, before training starts."""

    def units(self, outputs: dict[str, Array], samples: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs in the units of the data; `samples` has the sample columns, if known."""
        return outputs

    def merge(self, values: Array, which: Array, count: int) -> Array:
        """Merge the outputs of windows into outputs of `count` samples (default: mean).

        which  (n,) sample of each window
        """
        sums = np.zeros((count, *values.shape[1:]))
        np.add.at(sums, which, values)
        return sums / np.bincount(which).reshape(-1, *[1] * (values.ndim - 1))

    def finish(self, outputs: dict[str, Array]) -> dict[str, Array]:
        """Final outputs of samples, after windows are merged (default: unchanged)."""
        return outputs

    def as_rows(self, unit: str, predictions: Mapping[str, Any], table: Table) -> dict[str, Array | Lists]:
        """Predictions as a table, with one row for each `unit`.

        unit          one of the `row_units`
        predictions   result of `Run.predict`
        table         samples from the reader
        """
        raise NotImplementedError

    def details(self, outputs: Mapping[str, Array], samples: Mapping[str, Array] | None = None) -> dict[str, Rows]:
        """Tables of detailed scores: title -> rows.

        samples  sample columns, if known
        """
        return {}

    def exported(self, model: Any, inputs: ModelInputs) -> Outputs:
        """Outputs of the exported graph (default: the outputs of `predict`)."""
        return self.predict(model, inputs)

    def predict(self, model: Any, inputs: ModelInputs) -> Outputs:
        """Predictions for each sample, without the true values."""
        self.check_predicts()
        raise NotImplementedError

    @property
    def predicts(self) -> bool:
        """Whether the objective has predictions for single samples."""
        return type(self).predict is not Objective.predict

    @property
    def usage(self) -> str:
        """Command line to use a trained model."""
        return "sciformer predict RUN FILES" if self.predicts else "sciformer embed RUN FILES"

    def check_predicts(self) -> None:
        """Refuse the command `predict` without predictions for single samples."""
        if not self.predicts:
            message = f"`predict` cannot be used: `objective.kind: {self.kind}` makes no predictions for single samples"
            raise UserError(message, hint=f"Use `{self.usage}`.", key="objective.kind")

    def generation_metrics(self, step: Any, assembly: Any, dataset: Dataset, device: Any) -> dict[str, float]:
        """Scores of generated sequences, for the evaluation of a trained model."""
        return {}

    def score(self, outputs: Mapping[str, Array]) -> dict[str, float]:
        """Metrics over the outputs of all samples."""
        inputs = self.score_inputs(outputs)
        return {name: float(METRICS[name](inputs)) for name in self.chosen()}

    def score_inputs(self, outputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """Input arrays of the metrics (default: the outputs)."""
        return outputs

    def score_intervals(self, outputs: Mapping[str, Array]) -> dict[str, tuple[float, float]]:
        """Central 95 % bootstrap intervals of the metrics."""
        return score_intervals(self.score_inputs(outputs), self.chosen())

    # Display of scores. Names come from `score` and `generation_metrics`.

    def lower_is_better(self, name: str) -> bool:
        """Whether a lower value of a score (or the loss) is better."""
        return name not in METRICS or METRICS[name].better == "lower"

    def headline(self, names: Iterable[str]) -> list[str]:
        """Names of the scores in the one-line summary of a model (default: all scores)."""
        return list(names)

    def score_groups(self, names: Iterable[str]) -> list[ScoreGroup]:
        """Groups of scores for common plots in the report."""
        return []

    def figures(self, outputs: Mapping[str, Array], samples: Mapping[str, Array]) -> dict[str, Callable[[], Figure]]:
        """Figures of the outputs for the report: caption -> drawing function."""
        return {}

    def summarises_by_median(self, name: str) -> bool:
        """Whether a comparison shows the median of a score over runs instead of the mean."""
        return False

    def summary_note(self, names: Iterable[str]) -> str:
        """Explanation of the scores, as a sentence for the caption of a comparison."""
        return ""


def check_classes(column: str, noun: str, names: Collection[Any]) -> None:
    """Refuse fewer than two classes or tags, and more than `MAX_CLASSES`."""
    count, key = len(names), "objective.label"
    if count < 2:
        found = "".join(map(str, names))
        raise UserError(f"column `{column}` needs at least two {noun}, but has {count}: {found}", key=key)
    if count > MAX_CLASSES:
        raise UserError(f"column `{column}` has {count} {noun}, but at most {MAX_CLASSES} are supported", key=key)


def required_sample_column(inputs: ModelInputs, column: str, name: str) -> Tensor:
    """Sample column for the loss; error if it is missing.

    name   name of the column in the data
    """
    if column not in inputs.samples:
        raise missing_truth(name, inputs.samples)
    return inputs.samples[column]


def missing_truth(name: str, columns: Iterable[str] = (), key: str | None = None) -> UserError:
    """Error for evaluation data without a column of true values."""
    there = f"; the columns are {', '.join(columns)}" if columns else ""
    return UserError(
        f"column `{name}` with the true values is missing, so the model cannot be evaluated{there}",
        hint="Add the column to the data. The class of a whole file can be given as NAME:FILE.",
        key=key,
    )


class Step(nn.Module):
    """Model and objective as a single module, for compilation and several devices."""

    def __init__(self, model: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self.objective = objective
        self.still: tuple[nn.Module, ...] = ()
        """Frozen parts, which stay in evaluation mode during training."""

    def train(self, mode: bool = True) -> Self:
        """Set the training mode, except for frozen parts."""
        super().train(mode)
        for part in self.still:
            part.eval()
        return self

    def forward(self, inputs: ModelInputs, outputs: bool = False) -> tuple[Tensor, Outputs]:
        """Summed loss over the batch, and outputs for the metrics (see `Objective.step`)."""
        return self.objective.step(self.model, inputs, outputs)
