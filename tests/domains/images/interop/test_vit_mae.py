"""Masked autoencoders of `transformers`: the same pictures of hidden patches and the same loss, in and out."""

import numpy as np
import pytest
import torch

from sciformer.data.batch import ModelInputs
from sciformer.data.prepare import prepare
from sciformer.data.random import SampleRandom
from sciformer.evaluation.embed import embed
from sciformer.interop import export_model, import_model
from tests.domains.images.interop.their_images import assert_same_weights, images, make, pixel_values, save
from tests.domains.text.interop.theirs import rewrite, transformers
from tests.errors import refuses

PICTURES = images()


def asked(run, seed=1):
    """A batch with patches hidden, and the noise that makes theirs hide the same."""
    assembly = run.assembly
    batch = assembly.samples({"image": PICTURES}).batch(np.arange(len(PICTURES)))
    rng = SampleRandom(seed, 0, batch.ids)
    made = prepare(batch, assembly.tokens, assembly.objective, rng, training=False)
    hidden = torch.as_tensor(made.stream.columns["hidden"].astype(np.float32)).view(len(PICTURES), -1)
    return made.inputs(), hidden


def said(run, inputs: ModelInputs):
    """What the model says of all patches, and the mean loss."""
    model = run.model.eval()
    with torch.no_grad():
        tokens = model.tokens(model.encode(inputs.stream))
        loss, _ = run.assembly.objective.step(model, inputs, False)
    return model.readout.predict(tokens)["patch"], float(loss)


@pytest.mark.parametrize("changes", [{}, {"norm_pix_loss": True, "mask_ratio": 0.34, "hidden_act": "relu"}], ids=str)
def test_the_same_pictures_and_the_same_loss(changes, tmp_path):
    model = make("ViTMAE", "ForPreTraining", **changes)
    run = import_model(save(tmp_path / "theirs", model), tmp_path / "run")
    inputs, hidden = asked(run)
    assert 0 < hidden.sum() < hidden.numel()
    model.config.mask_ratio = float(hidden.mean()) - 0.01  # as many as here: they round down what is kept
    with torch.no_grad():
        theirs = model(pixel_values(PICTURES), noise=hidden)
    torch.testing.assert_close(theirs.mask, hidden)
    pictures, loss = said(run, inputs)
    torch.testing.assert_close(pictures, theirs.logits, atol=1e-5, rtol=0)
    assert loss / hidden.sum().item() == pytest.approx(float(theirs.loss), rel=1e-5)

    assert export_model(run, tmp_path / "out") == []
    again = transformers.ViTMAEForPreTraining.from_pretrained(tmp_path / "out").eval()
    assert again.config.mask_ratio == pytest.approx(changes.get("mask_ratio", 0.75))
    assert again.config.norm_pix_loss == bool(changes)
    again.config.mask_ratio = model.config.mask_ratio
    with torch.no_grad():
        back = again(pixel_values(PICTURES), noise=hidden)
    torch.testing.assert_close(back.logits, theirs.logits, atol=1e-5, rtol=0)
    assert_same_weights(run, import_model(tmp_path / "out", tmp_path / "twice"), atol=1e-6)


def test_the_encoder_alone(tmp_path):
    model, notes = make("ViTMAE", "Model"), []
    run = import_model(save(tmp_path / "theirs", model), tmp_path / "run", log=notes.append)
    assert any("no head" in note for note in notes)
    model.config.mask_ratio = 0.0
    with torch.no_grad():
        theirs = model(pixel_values(PICTURES), noise=torch.arange(9.0).expand(3, 9)).last_hidden_state
    np.testing.assert_allclose(embed(run, {"image": PICTURES}).vectors, theirs[:, 0], atol=1e-5)


def test_a_decoder_of_another_form_is_refused(tmp_path):
    path = save(tmp_path / "theirs", make("ViTMAE", "ForPreTraining"))
    rewrite(path / "config.json", decoder_intermediate_size=24)
    with refuses(" 3 ", " 2.5 ", file=path / "config.json"):
        import_model(path, tmp_path / "run")
