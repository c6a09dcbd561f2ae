import json

import numpy as np
import pytest
import torch

from sciformer.assembly import Assembly
from sciformer.data.prepare import prepare
from sciformer.data.random import SampleRandom
from sciformer.evaluation.evaluate import evaluate, predict
from sciformer.objectives.base import Step
from sciformer.recipe import Recipe
from tests.errors import refuses

TEXT = "".join(f"{i} times {i} is {i * i}. " for i in range(60))
MODEL = {"dim": 8, "depth": 1, "heads": 2}


def recipe_of(path, data, tokens, model, objective):
    tree = {"data": {"kind": data, "files": [str(path)]}, "tokens": tokens, "train": {"steps": 5}}
    return Recipe.from_dict({**tree, "model": {"kind": model, **MODEL}, "objective": {"kind": objective}})


@pytest.fixture
def text(tmp_path):
    (tmp_path / "a.txt").write_text(TEXT)
    tokens = {"kind": "text", "context": 10, "step": 3}
    return recipe_of(tmp_path / "a.txt", "text", tokens, "decoder", "next_token")


@pytest.fixture
def images(tmp_path):
    rng = np.random.default_rng(0)
    columns = {"image": rng.normal(size=(50, 4, 4)), "label": np.arange(50) % 3, "t": np.linspace(1, 3, 50)}
    np.savez(tmp_path / "a.npz", **columns)
    return recipe_of(tmp_path / "a.npz", "arrays", {"kind": "patches", "patch": 2}, "encoder", "classify")


def test_windows_of_training_overlap_and_others_follow_each_other(text):
    made = Assembly.open(text)
    cut = int(0.9 * len(TEXT))
    train, valid = made.dataset("train"), made.dataset("valid")
    assert train.windows.size == valid.windows.size == (11,)
    assert made.parts() == ["train", "valid"]
    assert len(train) == 1 + (cut - 11) // 3
    assert (train.all().stream.lengths == 11).all()
    ids = np.arange(len(valid))
    batch = prepare(valid.all(), made.tokens, made.objective, SampleRandom(0, -1, ids), training=False)
    assert made.tokens["tokens"].decode(batch.stream.columns["target ids"]) == TEXT[cut + 1 :]
    assert made.dataset("train") is train
    with refuses("train, valid", "'test'"):
        made.dataset("test")


@pytest.mark.parametrize("kind", ["text", "images"])
def test_the_state_is_json_and_comes_back(kind, request):
    recipe = request.getfixturevalue(kind)
    made = Assembly.open(recipe)
    state = json.loads(json.dumps(made.state()))
    stored, opened = Assembly.from_state(recipe, state), Assembly.open(recipe, state)
    weights = [Step(one.network(), one.objective).state_dict() for one in (made, stored, opened)]
    for other in weights[1:]:
        assert other.keys() == weights[0].keys()
        assert all(torch.equal(other[name], weights[0][name]) for name in other)
    assert stored.state() == opened.state() == made.state()
    assert recipe.tokens.state == {}  # a recipe is a document: what was learned is not written into it
    other = made.network(seed=7).state_dict()
    assert any(not torch.equal(value, weights[0][f"model.{name}"]) for name, value in other.items())
    before = torch.get_rng_state()
    made.network()
    assert torch.equal(torch.get_rng_state(), before)
    with refuses("'tokens'"):
        Assembly.from_state(recipe, {**state, "tokens": {}})


def test_nothing_is_learned_from_what_is_kept_apart(images, tmp_path):
    state = Assembly.open(images).state()
    parts = images.data.open().sources
    kept = {name: parts[name].rows[0] for name in ("valid", "test")}
    columns = dict(np.load(tmp_path / "a.npz"))
    for rows in kept.values():
        columns["image"][rows] = 1e6
    np.savez(tmp_path / "a.npz", **columns)
    assert Assembly.open(images).state() == state


class Rank:
    """One of several ranks, simulated one after another."""

    def __init__(self, rank, parts):
        self.rank, self.world, self.parts, self.whole = rank, len(parts), parts, False

    def gather(self, thing):
        if self.whole:
            return self.parts
        self.parts[self.rank] = thing
        return [thing]


@pytest.mark.parametrize("kind", ["text", "images"])
@pytest.mark.parametrize("world", [2, 3, 7])
def test_ranks_divide_the_judging(kind, world, request):
    made = Assembly.open(request.getfixturevalue(kind))
    step, dataset = Step(made.network(), made.objective), made.dataset("train")
    alone = evaluate(step, made, dataset, batch=8)
    ranks = [Rank(rank, parts) for parts in [[None] * world] for rank in range(world)]
    for rank in ranks:
        evaluate(step, made, dataset, batch=8, ranks=rank)
    for rank in ranks:
        rank.whole = True
        found = evaluate(step, made, dataset, batch=8, ranks=rank)
        assert found.count == alone.count
        for name in alone.scores:
            np.testing.assert_allclose(found.scores[name], alone.scores[name], rtol=1e-5)
        for name in alone.outputs:
            np.testing.assert_allclose(found.outputs[name], alone.outputs[name], rtol=1e-4, atol=1e-6)
        for name in alone.samples:
            np.testing.assert_array_equal(found.samples[name], alone.samples[name])


def test_a_loss_of_nothing_is_no_loss(text):
    made = Assembly.open(text)
    for given in (["a"], [""], []):
        with refuses("tokens"):
            evaluate(Step(made.network(), made.objective), made, made.samples({"text": np.array(given, object)}))


def test_other_files_are_answered(images, tmp_path):
    made = Assembly.open(images)
    np.savez(tmp_path / "b.npz", image=np.zeros((5, 4, 4)), name=np.array(list("abcde")))
    found = predict(Step(made.network(), made.objective), made, made.read([str(tmp_path / "b.npz")]), batch=2)
    assert found.outputs["probabilities"].shape == (5, 3)
    np.testing.assert_allclose(found.outputs["probabilities"].sum(1), 1, rtol=1e-5)
    assert found.samples["name"].tolist() == list("abcde")
    nothing = predict(Step(made.network(), made.objective), made, made.samples({"image": np.zeros((0, 4, 4))}))
    assert nothing.outputs == {}
    large = predict(Step(made.network(), made.objective), made, made.samples({"image": np.zeros((2, 8, 6))}))
    assert large.outputs["probabilities"].shape == (2, 3)
    with refuses(1, 2):
        made.samples({"image": np.zeros((2, 4, 4, 2))})
