"""Pictures, light curves and numbers in one trunk, from files to every verb; objects may lack any of them."""

import json
import os
import signal

import numpy as np
import pytest
import torch

from sciformer.data.columns import Samples
from sciformer.data.prepare import prepare
from sciformer.data.random import SampleRandom
from sciformer.evaluation.embed import embed
from sciformer.inspection.report import page
from sciformer.inspection.report.figures import inspect_run
from sciformer.inspection.streams import attention_shares
from sciformer.interop.export import export_model
from sciformer.recipe import Recipe
from sciformer.run import Run
from tests.data.readers.objects import NO_CURVE, NO_PICTURE, data_keys, write_objects
from tests.errors import refuses
from tests.training.tiny import assert_same, at_step, fate, go, left, start, with_changes

NOTHING = 5  # the object without any stream


@pytest.fixture(autouse=True, scope="module")
def _coarse():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "DOTS_PER_INCH", 24)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_objects(tmp_path_factory.mktemp("objects") / "objects")


def recipe(folder, **changes):
    made = Recipe.from_dict(
        {
            "data": data_keys(folder, split={"valid": 0.25, "test": 0.0, "seed": 3}),
            "tokens": {
                "image": {"kind": "patches", "patch": 4, "augment": ["flip"]},
                "curve": {"kind": "observations", "window": None, "augment": ["thin"]},
                "numbers": {"kind": "scalars", "columns": ["mass", "size"], "drop_missing": True},
            },
            "model": {"kind": "multistream", "dim": 8, "depth": 2, "heads": 2, "dropout": 0.1, "pool": "class_token"}
            | {"numbers": {"position": "none"}},
            "objective": {"kind": "classify"},
            "train": {"steps": 5, "batch": 8, "warmup": 1, "save_every": 2, "evaluate_every": 2, "device": "cpu"},
        }
    )
    return with_changes(made, changes)


@pytest.fixture(scope="module")
def run(folder):
    return go(recipe(folder), folder / "run")


def test_it_trains_and_resumes_bit_for_bit(folder, run, tmp_path):
    reference = left(run)

    def work():
        with at_step(3, lambda: os.kill(os.getpid(), signal.SIGKILL)):
            go(recipe(folder), tmp_path / "run")

    assert fate(start(work)) == -signal.SIGKILL
    assert_same(go(recipe(folder), tmp_path / "run"), reference)


def test_packed_tokens_give_the_same_answers(folder, run, tmp_path):
    packed = go(recipe(folder, train__packed=True), tmp_path / "packed")
    for one in (run, packed):
        inputs = one.samples("valid").all()
        inputs = prepare(inputs, one.assembly.tokens, one.assembly.objective, SampleRandom(0, -1, inputs.ids), False)
        with torch.no_grad():
            said = [one.step.eval()(inputs.inputs(packed=packed), True)[0] for packed in (True, False)]
        torch.testing.assert_close(*said)


def test_objects_are_judged_predicted_and_embedded_without_any_of_their_streams(folder, run):
    judged = run.evaluate("valid")
    assert np.isfinite(judged.outputs["probabilities"]).all()
    said = run.predict([folder / "objects.csv"])
    assert len(said["probabilities"]) == 24
    assert np.isfinite(said["probabilities"]).all()
    vectors = embed(run, [folder / "objects.csv"], log=[].append).vectors
    assert vectors.shape == (24, 8)
    assert np.isfinite(vectors).all()
    loaded = Run(run.path)
    np.testing.assert_array_equal(loaded.predict([folder / "objects.csv"])["probabilities"], said["probabilities"])
    table = run.source([folder / "objects.csv"]).load(0)
    for names in (["image", "image_shape"], ["time", "value", "error", "band"]):
        rows = np.r_[0, NOTHING]
        other = {name: _select(column, rows) for name, column in table.items()}
        other |= {name: _select(table[name], np.r_[4, NOTHING]) for name in names}
        changed = run.predict(Samples(other), watch=run.assembly.compare(accept_drift=True))["probabilities"]
        assert np.abs(changed[0] - said["probabilities"][0]).max() > 1e-6
        np.testing.assert_allclose(changed[1], said["probabilities"][NOTHING], atol=1e-6)


def _select(column, rows):
    return column.take(rows) if hasattr(column, "take") and hasattr(column, "lengths") else column[rows]


def test_it_is_inspected_and_reported_by_stream(run, tmp_path):
    drawn = {path.stem for path in inspect_run(run, tmp_path, samples=2)}
    expected = {"sample-1", "sample-2", "heads", "reasons-1"}
    assert drawn >= {f"{stream}-{name}" for stream in ("image", "curve") for name in expected}
    assert drawn >= {"shares", "image-heads-to-curve", "curve-positions", "numbers-sample-1"}
    assert "numbers-positions" not in drawn
    text = run.report().read_text()
    assert "Share of the attention" in text
    found = json.loads((run.path / "scores.json").read_text())
    shares = found["attention_shares"]["shares"]
    assert list(shares) == ["blocks.0.attention", "blocks.1.attention"]
    assert all(0 < sum(one.values()) <= 1 for one in shares.values())
    assert found["streams"]["image"]["faithfulness"]


@pytest.mark.parametrize("pool", ["mean", "class_attention"])
def test_shares_of_attention_sum_to_one(folder, pool, tmp_path):
    run = go(recipe(folder, model__pool=pool), tmp_path / "run")
    data = run.data()
    found = attention_shares(run.step, data, data.dataset("train").batch(np.arange(8)))
    assert sum(found.tokens.values()) == pytest.approx(1)
    for name, one in found.shares.items():
        if not name.startswith("pool"):  # the class token of a pooling attends to itself too
            assert sum(one.values()) == pytest.approx(1, abs=1e-5)
    assert any(name.startswith("pool") for name in found.shares) == (pool == "class_attention")


def test_it_becomes_an_onnx_graph(run, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    export_model(run, tmp_path / "out", "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx")
    names = {one.name for one in session.get_inputs()}
    assert names >= {f"{stream}.valid" for stream in ("image", "curve", "numbers")}


@pytest.mark.parametrize("every", [False, True])
def test_whole_streams_are_asked_from_the_others(folder, tmp_path, every):
    objective = {"kind": "masked", "stream": "curve", "mask_ratio": 0.3, "hide_stream": 0.5, "every_stream": every}
    run = go(recipe(folder, objective=objective), tmp_path / "run")
    assert np.isfinite(run.evaluate("valid").scores["loss"])
    assert "hidden" in {path.stem.rpartition("-")[2] for path in inspect_run(run, tmp_path / "figures", samples=2)}
    assert embed(run, [folder / "objects.csv"], log=[].append).vectors.shape == (24, 8)


def test_a_stream_that_does_not_exist_is_refused(folder, tmp_path):
    with refuses("imag", "image", key="objective.stream"):
        go(recipe(folder, objective={"kind": "masked", "stream": "imag"}), tmp_path / "run")


def test_objects_may_come_without_a_stream_at_all(folder, run, tmp_path):
    (tmp_path / "few.csv").write_text("name,size,mass\no0,1,2\nx,2,3\n")
    assert any("image" in note for note in run.source([tmp_path / "few.csv"]).notes)
    assert np.isfinite(run.predict([tmp_path / "few.csv"])["probabilities"]).all()
    (tmp_path / "odd.csv").write_text("name,size\no0,1\n")
    with refuses("mass", key="data.files"):
        run.predict([tmp_path / "odd.csv"])


def test_the_objects_lack_what_they_should(run, folder):
    batch = run.assembly.samples(run.source([folder / "objects.csv"])).all()
    for stream, lacking in (("image", NO_PICTURE), ("curve", NO_CURVE)):
        assert np.flatnonzero(batch.streams[stream].lengths == 0).tolist() == sorted(lacking)


def test_hidden_values_of_joined_objects_change_nothing(folder, tmp_path):
    """Poison: hidden pixels, points and numbers change neither an input of the model nor a prediction."""
    objective = {"kind": "masked", "mask_ratio": 0.3, "hide_stream": 0.5, "every_stream": True}
    run = go(recipe(folder, objective=objective), tmp_path / "run")
    tokens, made, model = run.assembly.tokens, run.assembly.objective, run.step.eval().model
    raw = run.assembly.samples(run.source([folder / "objects.csv"])).all()
    rng = SampleRandom(0, 0, np.arange(24))

    def ready(batch):
        return prepare(batch, tokens, made, rng, False)

    def said(batch):
        with torch.no_grad():
            encoded = model.encode(batch.inputs(packed=True).view("image"))
            return {name: model.readout[name].predict(model.stream_tokens(encoded, name)) for name in tokens}

    clean, poisoned = ready(raw), raw
    for name, stream in clean.streams.items():
        hidden = stream.columns["hidden"]
        lengths = stream.lengths
        whole = (np.bincount(stream.sample[hidden], minlength=24) == lengths) & (lengths > 0)
        assert whole.any()  # the stream is asked from the others
        assert not whole[lengths > 0].all()
        own = raw.streams[name]
        values = {column: own.columns[column].copy() for column in tokens[name].hides}
        for column in values.values():
            column[hidden] = 250 if column.dtype.kind in "iu" else 1e6
        poisoned = poisoned.with_columns(own.with_columns(**values), name)
    again = ready(poisoned)
    for name, stream in clean.streams.items():
        for column, values in stream.columns.items():
            if not column.startswith("target "):
                np.testing.assert_array_equal(again.streams[name].columns[column], values)
    for name, found in said(again).items():
        for key, expected in said(clean)[name].items():
            assert torch.equal(found[key], expected), (name, key)


def test_objects_of_which_drawn_ones_lack_a_stream_have_a_report(folder, tmp_path):
    lines = (folder / "objects.csv").read_text().splitlines()
    few = folder / "sparse.csv"
    few.write_text(
        "\n".join(
            [
                lines[0],
                *(
                    line.replace(f"pictures/{i}.png", "" if i % 3 else f"pictures/{i}.png")
                    for i, line in enumerate(lines[1:])
                ),
            ]
        )
        + "\n"
    )
    made = recipe(folder, objective={"kind": "classify", "drop_stream": 0.3})
    run = go(with_changes(made, {"data": {**made.data.model_dump(), "files": [str(few)]}}), tmp_path / "run")
    assert "Drawings of training samples" in run.report().read_text()
    assert list(inspect_run(run, tmp_path / "figures", samples=4))


def test_both_answers_of_an_object(folder, tmp_path):
    """Class and redshift are two runs over the same streams."""
    for objective in ({"kind": "classify", "drop_stream": 0.3}, {"kind": "regress", "targets": ["size"]}):
        run = go(recipe(folder, objective=objective), tmp_path / objective["kind"])
        found = run.predict([folder / "objects.csv"])
        assert np.isfinite(found["probabilities" if objective["kind"] == "classify" else "mean"]).all()
