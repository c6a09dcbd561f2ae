"""LorentzNet: network on four-vectors, invariant under boosts and rotations."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...errors import UserError
from ...nn.layout import Layout, take
from ...nn.norms import BatchNorm
from ...nn.options import DepthOptions, TokenForm
from ...nn.ragged import Ragged
from ...nn.trunks.base import FlatTrunk
from ...nn.watch import Watch


def minkowski_product(a: Tensor, b: Tensor) -> Tensor:
    """Minkowski product a_0 b_0 - a_1 b_1 - a_2 b_2 - a_3 b_3 of four-vectors."""
    both = a * b
    return 2 * both[..., 0] - both.sum(-1)


def signed_log(x: Tensor) -> Tensor:
    """Signed logarithm sign(x) ln(1 + |x|), for values of many orders of magnitude."""
    return x.sign() * x.abs().log1p()


class TokenPairs:
    """Ordered pairs (i, j), i != j, of the tokens of each sample.

    Packed samples, and all samples on a CPU, use a list of P pairs, sample after sample. Padded samples on a GPU use
    all P = B N^2 pairs of positions, because shapes on a GPU may not depend on values.

    real    (P, 1) mask of valid pairs; None if all are valid
    count   (T, 1) number of pairs (i, j) of each token i, at least 1
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.real: Tensor | None = None
        self.left = self.right = layout.rows
        self.packed = layout.real is None or layout.ragged is not None
        if layout.real is not None and layout.ragged is not None:
            self._list(layout.ragged)
            return
        batch, n = layout.rows.shape
        there = ~torch.eye(n, dtype=torch.bool, device=layout.rows.device).expand(batch, n, n)
        if layout.valid is not None:
            there = there & layout.valid[:, None] & layout.valid[:, :, None]
        if layout.real is None:
            self.left = layout.rows[:, :, None].expand(batch, n, n)[there]
            self.right = layout.rows[:, None].expand(batch, n, n)[there]
        else:
            self.real = there.view(-1, 1)
        self.count = layout.unpad(there.sum(-1)).clamp(min=1)[:, None]

    def _list(self, ragged: Ragged) -> None:
        """List all n^2 pairs of each sample of n tokens.

        The length of the list is known without a device sync; pairs i = j and the tail of the list are padding.
        """
        ends = ragged.lengths.square().cumsum(0)
        place = torch.arange(2 * ragged.pairs, device=ends.device)
        sample = torch.searchsorted(ends, place, right=True)
        inside = sample < len(ragged)
        sample = sample.clamp(max=max(0, len(ragged) - 1))
        count = ragged.lengths[sample].clamp(min=1)
        inner = place - (ends - ragged.lengths.square())[sample]
        first = (ragged.ends - ragged.lengths)[sample]
        i, j = first + inner // count, first + inner % count
        spread = place % max(1, ragged.total)  # padding pairs are spread over all rows
        self.left, self.right = torch.where(inside, i, spread), torch.where(inside, j, spread)
        self.real = (inside & (i != j))[:, None]
        others = (ragged.lengths - 1)[ragged.sample.clamp(max=max(0, len(ragged) - 1))]
        self.count = others.clamp(min=1)[:, None]

    def pair_values(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """Values (P, ...) of both tokens of each pair; arbitrary for pairs with padding."""
        if self.packed:
            return take(first, self.left), take(second, self.right)
        batch, n = self.layout.rows.shape
        left, right = self.layout.pad(first)[:, :, None], self.layout.pad(second)[:, None]
        return left.expand(batch, n, n, -1).flatten(0, 2), right.expand(batch, n, n, -1).flatten(0, 2)

    def gathered(self, values: Tensor) -> Tensor:
        """Sum pair values (P, ...) over j -> (T, ...); pairs with padding must have zeros."""
        if self.packed:
            return values.new_zeros(self.layout.total, *values.shape[1:]).index_add(0, self.left, values)
        batch, n = self.layout.rows.shape
        return self.layout.unpad(values.view(batch, n, n, -1).sum(2))

    def masked(self, values: Tensor) -> Tensor:
        """Set the values (P, ...) of pairs with padding to zero."""
        return values if self.real is None else values * self.real

    def moments(self, a: Tensor, b: Tensor, seen: Tensor, frame: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Moments of z_ij = a_i + b_j + W f_ij: mean (D,), variance (D,), number of pairs.

        a, b    (T, D) terms of the T tokens
        seen    (P, C) features f of the P pairs, symmetric in i and j
        frame   (D, C) weights W of the features

        The moments are computed without storing z for all pairs, from sums over tokens: sum_ij a_i b_j = (sum_i
        a_i)(sum_j b_j) - sum_i a_i b_i. All terms are centred first.
        """
        layout = self.layout
        there = layout.rows.new_ones(layout.rows.shape) if layout.valid is None else layout.valid
        valid, n = there[..., None].to(a.dtype), there.sum(1)[:, None, None].to(a.dtype)
        times = (n - 1).clamp(min=0) * valid  # (B, N, 1) number of pairs (i, j) of token i
        count = times.sum()
        some = count.clamp(min=1)
        own = layout.pad(self.gathered(self.masked(seen)))
        centre = own.sum((0, 1)) / some
        own = own - times * centre
        off = self.masked(seen - centre)
        square = torch.stack([(off * column[:, None]).sum(0) for column in off.unbind(1)])
        (a, mean_a), (b, mean_b) = (_centred(layout.pad(side), times, valid, some) for side in (a, b))
        both = a.sum(1) * b.sum(1) - (a * b).sum(1)
        spread = (times * (a.square() + b.square())).sum((0, 1)) + 2 * both.sum(0)
        spread = spread + (frame[:, :, None] * square * frame[:, None]).sum((1, 2))
        for column, weight in zip(own.unbind(-1), frame.unbind(1)):
            spread = spread + 2 * weight * ((a + b) * column[..., None]).sum((0, 1))
        return mean_a + mean_b + (frame * centre).sum(1), spread.clamp(min=0) / some, count


def _centred(side: Tensor, times: Tensor, valid: Tensor, some: Tensor) -> tuple[Tensor, Tensor]:
    """Subtract the mean over all pairs from `side` (B, N, D); also return the mean."""
    mean = (times * side).sum((0, 1)) / some
    return (side - mean) * valid, mean


class LorentzBlock(nn.Module):
    """Lorentz equivariant message passing block (arXiv 2201.08187).

        h_i <- h_i + f(h_i, sum_j g_ij m_ij, s_i)
        x_i <- x_i + c mean_j (x_i - x_j) u(g_ij m_ij)

    with m_ij = e(h_i, h_j, |x_i - x_j|^2, <x_i, x_j>) and g_ij = sigmoid(w m_ij). h are the hidden states, x the
    four-vectors and s the input scalars of the tokens; e, f and u are small MLPs. Products of four-vectors pass through
    `signed_log`. The last block does not update x.
    """

    def __init__(self, dim: int, scalars: int, moves: bool = True, step: float = 5e-3) -> None:
        super().__init__()
        self.dim, self.step = dim, step
        self.pair, self.pair_norm = nn.Linear(2 * dim + 2, dim, bias=False), BatchNorm(dim)
        self.message, self.gate = nn.Linear(dim, dim), nn.Linear(dim, 1)
        self.token, self.token_norm = nn.Linear(2 * dim + scalars, dim), BatchNorm(dim)
        self.out = nn.Linear(dim, dim)
        self.push = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(True), nn.Linear(dim, 1, bias=False)) if moves else None
        if self.push is not None:
            nn.init.xavier_uniform_(self.push[2].weight, gain=0.001)  # type: ignore[arg-type]

    def forward(self, h: Tensor, x: Tensor, s: Tensor, pairs: TokenPairs, layout: Layout) -> tuple[Tensor, Tensor]:
        """Update h (T, D) and x (T, 4), with the input scalars s (T, S)."""
        exact = torch.promote_types(h.dtype, torch.float32)
        own, other, frame = self.pair.weight.split([self.dim, self.dim, 2], 1)
        first, second = F.linear(h, own).to(exact), F.linear(h, other).to(exact)
        with torch.autocast(h.device.type, enabled=False):
            a, b = pairs.pair_values(x, x)
            apart = a - b
            seen = torch.stack(
                [signed_log(minkowski_product(apart, apart)), signed_log(minkowski_product(a, b))], -1
            ).to(exact)
            frame = frame.to(exact)
            found = pairs.moments(first, second, seen, frame) if self.training else None
            scale, shift = self.pair_norm.affine(found)
            a, b = pairs.pair_values(first * scale + shift, second * scale)
            m = a + b
            for column, weight in zip(seen.unbind(1), frame.unbind(1)):
                m = torch.addcmul(m, column[:, None], weight * scale)
        m = F.relu(self.message(F.relu(m, inplace=True).to(h.dtype)), inplace=True)
        m = m * pairs.masked(self.gate(m).sigmoid())
        if self.push is not None:
            x = x + self.step * pairs.gathered(apart * pairs.masked(self.push(m)).to(x.dtype)) / pairs.count
        y = self.token(torch.cat([h, pairs.gathered(m.to(exact)).to(h.dtype), s], -1))
        return h + self.out(F.relu(self.token_norm(y, layout.real), inplace=True)), x


class LorentzNet(FlatTrunk):
    """LorentzNet (arXiv 2201.08187): `depth` blocks over all pairs of tokens.

    The coordinates `at` of the tokens are four-vectors (E, p_x, p_y, p_z). The inputs are scalars of the tokens and the
    squared mass of each four-vector. The output is Lorentz invariant if the scalars are
    Lorentz invariant.
    """

    def __init__(self, inputs: int, dim: int = 72, depth: int = 6) -> None:
        super().__init__()
        self.inputs, self.dim = inputs, dim
        self.stem = nn.Linear(inputs + 1, dim)
        self.blocks = nn.ModuleList(LorentzBlock(dim, inputs + 1, moves=i + 1 < depth) for i in range(depth))

    def run(self, y: Tensor, at: Tensor | None, layout: Layout, watch: Watch | None) -> Tensor:
        if at is None or at.shape[-1] != 4:
            have = "have no coordinates" if at is None else f"have coordinates of shape {tuple(at.shape)}"
            raise UserError(
                f"lorentz_net needs four-vectors of shape (..., 4), but the tokens {have}",
                hint="Set `tokens.at: vector`.",
            )
        with torch.autocast(y.device.type, enabled=False):
            place = at.to(torch.promote_types(at.dtype, torch.float32))
            s = torch.cat([y, signed_log(minkowski_product(place, place))[:, None].to(y.dtype)], -1)
        h, pairs = self.stem(s), TokenPairs(layout)
        layout.show(h, "input", watch)
        for i, block in enumerate(self.blocks):
            h, place = block(h, place, s, pairs, layout)
            layout.show(h, f"blocks.{i}", watch)
        return h


class LorentzNetOptions(DepthOptions):
    """Trunk `lorentz_net`: Lorentz invariant network on pairs of four-vectors."""

    keeps_width: ClassVar[bool] = False

    def build_trunk(self, form: TokenForm, causal: bool = False, memory_dim: int | None = None) -> LorentzNet:
        return LorentzNet(form.width, self.dim, self.depth)
