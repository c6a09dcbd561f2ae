"""Recurrent decoder with attention to a memory."""

from __future__ import annotations

import copy
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from ...errors import UserError
from ..attention.kernels import Request, compute
from ..attention.kernels.reference import mix, weigh
from ..attention.masks import Sight
from ..attention.scores import make_score
from ..options import TokenForm
from ..ragged import Ragged, zero_padding
from ..transformer import Valid, check_layout
from ..watch import Watch
from .recurrent import Cell, RecurrentCache, RecurrentOptions, State


class RecurrentDecoder(nn.Module):
    """Recurrent decoder with attention to the memory at every step.

        a_i = softmax_j(score(s_i-1, m_j));   c_i = sum_j a_ij m_j;   s_i = cell([y_i; c_i], s_i-1)   (arXiv 1409.0473)
        out_i = tanh(W [s_i; c_i])                                                                   (arXiv 1508.04025)

    With `gate`, c_i <- sigmoid(w s_i-1 + b) c_i; with `deep`, out_i = y_i + W_s s_i + W_c c_i (arXiv 1502.03044).

    score   content, additive, location, general, dot or scaled_dot; None means no attention: the memory is used only
            for the initial state
    depth   number of stacked cells; the state s of the top cell is the query
    gate    whether a gate in [0, 1], made of the state, scales the context c
    deep    whether the output is the sum of the input and of maps of state and context
    """

    def __init__(
        self,
        dim: int,
        depth: int = 1,
        kind: str = "gru",
        *,
        score: str | None = "additive",
        memory_dim: int | None = None,
        length: int = 512,
        dropout: float = 0.0,
        forget_bias: float = 0.0,
        gate: bool = False,
        deep: bool = False,
    ) -> None:
        super().__init__()
        self.dim, self.kind, self.deep = dim, kind, deep
        memory_dim = dim if memory_dim is None else memory_dim
        self.score = None if score is None else make_score(score, dim, 1, length)
        adapted = score is not None and memory_dim != dim
        self.adapt = nn.Linear(memory_dim, dim) if adapted else nn.Identity()
        context = 0 if score is None else dim
        self.cells = nn.ModuleList(Cell(kind, dim + context if i == 0 else dim, dim, forget_bias) for i in range(depth))
        self.begin = nn.Linear(memory_dim, depth * dim * (2 if kind == "lstm" else 1))  # an LSTM also has a cell state
        self.out = nn.Linear(dim + context, dim)
        self.dropout = nn.Dropout(dropout)
        self.gate = nn.Linear(dim, 1) if gate and score is not None else None

    def cache(self) -> RecurrentCache:
        """Empty cache for step-by-step decoding; pass it to every call."""
        return RecurrentCache()

    def forward(
        self,
        x: Tensor,
        valid: Valid = None,
        *,
        memory: Tensor | None = None,
        memory_valid: Valid = None,
        start: Tensor | None = None,
        cache: RecurrentCache | None = None,
        watch: Watch | None = None,
    ) -> Tensor:
        """Outputs (B, N, D) for inputs x (B, N, D), with attention to the memory.

        memory  (B, M, C) encoder states of width C; with a cache, needed only at the first step
        start   (B, C) vector for the initial state (default: the mean of the memory, or zeros without memory)
        """
        check_layout(x, valid, self.dim)
        if isinstance(valid, Ragged):
            x, mask = valid.pad(x), valid.valid
            padded = self(x, mask, memory=memory, memory_valid=memory_valid, start=start, cache=cache, watch=watch)
            return valid.flatten(padded)
        x = zero_padding(x, valid)
        if self.score is not None and memory is None and (cache is None or cache.memory is None):
            message = "`memory` is missing, but the decoder was made with attention to a memory"
            raise UserError(message, hint="Pass memory, or make the decoder with score=None.")
        asked = cache.memory if cache is not None else None
        if asked is None and memory is not None:
            asked = Memory(self, memory, memory_valid)
        states = cache.states if cache is not None and cache.states else self._begin(x, start, asked)
        outputs, weights = [], []
        for i in range(x.shape[1]):
            out, after, seen = self._step(x[:, i], states, asked, watch is not None)
            if valid is not None:  # padding does not change the state
                real = valid[:, i, None]
                after = [tuple(torch.where(real, *pair) for pair in zip(*both)) for both in zip(after, states)]
            states = after
            outputs.append(out)
            weights.append(seen)
        if cache is not None:
            cache.states, cache.memory, cache.length = states, asked, cache.length + x.shape[1]
        y = torch.stack(outputs, 1) if outputs else x.new_zeros(*x.shape[:2], self.dim)
        if watch is not None:
            if self.score is not None and weights:
                watch.at("attention").saw_attention(torch.cat([w for w in weights if w is not None], 2), "reference")
            watch.saw_hidden(y, "output")
        return zero_padding(y, valid)

    def _begin(self, x: Tensor, start: Tensor | None, asked: Memory | None) -> list[State]:
        if start is None and asked is not None:
            start = asked.mean
        states = [cell.start(x) for cell in self.cells]  # type: ignore[operator]
        if start is not None:
            parts = self.begin(start).chunk(len(states), -1)
            states = [(torch.tanh(h), *cell) for h, *cell in (part.split(self.dim, -1) for part in parts)]
        return states

    def _step(
        self, y: Tensor, states: list[State], asked: Memory | None, watched: bool
    ) -> tuple[Tensor, list[State], Tensor | None]:
        context, seen, above = [], None, []
        if self.score is not None and asked is not None:
            c, seen = asked(states[-1][0], watched)
            context = [c if self.gate is None else torch.sigmoid(self.gate(states[-1][0])) * c]
        x = torch.cat([y, *context], -1)
        for i, cell in enumerate(self.cells):
            above.append(cell(self.dropout(x) if i else x, states[i]))
            x = above[-1][0]
        out = self.out(torch.cat([self.dropout(x), *context], -1))
        return (y + out if self.deep else torch.tanh(out)), above, seen


class Memory:
    """Encoder output for the attention of a recurrent decoder; keys are computed once."""

    def __init__(self, decoder: RecurrentDecoder, memory: Tensor, valid: Valid) -> None:
        check_layout(memory, valid)
        if isinstance(valid, Ragged):
            memory, valid = valid.pad(memory), valid.valid
        memory = zero_padding(memory, valid)
        count = memory.new_tensor(memory.shape[1]) if valid is None else valid.sum(1, keepdim=True)
        self.mean = memory.sum(1) / count.clamp(min=1)
        self.score, self.valid, self.sight = decoder.score, valid, Sight(valid=valid)
        self.values = decoder.adapt(memory)[:, None]
        self.keys = self.values if self.score is None else self.score.key(self.values)

    def chosen(self, index: Tensor) -> Memory:
        """Memory of the samples with indices `index` (B,)."""
        other = copy.copy(self)
        other.mean, other.values, other.keys = (x.index_select(0, index) for x in (self.mean, self.values, self.keys))
        other.valid = None if self.valid is None else self.valid.index_select(0, index)
        other.sight = Sight(valid=other.valid)
        return other

    def __call__(self, state: Tensor, watched: bool) -> tuple[Tensor, Tensor | None]:
        assert self.score is not None
        q = self.score.query(state[:, None, None])
        if watched or not self.score.fused:
            weights = weigh(q, self.keys, self.sight, self.score)
            return mix(weights, self.values)[:, 0, 0], weights
        return compute(Request(q, self.keys, self.values, self.sight, self.score))[:, 0, 0], None


class RecurrentDecoderOptions(RecurrentOptions):
    """Options of the recurrent decoder in an encoder-decoder model."""

    score: Literal["none", "content", "additive", "location", "general", "dot", "scaled_dot"] = "additive"
    """Alignment score of the attention to the source (default: additive). none: no attention; only the initial state of
    the decoder depends on the source."""
    gate: bool = False
    """Gate of the context (default: false; arXiv 1502.03044): multiply the attended source by a number in [0, 1],
    computed from the state of the decoder at each step."""
    deep_output: bool = False
    """Deep output (default: false; arXiv 1502.03044): the sum of the embedded last token, a linear map of the state and
    a linear map of the context, without tanh."""
    longest: int = Field(default=512, ge=1)
    """Maximum number of source tokens for `score: location` (default: 512)."""

    def build_decoder(self, form: TokenForm, memory_dim: int, memory_window: int | None) -> RecurrentDecoder:
        if not self.depth:
            raise UserError("model.depth must be 1 or more for a recurrent decoder, not 0", key="model.depth")
        if self.gate and self.score == "none":
            message = "model.gate needs attention to the source, but model.score is none"
            raise UserError(message, hint="Set model.score: additive.", key="model.gate")
        if self.score == "location" and (memory_window or 0) > self.longest:
            raise UserError(
                f"model.longest must be at least {memory_window} (the context of the source), not {self.longest}",
                key="model.longest",
            )
        return RecurrentDecoder(
            self.dim,
            self.depth,
            self.cell,
            score=None if self.score == "none" else self.score,
            memory_dim=memory_dim,
            length=self.longest,
            dropout=self.dropout,
            forget_bias=getattr(self, "forget_bias", 0.0),
            gate=self.gate,
            deep=self.deep_output,
        )
