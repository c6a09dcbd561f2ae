"""What is known about two tokens, as a bias of the attention: where the pairs are, and how they enter.

Triangle        the pairs (i, j), j <= i, of the tokens of each sequence, end to end
PairBias        a number for each head and pair, in that layout; packed sequences lean on it
PairEmbedding   from features of a pair to these numbers
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
    """The pairs of tokens of packed sequences: sequence by sequence, row i by row, j = 0 ... i.

    starts   (B,) where the pairs of each sequence begin: pair (i, j) of sequence b is at starts[b] + i (i + 1) / 2 + j
    rows     (S,) the token i of each pair, as a place in the flat run of tokens
    columns  (S,) the token j, j <= i
    inside   (S,) True where the pair belongs to a sequence; the run may be longer than the pairs (`Ragged.pairs`)
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
    """The row i and column j <= i of a place i (i + 1) / 2 + j in a triangle."""
    i = ((8 * place.double() + 1).sqrt() / 2 - 0.5).long()
    i = i - (i * (i + 1) // 2 > place).long()  # the root may be rounded across a whole number
    i = i + ((i + 1) * (i + 2) // 2 <= place).long()
    return i, place - i * (i + 1) // 2


def square(n: int, device: torch.device) -> Tensor:
    """(n, n) where pairs (i, j) and (j, i) are in a triangle."""
    i = torch.arange(n, device=device)
    high, low = torch.maximum(i[:, None], i), torch.minimum(i[:, None], i)
    return high * (high + 1) // 2 + low


@dataclass(frozen=True, eq=False)
class PairBias:
    """A bias of the attention within packed sequences, the same for (i, j) and (j, i).

    values  (S, H) in the layout of `Triangle`: pair (i, j), j <= i, of sequence b at starts[b] + i (i + 1) / 2 + j
    starts  (B,) where the pairs of each sequence begin
    ragged  the layout of the tokens
    """

    values: Tensor
    starts: Tensor
    ragged: Ragged

    def __post_init__(self) -> None:
        if self.values.dim() != 2 or len(self.starts) != len(self.ragged):
            raise UserError(
                f"PairBias needs values of shape (pairs, heads) and {len(self.ragged)} starts, one for each sequence, "
                f"not shape {tuple(self.values.shape)} and {len(self.starts)} starts"
            )

    @property
    def heads(self) -> int:
        return self.values.shape[1]

    def dense(self) -> Tensor:
        """(B, H, N, N) for padded sequences, zeros where there is no pair."""
        n, batch = self.ragged.longest, len(self.ragged)
        if n == 0 or batch == 0 or len(self.values) == 0:
            return self.values.new_zeros(batch, self.heads, n, n)
        index = self.starts[:, None, None] + square(n, self.starts.device)
        valid = self.ragged.valid
        return self._at(index, valid[:, :, None] & valid[:, None, :]).transpose(0, 1)

    def flat(self) -> Tensor:
        """(1, H, T, T) for the flat run of tokens, zeros between tokens of different sequences: for kernels that know
        no better, as it grows with the square of all tokens together."""
        ragged = self.ragged
        if ragged.total == 0 or len(self.values) == 0:
            return self.values.new_zeros(1, self.heads, ragged.total, ragged.total)
        i = ragged.position
        high, low = torch.maximum(i[:, None], i), torch.minimum(i[:, None], i)
        starts = F.pad(self.starts, (0, 1))[ragged.sample]
        same = (ragged.sample[:, None] == ragged.sample) & ragged.inside
        return self._at(starts[:, None] + high * (high + 1) // 2 + low, same)[None]

    def after(self, count: int = 1) -> PairBias:
        """The bias of sequences with `count` more tokens in front, whose pairs with all others have none."""
        old = self.ragged
        longer = Ragged(old.lengths + count, old.total + count * len(old), old.longest + count, None)
        triangle = Triangle(longer)
        i, j = longer.position[triangle.rows] - count, longer.position[triangle.columns] - count
        sample = longer.sample[triangle.rows].clamp(max=max(0, len(old) - 1))
        here = triangle.inside & (j >= 0)
        index = torch.where(here, self.starts[sample] + i * (i + 1) // 2 + j, 0) if len(old) else i
        values = F.pad(self.values, (0, 0, 0, 1)) if len(self.values) == 0 else self.values
        return PairBias(values[index].masked_fill(~here[:, None], 0), triangle.starts, longer)

    def _at(self, index: Tensor, there: Tensor) -> Tensor:
        """(H, ...) the values at these places, zeros where nothing is there."""
        return self.values.t()[:, torch.where(there, index, 0)].masked_fill(~there, 0)


class PairEmbedding(nn.Module):
    """b = f_K(... f_1(norm(u))),  f_k(x) = gelu(norm(W_k x + c_k)), for the features u of a pair (arXiv 2202.03772).

    widths  of the layers, the last one the heads; norms are over the pairs of the batch
    last    whether the last layer has its activation too
    bias    whether layers have c_k
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
        """(..., F) -> (..., H); where `real` (...) is False, a pair counts in no norm."""
        x = self.norm(pairs, real)
        for k, (layer, norm) in enumerate(zip(self.layers, self.norms), 1):
            x = norm(layer(x), real)
            if k < len(self.layers) or self.last:
                x = F.gelu(x)
        return x
