"""Layers for particle tokens: embeddings, pair bias of the attention, and readout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...data.batch import Valid
from ...nn.attention.pair_bias import PairBias, PairEmbedding, Triangle, square
from ...nn.heads import Gaussian
from ...nn.norms import BatchNorm
from ...nn.ragged import Ragged
from ...tokens.base import Columns
from ...tokens.protocols import Readout

PairName = Literal["ln_kt", "ln_z", "ln_delta", "ln_m2"]
PAIR_FEATURES: tuple[PairName, ...] = ("ln_kt", "ln_z", "ln_delta", "ln_m2")
MIN_PAIR_VALUE = 1e-8  # lower limit of pair features, as in the original
MIN_DIVISOR = 1e-20


def particle_kinematics(vector: Tensor) -> Tensor:
    """pT, m^2, mT, rapidity and phi of particles, for `pair_features`.

    vector   (..., 4) px, py, pz and E
    returns  (..., 7), with two numbers each for rapidity and phi

    In single precision, small differences of angles, and of E and |p|, would be lost. All values are therefore computed
    in double precision. Rapidity and phi are returned as the rounded value and its rounding error.
    """
    exact = vector if vector.device.type == "mps" else vector.double()
    work = torch.promote_types(vector.dtype, torch.float32)
    px, py, pz, energy = exact.unbind(-1)
    forward, backward = (energy + pz).clamp(min=MIN_DIVISOR), (energy - pz).clamp(min=MIN_DIVISOR)
    pt2 = px * px + py * py
    angles = [0.5 * (forward / backward).log(), _azimuth(px, py)]
    numbers = [pt2.sqrt(), energy * energy - pt2 - pz * pz, (forward * backward).sqrt()]
    for angle in angles:
        numbers += [angle, angle - angle.to(work)]
    return torch.stack([number.to(work) for number in numbers], -1)


def _azimuth(px: Tensor, py: Tensor) -> Tensor:
    """Azimuth phi = atan2(py, px).

    ONNX runtimes lack a float64 arc tangent, so exported graphs correct a float32 value to first order.
    """
    if not torch.compiler.is_exporting():
        return torch.atan2(py, px)
    rough = torch.atan2(py.float(), px.float()).to(px.dtype)
    return rough + (py * rough.cos() - px * rough.sin()) / (px * px + py * py).sqrt().clamp(min=MIN_DIVISOR)


def pair_features(i: Tensor, j: Tensor, names: Sequence[str] = PAIR_FEATURES) -> Tensor:
    """Pair features (..., F) of particles i and j (arXiv 2202.03772).

    i, j   (..., 7) `particle_kinematics` of the two particles

        Delta  = sqrt(y_ij^2 + phi_ij^2)                     ln_delta        y_ij = y_i - y_j, y the rapidity
        k_T    = min(pT_i, pT_j) Delta                       ln_kt
        z      = min(pT_i, pT_j) / (pT_i + pT_j)             ln_z
        m^2    = (E_i + E_j)^2 - |p_i + p_j|^2               ln_m2

    each at least 1e-8. The squared mass is computed as a sum without cancellation:

        m^2 = m_i^2 + m_j^2 + 2 [(pT_i^2 m_j^2 + pT_j^2 m_i^2 + m_i^2 m_j^2) / (mT_i mT_j + pT_i pT_j)
                                 + 2 mT_i mT_j sinh^2(y_ij / 2) + 2 pT_i pT_j sin^2(phi_ij / 2)]
    """
    pti, mi, mti, yi, yi_more, phii, phii_more = i.unbind(-1)
    ptj, mj, mtj, yj, yj_more, phij, phij_more = j.unbind(-1)
    least = torch.minimum(pti, ptj)
    dy = (yi - yj) + (yi_more - yj_more)
    dphi = (phii - phij) + (phii_more - phij_more)
    dphi = dphi - 2 * math.pi * (dphi / (2 * math.pi)).round()
    delta = (dy * dy + dphi * dphi).sqrt()
    found = []
    for name in names:
        if name == "ln_delta":
            value = delta
        elif name == "ln_kt":
            value = least * delta
        elif name == "ln_z":
            value = least / (pti + ptj).clamp(min=MIN_PAIR_VALUE)
        else:
            pt, mt = pti * ptj, mti * mtj
            masses = (pti * pti * mj + ptj * ptj * mi + mi * mj) / (mt + pt).clamp(min=MIN_DIVISOR)
            opening = 2 * mt * (dy / 2).sinh().square() + 2 * pt * (dphi / 2).sin().square()
            value = mi + mj + 2 * (masses + opening)
        found.append(value.clamp(min=MIN_PAIR_VALUE).log())
    return torch.stack(found, -1)


def _padding_mask(real: Tensor | None) -> Tensor | None:
    """Mask of the real particles; None if all are real (checked only on the CPU)."""
    return None if real is None or (_may_branch_on_values(real) and bool(real.all())) else real


def _may_branch_on_values(real: Tensor) -> bool:
    """Whether Python may branch on tensor values: on the CPU, outside torch.compile."""
    return real.device.type == "cpu" and not torch.compiler.is_compiling()


class ParticlePairs(nn.Module):
    """Attention bias from pair features: MLP(pair_features(i, j)).

    The bias of a pair with a hidden particle is 0, and the pair does not enter the batch norms.
    """

    def __init__(
        self, names: Sequence[str], widths: Sequence[int], heads: int, last: bool = True, bias: bool = True
    ) -> None:
        super().__init__()
        self.names = tuple(names)
        self.embedding = PairEmbedding(len(self.names), (*widths, heads), last, bias)

    def forward(self, columns: Columns, valid: Valid = None) -> Tensor | PairBias:
        """Bias (B, H, N, N) of padded particles; a `PairBias` for packed particles."""
        vector, hidden = columns["vector"], columns.get("hidden")
        with torch.no_grad(), torch.autocast(vector.device.type, enabled=False):
            known, here = None if hidden is None else ~hidden.bool(), particle_kinematics(vector)
        if isinstance(valid, Ragged):
            return self._packed(here, valid, known)
        real = known if valid is None else valid if known is None else valid & known
        if torch.compiler.is_exporting():  # exported graphs use the full square of pairs
            both = None if real is None else real[:, :, None] & real[:, None]
            return self._values(here[:, :, None], here[:, None], both).permute(0, 3, 1, 2)
        n = vector.shape[1]
        i, j = torch.tril_indices(n, n, device=vector.device)
        both = None if real is None else real[:, i] & real[:, j]
        values = self._values(here[:, i], here[:, j], both)
        return values.transpose(1, 2)[:, :, square(torch.arange(n, device=vector.device))]

    def _packed(self, here: Tensor, ragged: Ragged, known: Tensor | None) -> PairBias:
        triangle = Triangle(ragged)
        i, j = triangle.rows, triangle.columns
        real = triangle.inside if known is None else triangle.inside & known[i] & known[j]
        return PairBias(self._values(here[i], here[j], _padding_mask(real)), triangle.starts, ragged)

    def _values(self, i: Tensor, j: Tensor, real: Tensor | None) -> Tensor:
        """Bias (..., H) of particle pairs; 0 if `real` is False."""
        if real is not None and _may_branch_on_values(real):  # skip padding pairs
            found = self._values(i[real], j[real], None)
            return found.new_zeros(*real.shape, found.shape[-1]).masked_scatter(real[..., None], found)
        with torch.no_grad(), torch.autocast(i.device.type, enabled=False):
            features = pair_features(i, j, self.names)
        values = self.embedding(features, real)
        return values if real is None else values.masked_fill(~real[..., None], 0)


class ParticleEmbedding(nn.Module):
    """MLP embedding of particle features u (arXiv 2202.03772).

    x = f_K(... f_1(norm(u))),  f_k(x) = gelu(W_k layer_norm(x) + b_k); `norm` is a batch norm over visible particles.
    """

    masked = True

    def __init__(self, features: int, widths: Sequence[int]) -> None:
        super().__init__()
        inputs = [features, *widths[:-1]]
        self.norm = BatchNorm(features)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in inputs)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(inputs, widths))
        for layer in self.layers:
            nn.init.xavier_uniform_(layer.weight)  # type: ignore[arg-type]
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]

    def forward(self, columns: Columns, valid: Valid = None) -> Tensor:
        """Embed features (..., N, F) -> (..., N, D)."""
        real = _padding_mask(valid.inside if isinstance(valid, Ragged) else valid)
        if "hidden" in columns:
            known = ~columns["hidden"].bool()
            real = known if real is None else real & known
        x = self.norm(columns["features"], real)
        for norm, layer in zip(self.norms, self.layers):
            x = F.gelu(layer(norm(x)))
        return x


class LinearEmbedding(nn.Module):
    """Linear embedding x = W u + b of features u; x = u if `dim` is None."""

    def __init__(self, features: int, dim: int | None) -> None:
        super().__init__()
        self.linear = nn.Identity() if dim is None else nn.Linear(features, dim)

    def forward(self, columns: Columns) -> Tensor:
        """Embed features (..., N, F) -> (..., N, D)."""
        return self.linear(columns["features"])


class RankEmbedding(nn.Module):
    """Learned vector for the pT rank of each hidden particle."""

    def __init__(self, places: int, dim: int) -> None:
        super().__init__()
        self.table = nn.Embedding(places, dim)
        nn.init.normal_(self.table.weight, std=0.02)

    def forward(self, columns: Columns) -> Tensor:
        """Embed ranks (..., N) -> (..., N, D)."""
        return self.table(columns["rank"].clamp(0, self.table.num_embeddings - 1))


class ParticleReadout(Readout):
    """Readout of momentum and type of hidden particles.

        p(v, t | h) = prod_k N(v_k; mean_k, std_k) softmax_t(W h + b)

    with the particle type t and v = (ln(pT / jet pT), deta, dphi), standardised by `hidden_targets`. Means and standard
    deviations are linear in h, with a softplus for the standard deviations.
    """

    FLOOR = 0.02  # minimum standard deviation

    def __init__(self, dim: int, types: int) -> None:
        super().__init__()
        self.values, self.kinds = nn.Linear(dim, 6), nn.Linear(dim, types)

    def gaussian(self, hidden: Tensor) -> Gaussian:
        mean, raw = self.values(hidden).float().chunk(2, -1)
        return Gaussian(mean, F.softplus(raw) + self.FLOOR)

    def loss(self, hidden: Tensor, target: Columns) -> Tensor:
        values = self.gaussian(hidden).loss(target["vector"].float()).sum(-1)
        return values + F.cross_entropy(self.kinds(hidden).float(), target["type"], reduction="none")

    def predict(self, hidden: Tensor) -> Columns:
        return {"vector": self.gaussian(hidden).mean, "type": self.kinds(hidden).argmax(-1)}
