"""What all models share: the options of a trunk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field
from torch import nn

from ..errors import UserError
from ..nn import Conformer, ConvNet, Recurrent, Transformer, Window
from ..nn import Decoder as DecoderStack
from ..nn import Encoder as EncoderStack
from ..nn.attention.masks import FULL
from ..recipe.registry import Section
from ..tokens.base import Tokens
from .network import Entrance, Network, ReadoutLayer, parameters
from .trunks import (
    CLOUD_TRUNKS,
    RASTER_TRUNKS,
    RECURRENT_TRUNKS,
    UNUSED_KEYS,
    Trunk,
    compression,
    make_cloud,
    make_position,
    make_raster,
)

__all__ = ["Entrance", "Model", "Network", "ReadoutLayer", "parameters", "single"]


class Model(Section):
    """The `model:` section: a trunk of some kind and size."""

    section = "model"

    trunk: Trunk = "transformer"
    """What lies between embedding and answer: the transformer, or a rival in its place. conformer: attention and two
    convolutions in each block, for tokens that are evenly spaced; deep_sets: each token by itself; resnet: convolutions
    along a line; resnet2d: over an image that tokens make (tokens.embed: none); edge_conv: nearest neighbours;
    point_cloud_transformer: these and then attention. Fields may add trunks of their own."""
    dim: int = Field(default=128, ge=1)
    """Width."""
    depth: int = Field(default=4, ge=0)
    """Number of blocks or layers."""
    heads: int = Field(default=4, ge=1)
    """Attention heads."""
    kv_heads: int | None = Field(default=None, ge=1)
    """Heads of keys and values: as many as heads unless given; fewer is grouped-query, 1 multi-query attention."""
    head_dim: int | None = Field(default=None, ge=1)
    """Width of a head; dim / heads unless given."""
    mlp_ratio: float = Field(default=4.0, gt=0)
    """Width of the hidden layer of an MLP over the width of the model (default: 4)."""
    activation: Literal["gelu", "gelu_tanh", "relu", "silu", "tanh", "swiglu"] = "gelu"
    """Of the MLP; gelu_tanh is the approximation that GPT-2 was trained with."""
    norm: Literal["layer", "rms", "none"] = "layer"
    """LayerNorm, RMSNorm or none."""
    norm_epsilon: float | None = Field(default=None, gt=0)
    """Beside the variance under the root of a norm: 1e-5 (layer) and 1e-6 (rms) unless given."""
    embedding_norm: bool = False
    """Normalise tokens with their positions before the first block (BERT)."""
    norm_position: Literal["pre", "post"] = "pre"
    """Where the norms of a block stand: before attention and MLP (pre, GPT-2) or after each residual sum (post,
    2017)."""
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
    init: Literal["normal", "xavier", "moco"] = "normal"
    """Initial weights of a transformer: normal of deviation 0.02 (GPT-2); xavier: uniform by the width (2017); moco:
    the same with what later blocks write made smaller, class attention and head too."""
    drop_path: float = Field(default=0.0, ge=0, lt=1)
    """Share of samples that skip the last block in training; earlier ones less."""
    position: Literal[
        "auto", "none", "learned", "sinusoidal", "unpaired", "rotary", "fourier", "modulation", "relative"
    ] = "auto"
    """How the place of a token enters. auto: learned where places are counted, else sinusoidal; none for rivals.
    unpaired: sinusoidal with a frequency for each number (ASTROMER); modulation: tokens are scaled and shifted by
    learned waves (TimeModAttn)."""
    position_scale: float | None = Field(default=None, gt=0)
    """Of learned positions: the deviation of the numbers that they begin with (0.02 in the published ViT); that of the
    embedded tokens unless given, or these drown them."""
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
    window: int | None = Field(default=None, ge=0)
    """Attention sees only tokens at most so many places away; all of them unless given."""
    compress: int | None = Field(default=None, ge=1)
    """See so many learned mixtures of all tokens in their place, for tokens with counted places (Linformer)."""
    kernel: int = Field(default=3, ge=1)
    """Width of the convolutions, in tokens."""
    dilation_growth: int = Field(default=1, ge=1)
    """Factor by which the dilation grows from one convolutional block to the next (default: 1)."""
    widths: list[Annotated[int, Field(ge=1)]] = Field(default_factory=list)
    """Widths of the layers of deep_sets, of the first convolution and the stages of resnet, of the stages of resnet2d,
    of the blocks of edge_conv, of the blocks before the attention of point_cloud_transformer. Unset: `depth` times
    `dim`; of resnet2d `dim`, doubled from stage to stage; of point_cloud_transformer, two of half of it."""
    stages: list[Annotated[int, Field(ge=1)]] = Field(default=[2, 2, 2, 2], min_length=1)
    """Blocks in each stage of resnet2d."""
    bottleneck: bool = False
    """Of resnet2d: blocks of three convolutions that leave with four times their inner width (ResNet-50)."""
    neighbours: int = Field(default=16, ge=1)
    """Nearest tokens that each one looks at, for edge_conv and point_cloud_transformer."""
    forget_bias: float = 0.0
    """Initial bias of the forget gate of an LSTM (of a GRU: its update gate); with 1 it remembers longer from the start
    (default: 0)."""

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
            for key in UNUSED_KEYS[self.trunk]
            if key in self.model_fields_set
            and getattr(self, key) != default[key].get_default(call_default_factory=True)
        ]

    def make_trunk(self, tokens: Tokens, causal: bool, bidirectional: bool = False, cross: bool = False) -> nn.Module:
        """The stack between embedding and answer; with `cross` it also attends to a memory."""
        if causal and self.trunk in (*CLOUD_TRUNKS, *RASTER_TRUNKS, "convolution", "conformer"):
            raise UserError(
                f"`model.kind: {self.kind}` needs a trunk that reads forwards, not `model.trunk: {self.trunk}`",
                key="model.trunk",
            )
        if self.trunk in RASTER_TRUNKS:
            return make_raster(self, tokens)
        if self.trunk not in CLOUD_TRUNKS and tokens.width(self.dim) != self.dim:
            raise UserError(
                f"`model.trunk: {self.trunk}` needs tokens of width {self.dim}, but these are not embedded "
                f"and have width {tokens.width(self.dim)}",
                hint=f"Give them an embedding, or use one of the trunks {', '.join((*CLOUD_TRUNKS, *RASTER_TRUNKS))}.",
                key="model.trunk",
            )
        position = make_position(self, tokens)
        if self.trunk in RECURRENT_TRUNKS:
            return Recurrent(
                self.dim,
                self.depth,
                self.trunk,
                bidirectional=bidirectional and not causal,
                dropout=self.dropout,
                position=position,
                forget_bias=self.forget_bias,
            )
        if self.trunk == "convolution":
            shape = tokens.grid_shape if isinstance(tokens.grid_shape, tuple) and len(tokens.grid_shape) == 2 else None
            return ConvNet(
                self.dim,
                self.depth,
                self.kernel,
                shape=shape,
                dilation_growth=self.dilation_growth,
                dropout=self.dropout,
                position=position,
            )
        if self.trunk in CLOUD_TRUNKS:
            return make_cloud(self, tokens.width(self.dim))
        if self.head_dim is None and self.dim % self.heads:
            raise UserError(
                f"model.dim must be a multiple of model.heads, but they are {self.dim} and {self.heads}",
                key="model.heads",
            )
        common: dict[str, Any] = {
            "position": position,
            "pattern": FULL if self.window is None else Window(self.window),
            "kv_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "norm": self.norm,
            "epsilon": self.norm_epsilon,
            "embedding_norm": self.embedding_norm,
            "last_norm": self.last_norm,
            "norm_position": self.norm_position,
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
                mlp_ratio=self.mlp_ratio,
                activation=self.activation,
                extras=self.extras,
                residual=self.residual,
                hidden_dropout=self.hidden_dropout,
                **common,
            )
        if self.init != "normal":
            made.reset(self.init)
        return made


def single(tokens: Mapping[str, Tokens], section: Model) -> Tokens:
    """The only stream of tokens."""
    if len(tokens) != 1:
        raise UserError(
            f"`model.kind: {section.kind}` takes one kind of tokens, not {len(tokens)}: {', '.join(tokens)}",
            key="tokens",
        )
    return next(iter(tokens.values()))
