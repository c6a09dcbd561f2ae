"""Diffusion: what the loss is, and that its randomness belongs to the sample."""

import numpy as np
import pytest
import torch
from scipy import stats

from sciformer.data.dataset import Dataset
from sciformer.data.prepare import prepare
from sciformer.data.random import SampleRandom, key, mix, mix_words, normal_noise
from sciformer.data.source import Memory
from sciformer.domains.images.tokens import Patches
from sciformer.domains.text.tokens import Text
from sciformer.models.diffusion_transformer import DiffusionTransformer
from sciformer.objectives.base import Step
from sciformer.objectives.diffusion import AMOUNT, LEVEL, NOISE, SIGNAL, Diffusion
from tests.errors import refuses
from tests.objectives.examples import shaken

COUNT = 6
IMAGES = np.random.default_rng(0).normal(size=(COUNT, 8, 4, 2)).astype(np.float32)
CAPTIONS = np.array(["a red disc", "two blue discs", "a disc", "a blue star", "red", "two red stars"])


def parts(**keys):
    tokens = {
        "source": Text(kind="text", unit="words", column="caption", context=8),
        "target": Patches(kind="patches", patch=2),
    }
    table = {"image": IMAGES, "caption": CAPTIONS}
    for one in tokens.values():
        one.fit([table])
    dataset, objective = Dataset(Memory(table), tokens), Diffusion(kind="diffusion", **keys)
    objective.fit(dataset)
    return tokens, objective, dataset


def ready(made, ids, training=False, epoch=0):
    tokens, objective, dataset = made
    ids = np.asarray(ids)
    return prepare(dataset.batch(ids), tokens, objective, SampleRandom(0, epoch, ids), training)


def build(made, **keys):
    torch.manual_seed(0)
    section = DiffusionTransformer(**{"kind": "diffusion_transformer", "dim": 16, "depth": 2, "heads": 2, **keys})
    return shaken(section.build(made[0], made[1]))


@pytest.mark.parametrize("target", ["velocity", "noise", "sample"])
def test_the_loss_is_the_mean_square_of_the_error(target):
    made = parts(predict_target=target)
    model, batch = build(made), ready(made, range(COUNT))
    inputs = batch.inputs()
    loss, outputs = Step(model, made[1])(inputs, True)
    view = inputs.streams["target"]
    x = view.columns["patch"]
    a, s = (inputs.samples[name][:, None, None] for name in (SIGNAL, AMOUNT))
    torch.testing.assert_close(a**2 + s**2, torch.ones_like(a))
    e = normal_noise(inputs.samples[NOISE], x[0].numel()).view(x.shape)
    view.columns["patch"] = a * x + s * e
    hidden = model.denoise(view, inputs.samples[LEVEL], model.encode(inputs.streams["source"]))
    wanted = {"noise": e, "sample": x}.get(target, a * e - s * x)
    each = (model.readout.predict(hidden)["patch"] - wanted).square().mean((1, 2))
    torch.testing.assert_close(outputs["loss"], each)
    torch.testing.assert_close(loss, each.sum())
    assert batch.count == COUNT


def test_time_and_noise_belong_to_the_sample():
    made = parts()
    whole, alone, later = ready(made, range(COUNT)), ready(made, [3]), ready(made, range(COUNT), epoch=1)
    for name in (LEVEL, SIGNAL, AMOUNT, NOISE):
        assert whole.samples[name][3] == alone.samples[name][0]
        assert (whole.samples[name] != later.samples[name]).any()
    model = build(made).eval()
    with torch.no_grad():
        together, single = (Step(model, made[1])(one.inputs(), True)[1]["loss"] for one in (whole, alone))
    torch.testing.assert_close(together[3:4], single)


def test_every_level_is_drawn():
    made = parts(time_steps=4, sampling_steps=2)
    drawn = made[1].corrupt(made[2].batch(np.zeros(400, np.int64)), made[0], SampleRandom(0, 0, np.arange(400)))
    assert sorted(set(drawn.samples[LEVEL].tolist())) == [0.25, 0.5, 0.75, 1.0]


def test_every_weight_learns():
    made = parts()
    model = build(made)
    Step(model, made[1])(ready(made, range(COUNT)).inputs())[0].backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()] == []


def test_conditions_are_left_out_in_training_alone():
    made = parts(condition_dropout=0.5)
    dropped = [ready(made, range(COUNT), True, epoch).streams["source"].lengths == 0 for epoch in range(60)]
    assert np.mean(dropped) == pytest.approx(0.5, abs=0.08)
    assert ready(made, range(COUNT)).streams["source"].lengths.all()
    batch = ready(made, range(COUNT), True, next(epoch for epoch, one in enumerate(dropped) if one.any()))
    loss, _ = Step(build(made), made[1])(batch.inputs(), True)
    assert loss.isfinite()
    assert (batch.streams["target"].lengths == 8).all()


def test_it_needs_continuous_values():
    tokens, _, dataset = parts()
    words = Diffusion(kind="diffusion")
    with refuses("text", key="tokens.kind"):
        words.fit(Dataset(dataset.source, {"target": tokens["source"]}))
    with refuses(2000, 1000, key="objective.sampling_steps"):
        ready(parts(sampling_steps=2000), [0])


# Noise on a device


def test_hashes_are_those_of_the_host():
    words = np.array([0, 1, 2**63 - 1, 2**64 - 1], np.uint64)
    assert (mix_words(torch.from_numpy(words.view(np.int64))).numpy().view(np.uint64) == mix(words)).all()


def test_noise_is_normal_and_a_function_of_its_word():
    words = torch.from_numpy(mix(key("a") ^ mix(np.arange(50))).view(np.int64))
    noise = normal_noise(words, 400)
    assert stats.kstest(noise.flatten().numpy(), "norm").pvalue > 0.01
    assert abs(np.corrcoef(noise[:, :-1].flatten(), noise[:, 1:].flatten())[0, 1]) < 0.03
    torch.testing.assert_close(normal_noise(words[7:8], 100), noise[7:8, :100], rtol=1e-5, atol=1e-5)
