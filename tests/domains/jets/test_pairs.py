"""What is known of two particles: the official numbers, and single precision that holds."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from sciformer.data.batch import Batch
from sciformer.domains.jets.layers import PAIR_FEATURES, ParticlePairs, pair_features, particle_kinematics
from sciformer.domains.jets.tokens import Particles
from sciformer.nn import PairBias
from tests.domains.jets import jets_table
from tests.paths import SHARED

PARITY = SHARED / "jets/part_parity.npz"


def official(x, eps=1e-8):
    """(..., N, 4) -> (..., N, N, 4) as in weaver-core 0.5, line by line."""
    i, j = x.unsqueeze(-2), x.unsqueeze(-3)

    def polar(x):
        px, py, pz, energy = x.unbind(-1)
        rapidity = 0.5 * torch.log(1 + (2 * pz) / (energy - pz).clamp(min=1e-20))
        return torch.sqrt(px * px + py * py), rapidity, torch.atan2(py, px)

    (pti, yi, phii), (ptj, yj, phij) = polar(i), polar(j)
    turn = (phii - phij + math.pi) % (2 * math.pi) - math.pi
    delta = ((yi - yj) ** 2 + turn**2).sqrt()
    least, both = torch.minimum(pti, ptj), i + j
    m2 = both[..., 3] ** 2 - both[..., :3].square().sum(-1)
    values = (least * delta, least / (pti + ptj).clamp(min=eps), delta, m2)
    return torch.stack([value.clamp(min=eps).log() for value in values], -1)


def ours(x, names=PAIR_FEATURES):
    here = particle_kinematics(x)
    return pair_features(here.unsqueeze(-2), here.unsqueeze(-3), names)


def momenta(count=60, seed=0, mass=(0.0, 0.13957, 0.93957)):
    rng = np.random.default_rng(seed)
    pt, eta, phi = np.exp(rng.normal(2, 1.2, count)), rng.normal(0, 1, count), rng.uniform(-math.pi, math.pi, count)
    return torch.from_numpy(jets_table.momenta(pt, eta, phi, rng.choice(mass, count)).T)


def test_features_are_the_official_ones_in_double_precision():
    x = momenta(mass=(0.13957, 0.93957))
    apart = (ours(x) - official(x)).abs()
    assert apart[..., :3].max() < 1e-9
    assert apart[..., 3].max() < 1e-6


def test_of_inputs_in_single_precision_too():
    """Their rounded energies give massless particles some mass, also imaginary."""
    x = momenta().float().double()
    exact = official(x)
    clear = exact[..., 3] > -9  # below, the official sum has lost its digits
    assert clear.float().mean() > 0.97
    assert (ours(x) - exact).abs()[clear].max() < 1e-6


def collinear(count=40):
    """Particles a ten-thousandth apart, some of them massless."""
    rng = np.random.default_rng(1)
    pt, m = np.exp(rng.normal(3, 1, count)), rng.choice([0.0, 0.13957], count)
    eta, phi = 1.7 + 1e-4 * rng.normal(size=count), 3.1414 + 1e-4 * rng.normal(size=count)
    return torch.from_numpy(jets_table.momenta(pt, eta, phi, m).T)


@pytest.mark.parametrize("made", [momenta, collinear])
def test_single_precision_holds_where_the_official_form_loses_everything(made):
    x = made().float()
    exact, rounded = ours(x.double()), ours(x)
    assert rounded.dtype == torch.float32
    clear = exact > math.log(1e-6)
    assert (rounded - exact).abs()[clear].max() < 2e-4
    lost = (official(x) - official(x.double())).abs()[..., 3].max()
    assert lost > 1  # ln m2: the reason for all this


def test_a_particle_with_itself_and_without_mass():
    x = torch.tensor([[3.0, 4, 0, 5], [3, 4, 12, 13], [0, 0, 0, 0], [0, 0, 7, 7], [0, 0, -7, 7], [30, 40, 120, 130]])
    for dtype in (torch.float32, torch.float64):
        found = ours(x.to(dtype))
        assert torch.isfinite(found).all()
        itself = found.diagonal(dim1=0, dim2=1).T
        smallest = math.log(1e-8)
        assert_close(itself[:, [0, 2, 3]], torch.full_like(itself[:, :3], smallest))  # nothing apart, no mass
        assert_close(itself[:2, 1], torch.full_like(itself[:2, 1], math.log(0.5)))
        assert_close(found[1, 5, 2], torch.tensor(smallest, dtype=dtype))  # along one line
        assert_close(found[0, 1, 3], torch.tensor(math.log(2 * (5 * 13 - 25)), dtype=dtype))


def test_names_choose_features():
    x = momenta(5)
    assert_close(ours(x, ("ln_delta", "ln_m2")), ours(x)[..., [2, 3]])


@pytest.mark.skipif(not PARITY.exists(), reason="data beside the repository")
def test_features_of_real_jets():
    with np.load(PARITY) as file:
        x = torch.from_numpy(file["vectors"][:2, :, :32]).transpose(1, 2)
        stored = torch.from_numpy(file["pair_lnkt_lnz_lndelta_lnm2"]).permute(0, 2, 3, 1)
    assert (ours(x)[..., :3] - stored[..., :3]).abs().max() < 2e-4
    exact = official(x.double())
    assert (ours(x.double()) - exact).abs()[exact > -9].max() < 1e-6
    assert (ours(x) - exact).abs()[exact > -9].max() < 2e-5


def views(hidden=False, lengths=(6, 1, 9, 0, 14), tail=None):
    tokens = Particles(kind="particles", features="kin")
    stream = tokens.normalise(tokens.tokenize(jets_table.jets(lengths)))
    if hidden:
        stream = stream.with_columns(hidden=np.arange(int(sum(lengths))) % 3 == 1)
    batch = Batch({"tokens": stream})
    return batch.inputs(multiple=4).stream, batch.inputs(packed=True, width=tail).stream


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("tail", [None, 48])
@pytest.mark.parametrize("training", [False, True])
def test_padded_and_packed_pairs_are_the_same(training, tail, hidden):
    padded, packed = views(hidden, tail=tail)
    for view in (padded, packed):
        view.columns["vector"] = view.columns["vector"].double()
    modules = [ParticlePairs(PAIR_FEATURES, (8, 8), 4).double().train(training) for _ in range(2)]
    modules[1].load_state_dict(modules[0].state_dict())
    square, flat = (module(view.columns, view.valid) for module, view in zip(modules, (padded, packed)))
    assert isinstance(flat, PairBias)
    n = flat.ragged.lengths.max()
    dense = flat.dense()[:, :, :n, :n]
    assert_close(square[:, :, :n, :n], dense)
    assert_close(square, square.transpose(2, 3))
    (square.square().sum()).backward(), (dense.square().sum()).backward()
    for (name, ours), theirs in zip(modules[0].named_parameters(), modules[1].parameters()):
        assert_close(ours.grad, theirs.grad, msg=name)
    for ours, theirs in zip(modules[0].buffers(), modules[1].buffers()):
        assert_close(ours, theirs)
    if hidden:
        dark = padded.columns["hidden"].bool()
        assert not square.transpose(1, 2)[dark].any()


class Through(torch.nn.Module):
    def forward(self, pairs, real):
        return pairs


def test_features_stay_in_single_precision_under_autocast():
    module, (padded, packed) = ParticlePairs(PAIR_FEATURES, (8,), 4), views()
    module.embedding = Through()
    plain = module(packed.columns, packed.valid).values
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(module(packed.columns, packed.valid).values, plain)
        assert module(padded.columns, padded.valid).dtype == torch.float32
