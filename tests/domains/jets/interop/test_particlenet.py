"""ParticleNet of weaver: names and shapes, jets of few particles, and the weights that were trained on JetClass."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from sciformer.data.batch import StreamView
from sciformer.domains.jets.interop.weaver import CLASSES, canonical_names, convert_particlenet, read_checkpoint
from sciformer.interop.config import Config
from sciformer.models.base import parameters
from tests.domains.jets.interop.weaver_keys import layer, logits, made, network, norm
from tests.errors import refuses
from tests.paths import SHARED

DATA = SHARED / "jets"
real = pytest.mark.skipif(not DATA.is_dir(), reason="real weights are not here")


def shapes(inputs=7, widths=(8, 8, 12), hidden=(10,), classes=10):
    """Names and shapes, as weaver-core 0.5 has them."""
    found = norm("bn_fts", inputs)
    for i, (before, width) in enumerate(zip((inputs, *widths), widths)):
        for j in range(3):
            columns = [2 * before if j == 0 else width, 1, 1]
            found |= layer(f"edge_convs.{i}.convs.{j}", width, columns, bias=False)
            found |= norm(f"edge_convs.{i}.bns.{j}", width)
        if before != width:
            found |= layer(f"edge_convs.{i}.sc", width, [before, 1], bias=False) | norm(f"edge_convs.{i}.sc_bn", width)
    for i, (before, width) in enumerate(zip((widths[-1], *hidden), hidden)):
        found |= layer(f"fc.{i}.0", width, [before])
    return found | layer(f"fc.{len(hidden)}", classes, [hidden[-1]])


def answers(built, features, points, valid):
    return logits(built, StreamView({"features": features, "at": points}, valid))


def naive(tensors, x, at, neighbours):
    """ParticleNet for the particles of one jet; neighbours that are not there are zeros."""

    def normal(name, y):
        mean, variance = tensors[f"{name}.running_mean"], tensors[f"{name}.running_var"]
        return (y - mean) / (variance + 1e-5).sqrt() * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]

    x = normal("bn_fts", x)
    for i in range(3):
        near = (at[:, None] - at[None]).square().sum(-1).fill_diagonal_(torch.inf).argsort(1)[:, : len(x) - 1]
        others = F.pad(x[near[:, :neighbours]], (0, 0, 0, max(0, neighbours - near.shape[1])))
        y = torch.cat([x[:, None].expand_as(others), others - x[:, None]], -1)
        for j in range(3):
            y = normal(f"edge_convs.{i}.bns.{j}", y @ tensors[f"edge_convs.{i}.convs.{j}.weight"].T).relu()
        if f"edge_convs.{i}.sc.weight" in tensors:
            x = normal(f"edge_convs.{i}.sc_bn", x @ tensors[f"edge_convs.{i}.sc.weight"].T)
        x = at = (x + y.mean(1)).relu()
    y = x.mean(0)
    for i in range(sum(name.endswith(".0.weight") and name.startswith("fc.") for name in tensors)):
        y = (tensors[f"fc.{i}.0.weight"] @ y + tensors[f"fc.{i}.0.bias"]).relu()
        last = i + 1
    return tensors[f"fc.{last}.weight"] @ y + tensors[f"fc.{last}.bias"]


@pytest.mark.parametrize("hidden", [(10,), (10, 9)])
def test_names_shapes_and_jets_of_few_particles(hidden):
    tensors = canonical_names({f"mod.{name}": tensor for name, tensor in made(shapes(hidden=hidden)).items()})
    found = convert_particlenet(tensors, Config({}, "a file"), {})
    assert "neighbours" in found.notes[0]
    assert found.classes == sorted(CLASSES)
    built, order, _ = network(found, neighbours=5)
    built, tensors = built.double(), {name: tensor.double() for name, tensor in tensors.items()}
    lengths = torch.tensor([1, 2, 5, 6, 7, 20])
    x, at = torch.randn(6, 20, 7).double(), torch.randn(6, 20, 2).double()
    y = answers(built, x, at, torch.arange(20) < lengths[:, None])[:, order]
    for i, length in enumerate(lengths):
        torch.testing.assert_close(y[i], naive(tensors, x[i, :length], at[i, :length], 5))


@pytest.mark.parametrize(
    ("more", "mention"),
    [
        ({"fusion_block.0.weight": torch.zeros(4, 4)}, "use_fusion=False"),
        ({"bn_fts.weight": None}, "use_fts_bn=True"),
        ({"edge_convs.1.convs.2.weight": None}, "3 layers"),
        ({"strange.weight": torch.zeros(3)}, "strange.weight"),
    ],
)
def test_other_models_are_refused(more, mention):
    tensors = canonical_names(made(shapes())) | more
    tensors = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    with refuses(mention, file="a file"):
        convert_particlenet(tensors, Config({}, "a file", "a file"), {})


@real
@pytest.mark.parametrize(("name", "count"), [("full", 370_156), ("kin", 368_216)])
def test_the_weights_trained_on_jetclass(name, count):
    fixture = np.load(DATA / "part_parity.npz")
    found = read_checkpoint(DATA / "weights" / f"ParticleNet_{name}.pt")
    built, order, _ = network(found)
    assert parameters(built) == count
    features, points = (torch.from_numpy(fixture[key]).transpose(1, 2) for key in ("features", "points"))
    features = features[..., fixture["kin_index"]] if name == "kin" else features
    valid = torch.from_numpy(fixture["mask"][:, 0]).bool()
    expected = torch.from_numpy(fixture[f"logits_particlenet_{name}"])
    single = answers(built, features, points, valid)[:, order]
    torch.testing.assert_close(single, expected, rtol=0, atol=1e-4)
    double = answers(built.double(), features.double(), points.double(), valid)[:, order]
    torch.testing.assert_close(double.float(), expected, rtol=0, atol=2e-5)
