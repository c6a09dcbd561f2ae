"""The `train:` section of a recipe."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from ..recipe.registry import Section

# Keys that may differ when a run is resumed, because the weights do not depend on them. With dropout the weights do
# depend on train.micro_batch (also when it is halved after running out of memory) and on the number of ranks, because
# dropout masks are drawn per micro-batch. The samples of a step are still the same.
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
    """Section `train:` of a recipe: length, optimizer, evaluation, device and more."""

    section = "train"

    steps: int | None = Field(default=None, ge=1, le=10**12)
    """Number of training steps (default: 1000). Not used if `epochs` is set."""
    epochs: float | None = Field(default=None, gt=0, le=10**9)
    """Length of the training in epochs: passes over the training samples, or over their windows (default: the length is
    `steps`)."""
    batch: int = Field(default=64, ge=1, le=1 << 24)
    """Batch size: samples per step, over all devices (default: 64)."""
    tokens: int | None = Field(default=None, ge=1, le=1 << 32)
    """Batch size in tokens of the longest stream, with padding (default: the batch size is `batch` samples)."""
    micro_batch: int | None = Field(default=None, ge=1)
    """Samples per forward and backward pass on a device; gradients are accumulated (default: the whole batch). Without
    dropout the result does not depend on this number. Models with batch norms refuse it, because they need all samples
    at once."""
    seed: int = Field(default=0, ge=0)
    """Random seed of initial weights, data order, augmentation and dropout (default: 0)."""

    optimizer: Literal["adamw", "ranger", "natural"] = "adamw"
    """Optimizer (default: adamw). ranger: RAdam, with a Lookahead update of factor 0.5 every 6 steps; natural: natural
    gradient (F + damping)^-1 g with the Fisher matrix F of the batch, for small models in one process (for wave
    functions: stochastic reconfiguration)."""
    damping: float = Field(default=1e-3, gt=0, le=1e6)
    """Number added to the diagonal of the Fisher matrix, for `optimizer: natural`; larger values give smaller steps
    (default: 0.001)."""
    learning_rate: float = Field(default=1e-3, gt=0, le=10_000)
    """Peak learning rate (default: 0.001)."""
    warmup: int = Field(default=100, ge=0)
    """Number of steps of linear learning rate warmup (default: 100)."""
    schedule: Literal["cosine", "inverse_sqrt", "flat", "constant"] = "cosine"
    """Learning rate schedule after warmup (default: cosine). cosine: half a cosine, down to `min_lr_ratio`;
    inverse_sqrt: 1 / sqrt(step); flat: constant for the fraction `flat` of all steps, then an exponential decay to
    `min_lr_ratio`; constant: the peak learning rate."""
    min_lr_ratio: float = Field(default=0.1, ge=0, le=1)
    """Final learning rate divided by the peak, for the schedules cosine and flat (default: 0.1)."""
    flat: float = Field(default=0.7, ge=0, le=1)
    """Fraction of all steps before the decay begins, for `schedule: flat` (default: 0.7)."""
    betas: tuple[float, float] = (0.9, 0.95)
    """Betas of Adam: decay of the moving averages of gradient and squared gradient (default: 0.9, 0.95)."""
    epsilon: float = Field(default=1e-8, gt=0, le=1)
    """Epsilon of Adam (default: 1e-8)."""
    weight_decay: float = Field(default=0.1, ge=0, le=10_000)
    """Weight decay of matrices; vectors (biases, norms) have no weight decay (default: 0.1)."""
    clip_norm: float = Field(default=1.0, ge=0)
    """Maximum gradient norm (default: 1). Larger gradients are scaled down to this norm; 0 turns clipping off."""

    init_from: str = ""
    """Folder of a pretrained run (default: random weights). The training starts from the best weights of this run and
    uses its tokens, as in `sciformer finetune`."""
    init_from_hash: str = ""
    """Hash of the weights in `init_from` (default: recorded when a run starts). Weights with a different hash are
    refused."""
    freeze: bool = False
    """Train only heads, pooling and readout (default: false). Embedding, trunk and class token stay fixed, without
    dropout."""
    layer_decay: float = Field(default=1.0, gt=0, le=1)
    """Layer-wise learning rate decay (default: 1): factor from each block to the block below it; the embedding counts
    as one more block. Usual values for fine-tuning are 0.8 to 1."""
    head_lr_scale: float = Field(default=1.0, gt=0, le=10_000)
    """Factor of the learning rate of heads, pooling and readout (default: 1)."""

    ema: float = Field(default=0.0, ge=0, lt=1)
    """Decay of the exponential moving average (EMA) of the weights, for example 0.999 (default: 0, no average). The
    averaged weights are evaluated and kept."""
    average_last: int = Field(default=0, ge=0)
    """Number of last checkpoints to average for the final model (default: 0, the best model is kept)."""

    evaluate_every: int | None = Field(default=None, ge=1)
    """Steps between evaluations (default: a tenth of all steps)."""
    save_every: int | None = Field(default=None, ge=1)
    """Steps between checkpoints (default: the value of evaluate_every)."""
    log_every: int = Field(default=10, ge=1)
    """Steps between lines of the log (default: 10)."""
    keep: int = Field(default=2, ge=1)
    """Number of newest checkpoints to keep (default: 2, or average_last if larger). The last checkpoint with a finite
    loss in an evaluation is kept too."""
    patience: int = Field(default=0, ge=0)
    """Early stopping: number of evaluations without improvement before the training stops (default: 0, never)."""
    best: str = "loss"
    """Score for the selection of the best model: loss or a metric (default: loss). For equal scores, the loss
    decides."""
    max_skipped: int = Field(default=5, ge=1)
    """Number of consecutive skipped steps before the training stops with an error (default: 5). A step is skipped if
    its gradient is not finite."""

    device: str = "auto"
    """Device: cpu, cuda, cuda:1, mps, or auto for the fastest available device (default: auto)."""
    precision: Literal["auto", "float32", "tensorfloat32", "bfloat16", "float64"] = "auto"
    """Precision of matrix products (default: auto); weights and sums stay in float32. auto: bfloat16 on CUDA, float32
    on other devices; tensorfloat32: CUDA only, factors are rounded to 11 instead of 24 significant bits;
    float64: double precision of inputs, weights and sums."""
    compile: bool | None = None
    """Whether to compile the step with torch.compile (default: on CUDA only)."""
    cuda_graphs: bool | Literal["whole"] | None = None
    """Whether to replay a compiled step as CUDA graphs (default: true on one GPU without micro-batches). whole: one
    graph for loss and gradient, for each batch shape. The host then needs less time, which helps small models."""
    workers: int = Field(default=0, ge=0, le=256)
    """Number of data loader processes (default: 0, batches are prepared in the main process)."""
    bucket: bool | None = None
    """Whether to batch samples of similar length together (default: yes, but no for packed samples and for models with
    batch norms). Batches of similar length would bias the statistics of batch norms."""
    pad_to_multiple: int | None = Field(default=None, ge=1, le=1 << 16)
    """Pad samples to a multiple of this number of tokens (default: 32 for a compiled step, else 1). A multiple limits
    the number of shapes to compile. With `train.tokens`, the default is at least 16, and larger for
    long samples."""
    packed: bool = False
    """Whether to concatenate the samples of a batch instead of padding them (default: false)."""
    shard: Literal["none", "full"] = "none"
    """Sharding of the weights under torchrun (default: none). none: every device holds the whole model; full: FSDP,
    every device holds a share of the weights."""

    @model_validator(mode="after")
    def _check_consistent(self) -> Train:
        if self.steps is not None and self.epochs is not None:
            raise ValueError("train.steps and train.epochs cannot both be set")
        if self.tokens is not None and self.bucket is False and not self.packed:
            raise ValueError("train.bucket: false cannot be used with train.tokens, which batches by length")
        if self.schedule == "flat" and self.min_lr_ratio == 0:
            why = "because an exponential decay never reaches 0"
            raise ValueError(f"train.min_lr_ratio must be above 0 for train.schedule: flat, {why}")
        if not (0 <= self.betas[0] < 1 and 0 <= self.betas[1] < 1):
            raise ValueError("train.betas must lie between 0 and 1")
        return self

    @property
    def double(self) -> bool:
        """Whether weights and inputs are in double precision."""
        return self.precision == "float64"

    def total(self, batches: int) -> int:
        """Total number of steps.

        batches   number of batches per epoch
        """
        if self.epochs is not None:
            return max(1, round(self.epochs * batches))
        return self.steps or 1000
