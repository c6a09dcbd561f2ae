"""Vision transformers of `transformers`: the same numbers in and out, and what cannot be said is refused."""

import numpy as np
import pytest
import safetensors.torch
import torch

from sciformer.data.batch import Batch
from sciformer.evaluation.embed import embed
from sciformer.interop import export_model, import_model
from sciformer.recipe import Recipe
from sciformer.run import Run, train
from tests.domains.images.interop.their_images import NAMES, assert_same_weights, images, make, pixel_values, save
from tests.domains.text.interop.theirs import rewrite, transformers
from tests.errors import refuses
from tests.interop.shaken import shaken_run

MODELS = [
    ("ForImageClassification", NAMES),
    ("ForImageClassification", {"qkv_bias": False, "hidden_act": "relu", "layer_norm_eps": 0.1, "num_labels": 2}),
    ("ForImageClassification", {"image_size": [8, 12], "patch_size": [4, 2], "num_channels": 1, **NAMES}),
]


def hidden(run, pictures):
    """Every token behind the trunk, the class token first."""
    tokens = run.assembly.tokens["tokens"]
    view = Batch({"tokens": tokens.normalise(tokens.tokenize({"image": pictures}))}).inputs().stream
    with torch.no_grad():
        return run.model.encode(view).x


@pytest.mark.parametrize(("head", "changes"), MODELS, ids=["names", "other keys", "no square"])
def test_the_same_numbers_in_and_out(head, changes, tmp_path):
    model, channels = make("ViT", head, **changes), changes.get("num_channels", 3)
    mean, deviation = (0.4, 0.5, 0.6)[:channels], (0.2, 0.3, 0.4)[:channels]
    path = save(tmp_path / "theirs", model, image_mean=mean, image_std=deviation)
    run = import_model(path, tmp_path / "run")
    height, width = changes.get("image_size", (12, 12))
    pictures = images(3, height, width, channels)
    with torch.no_grad():
        theirs = model(pixel_values(pictures, mean, deviation), output_hidden_states=True)
    order = [2, 1, 0] if "id2label" in changes else [0, 1]
    assert run.assembly.objective.classes == (["bird", "cat", "dog"] if len(order) == 3 else ["0", "1"])
    found = run.predict({"image": pictures})["probabilities"]
    np.testing.assert_allclose(found, theirs.logits.softmax(-1)[:, order], atol=1e-5)
    last = model.vit.layernorm(theirs.hidden_states[-1])
    torch.testing.assert_close(hidden(run, pictures), last, atol=1e-5, rtol=0)

    assert run.recipe.data.size == (height, width)
    assert export_model(run, tmp_path / "out") == []
    names = sorted(file.name for file in (tmp_path / "out").iterdir())
    assert names == ["config.json", "model.safetensors", "preprocessor_config.json"]
    again = transformers.ViTForImageClassification.from_pretrained(tmp_path / "out").eval()
    with torch.no_grad():
        back = again(pixel_values(pictures, mean, deviation)).logits
    torch.testing.assert_close(back, theirs.logits[:, order], atol=1e-5, rtol=0)
    assert list(again.config.id2label.values()) == run.assembly.objective.classes
    twice = import_model(tmp_path / "out", tmp_path / "twice")
    assert_same_weights(run, twice)
    scales = [one.assembly.tokens["tokens"].state for one in (run, twice)]
    assert all(scales[0][key] == pytest.approx(scales[1][key]) for key in ("mean", "deviation"))


def test_a_model_without_a_head_embeds_and_is_fine_tuned(tmp_path):
    model, said = make("ViT", "Model"), []
    path = save(tmp_path / "theirs", model, do_normalize=False)
    run = import_model(path, tmp_path / "run", log=said.append)
    assert any("left out: layers of other tasks (pooler." in note for note in said)
    assert any("no head" in note for note in said)
    pictures = images(12)
    with torch.no_grad():
        theirs = model(pixel_values(pictures, (0, 0, 0), (1, 1, 1))).last_hidden_state
    np.testing.assert_allclose(embed(run, {"image": pictures}).vectors, theirs[:, 0], atol=1e-5)
    torch.testing.assert_close(hidden(run, pictures), theirs, atol=1e-5, rtol=0)
    np.savez(tmp_path / "a.npz", image=pictures, label=np.arange(12) % 2)
    recipe = {"data": {"kind": "images", "files": [str(tmp_path / "a.npz")]}, "objective": {"kind": "classify"}}
    recipe |= {"tokens": {"kind": "patches"}, "model": {"kind": "encoder"}}
    recipe["train"] = {"steps": 1, "batch": 4, "device": "cpu", "init_from": str(run.path)}
    tuned = train(Recipe.from_dict(recipe), tmp_path / "tuned", show=False, report=False)
    assert (tuned.recipe.model.dim, tuned.recipe.tokens.patch) == (16, 4)
    assert export_model(run, tmp_path / "out")[0].startswith("only the encoder")
    again = transformers.ViTModel.from_pretrained(tmp_path / "out", add_pooling_layer=False).eval()
    with torch.no_grad():
        torch.testing.assert_close(again(pixel_values(pictures, (0, 0, 0), (1, 1, 1)))[0], theirs, atol=1e-5, rtol=0)


def test_names_of_later_versions(tmp_path):
    model = make("ViT", "ForImageClassification", **NAMES)
    path = save(tmp_path / "theirs", model)
    run = import_model(path, tmp_path / "run")
    safetensors.torch.save_file(model.state_dict(), path / "model.safetensors", metadata={"format": "pt"})
    assert_same_weights(run, import_model(path, tmp_path / "later"))


REFUSED = [
    ({"hidden_act": "mish"}, ["`hidden_act`", "gelu or gelu_new ", "mish"]),
    ({"image_size": 14}, ["4 x 4", "14 x 14"]),
    ({"image_size": [12, 12, 12]}, ["`image_size`", "[12, 12, 12]"]),
    ({"image_size": 16}, ["16 or 17 ", "`embeddings.position_embeddings`", "10"]),
    ({"num_channels": 1}, ["(1, 4, 4)", "(3, 4, 4)"]),
    ({"problem_type": "multi_label_classification"}, ["`problem_type`", "multi_label_classification"]),
    ({"num_hidden_layers": 3}, ["encoder.layer.1."]),
    ({"layer_scale": 0.1}, ["`layer_scale: 0.1`"]),
    ({"model_type": "deit"}, ["`model_type`", "vit, vit_mae", "'deit'"]),
]


@pytest.mark.parametrize(("changes", "mentions"), REFUSED, ids=lambda value: str(value)[:30])
def test_what_cannot_be_said_is_refused_by_name(changes, mentions, tmp_path):
    path = save(tmp_path / "theirs", make("ViT", "ForImageClassification", num_hidden_layers=1, **NAMES))
    rewrite(path / "config.json", **changes)
    whole = "num_hidden_layers" in changes  # of the folder, not of what its config.json says
    with refuses(*mentions, file=path if whole else path / "config.json"):
        import_model(path, tmp_path / "run")
    assert [one.name for one in tmp_path.iterdir()] == ["theirs"]


def test_pixels_without_a_word_about_them(tmp_path):
    path, said = save(tmp_path / "theirs", make("ViT", "ForImageClassification", num_hidden_layers=1)), []
    rewrite(path / "preprocessor_config.json", image_mean=[0.5, 0.5])
    with refuses("mean", "3", "[0.5, 0.5]", file=path / "preprocessor_config.json"):
        import_model(path, tmp_path / "run")
    (path / "preprocessor_config.json").unlink()
    run = import_model(path, tmp_path / "run", log=said.append)
    assert run.assembly.state()["tokens"]["tokens"]["deviation"] == [127.5] * 3
    assert any("there is no preprocessor_config.json" in note for note in said)


RUN = {"kind": "encoder", "dim": 8, "depth": 1, "heads": 2, "pool": "class_token"}


def made(folder, tokens=(), **model):
    np.savez(folder / "a.npz", image=images(12, 8, 8), label=np.arange(12) % 3)
    return shaken_run(
        folder,
        data={"kind": "images", "files": [str(folder / "a.npz")]},
        tokens={"kind": "patches", "patch": 4, **dict(tokens)},
        model={**RUN, **model},
        objective={"kind": "classify"},
    )


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("model", [{"bias": False, "norm_epsilon": 1e-6}, {"position": "sinusoidal"}], ids=str)
def test_a_run_of_ours_there(model, temperature, tmp_path):
    run = made(tmp_path, **model)
    if temperature != 1:
        run.folder.seal({"model/calibration.json": f'{{"state": {{"temperature": {temperature}}}}}'})
        run = Run(run.path)
    notes = export_model(run, tmp_path / "out")
    assert bool(notes) == ("position" in model)
    theirs = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "out").eval()
    about = transformers.ViTImageProcessor.from_pretrained(tmp_path / "out")
    pictures = images(3, 8, 8)
    with torch.no_grad():
        found = theirs(pixel_values(pictures, about.image_mean, about.image_std)).logits.softmax(-1)
    np.testing.assert_allclose(run.predict({"image": pictures})["probabilities"], found, atol=1e-5)


@pytest.mark.parametrize(
    ("tokens", "model", "pair"),
    [
        ({}, {"pool": "mean"}, "model.pool: mean"),
        ({}, {"norm_position": "post"}, "model.norm_position: post"),
        ({"step": 2}, {}, "tokens.step: 2"),
        ({"scale": "image"}, {}, "tokens.scale: image"),
    ],
)
def test_the_key_in_the_way_is_named(tokens, model, pair, tmp_path):
    run = made(tmp_path, tokens, **model)
    with refuses(f"`{pair}`", key=pair.partition(":")[0]):
        export_model(run, tmp_path / "out")
