"""Operations and bytes are those that can be counted by hand."""

import numpy as np
import pytest
import torch

from sciformer.data.prepare import prepare
from sciformer.data.random import SampleRandom
from sciformer.inspection.cost import cost, format_large, to_json
from tests.errors import refuses
from tests.inspection.plots.test_heads import PATCHES, assembled

N, PIXELS, DIM, DEPTH = 16, 4, 32, 2


def made(samples=4, **model):
    image = np.random.default_rng(0).normal(size=(samples, 8, 8))
    keys = {"dim": DIM, "depth": DEPTH, "position": "learned", **model}
    assembly, step, batch = assembled(PATCHES, {"image": image}, **keys)
    rng = SampleRandom(0, 0, batch.ids)
    return assembly, step, prepare(batch, assembly.tokens, assembly.objective, rng, training=True)


def of(**model):
    return cost(*made(**model))


def by_hand(trunk):
    """Of a sample: embedding (whose input needs no gradient), trunk, head; forward once, backward twice."""
    return 2 * N * PIXELS * DIM * 2 + 3 * trunk + 3 * 2 * DIM * 2


@pytest.mark.parametrize("samples", [1, 4])
def test_an_encoder_is_counted_with_its_attention(samples):
    found = of(samples=samples)
    block = 2 * N * 12 * DIM**2 + 4 * N * N * DIM  # 4 D^2 of the projections, 8 D^2 of the MLP; q k^T and a v
    assert found.flops_per_sample == pytest.approx(by_hand(DEPTH * block), rel=0.02)
    assert found.flops_per_token == pytest.approx(found.flops_per_sample / N)
    assert found.tokens == N


@pytest.mark.parametrize(("trunk", "gates"), [("lstm", 4), ("gru", 3), ("rnn", 1)])
def test_recurrent_layers_are_counted(trunk, gates):
    found = of(trunk=trunk)
    layer = 2 * N * gates * (DIM // 2) * (DIM + DIM // 2) * 2  # two directions of half the width
    assert found.flops_per_sample == pytest.approx(by_hand(DEPTH * layer), rel=0.07)


def test_convolutions_are_counted():
    found = of(trunk="convolution", depth=1)
    assert found.flops_per_sample == pytest.approx(by_hand(2 * 2 * N * 9 * DIM**2), rel=0.02)


def test_weights_and_memory():
    assembly, step, batch = made()
    found, once = cost(assembly, step, batch), assembly.recipe.train.batch
    assert found.parameters == sum(weight.numel() for weight in step.parameters())
    assert found.weight_bytes == 4 * found.parameters
    assert found.training_bytes == pytest.approx(16 * found.parameters + once * found.activation_bytes)
    stream = 4 * N * DIM  # bytes of one tensor (N, D); a block keeps ten to forty of them
    assert 10 * DEPTH * stream < found.activation_bytes < 40 * DEPTH * stream
    assert of(depth=4).activation_bytes == pytest.approx(2 * found.activation_bytes, rel=0.2)


def test_counting_leaves_no_trace():
    assembly, step, batch = made(dropout=0.1)
    step.eval()
    before = torch.get_rng_state()
    cost(assembly, step, batch)
    assert all(weight.grad is None for weight in step.parameters())
    assert not step.training
    assert torch.equal(before, torch.get_rng_state())


def test_nothing_to_count_on():
    assembly, step, batch = made()
    with refuses("0 samples", "0 tokens"):
        cost(assembly, step, batch.take(np.arange(0)))


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0"), (999, "999"), (999.9, "1 k"), (1234567, "1.23 M"), (5e12, "5 T"), (2e25, "2e+07 E")]
)
def test_large_numbers_in_words(number, words):
    assert format_large(number) == words
    assert format_large(number, "B") == (f"{words}B" if " " in words else f"{words} B")


def test_json_is_plain():
    found = to_json({"a": np.float32(1.5), 2: [np.int64(3), float("nan")], "c": np.array([1.0, np.inf]), "d": None})
    assert found == {"a": 1.5, "2": [3, None], "c": [1.0, None], "d": None}
    assert type(found["2"][0]) is int
