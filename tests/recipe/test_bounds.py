"""Sizes and rates that no machine and no training can have are refused by their keys, before anything is built."""

import time

import pytest

from sciformer.assembly import Assembly
from sciformer.nn.trunks.convolution import ConvNet
from sciformer.recipe import Recipe
from tests.errors import refuses

NONSENSE = {
    "model.dim": 10**9,
    "model.depth": 10**9,
    "model.mlp_ratio": float("inf"),
    "train.seed": 10**26,
    "train.batch": 10**12,
    "train.workers": 100_000,
    "train.pad_to_multiple": 10**9,
    "train.learning_rate": float("inf"),
    "train.weight_decay": 1e300,
    "train.epsilon": 1e300,
    "tokens.patch": 10**23,
    "data.samples": 10**15,
}


NONSENSE_OF = {
    ("images/mnist-vit", "data.size"): 10**9,
    ("images/mnist-vit", "data.channels"): 10**9,
    ("images/mnist-vit", "tokens.noise_std"): 1e300,
    ("images/mnist-vit", "tokens.shift"): 10**12,
    ("images/mnist-vit", "model.norm_epsilon"): 1e300,
    ("images/mnist-vit", "model.head_dim"): 10**9,
    ("jets/part", "tokens.widths"): [-5],
    ("jets/part", "tokens.pair_widths"): [64, 10**9],
    ("text/gpt-bpe", "tokens.vocabulary"): 10**9,
    ("text/transformer-tiny", "objective.beam"): 10**9,
    ("lightcurves/cnn", "model.dilation_growth"): 10**9,
}


@pytest.mark.parametrize(("recipe", "key"), NONSENSE_OF)
def test_nonsense_of_a_field_is_refused_by_its_key(recipe, key):
    with refuses(key=key):
        Recipe.load(recipe, {key: NONSENSE_OF[recipe, key]})


def test_a_dilation_that_grows_beyond_all_series_is_refused():
    with refuses(f"{16**20:,}", key="model.dilation_growth"):
        ConvNet(8, 21, dilation_growth=16)


@pytest.mark.parametrize("key", NONSENSE)
def test_nonsense_is_refused_by_its_key(key):
    with refuses(key=key):
        Recipe.load("spins/ising-vit", {key: NONSENSE[key]})


def test_a_network_must_fit_into_memory(monkeypatch):
    assembly = Assembly.from_state(
        Recipe.load("jets/part", {"model.dim": 512, "model.depth": 20}),
        {"tokens": {"tokens": {}}, "objective": {"classes": ["a", "b"], "counts": [1, 1]}},
    )
    monkeypatch.setattr("sciformer.assembly.free_memory", lambda: 1 << 20)
    with refuses(f"{1 << 20:,}", key="model.dim", hint="model.depth"):
        assembly.network()


@pytest.mark.parametrize(
    "text",
    [
        "model:\n" + "".join(f"  k{number}: 1\n" for number in range(30_000)),
        "".join(f"k{number}: 1\n" for number in range(30_000)),
        "tokens:\n" + "".join(f"  s{number}: {{kind: b{number}}}\n" for number in range(10_000)),
    ],
)
def test_a_large_recipe_is_refused_fast(tmp_path, text):
    path = tmp_path / "a.yaml"
    path.write_text("base: text/gpt-char\n" + text)
    began = time.process_time()
    with refuses(file=path) as caught:
        Recipe.load(path)
    assert len(caught.value.errors) <= 50
    assert time.process_time() - began < 10
