"""Keys of a trunk, a position and a pooling are keys of `model:` where these are named, and only there."""

import numpy as np
import pytest

from sciformer.cli.main import main
from sciformer.data.batch import Batch, Stream
from sciformer.domains.text.tokens import Text, as_table
from sciformer.models.encoder import Encoder
from sciformer.nn import Recurrent, RecurrentDecoder, Transformer
from sciformer.objectives.seq2seq import Translate
from sciformer.recipe import Recipe
from sciformer.recipe.options import options
from sciformer.recipe.registry import find, names
from tests.errors import refuses

POINTS = {"trunk": "trunk", "position": "position", "pool": "pooling"}


@pytest.mark.parametrize(("key", "name"), [(key, name) for key, point in POINTS.items() for name in names(point)])
def test_a_choice_adds_its_keys_and_no_others(key, name):
    chosen = {"trunk": "lstm" if key == "pool" else "transformer", "pool": "auto", "position": "auto"} | {key: name}
    made = Encoder.with_choices(chosen)
    parts = [find(POINTS[one], chosen[one]) for one in POINTS if one != "position" or "position" in made.model_fields]
    assert made.model_fields.keys() == {key for part in (Encoder, *parts) for key in part.model_fields}
    assert all(option.help for option in options(made))


def test_every_name_can_be_chosen_and_the_nearest_is_named():
    assert len(names("trunk")) >= 12
    with refuses("model.trunk", "lstn", key="model.trunk", hint="Did you mean lstm?"):
        Recipe.load("text/gpt-char", {"model.trunk": "lstn"})
    with refuses(key="model.position", hint="rotary"):
        Recipe.load("text/gpt-char", {"model.position": "rotray"})


@pytest.mark.parametrize(
    ("changes", "key", "hint"),
    [
        ({"model.forget_bias": 1.0}, "model.forget_bias", "model.trunk: gru, lstm"),
        ({"model.trunk": "lstm", "model.heads": 4}, "model.heads", "model.trunk: conformer, transformer"),
        ({"model.position": "learned", "model.periods": [1, 9]}, "model.periods", "fourier, modulation, rotary"),
        ({"model.rotary_values": True}, "model.rotary_values", "model.position: rotary"),
        ({"model.position": "rotary", "model.position_scale": 0.1}, "model.position_scale", "learned"),
        ({"model.forgetbias": 1.0}, "model.forgetbias", ""),
    ],
)
def test_a_key_of_another_choice_is_refused_with_its_owner(changes, key, hint):
    with refuses(key=key, hint=hint):
        Recipe.load("text/gpt-char", changes)


def test_another_trunk_drops_the_keys_of_the_one_below_it():
    recipe = Recipe.load("text/gpt-char", {"model.trunk": "lstm", "model.forget_bias": 1.0})
    base = Recipe.load("text/gpt-char")
    assert (recipe.model.depth, recipe.model.dim) == (base.model.depth, base.model.dim)
    assert not hasattr(recipe.model, "heads")
    back = recipe.change({"model.trunk": "transformer"})
    assert not hasattr(back.model, "forget_bias")
    assert back.model.heads == Encoder(kind="encoder").heads  # what was dropped does not come back
    assert Recipe.from_dict(recipe.to_dict()) == recipe
    layered = Recipe.from_dict({"base": "text/gpt-char", "model": {"trunk": "gru"}}, {"model.depth": 1})
    assert (layered.model.trunk, layered.model.depth) == ("gru", 1)


def streams(**own):
    """An encoder-decoder whose streams have keys of their own."""
    recipe = Recipe.load("text/transformer-tiny", {"model.dim": 16, "model.depth": 2, "model.share": False})
    return recipe.change({f"model.{stream}": keys for stream, keys in own.items()})


def test_streams_have_trunks_of_their_own():
    recipe = streams(source={"trunk": "gru", "position": "auto", "forget_bias": 1}, target={"depth": 1})
    assert recipe.model.for_stream("source").depth == 2
    assert recipe.model.for_stream("target").depth == 1
    assert recipe.to_dict()["model"]["source"] == {"trunk": "gru", "position": "auto", "forget_bias": 1.0}
    assert Recipe.from_dict(recipe.to_dict()) == recipe
    with refuses(key="model.source.heads", hint="model.source.trunk"):
        streams(source={"trunk": "gru", "heads": 2})
    with refuses("model.sauce", key="model.sauce"):
        streams(sauce={"trunk": "gru"})


@pytest.mark.parametrize(
    ("source", "target", "kinds"),
    [
        ({"trunk": "gru", "position": "auto"}, {}, (Recurrent, Transformer)),
        ({}, {"trunk": "lstm", "position": "auto", "score": "dot"}, (Transformer, RecurrentDecoder)),
        ({"trunk": "lstm", "position": "auto", "dim": 24}, {}, (Recurrent, Transformer)),
    ],
)
def test_an_encoder_decoder_of_two_kinds(source, target, kinds):
    tokens = {stream: Text(kind="text", context=20, begin=True, end=True) for stream in ("source", "target")}
    for text in tokens.values():
        text.fit([as_table(["abcdef"])])
    ids = {"source": [[3, 1, 2], [4]], "target": [[1], [2, 5, 3]]}
    columns = {
        stream: Stream({"ids": np.concatenate(some)}, np.array([*map(len, some)])) for stream, some in ids.items()
    }
    inputs = Batch(columns).inputs()
    network = streams(source=source, target=target).model.build(tokens, Translate(kind="translate")).eval()
    assert isinstance(network.encoder, kinds[0])
    assert isinstance(network.decoder, kinds[1])
    written = network.translate(inputs.streams["source"], inputs.streams["target"])
    assert written.shape == (2, 3, 16)
    assert written.isfinite().all()


def test_a_comparison_changes_what_each_recipe_has(capsys, here):
    words = ["compare", "text/recall-lstm", "text/recall-attention", "--seeds", "1", "--quiet", "--model.dim", "8"]
    small = ["--data.number", "40", "--data.lag", "4", "--train.steps", "2", "--train.device", "cpu"]
    assert main([*words, *small, "--model.forget_bias", "1"]) == 0
    assert "model.forget_bias: not a key of text/recall-attention" in capsys.readouterr().err
    assert main([*words, *small, "--model.forgotten", "1"]) != 0
    assert "model.forgotten" in capsys.readouterr().err
