"""Pair bias of packed attention: features of token pairs as a bias of the scores.

Triangle        layout of the pairs (i, j), j <= i, of each packed sequence
PairBias        bias of each head and pair, in that layout
PairEmbedding   network from features of a pair to its bias
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...errors import UserError
from ..norms import BatchNorm
from ..ragged import Ragged


class Triangle:
    """Layout of the token pairs (i, j), j <= i, of packed sequences.

    starts   (B,) index of the first pair of each sequence; pair (i, j) of sequence b has index
             starts[b] + i (i + 1) / 2 + j
    rows     (S,) index of token i of each pair among the packed tokens
    columns  (S,) index of token j of each pair among the packed tokens
    inside   (S,) True where the pair belongs to a sequence

    S (`Ragged.pairs`) may be larger than the number of pairs.
    """

    def __init__(self, ragged: Ragged) -> None:
        self.ragged = ragged
        counts = ragged.lengths * (ragged.lengths + 1) // 2
        ends = counts.cumsum(0)
        self.starts = ends - counts
        place = torch.arange(ragged.pairs, device=ends.device)
        sample = torch.searchsorted(ends, place, right=True)
        self.inside = sample < len(ragged)
        sample = sample.clamp(max=max(0, len(ragged) - 1))
        if not len(ragged):
            self.rows = self.columns = place
            return
        inner = torch.where(self.inside, place - self.starts[sample], 0)
        i, j = unravel(inner)
        first = torch.where(self.inside, (ragged.ends - ragged.lengths)[sample], 0)
        self.rows, self.columns = first + i, first + j

    def __len__(self) -> int:
        return len(self.rows)


def unravel(place: Tensor) -> tuple[Tensor, Tensor]:
    """Row i and column j <= i of a triangle, from the index i (i + 1) / 2 + j."""
    i = ((8 * place.double() + 1).sqrt() / 2 - 0.5).long()
    i = i - (i * (i + 1) // 2 > place).long()  # the square root may be rounded across an integer
    i = i + ((i + 1) * (i + 2) // 2 <= place).long()
    return i, place - i * (i + 1) // 2


def square(i: Tensor) -> Tensor:
    """Index of each pair of positions i (n,) in the triangle: (n, n), symmetric."""
    high, low = torch.maximum(i[:, None], i), torch.minimum(i[:, None], i)
    return high * (high + 1) // 2 + low


@dataclass(frozen=True, eq=False)
class PairBias:
    """Symmetric bias of the attention scores within packed sequences.

    values  (S, H) in the layout of `Triangle`: pair (i, j), j <= i, of sequence b at starts[b] + i (i + 1) / 2 + j
    starts  (B,) index of the first pair of each sequence
    ragged  layout of the tokens
    """

    values: Tensor
    starts: Tensor
    ragged: Ragged

    def __post_init__(self) -> None:
        if self.values.dim() != 2:
            raise UserError(f"`values` must have the shape (pairs, heads), not {tuple(self.values.shape)}")
        if len(self.starts) != len(self.ragged):
            raise UserError(f"`starts` must have {len(self.ragged)} entries, one per sequence, not {len(self.starts)}")

    @property
    def heads(self) -> int:
        return self.values.shape[1]

    def dense(self) -> Tensor:
        """Dense bias (B, H, N, N) of the padded tokens, 0 at padding."""
        n, batch = self.ragged.longest, len(self.ragged)
        if n == 0 or batch == 0 or len(self.values) == 0:
            return self.values.new_zeros(batch, self.heads, n, n)
        index = self.starts[:, None, None] + square(torch.arange(n, device=self.starts.device))
        valid = self.ragged.valid
        return self._at(index, valid[:, :, None] & valid[:, None, :]).transpose(0, 1)

    def flat(self) -> Tensor:
        """Dense bias (1, H, T, T) of the packed tokens, 0 between sequences."""
        ragged = self.ragged
        if ragged.total == 0 or len(self.values) == 0:
            return self.values.new_zeros(1, self.heads, ragged.total, ragged.total)
        starts = F.pad(self.starts, (0, 1))[ragged.sample]
        same = (ragged.sample[:, None] == ragged.sample) & ragged.inside
        return self._at(starts[:, None] + square(ragged.position), same)[None]

    def after(self) -> PairBias:
        """Bias of sequences with a prepended token.

        Pairs with the prepended token have bias 0.
        """
        old, longer = self.ragged, self.ragged.longer()
        triangle = Triangle(longer)
        i, j = longer.position[triangle.rows] - 1, longer.position[triangle.columns] - 1
        sample = longer.sample[triangle.rows].clamp(max=max(0, len(old) - 1))
        here = triangle.inside & (j >= 0)
        index = torch.where(here, self.starts[sample] + i * (i + 1) // 2 + j, 0) if len(old) else i
        values = F.pad(self.values, (0, 0, 0, 1)) if len(self.values) == 0 else self.values
        return PairBias(values[index].masked_fill(~here[:, None], 0), triangle.starts, longer)

    def _at(self, index: Tensor, there: Tensor) -> Tensor:
        """Values (H, ...) at `index`, 0 where `there` is False."""
        return self.values.t()[:, torch.where(there, index, 0)].masked_fill(~there, 0)


class PairEmbedding(nn.Module):
    """Pair bias b = f_K(... f_1(norm(u))) from pair features u (arXiv 2202.03772).

    The layers are f_k(x) = gelu(norm(W_k x + c_k)). The norms are batch norms over all pairs of the batch.

    widths  widths of the layers; the last width is the number of heads
    last    whether the last layer has an activation
    bias    whether the layers have biases c_k
    """

    def __init__(self, features: int, widths: Sequence[int], last: bool = True, bias: bool = True) -> None:
        super().__init__()
        if not widths:
            raise UserError("widths is empty, but at least 1 layer is needed")
        self.norm = BatchNorm(features)
        inputs = [features, *widths[:-1]]
        self.layers = nn.ModuleList(nn.Linear(a, b, bias=bias) for a, b in zip(inputs, widths))
        self.norms = nn.ModuleList(BatchNorm(width) for width in widths)
        self.last = last

    def forward(self, pairs: Tensor, real: Tensor | None = None) -> Tensor:
        """Bias (..., H) from pair features (..., F).

        real  (...) mask of the real pairs; the norms use only these pairs (default: all pairs)
        """
        x = self.norm(pairs, real)
        for k, (layer, norm) in enumerate(zip(self.layers, self.norms), 1):
            x = norm(layer(x), real)
            if k < len(self.layers) or self.last:
                x = F.gelu(x)
        return x
