"""CoCa: each half of the decoder sees what it should, step by step as at once; zero-shot classes and retrieval."""

import numpy as np
import pytest
import torch

from sciformer.assembly import Assembly
from sciformer.data.batch import StreamView
from sciformer.data.columns import Samples
from sciformer.data.prepare import prepare
from sciformer.data.random import SampleRandom
from sciformer.domains.images.simulate.scenes import Scenes
from sciformer.evaluation.embed import embed
from sciformer.evaluation.zero_shot import zero_shot
from sciformer.inspection.attention import attention_maps
from sciformer.nn import Watch
from sciformer.recipe import Recipe
from sciformer.run import train
from tests.errors import refuses
from tests.objectives.examples import shaken
from tests.objectives.test_contrast import SHAPES, captions, pairs, views
from tests.training.tiny import go

POSITIONS = ("auto", "rotary", "sinusoidal", "relative", "none")


def inputs_of(made, count=6, **layout):
    raw = made.dataset("train").batch(np.arange(count))
    batch = prepare(raw, made.tokens, made.objective, SampleRandom(0, 0, raw.ids), False)
    return batch.inputs(**layout)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captions")
    return go(captions(folder, train__steps=150, model__dim=16), folder / "run"), dict(np.load(folder / "pairs.npz"))


@pytest.mark.parametrize("position", POSITIONS)
def test_steps_with_a_cache_are_those_of_the_whole_caption(position, tmp_path):
    made = Assembly.open(captions(tmp_path, model__target={"position": position, "dim": 12, "depth": 2}))
    model = shaken(made.network()).eval()
    inputs = inputs_of(made)
    source, target = inputs.view("source"), inputs.view("target")
    whole = model.translate(source, target)
    torch.testing.assert_close(whole, model.caption(source, target)[2])
    cache, memory = model.cache(), model.encode(source)
    for i in range(target.columns["ids"].shape[1]):
        ids = target.columns["ids"][:, i : i + 1]
        hidden = model.decode(StreamView({"ids": ids}, None), None if i else memory, cache=cache)
        real = target.valid[:, i] if target.valid is not None else slice(None)
        torch.testing.assert_close(hidden[real, 0], whole[real, i], rtol=1e-4, atol=1e-5)
        if i == 2:  # as beam search does
            order = torch.arange(len(ids)).flip(0)
            cache.reorder(order)
            cache.reorder(order)


def test_what_each_part_sees(tmp_path):
    made = Assembly.open(captions(tmp_path))
    model = shaken(made.network()).eval()
    inputs = inputs_of(made)
    source, target = inputs.view("source"), inputs.view("target")
    text, hidden = model.pool(model.encode(target)), model.translate(source, target)
    ids = target.columns["ids"].clone()
    ids[:, 3] = (ids[:, 3] + 1) % 5
    other = StreamView({**target.columns, "ids": ids}, target.valid, "target")
    assert not torch.allclose(model.pool(model.encode(other)), text)  # the class token sees all words
    changed = model.translate(source, other)
    torch.testing.assert_close(changed[:, :3], hidden[:, :3])  # a word sees only earlier words
    assert not torch.allclose(changed[:, 3:], hidden[:, 3:])
    brighter = StreamView({**source.columns, "patch": 2 * source.columns["patch"]}, source.valid, "source")
    assert not torch.allclose(model.translate(brighter, target), hidden)


def test_maps_of_attention(run):
    run, _ = run
    made = run.data()
    batch = made.dataset("valid").batch(np.arange(2))
    for stream, count in (("source", 4), ("target", None)):
        found = attention_maps(run.step, run.assembly, batch, stream)
        n = count or int(found.seen.streams[stream].lengths.max())
        for name, weights in found.watch.attention.items():
            if not name.startswith("pool"):
                assert weights.shape[-2:] == (n, n)
                full = weights[int(found.seen.streams[stream].lengths.argmax())]
                torch.testing.assert_close(full.sum(-1), torch.ones_like(full.sum(-1)))
    inputs, record = inputs_of(made, 3), Watch(hidden=False)
    run.model.translate(inputs.view("source"), inputs.view("target"), record)
    (cross,) = (weights for name, weights in record.attention.items() if name.endswith("cross"))
    assert cross.shape == (3, 2, inputs.view("target").columns["ids"].shape[1], 4)  # to the patches, not to the queries
    torch.testing.assert_close(cross.sum(-1), torch.ones(cross.shape[:-1]))


def test_it_learns_captions_and_classes_without_labels(run):
    run, table = run
    scores = run.evaluate("valid").scores
    assert scores["token_accuracy"] > 0.8
    assert scores["perplexity"] < 2
    assert scores["loss"] > np.log(scores["perplexity"]) * 2  # both losses count
    found = zero_shot(run, {"image": table["image"]}, {shape: [f"a {shape}"] for shape in SHAPES})
    assert found.names.tolist() == list(SHAPES)
    np.testing.assert_allclose(found.probabilities.sum(1), 1)
    assert (found.probabilities.argmax(1) == table["label"]).mean() > 0.6
    # The prediction is the nearest text, by the vectors that embed gives.
    image = embed(run, {"image": table["image"]}, "projection", stream="source").vectors
    text = embed(run, {"caption": np.array([f"a {shape}" for shape in SHAPES])}, "projection", stream="target").vectors
    assert (found.probabilities.argmax(1) == (image @ text.T).argmax(1)).all()


def test_several_prompts_of_a_class_are_averaged(run):
    run, table = run
    one = zero_shot(run, {"image": table["image"]}, {"disc": "a disc", "star": "a star"})
    same = zero_shot(run, {"image": table["image"]}, {"disc": ["a disc"] * 3, "star": ["a star"]})
    other = zero_shot(run, {"image": table["image"]}, {"disc": ["a disc", "a ring"], "star": ["a star"]})
    np.testing.assert_allclose(one.probabilities, same.probabilities, atol=1e-6)
    assert np.abs(one.probabilities - other.probabilities).max() > 1e-3


def test_zero_shot_of_simulated_scenes(tmp_path):
    tiny = {"model.dim": 16, "model.heads": 2, "model.source.depth": 1, "model.target.depth": 1, "train.steps": 2}
    tiny |= {"model.multimodal_depth": 1, "model.caption_queries": 4, "train.batch": 8, "train.evaluate_every": 2}
    tiny |= {"data.number": 24, "data.valid": 8, "data.test": 8, "data.cache": "", "data.things": [1, 1]}
    run = train(Recipe.load("images/coca", {**tiny, "train.device": "cpu"}), tmp_path / "run", show=False, report=False)
    table = Scenes(things=(1, 1), seed=3).make(5)
    prompts = {"disc": ["a red disc", "a blue disc"], "star": ["a red star"]}
    found = zero_shot(run, {"image": table["image"]}, prompts)
    assert found.probabilities.shape == (5, 2)
    image = embed(run, {"image": table["image"]}, "projection", stream="source").vectors
    texts = Samples(caption=np.array([text for some in prompts.values() for text in some]))
    one, two, star = embed(run, texts, "projection", stream="target").vectors
    disc = (one + two) / np.linalg.norm(one + two)
    scale = run.assembly.objective.scale(run.model, ("source", "target")).item()
    difference = scale * image @ (disc - star)
    np.testing.assert_allclose(np.log(found.probabilities[:, 0] / found.probabilities[:, 1]), difference, atol=1e-4)


def test_zero_shot_refuses(run, tmp_path):
    run, table = run
    image = {"image": table["image"]}
    with refuses(1):
        zero_shot(run, image, {"disc": ["a disc"]})
    with refuses("star"):
        zero_shot(run, image, {"disc": ["a disc"], "star": []})
    with refuses("contrast", key="objective.kind"):
        zero_shot(go(views(tmp_path), tmp_path / "views"), image, {"a": ["b"], "c": ["d"]})


def test_what_is_refused(tmp_path):
    cases = [
        (captions(tmp_path, objective={"kind": "contrast"}), ["contrast_and_caption"], "objective.kind"),
        (captions(tmp_path, model__source={"trunk": "lstm"}), ["lstm", "source"], "model.trunk"),
        (captions(tmp_path, model={"kind": "dual_encoder", "dim": 8, "heads": 2}), ["caption"], "model.kind"),
        (captions(tmp_path, train__micro_batch=2), ["contrast_and_caption"], "train.micro_batch"),
        (captions(tmp_path, tokens__target__end=False), ["end"], "tokens.end"),
    ]
    for made, words, key in cases:
        with refuses(*words, key=key):
            go(made, tmp_path / "never")
    other = pairs(tmp_path).change({"model": {"kind": "contrastive_captioner"}})
    with refuses("source", "image", key="tokens"):
        go(Recipe.from_dict({**other.to_dict(), "objective": {"kind": "contrast_and_caption"}}), tmp_path / "never")
