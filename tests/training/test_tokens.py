"""Updates of so many tokens: fixed shapes for compiled steps, and trainings that go on where they were."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from sciformer.checks.check import check
from sciformer.data.batch import Batch, Stream
from sciformer.data.dataset import Dataset
from sciformer.data.prepare import prepare
from sciformer.data.random import SampleRandom
from sciformer.data.sampler import PackedSampler, TokenBudgetSampler
from sciformer.data.source import Memory
from sciformer.data.windows import Windows
from sciformer.domains.text.tokens import Text, as_table
from sciformer.models.decoder import Decoder
from sciformer.models.encoder import Encoder
from sciformer.models.encoder_decoder import EncoderDecoder
from sciformer.objectives.base import Step
from sciformer.objectives.seq2seq import Translate
from sciformer.training.config import Train
from sciformer.training.distributed import Ranks
from sciformer.training.optimizers import make_optimizer
from sciformer.training.step import OptimizerStep
from tests.models.sections import section
from tests.objectives.examples import make, ready
from tests.training.tiny import (
    STEPS,
    assert_near,
    assert_same,
    engine,
    go,
    in_ranks,
    left,
    listening,
    noting,
    text_recipe,
)

CPU = torch.device("cpu")
SMALL = {"dim": 8, "depth": 2, "heads": 2}


def a_batch(name):
    """A step in double precision and a prepared batch of samples of different length, one of them empty."""
    torch.manual_seed(0)
    if name.startswith("translate"):
        rng, objective = np.random.default_rng(0), Translate(kind="translate", smoothing=0.1)
        tokens = {stream: Text(kind="text", context=20, begin=True, end=True) for stream in ("source", "target")}
        for text in tokens.values():
            text.fit([as_table(["abcdef"])])
        lengths = {"source": np.array([3, 0, 7, 2]), "target": np.array([5, 2, 1, 6])}
        streams = {k: Stream({"ids": rng.integers(0, 6, n.sum()).astype(np.int32)}, n) for k, n in lengths.items()}
        trunk = name.split()[1]
        net = section(EncoderDecoder, kind="encoder_decoder", trunk=trunk, **SMALL).build(tokens, objective)
        batch = prepare(
            Batch(streams, {}, np.arange(4)), tokens, objective, SampleRandom(0, 0, np.arange(4)), training=True
        )
    else:
        parts = make("text", name)
        tokens, objective, _ = parts
        batch = ready(parts, training=True)
        made = Decoder(kind="decoder", **SMALL) if name == "next_token" else Encoder(kind="encoder", **SMALL)
        net = made.build(tokens, objective)
    return Step(net, objective).double(), batch


def updater(step, batch=8, **settings):
    settings = Train(batch=batch, device="cpu", warmup=0, **settings)
    return OptimizerStep(step, step, make_optimizer(step, settings, CPU), settings, Ranks(CPU), 10, batch, pytest.fail)


def gradient(found, batch):
    loss = found.gradient(batch, 0, batch.count)
    return loss, torch.cat([weight.grad.flatten() for weight in found.weights if weight.grad is not None])


NAMES = ["next_token", "masked", "classify", "regress", "translate transformer", "translate gru"]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_rows_that_are_no_samples_change_nothing(name, packed):
    step, batch = a_batch(name)
    found = updater(step, packed=packed)
    loss, expected = gradient(found, batch)
    assert float(expected.abs().max()) > 1e-3
    found.compiled = True  # as if: the shapes are what is tried here
    bound = 1e-6 if name == "classify" else 1e-12  # its probabilities are of single precision
    for micro in (None, 3, 1):
        found.micro_batch = micro
        loss_fixed, fixed = gradient(found, replace(batch, room=(len(batch) + 3, 13 if not packed else 70)))
        torch.testing.assert_close(loss_fixed, loss, rtol=bound, atol=1e-12)
        torch.testing.assert_close(fixed, expected, rtol=10 * bound, atol=bound)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", NAMES[:-1])
def test_a_rank_with_nothing_adds_nothing(name, packed):
    step, batch = a_batch(name)
    found = updater(step, packed=packed)
    for compiled, room in [(False, None), (True, (4, 16)), (True, None)]:
        found.compiled = compiled
        loss, none = gradient(found, replace(batch.take(np.arange(0)), room=room, count=5.0))
        assert float(loss) == 0
        assert not none.any()
        assert len(none) == sum(weight.numel() for weight in found.weights)  # every weight has a gradient to sum


def shapes_of(found, batches):
    def shape(inputs):
        views = [(tuple(view.columns["ids"].shape), view.valid is None) for view in inputs.streams.values()]
        ragged = [len(v.valid) for v in inputs.streams.values() if found.settings.packed]
        longest = [v.valid.longest for v in inputs.streams.values() if found.settings.packed]
        return (*views, *ragged, *longest)

    return {shape(found.inputs(batch, batch.room)) for batch in batches}


def test_few_shapes():
    rng = np.random.default_rng(0)
    tokens = {name: Text(kind="text", context=100) for name in ("source", "target")}
    step, _ = a_batch("translate transformer")
    lengths = [np.clip(rng.normal(14, 6, (400,)), 1, 50).astype(int) for _ in tokens]
    streams = {name: Stream({"ids": np.zeros(n.sum(), np.int32)}, np.asarray(n)) for name, n in zip(tokens, lengths)}
    whole = Batch(streams, {}, np.arange(400), most=dict.fromkeys(tokens, 100))
    for order, packed, most in [
        (TokenBudgetSampler(np.max(lengths, 0), 512, multiple=16), False, 4),
        (PackedSampler(np.max(lengths, 0), 512), True, 2),
    ]:
        steps = range(order.batches)
        batches = [replace(whole.take(order(0, n)), room=order.room(0, n)) for n in steps]
        found = updater(step, packed=packed)
        assert len(shapes_of(found, batches)) > 10
        found.compiled = True
        assert len(shapes_of(found, batches)) <= most
    found = updater(step, pad_to_multiple=16)  # batches of samples: the streams of one have one width
    found.compiled = True
    assert len(shapes_of(found, [whole.take(np.arange(n, n + 20)) for n in range(0, 380, 4)])) <= 4


def test_the_order_of_a_recipe(tmp_path):
    def order(**changes):
        return engine(text_recipe(tmp_path, **changes), tmp_path / "run").order

    assert type(order()).__name__ == "BatchSampler"
    found = order(train__tokens=40, train__pad_to_multiple=4)
    assert isinstance(found, TokenBudgetSampler)
    assert set(found.kinds.tolist()) <= {4, 8, 12}
    assert isinstance(order(train__tokens=40, train__packed=True), PackedSampler)
    windows = order(train__tokens=40, data__documents="file", tokens__context=8)
    assert type(windows).__name__ == "BatchSampler"  # all windows are alike
    assert windows.batch == 5


@pytest.mark.parametrize("changes", [{}, {"train__packed": True}], ids=["padded", "packed"])
def test_a_training_by_tokens_goes_on_where_it_was(tmp_path, changes):
    recipe = text_recipe(tmp_path, train__tokens=40, train__pad_to_multiple=4, **changes)
    seen, first = {}, {}
    with noting(seen):
        whole = left(go(recipe, tmp_path / "whole"))
    for stop in (3, 9, None):
        with noting(first):
            parts = go(recipe, tmp_path / "parts", stop_after=stop)
    assert_same(parts, whole)
    assert first == seen
    assert len({len(ids) for (ids,) in seen.values()}) > 1
    batches = parts.about["batches"]
    assert sorted(i for n in range(1, batches + 1) for i in seen[n][0]) == list(range(24))  # an epoch


def test_epochs_of_tokens(tmp_path):
    recipe = text_recipe(tmp_path, train__tokens=40, train__pad_to_multiple=4, train__steps=None, train__epochs=2)
    run = go(recipe, tmp_path / "run")
    batches = run.about["batches"]
    assert max(line["step"] for line in run.records) == 2 * batches
    assert all(line["epoch"] == line["step"] / batches for line in run.records if "epoch" in line)


DIVIDED = {"train__micro_batch": 1, "train__shard": "full", "train__packed": True, "train__steps": 5}


@pytest.mark.parametrize("changes", [{}, DIVIDED], ids=["whole", "divided"])
def test_two_ranks_are_one_process(tmp_path, changes):
    """Also where a batch has one sample, and a rank none."""
    recipe = text_recipe(tmp_path, train__tokens=20, train__pad_to_multiple=4, model__dropout=0.0, **changes)
    seen = {}
    with noting(seen):
        alone = left(go(recipe, tmp_path / "one"))
    assert {len(ids) for (ids,) in seen.values()} >= ({2, 3, 4} if changes else {1, 2, 4})
    in_ranks(lambda: go(recipe, tmp_path / "two"), tmp_path)
    assert_near(tmp_path / "two", alone, 1e-4)


def test_many_shapes_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr("sciformer.training.engine.WARN_ABOVE_SHAPES", 1)
    monkeypatch.setattr(torch, "compile", lambda module, **options: module)
    for compiled, told in [(True, 1), (False, 0)]:
        with listening() as said:
            recipe = text_recipe(tmp_path, train__tokens=40, train__pad_to_multiple=4, train__compile=compiled)
            go(recipe, tmp_path / f"{told}")
        assert sum("train.pad_to_multiple" in line for line in said) == told


def test_joined_texts_are_one_run_cut_anywhere():
    texts = ["abc.", "de.", "", "fghij.", "k."]
    tokens = Text(kind="text", context=5, join=True)
    tokens.fit([as_table(texts)])
    source = Memory({**as_table(texts), "label": np.arange(5)})
    dataset = Dataset(source, {"tokens": tokens}, windows={"tokens": Windows((6,), (5,))})
    batch = dataset.all()
    windows = np.split(batch.stream.columns["ids"], batch.stream.starts[1:])
    assert [tokens.decode(ids) for ids in windows] == ["abc.de", "e.fghi", "ij.k."]
    assert set(batch.samples) == {"window of", "window from"}  # a window belongs to no text
    training = Dataset(source, {"tokens": tokens}, windows={"tokens": Windows((6,), (1,), "full")})
    assert len(training) == 15 - 6 + 1
    assert training.width == 6


def test_checking_a_recipe_by_tokens(tmp_path):
    recipes = [text_recipe(tmp_path, train__tokens=n, train__pad_to_multiple=4) for n in (5, 99)]
    few, many = (check(recipe, run=tmp_path / "run") for recipe in recipes)
    assert few.problems == many.problems == []
    assert [note for note in few.notes if "train.tokens" in note] == [few.notes[-1]]
    assert not many.notes
    assert "for about 1 samples" in few.facts["Time"]["a step"]
    assert many.figures["memory_bytes"] > few.figures["memory_bytes"]
    batches = go(recipes[1], tmp_path / "run").about["batches"]
    assert f"({STEPS / batches:.3g} passes)" in many.facts["Time"]["the training"]
