"""An exported graph answers as the library does, for any number of samples and tokens, and says how it is fed."""

import json
import sys

import numpy as np
import onnxruntime
import pytest
import torch

from sciformer.data.batch import ModelInputs, StreamView
from sciformer.data.columns import Lists
from sciformer.interop import export_model, formats
from sciformer.interop.onnx import export as onnx_export
from sciformer.interop.onnx import inputs
from sciformer.run import Run
from tests.domains.jets.jets_table import jets
from tests.errors import refuses
from tests.interop.shaken import TRAIN, graph_run, made_data

MODEL = {"kind": "encoder", "dim": 16, "depth": 1, "heads": 4, "pool": "class_attention"}
EXTRAS = ["output_scale", "attention_norm", "hidden_norm", "residual_scale"]
RECIPES = {
    "particles": {
        "data": {"kind": "made"},
        "tokens": {"kind": "particles", "widths": [16, 16], "pair_widths": [8]},
        "model": {**MODEL, "position": "none", "extras": EXTRAS, "class_depth": 1},
        "objective": {"kind": "classify"},
    },
    "patches": {
        "data": {"kind": "arrays", "files": ["a.npz"]},
        "tokens": {"kind": "patches", "patch": 2},
        "model": {**MODEL, "pool": "class_token"},
        "objective": {"kind": "regress", "targets": ["value"]},
    },
}


def labelled():
    return jets(np.random.default_rng(0).integers(1, 20, 24)) | {"label": np.array(["a", "b", "c"] * 8)}


@pytest.fixture(scope="module", autouse=True)
def _made():
    with made_data("made", labelled):
        yield


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of each kind, its weights shaken so that samples have different answers, and what was exported of it."""
    folder, made = tmp_path_factory.mktemp("onnx"), {}
    rng = np.random.default_rng(1)
    np.savez(folder / "a.npz", image=rng.normal(3, 2, (20, 8, 6)).astype(np.float32), value=rng.normal(50, 9, 20))

    def get(kind):
        if kind not in made:
            data = {k: [str(folder / "a.npz")] if k == "files" else v for k, v in RECIPES[kind]["data"].items()}
            run = graph_run(folder / kind, **RECIPES[kind] | {"data": data})
            made[kind] = run, folder / f"{kind}.onnx", export_model(run, folder / f"{kind}.onnx", "onnx")
        return made[kind]

    return get


@pytest.mark.parametrize("kind", RECIPES)
@pytest.mark.parametrize("tokens", [1, 17, 128])
@pytest.mark.parametrize("samples", [1, 3, 17])
def test_answers_are_the_library_s(runs, kind, tokens, samples):
    run, folder, (note,) = runs(kind)
    assert note.startswith("checked in onnxruntime")
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    given = inputs.graph_inputs(run)["tokens"].make(samples, tokens, seed=samples * tokens)
    feed = {value.name: given[value.name].numpy() for value in session.get_inputs()}
    theirs = dict(zip([value.name for value in session.get_outputs()], session.run(None, feed)))
    valid = given.pop("valid")
    with torch.no_grad():
        ours = run.assembly.objective.predict(run.model, ModelInputs({"tokens": StreamView(given, valid)}, {}))
    for name, values in ours.items():
        np.testing.assert_allclose(theirs[name], values.numpy(), atol=1e-4)
        assert np.isfinite(theirs[name]).all()
    if samples > 3 and kind == "particles":
        assert np.ptp(theirs["probabilities"], axis=0).max() > 0.01  # samples differ
    assert theirs["summary"].shape == (samples, 16)


def test_what_a_program_must_know(runs):
    _, folder, _ = runs("particles")
    about = json.loads((folder / "preprocessing.json").read_text())
    names = {one["name"]: (one["type"], one["shape"]) for one in about["inputs"]}
    assert names == {
        "features": ("float", ["batch", "tokens", 17]),
        "vector": ("float", ["batch", "tokens", 4]),
        "valid": ("bool", ["batch", "tokens"]),
    }
    assert about["answers"] == ["a", "b", "c"]
    assert about["most_tokens"] == 128
    features = about["tokens"]["features"]
    assert [one["name"] for one in features[:2]] == ["log_pt", "log_energy"]
    assert (features[0]["centre"], features[0]["scale"], features[0]["clip"]) == (1.7, 0.7, [-5, 5])
    assert about["made_by"].keys() >= {"sciformer", "torch", "onnx"}
    assert "`features`: float (batch, tokens, 17)" in (folder / "README.md").read_text()
    assert b"/sciformer/" not in (folder / "model.onnx").read_bytes()  # no names of files of the machine


def test_the_description_is_enough_to_feed_the_graph(runs):
    """Features made of raw columns by what stands in preprocessing.json alone."""
    run, folder, _ = runs("particles")
    about = json.loads((folder / "preprocessing.json").read_text())["tokens"]
    table = jets((8,), seed=3)
    column = {name: values.values if isinstance(values, Lists) else values for name, values in table.items()}
    px, py = column["part_px"], column["part_py"]
    pt, energy, deta, dphi = np.hypot(px, py), column["part_energy"], column["part_deta"], column["part_dphi"]
    momenta = {"log_pt": np.log(pt), "log_energy": np.log(energy), "deta": deta, "dphi": dphi}
    momenta |= {"log_pt_rel": np.log(pt / column["jet_pt"]), "log_energy_rel": np.log(energy / column["jet_energy"])}
    momenta["delta_r"] = np.hypot(deta, dphi)
    features = []
    for one in about["features"]:
        x = momenta[one["name"]] if one["from"] == "momenta" else column[one["column"]]
        x = np.tanh(x) if one["change"] == "tanh" else x
        x = (x - one["centre"]) * one["scale"]
        features.append(x if one["clip"] is None else np.clip(x, *one["clip"]))
    order = np.argsort(-pt)
    vector = np.stack([column[f"part_{name}"] for name in ("px", "py", "pz", "energy")], -1)
    feed = {"features": np.stack(features, -1)[order][None], "vector": vector[order][None]}
    feed = {name: value.astype(np.float32) for name, value in feed.items()} | {"valid": np.ones((1, 8), bool)}
    (found,) = onnxruntime.InferenceSession(folder / "model.onnx").run(["probabilities"], feed)
    np.testing.assert_allclose(found, run.predict(table)["probabilities"], atol=1e-4)


def test_values_have_their_units_in_the_card(runs):
    run, folder, _ = runs("patches")
    about = json.loads((folder / "preprocessing.json").read_text())
    mean, std, _ = about["outputs"]
    image = np.load(folder.parent / "a.npz")["image"][:3]
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    learned, settings = about["tokens"]["learned"], about["tokens"]["settings"]
    scaled = (image - learned["mean"][0]) / learned["deviation"][0]
    side = settings["patch"]
    cut = scaled.reshape(3, 4, side, 3, side).swapaxes(2, 3).reshape(3, 12, side * side)
    at = np.stack(np.meshgrid(np.arange(4), np.arange(3), indexing="ij"), -1).reshape(-1, 2)
    feed = {
        "patch": cut.astype(np.float32),
        "at": np.tile(at, (3, 1, 1)).astype(np.float32),
        "valid": np.ones((3, 12), bool),
    }
    values, spreads, _ = session.run(None, feed)
    expected = run.predict({"image": image})
    np.testing.assert_allclose(values * mean["scale"] + mean["shift"], expected["mean"], rtol=1e-4)
    np.testing.assert_allclose(spreads * std["scale"] + std["shift"], expected["std"], rtol=1e-4)


@pytest.mark.parametrize("size", [(8, 6), (11, 9), (3, 20), (1, 1)])
def test_images_of_any_size_from_pixels(runs, size):
    """Pixels to values by the two graphs alone, at the size of the training and at others."""
    run, folder, _ = runs("patches")
    image = np.random.default_rng(2).normal(3, 2, (3, *size)).astype(np.float32)
    first, second = (onnxruntime.InferenceSession(folder / f"{name}.onnx") for name in ("preprocessing", "model"))
    names = [value.name for value in first.get_outputs()]
    columns = dict(zip(names, first.run(None, {"image": image[..., None]})))
    assert names == [value.name for value in second.get_inputs()]
    (mean,) = second.run(["mean"], columns)
    about = json.loads((folder / "preprocessing.json").read_text())["outputs"][0]
    np.testing.assert_allclose(mean * about["scale"] + about["shift"], run.predict({"image": image})["mean"], rtol=1e-4)
    assert "preprocessing.onnx" in (folder / "README.md").read_text()


def test_classifiers_have_logits(runs):
    run, folder, _ = runs("particles")
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    given = inputs.graph_inputs(run)["tokens"].make(3, 9, seed=0)
    feed = {value.name: given[value.name].numpy() for value in session.get_inputs()}
    probabilities, logits = (torch.from_numpy(one) for one in session.run(["probabilities", "logits"], feed))
    torch.testing.assert_close(logits.softmax(-1), probabilities)


def test_tokens_without_a_format_of_their_field(runs, tmp_path):
    run, _, _ = runs("particles")
    for format in ("", *formats()[:-1]):
        with refuses("text", "patches", "particles", key="tokens.kind", hint="--format onnx"):
            export_model(run, tmp_path / "o", format)
    assert list(tmp_path.iterdir()) == []


def test_the_vocabulary_lies_beside_a_graph(tmp_path):
    (tmp_path / "t.tsv").write_text("".join(f"{'ab'[i % 2]}\t{'to be or not'[: i + 2]}\n" for i in range(10)))
    data = {"kind": "lines", "files": [str(tmp_path / "t.tsv")], "columns": ["label", "text"]}
    tokens, out = {"kind": "text", "context": 16}, tmp_path / "o"
    run = graph_run(tmp_path / "run", data=data, tokens=tokens, model=MODEL, objective={"kind": "classify"})
    export_model(run, out, "onnx")
    run.assembly.tokens["tokens"].save(tmp_path / "same.json")
    assert (out / "tokenizer.json").read_text() == (tmp_path / "same.json").read_text()
    with refuses("README.md", file=out, hint="--overwrite"):
        export_model(run, out, "onnx")
    export_model(run, out, "onnx", overwrite=True)
    (out / "mine.txt").write_text("x")
    with refuses("mine.txt", file=out, hint="--out"):
        export_model(run, out, "onnx", overwrite=True)


def test_a_graph_that_answers_otherwise_is_not_written(runs, tmp_path, monkeypatch):
    run, _, _ = runs("patches")
    monkeypatch.setattr(onnx_export, "_trace", lambda *_: pytest.importorskip("onnx").ModelProto())
    monkeypatch.setattr(onnx_export, "check", lambda *_: (0.1, 1e-6))
    with refuses("0.0001", " 0.1 ", "1e-06"):
        export_model(run, tmp_path / "o", "onnx")
    assert list(tmp_path.iterdir()) == []


DECODER = {
    "data": {"kind": "text", "files": ["t.txt"]},
    "tokens": {"kind": "text", "context": 8},
    "model": {"kind": "decoder", "dim": 8, "depth": 1, "heads": 1},
    "objective": {"kind": "next_token"},
}


@pytest.mark.parametrize(
    ("changes", "mentions"),
    [
        ({"objective": {"kind": "masked"}}, ["`objective.kind: masked`", "classify, regress", "sciformer finetune"]),
        (DECODER, ["`model.kind: decoder`", "--format huggingface"]),
    ],
)
def test_models_without_an_answer_in_one_pass(tmp_path, here, changes, mentions):
    np.savez("a.npz", image=np.random.default_rng(0).normal(size=(12, 4, 4)).astype(np.float32))
    (tmp_path / "t.txt").write_text("to be or not to be\n" * 20)
    run = graph_run("run", **RECIPES["patches"] | {"train": TRAIN} | changes)
    with refuses(*mentions, key=mentions[0].strip("`").partition(":")[0]):
        export_model(run, "o", "onnx")
    assert not (tmp_path / "o").exists()


def test_without_the_packages_the_line_to_install_them(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with refuses(hint="pip install 'sciformer[export]'"):
        onnx_export.check_packages()


def test_the_run_is_left_as_it_was(runs):
    run, _, _ = runs("particles")
    kept = Run(run.path)
    assert {name for name, _ in kept.model.named_parameters()} == {name for name, _ in run.model.named_parameters()}
    assert run.model.heads["class"] is not None
