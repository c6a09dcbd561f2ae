"""Network of every model: embedding, trunk, heads and readout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..data.batch import StreamView
from ..errors import UserError
from ..nn import Watch
from ..nn.attention.pair_bias import PairBias
from ..nn.blocks import ACTIVATIONS
from ..nn.dropout import Dropout
from ..nn.norms import make_norm
from ..nn.transformer import AttentionTrunkOptions, TransformerOptions
from ..tokens.base import Tokens, embedded
from ..tokens.protocols import Maskable, Pairwise, Readout

if TYPE_CHECKING:
    from .base import Model


class Entrance(nn.Module):
    """Token embedding, learned vector for hidden tokens, dropout, and pair bias."""

    def __init__(self, tokens: Tokens, section: Model, hides: bool, pairs: bool = True) -> None:
        super().__init__()
        hidden = tokens if hides and isinstance(tokens, Maskable) and tokens.has_mask_vector else None
        self.embedding = tokens.embedding(section.dim)
        dim = tokens.width(section.dim)
        self.hidden = None if hidden is None else nn.Parameter(torch.empty(dim).normal_(std=0.02))
        self.trace = None if hidden is None else hidden.visible_part(dim)
        self.dropout = Dropout(section.dropout if section.embedding_dropout is None else section.embedding_dropout)
        self.pairs = None
        if pairs and isinstance(tokens, Pairwise) and isinstance(section, AttentionTrunkOptions):
            self.pairs = tokens.pairs(section.heads)

    def forward(self, view: StreamView) -> Tensor:
        """Embedded tokens (B, N, D) or packed (T, D)."""
        x = embedded(self.embedding, view.columns, view.valid)
        if self.hidden is not None and "hidden" in view.columns:
            hidden = self.hidden if self.trace is None else self.hidden + self.trace(view.columns)
            x = torch.where(view.columns["hidden"][..., None].bool(), hidden.to(x.dtype), x)
        return self.dropout(x)

    def pair_bias(self, view: StreamView) -> Tensor | PairBias | None:
        """Pair bias (B, H, N, N), a PairBias for packed tokens, or None."""
        return None if self.pairs is None else self.pairs(view.columns, view.valid)


class ReadoutLayer(Readout):
    """Readout after an extra layer: norm(act(W h + b)) as in BERT, or only norm(h).

    The extra layer is set by `readout_layer` or `readout_norm`. It uses the activation and the norm of the trunk.
    """

    def __init__(self, readout: Readout, dim: int, section: Model) -> None:
        super().__init__()
        self.layer = nn.Linear(dim, dim) if section.readout_layer else None
        if self.layer is not None:
            nn.init.normal_(self.layer.weight, std=0.02)
            nn.init.zeros_(self.layer.bias)
        form = section if isinstance(section, AttentionTrunkOptions) else AttentionTrunkOptions()
        self.activation = ACTIVATIONS[section.activation if isinstance(section, TransformerOptions) else "gelu"]
        self.norm = make_norm(form.norm, dim, form.bias, form.norm_epsilon)
        self.readout = readout

    def before(self, hidden: Tensor) -> Tensor:
        """Hidden states (..., D) after the extra layer, as input of the readout."""
        return self.norm(hidden if self.layer is None else self.activation(self.layer(hidden)))

    def forward(self, hidden: Tensor) -> Tensor:
        return self.readout(self.before(hidden))

    def loss(self, hidden: Tensor, target: dict[str, Tensor], *more: Any, **named: Any) -> Tensor:
        return self.readout.loss(self.before(hidden), target, *more, **named)

    def total(self, hidden: Tensor, target: dict[str, Tensor], *more: Any, **named: Any) -> Tensor:
        return self.readout.total(self.before(hidden), target, *more, **named)

    def predict(self, hidden: Tensor) -> dict[str, Tensor]:
        return self.readout.predict(self.before(hidden))


class Network(nn.Module):
    """Base class of networks: embedding, trunk, heads and readout.

    read_dim   input width of the readout of a masked autoencoder, in which hidden tokens do not enter the trunk
               (default: width of the trunk)
    """

    def __init__(
        self, section: Model, tokens: Tokens, objective: Any, trunk: nn.Module, read_dim: int | None = None
    ) -> None:
        super().__init__()
        who = f"`objective.kind: {objective.kind}`"
        if not hasattr(self, objective.asks):
            message = f"{who} cannot be used with `model.kind: {section.kind}`: this model cannot {objective.asks}"
            raise UserError(message, key="model.kind")
        if objective.hides and not section.tokens_interact:
            message = f"{who} needs a trunk in which tokens interact, not `model.trunk: {section.trunk}`"
            raise UserError(message, key="model.trunk")
        self.entrance: Any = Entrance(tokens, section, hides=objective.hides and read_dim is None)
        self.trunk = trunk
        self.dim: int = trunk.dim  # type: ignore[assignment]
        self.heads = nn.ModuleDict(objective.heads(self.dim, tokens))
        self.readout: Any = None
        if objective.reads_out:
            self.readout = make_readout(section, tokens, who, read_dim or self.dim, self.entrance.embedding)

    def embed(self, view: StreamView) -> Tensor:
        return self.entrance(view)

    def pair_bias(self, view: StreamView) -> Tensor | PairBias | None:
        """Pair bias of the trunk for these tokens, or None."""
        return self.entrance.pair_bias(view)

    def run(self, x: Tensor, view: StreamView, watch: Watch | None = None, **more: Any) -> Tensor:
        """Run the trunk over embedded tokens; `view` has the coordinates for it."""
        bias = self.pair_bias(view)
        if bias is not None:
            more["bias"] = bias
        more |= {name: view.columns[name] for name in self.trunk.columns if name in view.columns}  # type: ignore[union-attr]
        return self.trunk(x, view.valid, at=view.columns.get("at"), watch=watch, **more)


def make_readout(section: Model, tokens: Tokens, who: str, dim: int, embedding: nn.Module) -> Readout:
    """Token readout from vectors of width `dim`, after the extra layer of the section."""
    readout = Maskable.require(tokens, who).readout(dim, embedding)
    return ReadoutLayer(readout, dim, section) if section.readout_layer or section.readout_norm else readout


def parameters(module: nn.Module) -> int:
    """Number of trainable parameters; a tied parameter counts once."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
