"""Graphs of models of images: a residual network on its grid and the encoder of a masked autoencoder, in any batch."""

import json

import numpy as np
import onnxruntime
import pytest
import torch

from sciformer.data.batch import Batch
from sciformer.evaluation.embed import embed
from sciformer.interop import export_model
from sciformer.interop.onnx import inputs
from tests.errors import refuses
from tests.interop.shaken import graph_run

RESIDUAL = {"kind": "encoder", "trunk": "resnet2d", "stages": [1, 1], "dim": 4}
TRANSFORMER = {"kind": "encoder", "dim": 8, "depth": 1, "heads": 2}
AUTOENCODER = {"kind": "masked_autoencoder", "dim": 8, "depth": 1, "heads": 2, "pool": "class_token"}
AUTOENCODER |= {"decoder_dim": 4, "decoder_depth": 1, "decoder_heads": 1}
PICTURES = np.random.default_rng(1).normal(3, 2, (20, 8, 12, 2)).astype(np.float32)


def made(folder, model, objective, **tokens):
    np.savez(folder / "a.npz", image=PICTURES, label=np.arange(20) % 2)
    data = {"kind": "images", "files": [str(folder / "a.npz")], "axes": "nhwc"}
    patches = {"kind": "patches", "patch": 4, **tokens}
    return graph_run(folder / "run", data=data, tokens=patches, model=model, objective=objective)


def cut(pictures, about):
    """Patches made by what stands in preprocessing.json alone."""
    learned, side = about["tokens"]["learned"], about["tokens"]["settings"]["patch"]
    scaled = (pictures - np.asarray(learned["mean"])) / np.asarray(learned["deviation"])
    rows, columns = pictures.shape[1] // side, pictures.shape[2] // side
    squares = scaled.reshape(len(pictures), rows, side, columns, side, -1).swapaxes(2, 3)
    return squares.reshape(len(pictures), rows * columns, -1).astype(np.float32)


def test_a_residual_network_takes_whole_images(tmp_path):
    run = made(tmp_path, RESIDUAL, {"kind": "classify"}, embed="none")
    (note,) = export_model(run, tmp_path / "out", "onnx")
    assert note.startswith("checked in onnxruntime")
    about = json.loads((tmp_path / "out" / "preprocessing.json").read_text())
    assert [(one["name"], one["shape"]) for one in about["inputs"]] == [("patch", ["batch", 6, 32])]
    assert about["padding"] is None
    assert "2 x 3 tokens" in (tmp_path / "out" / "README.md").read_text()
    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx")
    for count in (1, 3, 17):
        (found,) = session.run(["probabilities"], {"patch": cut(PICTURES[:count], about)})
        np.testing.assert_allclose(found, run.predict({"image": PICTURES[:count]})["probabilities"], atol=1e-5)
    run.assembly.tokens["tokens"].state["varies"] = True
    with refuses("ONNX"):
        inputs.grid_shape(run)


def test_a_residual_stem_takes_whole_images(tmp_path):
    run = made(tmp_path, TRANSFORMER, {"kind": "classify"}, embed="residual")
    (note,) = export_model(run, tmp_path / "out", "onnx")
    assert note.startswith("checked in onnxruntime")
    about = json.loads((tmp_path / "out" / "preprocessing.json").read_text())
    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx")
    at = np.stack(np.meshgrid(np.arange(2), np.arange(3), indexing="ij"), -1).reshape(-1, 2).astype(np.float32)
    for count in (1, 3, 17):
        feed = {"patch": cut(PICTURES[:count], about), "at": np.tile(at, (count, 1, 1))}
        names = {one.name for one in session.get_inputs()}
        (found,) = session.run(["probabilities"], {name: value for name, value in feed.items() if name in names})
        np.testing.assert_allclose(found, run.predict({"image": PICTURES[:count]})["probabilities"], atol=1e-5)


def test_the_encoder_of_a_masked_autoencoder(tmp_path):
    run = made(tmp_path, AUTOENCODER, {"kind": "masked", "mask_ratio": 0.5})
    export_model(run, tmp_path / "out", "onnx")
    about = json.loads((tmp_path / "out" / "preprocessing.json").read_text())
    assert [one["name"] for one in about["outputs"]] == ["summary"]
    assert "answers: only the summary" in (tmp_path / "out" / "README.md").read_text()
    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx")
    at = np.stack(np.meshgrid(np.arange(2), np.arange(3), indexing="ij"), -1).reshape(-1, 2).astype(np.float32)
    for count in (1, 3, 17):
        feed = {"patch": cut(PICTURES[:count], about), "at": np.tile(at, (count, 1, 1))}
        (found,) = session.run(None, {**feed, "valid": np.ones((count, 6), bool)})
        np.testing.assert_allclose(found, embed(run, {"image": PICTURES[:count]}).vectors, atol=1e-5)


CAPTION = {"kind": "text", "column": "caption", "unit": "words", "context": 8, "begin": True, "end": True}
WRITERS = {
    "transformer": ({"kind": "encoder_decoder", "dim": 8, "depth": 1, "heads": 2}, {"kind": "translate"}, {}),
    "lstm": (
        {"kind": "encoder_decoder", "trunk": "lstm", "dim": 8, "depth": 1, "score": "additive"}
        | {"source": {"trunk": "resnet2d", "stages": [1, 1], "dim": 4}},
        {"kind": "translate"},
        {"embed": "none"},
    ),
    "coca": (
        {"kind": "contrastive_captioner", "dim": 8, "depth": 1, "heads": 2, "caption_queries": 3},
        {"kind": "contrast_and_caption", "projection": 6},
        {},
    ),
}


@pytest.mark.parametrize("name", WRITERS)
def test_the_image_side_of_a_captioner_from_pixels(name, tmp_path):
    model, objective, keys = WRITERS[name]
    words = np.array([f"a {['red', 'blue', 'green'][i % 3]} thing" for i in range(20)])
    np.savez(tmp_path / "a.npz", image=PICTURES, caption=words)
    data = {"kind": "images", "files": [str(tmp_path / "a.npz")], "axes": "nhwc"}
    tokens = {"source": {"kind": "patches", "patch": 4, **keys}, "target": CAPTION}
    objective = {"bleu": "off", **objective}
    run = graph_run(tmp_path / "run", data=data, tokens=tokens, model=model, objective=objective)
    out = tmp_path / "out"
    export_model(run, out, "onnx", raw=True, stream="source")
    assert sorted(path.name for path in out.iterdir()) == ["README.md", "model.onnx", "preprocessing.json"]
    session = onnxruntime.InferenceSession(out / "model.onnx")
    (pixels,) = session.get_inputs()
    assert (pixels.name, pixels.shape) == ("image", ["batch", "height", "width", 2])
    names = [one.name for one in session.get_outputs()]
    assert names == (["vector", "summary"] if name == "coca" else ["features", "summary"])
    for count in (1, 5):
        found = dict(zip(names, session.run(None, {"image": PICTURES[:count]})))
        images = {"image": PICTURES[:count]}
        np.testing.assert_allclose(found["summary"], embed(run, images, stream="source").vectors, atol=1e-5)
        if name == "coca":
            vectors = embed(run, images, "projection", stream="source").vectors
            np.testing.assert_allclose(found["vector"], vectors, atol=1e-5)
        else:
            source = run.assembly.tokens["source"]
            view = Batch({"source": source.normalise(source.tokenize(images))}, {}).inputs("cpu").view("source")
            with torch.no_grad():
                np.testing.assert_allclose(found["features"], run.model.encode(view).x, rtol=1e-5, atol=1e-5)
    about = json.loads((out / "preprocessing.json").read_text())
    assert about["raw"] == {"axes": ["height", "width"], "fixed": [8, 12] if name == "lstm" else None}
    assert ("height 8, width 12" if name == "lstm" else "of any size") in (out / "README.md").read_text()


def test_a_graph_from_pixels_needs_their_preprocessing(tmp_path):
    run = made(tmp_path, {"kind": "encoder", "dim": 8, "depth": 1, "heads": 2}, {"kind": "classify"}, step=2)
    with refuses("patches", key="--raw"):
        export_model(run, tmp_path / "out", "onnx", raw=True)
    with refuses(key="--raw"):
        export_model(run, tmp_path / "out", "huggingface", raw=True)
