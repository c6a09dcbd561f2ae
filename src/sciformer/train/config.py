"""The `train:` section of a recipe."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from ..recipe.registry import Section

# What may differ between the beginning of a run and its resumption, because the weights do not depend on it.
# With dropout they do depend on train.micro_batch (so does halving when memory runs out, and the number of ranks):
# the masks are drawn for each piece of a batch. The gradient is still that of the same samples.
NEUTRAL_KEYS = (
    "about",
    "train.device",
    "train.workers",
    "train.micro_batch",
    "train.log_every",
    "train.save_every",
    "train.keep",
    "train.compile",
    "train.cuda_graphs",
    "train.shard",
    "train.max_skipped",
)


class Train(Section):
    """How long, how fast, how often."""

    section = "train"

    steps: int | None = Field(default=None, ge=1)
    """Updates of the weights; 1000 unless steps or epochs are given."""
    epochs: float | None = Field(default=None, gt=0)
    """Passes over the training data, instead of steps."""
    batch: int = Field(default=64, ge=1)
    """Samples in an update, over all devices."""
    tokens: int | None = Field(default=None, ge=1)
    """Tokens in an update, padding included, of the longest stream: as many samples as fit, instead of `batch`."""
    micro_batch: int | None = Field(default=None, ge=1)
    """Samples per forward and backward pass on a device; their gradients are added up before the update (default: the
    whole batch). Without dropout the weights are the same."""
    seed: int = Field(default=0, ge=0)
    """Of the first weights, the order of the data and all that is random in training."""

    optimizer: Literal["adamw", "ranger"] = "adamw"
    """AdamW; or RAdam whose weights are drawn back half the way every six steps (Lookahead)."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """Peak learning rate (default: 0.001)."""
    warmup: int = Field(default=100, ge=0)
    """Steps over which the learning rate rises from zero."""
    schedule: Literal["cosine", "inverse_sqrt", "flat", "constant"] = "cosine"
    """After warmup: a cosine down to `min_lr_ratio`; 1 / sqrt(step); flat for the share `flat` of all steps, then
    min_lr_ratio^t."""
    min_lr_ratio: float = Field(default=0.1, ge=0, le=1)
    """Final learning rate over the peak, for the schedules cosine and flat (default: 0.1)."""
    flat: float = Field(default=0.7, ge=0, le=1)
    """Share of the steps before the descent of flat."""
    betas: tuple[float, float] = (0.9, 0.95)
    """Memory of the optimizer for the gradient and for its square."""
    epsilon: float = Field(default=1e-8, gt=0)
    """Beside the root of the square, in the optimizer."""
    weight_decay: float = Field(default=0.1, ge=0)
    """Weight decay of matrices (default: 0.1); vectors (biases, norms) have none."""
    clip_norm: float = Field(default=1.0, ge=0)
    """Largest norm of the gradient; a larger gradient is scaled down to it (default: 1). 0: no clipping."""

    init_from: str = ""
    """Folder of a run to initialize from: its best weights and its tokens (default: random weights); see `sciformer
    finetune`."""
    init_from_hash: str = ""
    """Hash of those weights, noted when a run begins; where it is given, others are refused."""
    freeze: bool = False
    """Train heads, pooling and readout alone: embedding, trunk and a class token stay as they are, without dropout."""
    layer_decay: float = Field(default=1.0, gt=0, le=1)
    """Learning rate of each block over that of the block above it; the embedding counts as one more block below
    (default: 1; for fine-tuning 0.8 to 1)."""
    head_lr_scale: float = Field(default=1.0, gt=0)
    """Learning rate of heads, pooling and readout over that of the last block (default: 1)."""

    ema: float = Field(default=0.0, ge=0, lt=1)
    """Decay of the exponential moving average of the weights, which then is evaluated and kept, for example 0.999
    (default: 0, the weights themselves)."""
    average_last: int = Field(default=0, ge=0)
    """In the end, keep the mean of so many last checkpoints instead of the best; 0: the best."""

    evaluate_every: int | None = Field(default=None, ge=1)
    """Steps between evaluations; a tenth of all unless given."""
    save_every: int | None = Field(default=None, ge=1)
    """Steps between checkpoints; with the evaluations unless given."""
    log_every: int = Field(default=10, ge=1)
    """Steps between lines of the log."""
    keep: int = Field(default=2, ge=1)
    """Checkpoints kept."""
    patience: int = Field(default=0, ge=0)
    """Evaluations without a better one before the training stops; 0: never."""
    best: str = "loss"
    """What decides which model is best: the loss, or a metric (where that is the same, the loss)."""
    max_skipped: int = Field(default=5, ge=1)
    """Updates in a row that are skipped because the gradient is not finite, before the training stops (default: 5)."""

    device: str = "auto"
    """cpu, cuda, cuda:1, mps; auto: the fastest there is."""
    precision: Literal["auto", "float32", "tensorfloat32", "bfloat16"] = "auto"
    """Of products of matrices; auto: bfloat16 on CUDA, float32 elsewhere. tensorfloat32 reads factors with 11 binary
    digits in place of 24, on CUDA alone. Weights and sums stay in float32."""
    compile: bool | None = None
    """Whether to compile the step; on CUDA unless given."""
    cuda_graphs: bool | Literal["whole"] | None = None
    """Whether to replay a compiled step as a CUDA graph (default: on one GPU without micro-batches). whole: loss and
    gradient as one graph for each shape of a batch, with less work for the host, which small models wait for."""
    workers: int = Field(default=0, ge=0)
    """Processes that prepare batches; 0: this one does."""
    bucket: bool | None = None
    """Put samples of similar length together. Unset: yes, unless a norm over the batch would see such ones alone, and
    be misled; where samples are packed, nothing is gained by it, and they stay mixed."""
    pad_to_multiple: int | None = Field(default=None, ge=1)
    """Pad samples to a multiple of this many tokens (default: 32 for a compiled step, which wants few shapes, else 1;
    with `tokens`, 16 and more for long samples)."""
    packed: bool = False
    """Lay samples end to end instead of padding them."""
    shard: Literal["none", "full"] = "none"
    """Under torchrun: every device holds the whole model, or only its share of it (FSDP)."""

    @model_validator(mode="after")
    def _check_consistent(self) -> Train:
        if self.steps is not None and self.epochs is not None:
            raise ValueError("give train.steps or train.epochs, not both")
        if self.tokens is not None and self.bucket is False and not self.packed:
            raise ValueError("train.tokens puts samples of similar length together; train.bucket: false would not")
        if self.schedule == "flat" and self.min_lr_ratio == 0:
            text = "train.schedule: flat goes down to train.min_lr_ratio by equal factors, so it must be above 0"
            raise ValueError(text)
        if not (0 <= self.betas[0] < 1 and 0 <= self.betas[1] < 1):
            raise ValueError("train.betas must lie between 0 and 1")
        return self

    def total(self, batches: int) -> int:
        """Steps in all, where an epoch has so many batches."""
        if self.epochs is not None:
            return max(1, round(self.epochs * batches))
        return self.steps or 1000
