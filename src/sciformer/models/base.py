"""What all models share: the options of a trunk, and how tokens enter it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from ..data.batch import View
from ..errors import UserError
from ..nn import (
    Conformer,
    ConvNet,
    DeepSet,
    Recurrent,
    ResNet2d,
    Transformer,
    Watch,
    Window,
)
from ..nn import Decoder as DecoderStack
from ..nn import Encoder as EncoderStack
from ..nn.blocks import ACTIVATIONS
from ..nn.dropout import Dropout
from ..nn.norms import make_norm
from ..nn.pairs import PairBias
from ..nn.patterns import FULL
from ..registry import Section
from ..tokens.base import Readout, Tokens, embedded
from .trunks import CLOUDS, RASTERS, RECURRENT, UNUSED, Trunk, compression, make_cloud, make_position, make_raster


class Model(Section):
    """The `model:` section: a trunk of some kind and size."""

    section = "model"

    trunk: Trunk = "transformer"
    """What lies between embedding and answer: the transformer, or a rival in its place. conformer: attention and two
    convolutions in each block, for tokens that are evenly spaced; sets: each token by itself; resnet: convolutions
    along a line; resnet2d: over an image that patches make (tokens.embed: none); edges: nearest neighbours; points:
    these and then attention; lorentz: pairs of four-vectors."""
    dim: int = Field(default=128, ge=1)
    """Width."""
    depth: int = Field(default=4, ge=0)
    """Number of blocks or layers."""
    heads: int = Field(default=4, ge=1)
    """Attention heads."""
    groups: int | None = Field(default=None, ge=1)
    """Heads of keys and values: as many as heads unless given; 1 is multi-query attention."""
    head_dim: int | None = Field(default=None, ge=1)
    """Width of a head; dim / heads unless given."""
    ratio: float = Field(default=4.0, gt=0)
    """Width of the inner layer of an MLP over the width of the model."""
    activation: Literal["gelu", "gelu_tanh", "relu", "silu", "tanh", "swiglu"] = "gelu"
    """Of the MLP; gelu_tanh is the approximation that GPT-2 was trained with."""
    norm: Literal["layer", "rms", "none"] = "layer"
    """LayerNorm, RMSNorm or none."""
    norm_epsilon: float | None = Field(default=None, gt=0)
    """Beside the variance under the root of a norm: 1e-5 (layer) and 1e-6 (rms) unless given."""
    embedding_norm: bool = False
    """Normalise tokens with their positions before the first block (BERT)."""
    order: Literal["pre", "post"] = "pre"
    """Normalise before each part of a block (GPT-2) or after it (2017)."""
    residual: bool = True
    """Whether what enters a part of a block is added to what leaves it; not in ASTROMER 1."""
    last_norm: bool = True
    """Normalise once more after the last block, where blocks normalise before their parts."""
    extras: tuple[Literal["head_scale", "output_scale", "attention_norm", "hidden_norm", "residual_scale"], ...] = ()
    """Of a block (NormFormer): a learned scale for each head before or after the output layer, a norm after attention,
    a norm inside the MLP, a learned scale of the residual beside the MLP."""
    qk_norm: Literal["none", "layer", "rms"] = "none"
    """Normalise queries and keys."""
    bias: bool = True
    """Whether layers have biases."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of numbers set to zero in training."""
    embedding_dropout: float | None = Field(default=None, ge=0, lt=1)
    """The same of tokens as they enter; as dropout unless given."""
    attention_dropout: float | None = Field(default=None, ge=0, lt=1)
    """The same of attention weights; as dropout unless given."""
    hidden_dropout: float | None = Field(default=None, ge=0, lt=1)
    """The same inside the MLP; as dropout unless given."""
    weights: Literal["normal", "xavier", "moco"] = "normal"
    """First weights of a transformer: normal of deviation 0.02 (GPT-2), uniform by the width (2017), or uniform with
    what later blocks write made smaller, class attention and head too (moco)."""
    drop_path: float = Field(default=0.0, ge=0, lt=1)
    """Share of samples that skip the last block in training; earlier ones less."""
    position: Literal[
        "auto", "none", "learned", "sinusoidal", "unpaired", "rotary", "fourier", "modulation", "relative"
    ] = "auto"
    """How the place of a token enters. auto: learned where places are counted, else sinusoidal; none for rivals.
    unpaired: sinusoidal with a frequency for each number (ASTROMER); modulation: tokens are scaled and shifted by
    learned waves (TimeModAttn)."""
    periods: tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]] | None = None
    """Shortest and longest period of the waves of sinusoidal, rotary, fourier (where these are learned, the first ones)
    and modulation, in units of the coordinates. Periods are even in their logarithm; those of rotary are spread over
    the heads, those of modulation are the longest over 1, 2, 3, ..."""
    rotary_base: float = Field(default=10_000.0, gt=1)
    """Of rotary positions without periods: the longest wave is 2 pi times this."""
    rotary_share: float = Field(default=1.0, gt=0, le=1)
    """Of rotary positions: the share of each head that is turned."""
    rotary_values: bool = False
    """Of rotary positions: whether values are turned too, so that a token gets a spectrum of what is about it, not only
    a mean."""
    readout_layer: bool = False
    """A layer with activation and norm between the trunk and the readout of tokens (BERT)."""
    readout_norm: bool = False
    """Only a norm there (ASTROMER)."""
    reach: int | None = Field(default=None, ge=0)
    """See only tokens at most so many places away; all of them unless given."""
    compress: int | None = Field(default=None, ge=1)
    """See so many learned mixtures of all tokens in their place, for tokens with counted places (Linformer)."""
    kernel: int = Field(default=3, ge=1)
    """Width of the convolutions, in tokens."""
    growth: int = Field(default=1, ge=1)
    """Dilation of each convolutional block over that of the one before."""
    widths: list[Annotated[int, Field(ge=1)]] = Field(default_factory=list)
    """Widths of the layers of sets, of the first convolution and the stages of resnet, of the stages of resnet2d, of
    the blocks of edges, of the blocks before the attention of points. Unset: `depth` times `dim`; of resnet2d `dim`,
    doubled from stage to stage; of points, two of half of it."""
    stages: list[Annotated[int, Field(ge=1)]] = Field(default=[2, 2, 2, 2], min_length=1)
    """Blocks in each stage of resnet2d."""
    bottleneck: bool = False
    """Of resnet2d: blocks of three convolutions that leave with four times their inner width (ResNet-50)."""
    neighbours: int = Field(default=16, ge=1)
    """Nearest tokens that each one looks at, for edges and points."""
    remember: float = 0.0
    """First bias of the gate by which an LSTM or a GRU keeps its state; with 1 it remembers longer from the start."""

    def build(self, tokens: Mapping[str, Tokens], objective: Any) -> nn.Module:
        """The network for these tokens and this objective."""
        raise NotImplementedError

    @property
    def entering(self) -> float:
        """Dropout of tokens as they enter."""
        return self.dropout if self.embedding_dropout is None else self.embedding_dropout

    def unused(self) -> list[str]:
        """Keys that were set but do nothing with this trunk."""
        default = type(self).model_fields
        return [
            key
            for key in UNUSED[self.trunk]
            if key in self.model_fields_set
            and getattr(self, key) != default[key].get_default(call_default_factory=True)
        ]

    def make_trunk(self, tokens: Tokens, causal: bool, bidirectional: bool = False, cross: bool = False) -> nn.Module:
        """The stack between embedding and answer; with `cross` it also attends to a memory."""
        if causal and self.trunk in (*CLOUDS, *RASTERS, "convolution", "conformer"):
            raise UserError("a trunk that reads forwards, for this model", f"`model.trunk: {self.trunk}`")
        if self.trunk in RASTERS:
            return make_raster(self, tokens)
        if self.trunk not in CLOUDS and tokens.width(self.dim) != self.dim:
            found = f"tokens of width {tokens.width(self.dim)}, which enter as they are"
            advice = f"Give them an embedding, or use one of the trunks {', '.join((*CLOUDS, *RASTERS))}."
            raise UserError(f"tokens of width {self.dim} for `model.trunk: {self.trunk}`", found, advice)
        position = make_position(self, tokens)
        if self.trunk in RECURRENT:
            return Recurrent(
                self.dim,
                self.depth,
                self.trunk,
                bidirectional=bidirectional and not causal,
                dropout=self.dropout,
                position=position,
                remember=self.remember,
            )
        if self.trunk == "convolution":
            shape = tokens.places if isinstance(tokens.places, tuple) and len(tokens.places) == 2 else None
            return ConvNet(
                self.dim,
                self.depth,
                self.kernel,
                shape=shape,
                growth=self.growth,
                dropout=self.dropout,
                position=position,
            )
        if self.trunk in CLOUDS:
            return make_cloud(self, tokens.width(self.dim))
        if self.head_dim is None and self.dim % self.heads:
            raise UserError("model.dim as a multiple of model.heads", f"{self.dim} and {self.heads}")
        common: dict[str, Any] = {
            "position": position,
            "pattern": FULL if self.reach is None else Window(self.reach),
            "groups": self.groups,
            "head_dim": self.head_dim,
            "norm": self.norm,
            "epsilon": self.norm_epsilon,
            "embedding_norm": self.embedding_norm,
            "last_norm": self.last_norm,
            "order": self.order,
            "qk_norm": self.qk_norm,
            "turn_values": self.rotary_values,
            "bias": self.bias,
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
        }
        made: Transformer
        if self.trunk == "conformer":
            made = Conformer(self.dim, self.depth, self.heads, width=self.kernel, **common)
        else:
            if self.compress is not None:
                common |= compression(self, tokens)
            made = (DecoderStack if causal else EncoderStack)(
                self.dim,
                self.depth,
                self.heads,
                cross=cross,
                drop_path=self.drop_path,
                ratio=self.ratio,
                activation=self.activation,
                extras=self.extras,
                residual=self.residual,
                hidden_dropout=self.hidden_dropout,
                **common,
            )
        if self.weights != "normal":
            made.reset(self.weights)
        return made


class Entrance(nn.Module):
    """How tokens enter: their embedding, a learned vector where one is hidden, dropout; and what is known of pairs."""

    def __init__(self, tokens: Tokens, dim: int, heads: int, dropout: float, pairs: bool, hides: bool) -> None:
        super().__init__()
        hides = hides and tokens.stand_in
        self.embedding = tokens.embedding(dim)
        dim = tokens.width(dim)
        self.hidden = nn.Parameter(torch.empty(dim).normal_(std=0.02)) if hides else None
        self.trace = tokens.trace(dim) if hides else None
        self.dropout = Dropout(dropout)
        self.pairs = tokens.pairs(heads) if pairs else None

    def forward(self, view: View) -> Tensor:
        """(B, N, D) or packed (T, D)."""
        x = embedded(self.embedding, view.columns, view.valid)
        if self.hidden is not None and "hidden" in view.columns:
            hidden = self.hidden if self.trace is None else self.hidden + self.trace(view.columns)
            x = torch.where(view.columns["hidden"][..., None].bool(), hidden.to(x.dtype), x)
        return self.dropout(x)

    def lean(self, view: View) -> Tensor | PairBias | None:
        """The pair bias: (B, H, N, N), or for packed tokens a PairBias."""
        return None if self.pairs is None else self.pairs(view.columns, view.valid)


class LayerBefore(Readout):
    """A readout of norm(act(W h + b)) instead of h, as BERT has it, or of norm(h) with `readout_norm` alone; activation
    and norm are the trunk's."""

    def __init__(self, readout: Readout, dim: int, section: Model) -> None:
        super().__init__()
        self.layer = nn.Linear(dim, dim) if section.readout_layer else None
        if self.layer is not None:
            nn.init.normal_(self.layer.weight, std=0.02)
            nn.init.zeros_(self.layer.bias)
        self.activation = ACTIVATIONS[section.activation]
        self.norm = make_norm(section.norm, dim, section.bias, section.norm_epsilon)
        self.readout = readout

    def before(self, hidden: Tensor) -> Tensor:
        """What the readout reads, (..., D)."""
        return self.norm(hidden if self.layer is None else self.activation(self.layer(hidden)))

    def forward(self, hidden: Tensor) -> Tensor:
        """As the readout: logits, where it has such."""
        return self.readout(self.before(hidden))

    def loss(self, hidden: Tensor, target: dict[str, Tensor], *more: Any, **named: Any) -> Tensor:
        """The negative log likelihood of tokens."""
        return self.readout.loss(self.before(hidden), target, *more, **named)

    def total(self, hidden: Tensor, target: dict[str, Tensor], *more: Any, **named: Any) -> Tensor:
        """The sum of the loss."""
        return self.readout.total(self.before(hidden), target, *more, **named)

    def answer(self, hidden: Tensor) -> dict[str, Tensor]:
        """The likeliest tokens."""
        return self.readout.answer(self.before(hidden))


class Network(nn.Module):
    """The ground of the models: entrance, trunk, heads, readout.

    read_dim   width of what is read out, where that comes of a decoder of hidden tokens; these then do not enter
    """

    def __init__(
        self, section: Model, tokens: Tokens, objective: Any, trunk: nn.Module, read_dim: int | None = None
    ) -> None:
        super().__init__()
        if not hasattr(self, objective.asks):
            raise UserError(
                f"a model that can {objective.asks}, for `objective.kind: {objective.kind}`",
                f"`model.kind: {section.kind}`, which cannot",
            )
        if isinstance(trunk, DeepSet) and objective.hides:
            raise UserError(
                f"a trunk whose tokens see each other, for `objective.kind: {objective.kind}`", "`model.trunk: sets`"
            )
        attends = isinstance(trunk, Transformer)
        enters = objective.hides and read_dim is None
        self.entrance = Entrance(tokens, section.dim, section.heads, section.entering, attends, enters)
        self.trunk = trunk
        self.dim: int = trunk.dim  # type: ignore[assignment]
        self.heads = nn.ModuleDict(objective.heads(self.dim, tokens))
        self.readout: Readout | None = None
        if objective.reads_out:
            read_dim = read_dim or self.dim
            readout = tokens.readout(read_dim, self.entrance.embedding)
            before = section.readout_layer or section.readout_norm
            self.readout = LayerBefore(readout, read_dim, section) if before else readout

    def embed(self, view: View) -> Tensor:
        """Tokens as vectors."""
        return self.entrance(view)

    def run(self, x: Tensor, view: View, watch: Watch | None = None, **more: Any) -> Tensor:
        """The trunk over embedded tokens, where they are and with what is known of their pairs."""
        bias = self.entrance.lean(view)
        if bias is not None:
            more["bias"] = bias
        if "cell" in view.columns and isinstance(self.trunk, (ConvNet, ResNet2d)):
            more["cell"] = view.columns["cell"]
        return self.trunk(x, view.valid, at=view.columns.get("at"), watch=watch, **more)


def parameters(module: nn.Module) -> int:
    """How many numbers are trained; tied ones once."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def single(tokens: Mapping[str, Tokens], section: Model) -> Tokens:
    """The only stream of tokens."""
    if len(tokens) != 1:
        raise UserError(f"one kind of tokens for `model.kind: {section.kind}`", f"{len(tokens)}: {', '.join(tokens)}")
    return next(iter(tokens.values()))
