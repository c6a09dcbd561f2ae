"""What all models share: the options of a trunk, and how tokens enter it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from ..data.batch import View
from ..errors import UserError
from ..nn import (
    ConvNet,
    Fourier,
    Learned,
    Position,
    Recurrent,
    RelativeBias,
    Rotary,
    Sinusoidal,
    Transformer,
    Watch,
    Window,
)
from ..nn import Decoder as DecoderStack
from ..nn import Encoder as EncoderStack
from ..nn.blocks import ACTIVATIONS
from ..nn.norms import make_norm
from ..nn.patterns import FULL
from ..registry import Section
from ..tokens.base import Readout, Tokens

RECURRENT = ("rnn", "gru", "lstm")
OF_ATTENTION = (
    *("heads", "groups", "head_dim", "ratio", "activation", "norm", "order", "drop_path", "qk_norm", "bias", "reach"),
    *("attention_dropout", "hidden_dropout", "weights", "norm_epsilon", "embedding_norm", "rotary_base"),
)
UNUSED = {
    "transformer": ("kernel", "growth", "bidirectional", "remember"),
    "convolution": (*OF_ATTENTION, "bidirectional", "remember"),
    **dict.fromkeys(RECURRENT, (*OF_ATTENTION, "kernel", "growth")),
    "rnn": (*OF_ATTENTION, "kernel", "growth", "remember"),
}


class Model(Section):
    """The `model:` section: a trunk of some kind and size."""

    section = "model"

    trunk: Literal["transformer", "rnn", "gru", "lstm", "convolution"] = "transformer"
    """What lies between embedding and answer: the transformer, or a rival in its place."""
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
    activation: Literal["gelu", "gelu_tanh", "relu", "swiglu"] = "gelu"
    """Of the MLP; gelu_tanh is the approximation that GPT-2 was trained with."""
    norm: Literal["layer", "rms", "none"] = "layer"
    """LayerNorm, RMSNorm or none."""
    norm_epsilon: float | None = Field(default=None, gt=0)
    """Beside the variance under the root of a norm: 1e-5 (layer) and 1e-6 (rms) unless given."""
    embedding_norm: bool = False
    """Normalise tokens with their positions before the first block (BERT)."""
    order: Literal["pre", "post"] = "pre"
    """Normalise before each part of a block (GPT-2) or after it (2017)."""
    qk_norm: Literal["none", "layer", "rms"] = "none"
    """Normalise queries and keys."""
    bias: bool = True
    """Whether layers have biases."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of numbers set to zero in training."""
    attention_dropout: float | None = Field(default=None, ge=0, lt=1)
    """The same of attention weights; as dropout unless given."""
    hidden_dropout: float | None = Field(default=None, ge=0, lt=1)
    """The same inside the MLP; as dropout unless given."""
    weights: Literal["normal", "xavier"] = "normal"
    """First weights of a transformer: normal of deviation 0.02 (GPT-2), or uniform by the width (2017)."""
    drop_path: float = Field(default=0.0, ge=0, lt=1)
    """Share of samples that skip the last block in training; earlier ones less."""
    position: Literal["auto", "none", "learned", "sinusoidal", "rotary", "fourier", "relative"] = "auto"
    """How the place of a token enters. auto: learned where places are counted, else sinusoidal; none for rivals."""
    rotary_base: float = Field(default=10_000.0, gt=1)
    """Of rotary positions: the longest wave is 2 pi times this."""
    readout_layer: bool = False
    """A layer with activation and norm between the trunk and the readout of tokens (BERT)."""
    reach: int | None = Field(default=None, ge=0)
    """See only tokens at most so many places away; all of them unless given."""
    kernel: int = Field(default=3, ge=1)
    """Width of the convolution."""
    growth: int = Field(default=1, ge=1)
    """Dilation of each convolutional block over that of the one before."""
    remember: float = 0.0
    """First bias of the gate by which an LSTM or a GRU keeps its state; with 1 it remembers longer from the start."""

    def build(self, tokens: Mapping[str, Tokens], objective: Any) -> nn.Module:
        """The network for these tokens and this objective."""
        raise NotImplementedError

    def unused(self) -> list[str]:
        """Keys that were set but do nothing with this trunk."""
        default = type(self).model_fields
        return [
            key
            for key in UNUSED[self.trunk]
            if key in self.model_fields_set and getattr(self, key) != default[key].default
        ]

    def make_trunk(self, tokens: Tokens, causal: bool, bidirectional: bool = False, cross: bool = False) -> nn.Module:
        """The stack between embedding and answer; with `cross` it also attends to a memory."""
        position = self.make_position(tokens)
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
            if causal:
                raise UserError("a trunk that reads forwards, for this model", "`model.trunk: convolution`")
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
        if self.head_dim is None and self.dim % self.heads:
            raise UserError("model.dim as a multiple of model.heads", f"{self.dim} and {self.heads}")
        stack = DecoderStack if causal else EncoderStack
        made = stack(
            self.dim,
            self.depth,
            self.heads,
            position=position,
            cross=cross,
            pattern=FULL if self.reach is None else Window(self.reach),
            drop_path=self.drop_path,
            groups=self.groups,
            head_dim=self.head_dim,
            ratio=self.ratio,
            activation=self.activation,
            norm=self.norm,
            epsilon=self.norm_epsilon,
            embedding_norm=self.embedding_norm,
            order=self.order,
            qk_norm=self.qk_norm,
            bias=self.bias,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            hidden_dropout=self.hidden_dropout,
        )
        if self.weights != "normal":
            made.reset(self.weights)
        return made

    def make_position(self, tokens: Tokens) -> Position | None:
        """The position code of this name, fitted to the tokens' coordinates."""
        name, axes, places = self.position, tokens.axes, tokens.places
        if name == "auto":
            if self.trunk != "transformer":
                return None
            name = "sinusoidal" if places is None else "learned"
        if name == "none":
            return None
        if name == "learned":
            if places is None:
                raise UserError("tokens with counted places for `model.position: learned`", "tokens without")
            return Learned(self.dim, places)
        if name == "sinusoidal":
            return Sinusoidal(self.dim, axes)
        if name == "rotary":
            return Rotary(self.head_dim or self.dim // self.heads, axes, self.rotary_base)
        if name == "fourier":
            return Fourier(self.dim, axes)
        longest = places if isinstance(places, int) else max(places or (64,))
        return RelativeBias(self.heads, longest, axes)


class Entrance(nn.Module):
    """How tokens enter: their embedding, a learned vector where one is hidden, dropout; and what is known of pairs."""

    def __init__(self, tokens: Tokens, dim: int, heads: int, dropout: float, pairs: bool, hides: bool) -> None:
        super().__init__()
        self.embedding = tokens.embedding(dim)
        self.hidden = nn.Parameter(torch.empty(dim).normal_(std=0.02)) if hides and tokens.stand_in else None
        self.dropout = nn.Dropout(dropout)
        self.pairs = tokens.pairs(heads) if pairs else None

    def forward(self, view: View) -> Tensor:
        """(B, N, D) or packed (T, D)."""
        x = self.embedding(view.columns)
        if self.hidden is not None and "hidden" in view.columns:
            x = torch.where(view.columns["hidden"][..., None].bool(), self.hidden.to(x.dtype), x)
        return self.dropout(x)

    def lean(self, view: View) -> Tensor | None:
        """The pair bias (B, H, N, N)."""
        return None if self.pairs is None else self.pairs(view.columns)


class LayerBefore(Readout):
    """A readout of norm(act(W h + b)) instead of h, as BERT has it; activation and norm are the trunk's."""

    def __init__(self, readout: Readout, dim: int, section: Model) -> None:
        super().__init__()
        self.layer = nn.Linear(dim, dim)
        nn.init.normal_(self.layer.weight, std=0.02)
        nn.init.zeros_(self.layer.bias)
        self.activation = ACTIVATIONS[section.activation]
        self.norm = make_norm(section.norm, dim, section.bias, section.norm_epsilon)
        self.readout = readout

    def before(self, hidden: Tensor) -> Tensor:
        """What the readout reads, (..., D)."""
        return self.norm(self.activation(self.layer(hidden)))

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
    """The ground of the models: entrance, trunk, heads, readout."""

    def __init__(self, section: Model, tokens: Tokens, objective: Any, trunk: nn.Module) -> None:
        super().__init__()
        if not hasattr(self, objective.asks):
            raise UserError(
                f"a model that can {objective.asks}, for `objective.kind: {objective.kind}`",
                f"`model.kind: {section.kind}`, which cannot",
            )
        attends = isinstance(trunk, Transformer)
        self.entrance = Entrance(tokens, section.dim, section.heads, section.dropout, attends, objective.hides)
        self.trunk = trunk
        self.dim: int = trunk.dim  # type: ignore[assignment]
        self.heads = nn.ModuleDict(objective.heads(self.dim, tokens))
        self.readout: Readout | None = None
        if objective.reads_out:
            readout = tokens.readout(self.dim, self.entrance.embedding)
            self.readout = LayerBefore(readout, self.dim, section) if section.readout_layer else readout

    def embed(self, view: View) -> Tensor:
        """Tokens as vectors."""
        return self.entrance(view)

    def run(self, x: Tensor, view: View, watch: Watch | None = None, **more: Any) -> Tensor:
        """The trunk over embedded tokens, where they are and with what is known of their pairs."""
        bias = self.entrance.lean(view)
        if bias is not None:
            more["bias"] = bias
        return self.trunk(x, view.valid, at=view.columns.get("at"), watch=watch, **more)


def parameters(module: nn.Module) -> int:
    """How many numbers are trained; tied ones once."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def single(tokens: Mapping[str, Tokens], section: Model) -> Tokens:
    """The only stream of tokens."""
    if len(tokens) != 1:
        raise UserError(f"one kind of tokens for `model.kind: {section.kind}`", f"{len(tokens)}: {', '.join(tokens)}")
    return next(iter(tokens.values()))
