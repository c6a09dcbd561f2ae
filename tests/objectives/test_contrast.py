"""Contrast between two views and two streams: against loops, over ranks, and through every verb."""

import json
import math

import numpy as np
import pytest
import torch

from sciformer.assembly import Assembly
from sciformer.checks.check import check
from sciformer.data.prepare import VIEW, prepare
from sciformer.data.random import SampleRandom
from sciformer.evaluation.embed import embed
from sciformer.inspection.report.figures import inspect_run
from sciformer.interop.export import export_model
from sciformer.objectives.base import Step
from sciformer.objectives.contrast import nt_xent
from sciformer.recipe import Recipe
from sciformer.run import Run
from tests.errors import refuses
from tests.objectives.examples import shaken
from tests.training.tiny import TRAIN, assert_near, assert_same, engine, go, image_recipe, in_ranks, left, with_changes

SHAPES = ("disc", "square", "star", "ring")


def views(folder, **changes):
    """Two views of small images, flipped, turned and with noise."""
    kinds = {"objective": {"kind": "contrast"}, "tokens__augment": ["flip", "turn", "noise"]}
    return image_recipe(folder, **{**kinds, **changes})


def pairs(folder, **changes):
    """Images and texts of different lengths; some texts are equal."""
    path = folder / "pairs.npz"
    if not path.exists():
        rng = np.random.default_rng(0)
        label = np.arange(30) % 4
        images = (rng.normal(size=(30, 4, 4)) + label[:, None, None]).astype(np.float32)
        np.savez(path, image=images, caption=np.array([f"a {SHAPES[i]}" for i in label]), label=label)
    made = Recipe.from_dict(
        {
            "data": {"kind": "arrays", "files": [str(path)], "split": {"valid": 0.2, "test": 0.0}},
            "tokens": {
                "image": {"kind": "patches", "patch": 2},
                "caption": {"kind": "text", "column": "caption", "context": 12},
            },
            "model": {"kind": "dual_encoder", "dim": 8, "depth": 1, "heads": 2, "caption": {"dim": 12, "pool": "last"}},
            "objective": {"kind": "contrast", "projection": 6, "learn_temperature": True},
            "train": TRAIN,
        }
    )
    return with_changes(made, changes)


def captions(folder, **changes):
    """The same images and texts for contrast and caption."""
    pairs(folder)
    made = Recipe.from_dict(
        {
            "data": {"kind": "arrays", "files": [str(folder / "pairs.npz")], "split": {"valid": 0.2, "test": 0.0}},
            "tokens": {
                "source": {"kind": "patches", "patch": 2},
                "target": {"kind": "text", "column": "caption", "context": 12, "begin": True, "end": True},
            },
            "model": {"kind": "contrastive_captioner", "dim": 8, "depth": 1, "heads": 2, "caption_queries": 3},
            "objective": {"kind": "contrast_and_caption", "projection": 6, "bleu": "off"},
            "train": TRAIN,
        }
    )
    return with_changes(made, changes)


CASES = {"views": views, "pairs": pairs, "captions": captions}


def loops(first, second, temperature, both):
    """NT-Xent as in the papers, with loops over samples."""
    b = len(first)
    every = [first, second]
    found = np.zeros(b)
    for side in (0, 1):
        for i in range(b):
            query, own = every[side][i], every[1 - side][i]
            others = [every[1 - side][j] for j in range(b)]
            if both:
                others += [every[side][j] for j in range(b) if j != i]
            total = sum(math.exp(query @ other / temperature) for other in others)
            found[i] -= math.log(math.exp(query @ own / temperature) / total) / 2
    return found


def unit(rng, *shape):
    vectors = rng.normal(size=shape)
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_nt_xent_is_that_of_the_papers(both, count):
    first, second = unit(np.random.default_rng(count), 2, count, 5)
    second[-1] = second[0]  # equal samples are other candidates
    loss, matched = nt_xent(torch.tensor(first), torch.tensor(second), 1 / 0.2, both)
    np.testing.assert_allclose(loss, loops(first, second, 0.2, both), rtol=1e-12, atol=1e-12)
    assert ((matched >= 0) & (matched <= 1)).all()
    if count == 1:
        assert loss.item() == 0


def test_matched_counts_both_directions():
    exact = torch.eye(3)
    assert nt_xent(exact, exact, 1.0, True)[1].tolist() == [1, 1, 1]
    assert nt_xent(exact, exact[[1, 0, 2]], 1.0, False)[1].tolist() == [0, 0, 1]


def test_two_views_differ_and_are_the_same_in_each_evaluation(tmp_path):
    made = Assembly.open(views(tmp_path))
    raw = made.dataset("train").batch(np.arange(4))
    several = [
        prepare(raw, made.tokens, made.objective, SampleRandom(0, epoch, raw.ids), training)
        for epoch, training in ((0, True), (1, True), (-1, False), (-1, False))
    ]
    for batch in several:
        assert list(batch.streams) == ["tokens", VIEW + "tokens"]
        first, second = (one.columns["patch"] for one in batch.streams.values())
        assert not np.array_equal(first, second)
    seen = [batch.streams["tokens"].columns["patch"] for batch in several]
    assert not np.array_equal(seen[0], seen[1])
    assert np.array_equal(seen[2], seen[3])


@pytest.mark.parametrize("kind", CASES)
def test_padding_and_layout_change_nothing(kind, tmp_path):
    made = Assembly.open(CASES[kind](tmp_path))
    step = Step(shaken(made.network()), made.objective).double()
    raw = made.dataset("train").batch(np.arange(6))
    batch = prepare(raw, made.tokens, made.objective, SampleRandom(0, 0, raw.ids), True)

    def exact(inputs):
        for view in inputs.streams.values():
            view.columns = {n: c.double() if c.is_floating_point() else c for n, c in view.columns.items()}
        return step(inputs, True)

    with torch.no_grad():
        loss, outputs = exact(batch.inputs())
        assert outputs["first"].shape == outputs["second"].shape == (6, made.objective.projection)
        for inputs in (batch.inputs(packed=True), batch.inputs(width=12), batch.inputs(rows=9, width=12)):
            found, others = exact(inputs)
            torch.testing.assert_close(found, loss)
            for name, column in outputs.items():
                torch.testing.assert_close(others[name], column)
    assert loss.item() == pytest.approx(outputs["loss"].sum().item())


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("batch", [4, 5])
def test_two_ranks_have_the_gradient_of_one(kind, batch, tmp_path):
    made = CASES[kind](tmp_path, train__batch=batch, train__epsilon=1e-4)  # no rounding error divided by itself

    def gradients():
        one = engine(made, tmp_path / "never")
        for step in range(2):
            part = one.fetch[step]
            one.updater(part, step, one.ranks.sum(part.count)[0])
        return json.dumps({name: weight.grad.tolist() for name, weight in one.step.model.named_parameters()})

    alone = json.loads(gradients())
    assert all(np.abs(value).max() > 0 for value in alone.values())
    for answer in in_ranks(gradients, tmp_path):
        found = json.loads(answer)
        for name, value in alone.items():
            np.testing.assert_allclose(found[name], value, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("kind", CASES)
def test_it_trains_resumes_bit_for_bit_and_is_scored_alike_by_two_ranks(kind, tmp_path):
    made = CASES[kind](tmp_path, train__epsilon=1e-6)
    one = go(made, tmp_path / "one")
    reference = left(one)
    losses = [record["loss"] for record in one.records if "loss" in record]
    assert np.mean(losses[-4:]) < np.mean(losses[:4])
    go(made, tmp_path / "two", stop_after=6)
    assert_same(go(made, tmp_path / "two"), reference)
    in_ranks(lambda: go(made, tmp_path / "ranks"), tmp_path)
    assert_near(tmp_path / "ranks", reference, 2e-4)
    scores = Run(tmp_path / "one").evaluate("valid").scores
    assert set(scores) == {"loss", *made.objective.standard}
    assert 0 <= scores["recall_1"] <= scores["recall_5"] <= 1 <= scores["mean_rank"] <= 6


def test_one_sample_and_equal_samples(tmp_path):
    for kind, made in CASES.items():
        assembly = Assembly.open(made(tmp_path))
        step = Step(assembly.network(), assembly.objective)
        for ids in ([0], [0, 0, 0]):
            raw = assembly.dataset("train").batch(np.array(ids))
            batch = prepare(raw, assembly.tokens, assembly.objective, SampleRandom(0, 0, raw.ids), True)
            loss, _ = step(batch.inputs())
            loss.backward()
            if kind == "pairs":
                assert loss.item() / len(ids) == pytest.approx(math.log(len(ids)), abs=1e-5)
            elif kind == "views" and len(ids) == 1:
                assert loss.item() == 0
            assert all(weight.grad is None or weight.grad.isfinite().all() for weight in step.parameters())


def test_vectors_of_each_stream(tmp_path):
    run = go(pairs(tmp_path), tmp_path / "run")
    table = dict(np.load(tmp_path / "pairs.npz"))
    assert embed(run, table).vectors.shape == (30, 8)  # the first stream
    assert embed(run, table, stream="caption").vectors.shape == (30, 12)
    image = embed(run, {"image": table["image"]}, pool="projection", stream="image").vectors
    caption = embed(run, {"caption": table["caption"]}, pool="projection", stream="caption").vectors
    assert image.shape == caption.shape == (30, 6)
    np.testing.assert_allclose(np.linalg.norm(image, axis=1), 1, rtol=1e-5)
    with refuses("captoin", "caption"):
        embed(run, table, stream="captoin")
    with refuses("predict", "contrast", key="objective.kind"):
        run.predict(table)


def test_what_is_refused(tmp_path):
    text = {"kind": "text", "column": "caption", "context": 12}
    cases = [
        (views(tmp_path, tokens__augment=[]), ["views", "patches"], "tokens"),
        (views(tmp_path, train__micro_batch=2), ["contrast"], "train.micro_batch"),
        (pairs(tmp_path, train__micro_batch=2), ["contrast"], "train.micro_batch"),
        (pairs(tmp_path, objective__stream="text"), ["text", "image"], "objective.stream"),
        (pairs(tmp_path, model__kind="encoder"), ["encoder", 2], "tokens"),
        (pairs(tmp_path, tokens__third=text), ["image, caption, third"], "tokens"),
        (
            pairs(tmp_path, objective={"kind": "classify", "stream": "image"}),
            ["classify", 2],
            "objective.kind",
        ),
        (views(tmp_path, model__kind="dual_encoder"), ["dual_encoder", 1], "tokens"),
    ]
    with refuses("model.text"):
        pairs(tmp_path, model__text={"depth": 2})
    for made, words, key in cases:
        with refuses(*words, key=key):
            go(made, tmp_path / "never")


def test_a_batch_of_text_has_no_views(tmp_path):
    made = pairs(tmp_path)
    made = Recipe.from_dict(
        {
            "data": made.data.model_dump(exclude_defaults=True) | {"kind": "arrays"},
            "tokens": {"kind": "text", "column": "caption", "context": 12},
            "model": {"kind": "encoder", "dim": 8, "depth": 1, "heads": 2},
            "objective": {"kind": "contrast"},
        }
    )
    with refuses("contrast", "text", key="tokens.kind"):
        go(made, tmp_path / "never")


def test_predictions_have_no_views(tmp_path):
    made = Assembly.open(views(tmp_path))
    raw = made.dataset("valid").batch(np.arange(2))
    batch = prepare(raw, made.tokens, made.objective, SampleRandom(0, -1, raw.ids), False, counted=False)
    plain = made.tokens["tokens"].normalise(raw.streams["tokens"])
    assert list(batch.streams) == ["tokens"]
    assert np.array_equal(batch.streams["tokens"].columns["patch"], plain.columns["patch"])


@pytest.mark.parametrize(
    ("kind", "stream", "vector", "summary"),
    [("pairs", "", 6, 8), ("pairs", "caption", 6, 12), ("captions", "target", 6, 8)],
)
def test_an_encoder_as_a_graph(kind, stream, vector, summary, tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    run = go(CASES[kind](tmp_path, train__steps=2), tmp_path / "run")
    export_model(run, tmp_path / "graph", "onnx", stream=stream)  # compares the graph with the library
    session = runtime.InferenceSession((tmp_path / "graph/model.onnx").read_bytes(), providers=["CPUExecutionProvider"])
    assert {one.name: one.shape[1] for one in session.get_outputs()} == {"vector": vector, "summary": summary}
    assert not any("." in one.name for one in session.get_inputs())  # of one stream only


def test_a_graph_of_a_stream_that_is_not_there(tmp_path):
    run = go(pairs(tmp_path, train__steps=2), tmp_path / "run")
    with refuses("text", "caption"):
        export_model(run, tmp_path / "graph", "onnx", stream="text")
    with refuses(key="--stream"):
        export_model(run, tmp_path / "graph", "huggingface", stream="caption")
    with refuses("encoder", key="--stream"):
        export_model(go(views(tmp_path, train__steps=2), tmp_path / "views"), tmp_path / "g", "onnx", stream="tokens")


@pytest.mark.parametrize("kind", CASES)
def test_it_is_inspected_and_checked(kind, tmp_path):
    made = CASES[kind](tmp_path, train__steps=2)
    run = go(made, tmp_path / "run")
    written = {path.name for path in inspect_run(run, tmp_path / "pictures", samples=1)}
    for name in run.assembly.tokens:
        start = f"{name}-" if len(run.assembly.tokens) > 1 else ""
        assert f"{start}sample-1.png" in written
    assert check(made).notes == []
