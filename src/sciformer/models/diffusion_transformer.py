"""Diffusion transformer: denoising of tokens, with a condition (arXiv 2212.09748)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from ..data.batch import StreamView
from ..errors import UserError
from ..nn import MeanPool, Ragged, Watch
from ..nn.transformer import TransformerOptions
from ..nn.trunks.adaptive import AdaptiveTransformer, LevelEmbedding
from ..nn.watch import inner_watch
from ..tokens.base import Tokens
from .base import Entrance, Model
from .encoder import Encoded
from .encoder_decoder import SOURCE, TARGET, check_source_and_target
from .network import make_readout


class DiffusionTransformer(Model):
    """`kind: diffusion_transformer`: denoising transformer with adaptive norms.

        c = level(t) + W mean(memory),   memory = encoder(source)

    The norms of each block depend on c, the noise level and the mean of the condition; each block also attends to the
    memory. A recipe without the stream `source` has no condition.
    """

    def build(self, tokens: Mapping[str, Tokens], objective: Any) -> nn.Module:
        if len(tokens) > 1:
            check_source_and_target(tokens, self)
        if objective.asks != "denoise":
            message = f"`objective.kind: {objective.kind}` cannot be used with `model.kind: {self.kind}`: this model "
            hint = "Set objective.kind: diffusion."
            raise UserError(message + f"cannot {objective.asks}", hint=hint, key="objective.kind")
        return DiffusionNetwork(self, tokens, objective)


class DiffusionNetwork(nn.Module):
    """Network of a diffusion transformer.

    source -> embed -> encoder,   noisy target -> embed -> adaptive transformer -> readout
    """

    def __init__(self, section: DiffusionTransformer, tokens: Mapping[str, Tokens], objective: Any) -> None:
        super().__init__()
        self.stream = TARGET if TARGET in tokens else next(iter(tokens))
        target, writes = tokens[self.stream], section.for_stream(self.stream)
        if not isinstance(writes, TransformerOptions):
            message = f"`model.kind: {section.kind}` needs `model.trunk: transformer`, not {writes.trunk}"
            raise UserError(message, key="model.trunk")
        self.entrance: Any = Entrance(target, writes, hides=False, pairs=False)
        self.source: Entrance | None = None
        memory_dim: int | None = None
        if SOURCE in tokens:
            reads = section.for_stream(SOURCE)
            self.source = Entrance(tokens[SOURCE], reads, hides=False, pairs=False)
            self.encoder: Any = reads.make_trunk(tokens[SOURCE])
            memory_dim = int(self.encoder.dim)
            self.pooling: nn.Module = MeanPool()
            self.summary: nn.Module = nn.Linear(memory_dim, writes.dim)
        self.level: nn.Module = LevelEmbedding(writes.dim)
        self.trunk: nn.Module = writes.make_transformer(AdaptiveTransformer, writes.token_form(target), memory_dim)
        self.dim, self.heads = writes.dim, nn.ModuleDict(objective.heads(writes.dim, target))
        self.readout: Any = make_readout(writes, target, f"`objective.kind: {objective.kind}`", self.dim, self.entrance)

    def encode(self, view: StreamView, watch: Watch | None = None) -> Encoded:
        """Encode the condition."""
        assert self.source is not None, "this model has no condition"
        at = view.columns.get("at")
        x = self.encoder(self.source(view), view.valid, at=at, watch=inner_watch(watch, "encoder"))
        return Encoded(x, view.valid)

    def denoise(self, view: StreamView, level: Tensor, memory: Encoded | None, watch: Watch | None = None) -> Tensor:
        """Hidden states (B, N, D) of noisy tokens, for the readout.

        level    (B,) noise level t / T of each sample
        memory   encoded condition; None for a model without condition
        """
        if isinstance(view.valid, Ragged):
            message = "a diffusion transformer cannot be used with train.packed: true"
            raise UserError(message, hint="Set train.packed: false.", key="train.packed")
        condition, more = self.level(level), dict[str, Any]()
        if memory is not None:
            condition = condition + self.summary(self.pooling(memory.x, memory.valid))
            more = {"memory": memory.x, "memory_valid": memory.valid}
        x: Tensor = self.trunk(
            self.entrance(view), view.valid, at=view.columns.get("at"), condition=condition, watch=watch, **more
        )
        return x
