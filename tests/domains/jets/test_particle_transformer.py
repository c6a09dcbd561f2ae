"""The Particle Transformer as a recipe of the shared encoder: sets, layouts, and hidden particles."""

import itertools

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from sciformer.assembly import Assembly
from sciformer.data.batch import Batch
from sciformer.data.prepare import prepare
from sciformer.data.random import SampleRandom
from sciformer.objectives.base import PREFIX, Step
from sciformer.recipe import Recipe
from tests.domains.jets.jets_table import jets
from tests.errors import refuses

SMALL = {"model.dim": 16, "model.depth": 2, "model.heads": 4, "tokens.widths": [8], "tokens.pair_widths": [8]}
SMALL |= {"data.kind": "arrays", "model.dropout": 0.0, "model.drop_path": 0.0}
STATE = {"tokens": {"tokens": {}}, "objective": {"classes": ["a", "b", "c"], "counts": [2, 2, 1]}}
LENGTHS = (6, 1, 9, 0, 14)


def assembled(name, **changes):
    return Assembly.from_state(Recipe.load(f"jets/{name}").change({**SMALL, **changes}), STATE)


def batch_of(assembly, training=False):
    stream = assembly.tokens["tokens"].tokenize(jets(LENGTHS))
    batch = Batch({"tokens": stream}, {"label": np.array(list("abcab"))}, np.arange(len(LENGTHS)))
    return prepare(batch, assembly.tokens, assembly.objective, SampleRandom(1, 0, batch.ids), training)


@pytest.mark.parametrize("name", ["part", "part-kin", "part-plain", "part-v2", "part-v3", "part-masked"])
def test_padded_and_packed_learn_the_same(name):
    """Loss, gradients and what the norms remember; jets of no particle and of one are among them."""
    assembly = assembled(name)
    batch = batch_of(assembly, training=True)
    found = []
    for layout in ({}, {"packed": True}, {"packed": True, "width": 64}, {"multiple": 16}):
        step = Step(assembly.network(seed=3), assembly.objective).double().train()
        inputs = batch.inputs(**layout)
        for view in inputs.streams.values():
            view.columns.update({key: x.double() for key, x in view.columns.items() if x.is_floating_point()})
        loss, _ = step(inputs)
        loss.backward()
        assert torch.isfinite(loss)
        grads = [weight.grad for weight in step.parameters()]
        assert all(grad is not None and torch.isfinite(grad).all() for grad in grads)
        found.append((loss.detach(), grads, list(step.buffers())))
    for other in found[1:]:
        assert_close(found[0], other, rtol=1e-5, atol=1e-6)  # readouts answer in single precision


def test_the_order_of_particles_does_not_matter():
    assembly = assembled("part")
    model = assembly.network(seed=3).double().eval()
    view = batch_of(assembly).inputs(packed=True).stream
    columns = {name: view.columns[name].double() for name in ("features", "vector")}
    order = torch.argsort(torch.rand(30) + view.valid.sample)

    def answer(columns):
        view.columns = columns
        return model.heads["class"](model.pool(model.encode(view)))

    mixed = {name: column[order] for name, column in columns.items()}
    assert not torch.equal(mixed["vector"], columns["vector"])
    assert_close(answer(columns), answer(mixed))


def test_first_weights_are_those_of_the_original():
    model = assembled("part", **{"model.dim": 64, "model.depth": 4}).network()
    bound = (6 / 128) ** 0.5  # queries, keys and values each for itself
    for number, block in enumerate(model.trunk.blocks, 1):
        attention, mlp = block.attention, block.mlp
        for first, last, limit in ((attention.qkv, attention.out, bound), (mlp.up, mlp.down, (6 / 320) ** 0.5)):
            assert 0.95 * limit < first.weight.abs().max() <= limit
            assert 0.9 < last.weight.abs().max() / limit * (2 * number) ** 0.5 <= 1.001
        assert not block.attention.qkv.bias.any()
    asking = model.pooling.blocks[0].block
    assert 0.95 * bound < asking.attention.out.weight.abs().max() <= bound
    assert model.heads["class"].layer[1].weight.abs().max() > 0.25
    assert not model.heads["class"].layer[1].bias.any()
    assert 0.01 < model.pooling.token.std() < 0.03


def test_it_learns():
    """A loss that falls: the classes of a few jets are learned by heart."""
    assembly = assembled("part")
    step = Step(assembly.network(seed=0), assembly.objective).train()
    optimizer = torch.optim.AdamW(step.parameters(), 3e-3)
    inputs, losses = batch_of(assembly).inputs(packed=True), []
    for _ in range(30):
        loss, _ = step(inputs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.4 * losses[0]


# Hidden particles


def poisoned(stream, hidden):
    """The stream with other, huge values wherever a particle is hidden, in every column that tells of one."""
    columns = {}
    for name in ("vector", "raw", "plane", "type"):
        column = stream.columns[name].copy()
        column[hidden] = 3 if name == "type" else 1e6 * (1 + np.arange(hidden.sum())[:, None])
        columns[name] = column
    return stream.with_columns(**columns)


def test_nothing_of_a_hidden_particle_leaks():
    """Not through features, pairs, angles, jet sums or norms; in training and in judging, padded and packed."""
    assembly = assembled("part-masked", **{"objective.mask_ratio": 0.5})
    tokens, objective = assembly.tokens["tokens"], assembly.objective
    raw = tokens.tokenize(jets(LENGTHS, sums=False))
    clean = objective.corrupt(Batch({"tokens": raw}), assembly.tokens, SampleRandom(1, 0, np.arange(5))).stream
    hidden = clean.columns["hidden"].astype(bool)
    assert 0.4 < hidden.mean() < 0.6
    streams = []
    for stream in (raw, poisoned(raw, hidden)):
        batch = Batch({"tokens": stream}, ids=np.arange(5))
        streams.append(prepare(batch, assembly.tokens, objective, SampleRandom(1, 0, batch.ids), True))
    for name, column in streams[0].stream.columns.items():
        same = np.array_equal(column, streams[1].stream.columns[name])
        assert same != name.startswith(PREFIX), name
    for training, packed in itertools.product((True, False), repeat=2):
        models = [assembly.network(seed=3).train(training) for _ in streams]
        views = [batch.inputs(packed=packed).stream for batch in streams]
        assert torch.equal(*(model.encode(view).x for model, view in zip(models, views)))
        assert all(map(torch.equal, models[0].buffers(), models[1].buffers()))


def test_a_hidden_particle_is_a_set_without_its_own_pairs():
    assembly = assembled("part-masked", **{"objective.mask_ratio": 0.5})
    batch = batch_of(assembly, training=True)
    stream = batch.stream
    hidden = stream.columns["hidden"].astype(bool)
    assert not any(stream.columns[name][hidden].any() for name in ("features", "vector", "at"))
    assert not hidden[stream.sample == 1].any()  # the only particle of its jet
    # The jet is what is left of it.
    left = stream.columns["vector"][(stream.sample == 2) & ~hidden].astype(np.float64).sum(0)
    jet = stream.columns["jet"][stream.sample == 2][0]
    assert jet[0] == pytest.approx(np.hypot(left[0], left[1]), rel=1e-5)
    assert jet[3] == pytest.approx(left[3], rel=1e-5)
    assert stream.columns["rank"].tolist() == stream.position.tolist()


def test_targets_are_momentum_and_type():
    assembly = assembled("part-masked", **{"objective.mask_ratio": 0.5})
    batch = batch_of(assembly, training=True)
    raw, columns = assembly.tokens["tokens"].tokenize(jets(LENGTHS)), batch.stream.columns
    pt = np.hypot(*raw.columns["vector"].T[:2])
    expected = (np.log(pt / np.maximum(columns["jet"][:, 0], 1e-8)) + 4.7) * 0.7
    several = np.repeat(np.array(LENGTHS) > 1, LENGTHS)
    np.testing.assert_allclose(columns["target vector"][several, 0], np.clip(expected, -5, 5)[several], atol=1e-5)
    assert columns["target vector"].shape == (30, 3)
    np.testing.assert_array_equal(columns["target type"], raw.columns["type"])


@pytest.mark.parametrize(
    ("feature", "leaks"),
    [
        ({"name": "x", "formula": "part_energy / sum(part_energy)"}, True),
        ({"name": "x", "formula": "part_energy - first(part_energy)"}, True),
        ({"name": "x", "formula": "log(part_energy / jet_energy)"}, True),
        ({"name": "x", "column": "part_deta"}, True),
        ({"name": "x", "formula": "log(part_energy)"}, False),
        ({"name": "part_charge"}, False),
    ],
)
def test_features_that_tell_of_others_are_refused_where_some_are_hidden(feature, leaks):
    assembly = assembled("part-masked", **{"tokens.features": ["log_pt", feature]})
    if not leaks:
        assert batch_of(assembly, training=True).stream.columns["features"].shape == (30, 2)
        return
    with refuses(feature["name"], feature.get("formula", feature.get("column")), key="tokens.features"):
        batch_of(assembly, training=True)
