"""Recurrent trunks: RNN, GRU and LSTM.

`Recurrent` maps a sequence to a sequence (many-to-many), and with `LastPool` to a vector (many-to-one).
`RecurrentDecoder` can start from a vector (one-to-many). A `Cell` is one step (one-to-one).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from ...errors import UserError, one_of
from ..options import DepthOptions, PositionOptions, TokenForm
from ..positions import Position
from ..ragged import zero_padding
from ..watch import Watch
from .base import PaddedTrunk

if TYPE_CHECKING:
    from .recurrent_decoder import Memory

LAYERS: dict[str, type[nn.RNN] | type[nn.GRU] | type[nn.LSTM]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
State = tuple[Tensor, ...]


def step(kind: str, weights: list[Tensor], x: Tensor, state: State) -> State:
    """Next state of a recurrent cell (reference for the fast kernels).

    rnn    h' = tanh(W x + U h + b)
    gru    r, z = sigmoid(W x + U h + b);   n = tanh(W_n x + b_n + r (U_n h + c_n));   h' = (1 - z) n + z h
    lstm   i, f, o = sigmoid(W x + U h + b);   g = tanh(W_g x + U_g h + b_g);   c' = f c + i g;   h' = o tanh(c')

    Shapes: x (B, D), state (h,) or (h, c). The weights are [W, U, bias of x, bias of h], with stacked gates as in
    torch.nn.
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


def open_gate(bias: Tensor, kind: str, hidden: int, forget_bias: float) -> None:
    """Add `forget_bias` to the bias of the forget gate (LSTM) or update gate (GRU)."""
    if forget_bias and kind != "rnn":
        bias.data[hidden : 2 * hidden] += forget_bias


class Cell(nn.Module):
    """One step of an RNN, GRU or LSTM, with the equations of `step`."""

    def __init__(self, kind: str, dim: int, hidden: int, forget_bias: float = 0.0) -> None:
        """Initialise the weights.

        forget_bias  number added to the initial bias of gate f (LSTM) or gate z (GRU)
        """
        super().__init__()
        one_of("the recurrent cell", kind, LAYERS)
        self.kind, self.hidden = kind, hidden
        gates = {"rnn": 1, "gru": 3, "lstm": 4}[kind]
        bound = hidden**-0.5
        shapes = [(gates * hidden, dim), (gates * hidden, hidden), (gates * hidden,), (gates * hidden,)]
        self.weights = nn.ParameterList(torch.empty(shape).uniform_(-bound, bound) for shape in shapes)
        open_gate(self.weights[2], kind, hidden, forget_bias)

    def start(self, x: Tensor) -> State:
        """Initial state: zeros (B, hidden)."""
        zeros = x.new_zeros(x.shape[0], self.hidden)
        return (zeros, zeros) if self.kind == "lstm" else (zeros,)

    def forward(self, x: Tensor, state: State) -> State:
        """Next state from an input (B, D) and the previous state."""
        return step(self.kind, list(self.weights), x, state)


class RecurrentCache:
    """Cache for step-by-step calls: states of all layers, and the memory of a decoder."""

    def __init__(self) -> None:
        self.states: list[State] = []
        self.memory: Memory | None = None
        self.length = 0

    def reorder(self, index: Tensor) -> None:
        """Select samples by their indices `index` (B,), for beam search."""
        self.states = [tuple(part.index_select(0, index) for part in state) for state in self.states]
        if self.memory is not None:
            self.memory = self.memory.chosen(index)


class Recurrent(PaddedTrunk):
    """Recurrent network of `depth` layers, in one or two directions.

    The output has width `hidden` for each direction (default: `dim` for all directions together). Padding is skipped:
    the backward direction starts at the last real token. A network with one direction is causal and can continue from a
    cache (arXiv 1303.5778).
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
        forget_bias: float = 0.0,
    ) -> None:
        """Make the layers.

        forget_bias  as in `Cell`, for every layer
        """
        super().__init__()
        one_of("the recurrent layer", kind, LAYERS)
        self.kind, self.directions = kind, 2 if bidirectional else 1
        if hidden is None:
            if dim % self.directions:
                message = f"the width must be even for a bidirectional trunk, not {dim}"
                raise UserError(message, hint="Choose an even width, or set hidden.")
            hidden = dim // self.directions
        self.inputs, self.hidden, self.dim = dim, hidden, hidden * self.directions
        self.position = Position() if position is None else position
        self.position.fits_without_attention(dim, self)
        self.layers = nn.ModuleList(
            nn.ModuleList(
                LAYERS[kind](dim if i == 0 else self.dim, hidden, batch_first=True) for _ in range(self.directions)
            )
            for i in range(depth)
        )
        for name, weight in self.layers.named_parameters():
            if "bias_ih" in name:
                open_gate(weight, kind, hidden, forget_bias)
        self.dropout = nn.Dropout(dropout)

    def run(
        self,
        x: Tensor,
        valid: Tensor | None,
        at: Tensor | None,
        watch: Watch | None,
        cache: RecurrentCache | None = None,
    ) -> Tensor:
        """Run the layers over x (B, N, D), from the state of the `cache` or from zeros."""
        if cache is not None and (self.directions == 2 or valid is not None):
            found = "a bidirectional trunk" if self.directions == 2 else "padding (`valid`)"
            raise UserError(f"a cache cannot be used with {found}")
        x = self.position.embed(x, self.position.locate(x, at, valid, 0 if cache is None else cache.length))
        order = _Order(x, valid)
        x = order.gather(x)
        if watch is not None:
            watch.saw_hidden(order.scatter(x), "input")
        before, after = cache.states if cache is not None else [], []
        for i, layer in enumerate(self.layers):
            x = self.dropout(x) if i else x
            way, state = self._run_layer(layer[0], x, before[i] if before else None)  # type: ignore[index]
            after.append(state)
            if self.directions == 2:
                back, _ = self._run_layer(layer[1], order.reverse(x), None)  # type: ignore[index]
                way = torch.cat([way, order.reverse(back)], -1)
            x = way
            if watch is not None:
                watch.saw_hidden(order.scatter(x), f"blocks.{i}")
        if cache is not None:
            cache.states, cache.length = after, cache.length + x.shape[1]
        return order.scatter(x)

    def cache(self) -> RecurrentCache:
        """Empty cache for step-by-step calls."""
        return RecurrentCache()

    def _run_layer(self, layer: nn.Module, x: Tensor, state: State | None) -> tuple[Tensor, State]:
        """Outputs and last state of a layer in one direction.

        state  initial state, each part (B, hidden); None means zeros
        """
        first = None
        if state is not None:
            parts = tuple(part[None].contiguous() for part in state)
            first = parts if self.kind == "lstm" else parts[0]
        out, last = layer(x, first)
        return out, tuple(part[0] for part in last) if self.kind == "lstm" else (last[0],)


class _Order:
    """Token orders of a padded batch: original, real tokens first, and reversed."""

    def __init__(self, x: Tensor, valid: Tensor | None) -> None:
        self.valid = valid
        place = torch.arange(x.shape[1], device=x.device)
        if valid is None:
            self.backward = place.flip(0).expand(x.shape[:2])
            return
        lengths = valid.sum(1, keepdim=True)
        self.to_front = torch.argsort(torch.where(valid, place, place + x.shape[1]), dim=1)  # keys are distinct
        self.to_place = torch.argsort(self.to_front, dim=1)
        self.backward = torch.where(place < lengths, lengths - 1 - place, place)

    def gather(self, x: Tensor) -> Tensor:
        return x if self.valid is None else _take(zero_padding(x, self.valid), self.to_front)

    def scatter(self, x: Tensor) -> Tensor:
        return x if self.valid is None else zero_padding(_take(x, self.to_place), self.valid)

    def reverse(self, x: Tensor) -> Tensor:
        return _take(x, self.backward)


def _take(x: Tensor, index: Tensor) -> Tensor:
    return x.gather(1, index[..., None].expand(-1, -1, x.shape[-1]))


class RecurrentOptions(DepthOptions, PositionOptions):
    """`trunk: rnn`: simple recurrent layers; base class of the LSTM and GRU options."""

    choices: ClassVar[dict[str, str]] = {"position": "position"}
    can_be_causal: ClassVar[bool] = True
    recurrent: ClassVar[bool] = True
    cell: ClassVar[str] = "rnn"

    bidirectional: bool = True
    """Read the sequence in both directions (default: true). A decoder always reads only forward."""
    position: str = "auto"
    """Positional encoding (default: auto). auto: no encoding, because the trunk reads the tokens in their order."""

    @property
    def reads_both_ways(self) -> bool:
        return self.bidirectional

    def build_trunk(self, form: TokenForm, causal: bool = False, memory_dim: int | None = None) -> Recurrent:
        return Recurrent(
            self.dim,
            self.depth,
            self.cell,
            bidirectional=self.bidirectional and not causal,
            dropout=self.dropout,
            position=self.build_position(form, self.dim, None),
            forget_bias=getattr(self, "forget_bias", 0.0),
        )


class LSTMOptions(RecurrentOptions):
    """`trunk: lstm`: layers of LSTM cells."""

    cell: ClassVar[str] = "lstm"

    forget_bias: float = 0.0
    """Number added to the initial bias of the forget gate, or of the update gate for a GRU (default: 0). With 1 the
    state changes more slowly at the start of training."""


class GRUOptions(LSTMOptions):
    """`trunk: gru`: layers of GRU cells."""

    cell: ClassVar[str] = "gru"
