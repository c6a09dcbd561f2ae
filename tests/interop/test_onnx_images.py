"""Graphs of models of images: a residual network on its grid and the encoder of a masked autoencoder, in any batch."""

import json

import numpy as np
import onnxruntime

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
