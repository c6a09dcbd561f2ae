"""RNN, GRU and LSTM: the trunks that the transformer replaced, and the decoder in which attention was born.

The four shapes: one-to-one is a cell; many-to-many is `Recurrent`; many-to-one is `Recurrent` and `LastPool`;
one-to-many is `RecurrentDecoder` started from a vector.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..errors import UserError, one_of
from .kernels import compute
from .kernels.reference import mix, weigh
from .patterns import Sight
from .positions import Position
from .ragged import Ragged
from .scores import make_score
from .transformer import Valid, check_layout
from .watch import Watch

LAYERS: dict[str, type[nn.RNN] | type[nn.GRU] | type[nn.LSTM]] = {
    "rnn": nn.RNN,
    "gru": nn.GRU,
    "lstm": nn.LSTM,
}
State = tuple[Tensor, ...]


def step(kind: str, weights: list[Tensor], x: Tensor, state: State) -> State:
    """One step of a cell: the definition that the fast kernels must agree with.

    rnn    h' = tanh(W x + U h + b)
    gru    r, z = sigmoid(W x + U h + b);   n = tanh(W_n x + b_n + r (U_n h + c_n));   h' = (1 - z) n + z h
    lstm   i, f, o = sigmoid(W x + U h + b);   g = tanh(W_g x + U_g h + b_g);   c' = f c + i g;   h' = o tanh(c')

    x (B, D), state (h,) or (h, c), weights [W, U, b of x, b of h] with the gates one below the other, as torch.nn has
    them.
    """
    of_x = nn.functional.linear(x, weights[0], weights[2])
    of_h = nn.functional.linear(state[0], weights[1], weights[3])
    if kind == "rnn":
        return (torch.tanh(of_x + of_h),)
    if kind == "gru":
        (rx, zx, nx), (rh, zh, nh) = of_x.chunk(3, -1), of_h.chunk(3, -1)
        r, z = torch.sigmoid(rx + rh), torch.sigmoid(zx + zh)
        return ((1 - z) * torch.tanh(nx + r * nh) + z * state[0],)
    i, f, g, o = (of_x + of_h).chunk(4, -1)
    c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
    return (torch.sigmoid(o) * torch.tanh(c), c)


class Cell(nn.Module):
    """One step of an RNN, GRU or LSTM, with the equations of `step`."""

    def __init__(self, kind: str, dim: int, hidden: int) -> None:
        super().__init__()
        one_of("the recurrent cell", kind, LAYERS)
        self.kind, self.hidden = kind, hidden
        gates = {"rnn": 1, "gru": 3, "lstm": 4}[kind]
        bound = hidden**-0.5
        shapes = [(gates * hidden, dim), (gates * hidden, hidden), (gates * hidden,), (gates * hidden,)]
        self.weights = nn.ParameterList(torch.empty(shape).uniform_(-bound, bound) for shape in shapes)

    def start(self, x: Tensor) -> State:
        """The state before the first step: zeros (B, hidden)."""
        zeros = x.new_zeros(x.shape[0], self.hidden)
        return (zeros, zeros) if self.kind == "lstm" else (zeros,)

    def forward(self, x: Tensor, state: State) -> State:
        """The next state, from an input (B, D) and the state before."""
        return step(self.kind, list(self.weights), x, state)


class Recurrent(nn.Module):
    """`depth` recurrent layers; with `bidirectional` each reads the sequence both ways (arXiv 1303.5778).

    The output has width `hidden` for each direction; `hidden` is chosen so that the whole is `dim`, unless given.
    Padding is never read: the backward direction starts at the last real token, wherever it is.
    """

    def __init__(
        self,
        dim: int,
        depth: int = 1,
        kind: str = "lstm",
        *,
        hidden: int | None = None,
        bidirectional: bool = False,
        dropout: float = 0.0,
        position: Position | None = None,
    ) -> None:
        super().__init__()
        one_of("the recurrent layer", kind, LAYERS)
        self.kind, self.directions = kind, 2 if bidirectional else 1
        if hidden is None:
            if dim % self.directions:
                raise UserError("an even width for two directions", f"{dim}", "Or give hidden.")
            hidden = dim // self.directions
        self.inputs, self.hidden, self.dim = dim, hidden, hidden * self.directions
        self.position = Position() if position is None else position
        self.position.fits(dim, 1, dim)
        self.layers = nn.ModuleList(
            nn.ModuleList(
                LAYERS[kind](dim if i == 0 else self.dim, hidden, batch_first=True) for _ in range(self.directions)
            )
            for i in range(depth)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        valid: Valid = None,
        *,
        at: Tensor | None = None,
        bias: Tensor | None = None,
        watch: Watch | None = None,
    ) -> Tensor:
        """(B, N, D) or packed (T, D) -> the same tokens with the width of this trunk."""
        check_layout(x, valid, self.inputs)
        no_bias(bias, self)
        if isinstance(valid, Ragged):
            at = None if at is None else valid.pad(at)
            return valid.flatten(self(valid.pad(x), valid.valid, at=at, watch=watch))
        if x.numel() == 0:
            return x.new_zeros(*x.shape[:2], self.dim)
        at = self.position.place(x.shape[1], 0, x.device) if at is None else at
        x = self.position.embed(x, at)
        order = _Order(x, valid)
        x = order.gather(x)
        if watch is not None:
            watch.saw_hidden(order.scatter(x), "input")
        for i, layer in enumerate(self.layers):
            x = self.dropout(x) if i else x
            ways = [layer[0](x)[0]]  # type: ignore[index]
            if self.directions == 2:
                ways.append(order.reverse(layer[1](order.reverse(x))[0]))  # type: ignore[index]
            x = torch.cat(ways, -1)
            if watch is not None:
                watch.saw_hidden(order.scatter(x), f"blocks.{i}")
        return order.scatter(x)


class _Order:
    """Real tokens moved to the front, in their order, and back; a sequence reversed within its length."""

    def __init__(self, x: Tensor, valid: Tensor | None) -> None:
        self.valid = valid
        place = torch.arange(x.shape[1], device=x.device)
        if valid is None:
            self.backward = place.flip(0).expand(x.shape[:2])
            return
        lengths = valid.sum(1, keepdim=True)
        self.to_front = torch.argsort(~valid, dim=1, stable=True)
        self.to_place = torch.argsort(self.to_front, dim=1)
        self.backward = torch.where(place < lengths, lengths - 1 - place, place)

    def gather(self, x: Tensor) -> Tensor:
        if self.valid is None:
            return x
        return _take(x.masked_fill(~self.valid[..., None], 0), self.to_front)

    def scatter(self, x: Tensor) -> Tensor:
        return x if self.valid is None else _take(x, self.to_place).masked_fill(~self.valid[..., None], 0)

    def reverse(self, x: Tensor) -> Tensor:
        return _take(x, self.backward)


def _take(x: Tensor, index: Tensor) -> Tensor:
    return x.gather(1, index[..., None].expand(-1, -1, x.shape[-1]))


def no_bias(bias: Tensor | None, trunk: nn.Module) -> None:
    """Refuse a pair bias where there is no attention to lean on it."""
    if bias is not None:
        raise UserError(
            "no pair bias", f"one of shape {tuple(bias.shape)}", f"{type(trunk).__name__} has no attention."
        )


class RecurrentDecoder(nn.Module):
    """A recurrent decoder, which at every step looks back at the memory through an alignment score.

        a_i = softmax_j(score(s_i-1, m_j));   c_i = sum_j a_ij m_j;   s_i = cell([y_i; c_i], s_i-1)   (arXiv 1409.0473)
        out_i = tanh(W [s_i; c_i])                                                                   (arXiv 1508.04025)

    score   content, additive, location, general, dot or scaled_dot; None: no attention, the memory enters only as the
            vector the decoder starts from
    `depth` cells are stacked; the top one asks.
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
    ) -> None:
        super().__init__()
        self.dim, self.kind = dim, kind
        memory_dim = dim if memory_dim is None else memory_dim
        self.score = None if score is None else make_score(score, dim, 1, length)
        self.adapt = nn.Linear(memory_dim, dim) if memory_dim != dim else nn.Identity()
        context = 0 if score is None else dim
        self.cells = nn.ModuleList(Cell(kind, dim + context if i == 0 else dim, dim) for i in range(depth))
        self.begin = nn.Linear(memory_dim, depth * dim)
        self.out = nn.Linear(dim + context, dim)
        self.dropout = nn.Dropout(dropout)

    def cache(self) -> list[State]:
        """An empty state for step by step decoding; `forward` fills it and goes on from it."""
        return []

    def forward(
        self,
        x: Tensor,
        valid: Valid = None,
        *,
        memory: Tensor | None = None,
        memory_valid: Valid = None,
        start: Tensor | None = None,
        cache: list[State] | None = None,
        watch: Watch | None = None,
    ) -> Tensor:
        """The outputs (B, N, D) for inputs x (B, N, D), each knowing the memory and the inputs up to itself.

        memory  (B, M, D') states of an encoder, asked at every step if there is a score
        start   (B, D') the vector to begin from; the mean of the memory unless given, zeros if there is none
        """
        check_layout(x, valid, self.dim)
        if isinstance(valid, Ragged):
            padded = self(valid.pad(x), memory=memory, memory_valid=memory_valid, start=start, cache=cache, watch=watch)
            return valid.flatten(padded)
        if self.score is not None and memory is None:
            raise UserError("a memory to attend to", "none", "Or make the decoder with score=None.")
        look_back = _LookBack(self, memory, memory_valid) if memory is not None else None
        states = cache if cache else self._begin(x, start, look_back)
        outputs, weights = [], []
        for i in range(x.shape[1]):
            out, states, seen = self._step(x[:, i], states, look_back, watch is not None)
            outputs.append(out)
            weights.append(seen)
        if cache is not None:
            cache[:] = states
        y = torch.stack(outputs, 1) if outputs else x.new_zeros(*x.shape[:2], self.dim)
        if watch is not None:
            if self.score is not None and weights:
                watch.at("attention").saw_attention(torch.cat([w for w in weights if w is not None], 2), "reference")
            watch.saw_hidden(y, "output")
        return y if valid is None else y.masked_fill(~valid[..., None], 0)

    def unroll(
        self, start: Tensor, first: Tensor, steps: int, feed: Callable[[Tensor], Tensor] = lambda y: y
    ) -> Tensor:
        """One to many: `steps` outputs (B, steps, D) from one vector `start` (B, D'), each fed back as the next input.

        `first` (B, D) is the first input, `feed` turns an output (B, D) into the next one.
        """
        state, outputs = self.cache(), []
        for _ in range(steps):
            y = self(first[:, None], start=start, cache=state)[:, 0]
            outputs.append(y)
            first = feed(y)
        return torch.stack(outputs, 1) if outputs else first.new_zeros(len(first), 0, self.dim)

    def _begin(self, x: Tensor, start: Tensor | None, look_back: _LookBack | None) -> list[State]:
        if start is None and look_back is not None:
            start = look_back.mean
        states = [cell.start(x) for cell in self.cells]  # type: ignore[operator]
        if start is not None:
            parts = torch.tanh(self.begin(start)).chunk(len(states), -1)
            states = [(part, *state[1:]) for part, state in zip(parts, states)]
        return states

    def _step(
        self, y: Tensor, states: list[State], look_back: _LookBack | None, watched: bool
    ) -> tuple[Tensor, list[State], Tensor | None]:
        context, seen, above = [], None, []
        if self.score is not None and look_back is not None:
            c, seen = look_back(states[-1][0], watched)
            context = [c]
        x = torch.cat([y, *context], -1)
        for i, cell in enumerate(self.cells):
            above.append(cell(self.dropout(x) if i else x, states[i]))
            x = above[-1][0]
        return torch.tanh(self.out(torch.cat([self.dropout(x), *context], -1))), above, seen


class _LookBack:
    """The memory with its keys prepared once, asked with one query at a time."""

    def __init__(self, decoder: RecurrentDecoder, memory: Tensor, valid: Valid) -> None:
        check_layout(memory, valid)
        if isinstance(valid, Ragged):
            memory, valid = valid.pad(memory), valid.valid
        if valid is not None:
            memory = memory.masked_fill(~valid[..., None], 0)
        count = memory.shape[1] if valid is None else valid.sum(1, keepdim=True).clamp(min=1)
        self.mean = memory.sum(1) / max(count, 1) if isinstance(count, int) else memory.sum(1) / count
        self.score = decoder.score
        self.sight = Sight(valid=valid)
        if self.score is not None:
            self.values = decoder.adapt(memory)[:, None]
            self.keys = self.score.key(self.values)

    def __call__(self, state: Tensor, watched: bool) -> tuple[Tensor, Tensor | None]:
        assert self.score is not None
        q = self.score.query(state[:, None, None])
        if watched or not self.score.fused:
            weights = weigh(q, self.keys, self.sight, self.score)
            return mix(weights, self.values)[:, 0, 0], weights
        return compute(q, self.keys, self.values, self.sight, self.score)[:, 0, 0], None
