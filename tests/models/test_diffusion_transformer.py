"""The diffusion transformer: its streams, its condition, and its refusals."""

import pytest
import torch

from sciformer.data.batch import StreamView
from sciformer.models.diffusion_transformer import DiffusionTransformer
from sciformer.objectives.masked import Masked
from tests.errors import refuses
from tests.objectives.test_diffusion import COUNT, build, parts, ready


@pytest.fixture(scope="module")
def made():
    return parts()


def views(made, ids):
    inputs = ready(made, ids).inputs()
    return inputs.streams["source"], inputs.streams["target"]


def test_a_sample_does_not_depend_on_others(made):
    model = build(made).eval()
    level = torch.linspace(0.1, 0.9, COUNT)
    source, target = views(made, range(COUNT))
    with torch.no_grad():
        whole = model.denoise(target, level, model.encode(source))
        for row in range(COUNT):
            source, target = views(made, [row])
            alone = model.denoise(target, level[row : row + 1], model.encode(source))
            torch.testing.assert_close(whole[row : row + 1], alone, rtol=1e-4, atol=1e-5)


def test_words_and_level_matter_and_no_words_are_fine(made):
    model = build(made).eval()
    source, target = views(made, [0, 1])
    level = torch.full((2,), 0.5)
    with torch.no_grad():
        plain = model.denoise(target, level, model.encode(source))
        assert not torch.allclose(plain, model.denoise(target, level / 2, model.encode(source)))
        nothing = StreamView(source.columns, torch.zeros(2, source.columns["ids"].shape[1], dtype=torch.bool))
        without = model.denoise(target, level, model.encode(nothing))
    assert without.isfinite().all()
    assert not torch.allclose(plain, without)


def test_without_a_source_there_is_no_encoder(made):
    tokens = {"target": made[0]["target"]}
    model = build((tokens, made[1]))
    assert not hasattr(model, "encoder")
    assert not any("cross" in name for name, _ in model.named_parameters())
    target = views(made, [0])[1]
    assert model.denoise(target, torch.ones(1), None).shape == (1, 8, 16)


@pytest.mark.parametrize("trunk", ["lstm", "convolution"])
def test_other_trunks_are_refused(made, trunk):
    with refuses(trunk, key="model.trunk"):
        DiffusionTransformer(kind="diffusion_transformer", trunk=trunk, dim=16).build(made[0], made[1])


def test_other_objectives_are_refused(made):
    section = DiffusionTransformer(kind="diffusion_transformer", dim=16)
    with refuses("masked", key="objective.kind"):
        section.build({"target": made[0]["target"]}, Masked(kind="masked"))
    with refuses("source", "target", key="tokens"):
        section.build({"one": made[0]["source"], "two": made[0]["target"]}, made[1])
