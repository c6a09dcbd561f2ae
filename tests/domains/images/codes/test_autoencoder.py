"""A trained autoencoder inside the tokens of another run."""

import shutil

import numpy as np
import pytest

from sciformer.domains.images.codes.tokens import Codes
from sciformer.recipe import Recipe
from sciformer.run import Run, train
from tests.errors import refuses

SMALL = {"data.number": 24, "data.valid": 8, "data.test": 8, "data.chunk_size": 16, "model.dim": 16, "model.heads": 2}
SMALL |= {"train.steps": 2, "train.warmup": 1, "train.batch": 4, "train.evaluate_every": 2, "train.device": "cpu"}


@pytest.fixture(scope="module")
def vq(tmp_path_factory):
    path = tmp_path_factory.mktemp("vq") / "run"
    changes = SMALL | {"model.codes": 8, "model.decoder_depth": 1, "tokens.patch": 8}
    return train(Recipe.load("images/vq", changes), path, show=False, report=False)


def test_codes_and_pictures_are_those_of_the_run(vq, tmp_path):
    copy = shutil.copytree(vq.path, tmp_path / "copy")
    tokens = Codes(kind="picture_codes", autoencoder=str(copy))
    table = vq.data().dataset("test").source.load(0)
    tokens.fit(iter([table]))
    shutil.rmtree(copy)  # the tokens keep all they need
    twin = Codes(kind="picture_codes", autoencoder=str(copy))
    twin.restore(tokens.state)
    assert (twin.size, twin.side, twin.grid) == (9, 8, (8, 8))
    stream = twin.tokenize(table)
    own = vq.model.codes(vq.inputs({"image": table["image"]}).stream).numpy()
    assert np.array_equal(stream.columns["ids"].reshape(len(own), -1)[:, 1:], own + 1)
    pictures = twin.invert(stream)["image"]
    assert pictures.shape == table["image"].shape
    assert pictures.dtype == np.uint8
    assert twin.absolute_paths().autoencoder == str(copy)


def test_pictures_are_written_with_it(vq, tmp_path):
    changes = SMALL | {"tokens.target.autoencoder": str(vq.path), "model.depth": 1, "model.source.depth": 1}
    run = train(Recipe.load("images/from-text", changes), tmp_path / "run", show=False, report=False)
    found = Run(run.path).generate(["a"], 2, seed=0)
    assert found.shape == (1, 2, 64, 64, 3)


def test_other_runs_are_refused(tmp_path):
    changes = SMALL | {"model.depth": 1, "model.source.depth": 1, "data.things": [1, 1]}
    other = train(Recipe.load("images/from-text-diffusion", changes), tmp_path / "run", show=False, report=False)
    with refuses("diffusion_transformer", key="tokens.autoencoder"):
        Codes(kind="picture_codes", autoencoder=str(other.path)).fit(iter([]))
