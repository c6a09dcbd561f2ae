"""Mixup does not depend on the batch, the rank or the worker."""

import numpy as np
import pytest
import torch

from sciformer.data.batch import Batch, Stream
from sciformer.data.dataset import Dataset
from sciformer.data.loader import Fetch, load
from sciformer.data.mixup import partners, shares
from sciformer.data.prepare import prepare
from sciformer.data.random import SampleRandom
from sciformer.data.sampler import BatchSampler
from sciformer.data.source import Memory
from sciformer.domains.images.tokens import Patches
from sciformer.domains.lightcurves.tokens import Observations
from sciformer.domains.text.tokens import Text
from sciformer.objectives.classify import PARTNER, SHARE, Classify
from tests.data.examples import Cut
from tests.errors import refuses

RNG = np.random.default_rng(0)
N = 24


TABLE = {"image": RNG.normal(size=(N, 4, 4)).astype(np.float32), "label": np.arange(N) % 3}


def parts(mixup=0.4, source=None, augment=(), **options):
    tokens = Patches(kind="patches", patch=2, augment=augment)
    tokens.fit([TABLE])
    dataset = Dataset(source or Memory(TABLE), {"t": tokens})
    objective = Classify(kind="classify", mixup=mixup, **options)
    objective.fit(dataset)
    return dataset, {"t": tokens}, objective


def by_sample(batches):
    found = {}
    for batch in batches:
        patches = batch.stream.columns["patch"].reshape(len(batch), -1)
        for row, number in enumerate(batch.ids.tolist()):
            found[number] = patches[row], batch.samples[PARTNER][row], batch.samples[SHARE][row]
    return found


@pytest.mark.parametrize("augment", [(), ("flip", "rotate")])
def test_a_pure_function_of_the_sample(augment):
    dataset, tokens, objective = parts(augment=augment)
    whole = by_sample(load(Fetch(dataset, BatchSampler(N, 6, seed=3), tokens, objective), 0, 4))
    assert len(whole) == N
    ranks = [Fetch(dataset, BatchSampler(N, 8, seed=3), tokens, objective, rank, 2) for rank in range(2)]
    other = by_sample(fetch[step] for fetch in ranks for step in range(3))
    worked = by_sample(load(Fetch(dataset, BatchSampler(N, 12, seed=3), tokens, objective), 0, 2, workers=1))
    for number, (patches, partner, share) in whole.items():
        for again in (other, worked):
            np.testing.assert_array_equal(again[number][0], patches)
            assert again[number][1:] == (partner, share)
    later = by_sample(load(Fetch(dataset, BatchSampler(N, 6, seed=3), tokens, objective), 4, 8))
    assert sum(later[number][2] != whole[number][2] for number in whole) > N - 3


def test_the_sum_of_two_images():
    dataset, tokens, objective = parts()
    order = BatchSampler(N, N, seed=1)
    batch = Fetch(dataset, order, tokens, objective)[0]
    chosen, _ = partners(dataset, SampleRandom(1, 0, batch.ids))
    share = shares(0.4, SampleRandom(1, 0, batch.ids))
    each = share[:, None, None].astype(np.float32)
    image = each * TABLE["image"][batch.ids] + (1 - each) * TABLE["image"][chosen]
    seen = tokens["t"].normalise(tokens["t"].tokenize({"image": image})).columns["patch"]
    np.testing.assert_allclose(batch.stream.columns["patch"], seen, atol=1e-6)
    np.testing.assert_array_equal(batch.samples[PARTNER], TABLE["label"][chosen])
    np.testing.assert_array_equal(batch.samples[SHARE], share)
    plain = parts(mixup=0.0)
    assert SHARE not in Fetch(plain[0], order, plain[1], plain[2])[0].samples


@pytest.mark.parametrize("balance", ["none", "classes"])
def test_the_loss_is_that_of_both_classes(balance):
    dataset, tokens, objective = parts(balance=balance, smoothing=0.1)
    batch = Fetch(dataset, BatchSampler(N, N, seed=1), tokens, objective)[0]
    inputs, logits = batch.inputs(), torch.randn(N, 3, generator=torch.Generator().manual_seed(0))
    own, other, share = batch.samples["label"], batch.samples[PARTNER], batch.samples[SHARE]
    loss, _ = objective.loss_and_outputs(logits, inputs)
    probability = logits.log_softmax(-1).double().numpy()
    target = 0.9 * np.eye(3) + 0.1 / 3
    wanted = -share * (target[own] * probability).sum(1) - (1 - share) * (target[other] * probability).sum(1)
    np.testing.assert_allclose(loss.numpy(), wanted, rtol=1e-4)  # classes are equally frequent here
    np.testing.assert_allclose(batch.count, N)


def test_large_data_are_mixed_within_a_piece():
    dataset, _, _ = parts(source=Cut(TABLE, [2] * 12))
    ids = np.arange(N)
    chosen, _ = partners(dataset, SampleRandom(0, 0, ids))
    np.testing.assert_array_equal(chosen // 2, ids // 2)
    near, _ = partners(parts(source=Cut(TABLE, [8] * 3))[0], SampleRandom(0, 0, ids))
    assert (near // 8 != ids // 8).any()


@pytest.mark.parametrize("alpha", [0.1, 0.4, 1.0, 3.0])
def test_shares_have_the_density_of_beta(alpha):
    found = shares(alpha, SampleRandom(0, 0, np.arange(20_000)))
    assert ((found >= 0) & (found <= 1)).all()
    np.testing.assert_allclose(found.mean(), 0.5, atol=0.01)
    np.testing.assert_allclose(found.var(), 1 / (4 * (2 * alpha + 1)), rtol=0.03)
    np.testing.assert_allclose(((found - 0.5) ** 4).mean(), 3 / (16 * (2 * alpha + 1) * (2 * alpha + 3)), rtol=0.05)


@pytest.mark.parametrize("tokens", [Text(kind="text"), Observations(kind="observations")], ids=["text", "series"])
def test_tokens_that_cannot_be_mixed(tokens):
    batch, rng = Batch({"t": Stream({}, np.zeros(1, np.int64))}), SampleRandom(0, 0, np.arange(1))
    with refuses(tokens.kind, key="tokens.kind"):
        prepare(batch, {"t": tokens}, Classify(kind="classify", mixup=0.5), rng, training=False, other=(batch, rng))
