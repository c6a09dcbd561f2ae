"""Windows of images, on two axes: anywhere in training, evenly where they are judged, one answer for an image."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer.assembly import Assembly
from sciformer.data.dataset import Dataset
from sciformer.data.random import SampleRandom
from sciformer.data.source import Memory
from sciformer.data.windows import START, WINDOW
from sciformer.evaluation.embed import embed
from sciformer.evaluation.truncated import truncated_scores
from sciformer.run import train
from tests.domains.images.test_shapes import image_of, several
from tests.domains.images.test_tokens import fitted
from tests.errors import refuses
from tests.training.tiny import image_recipe


def windows_of(table, rule="tail", **options):
    tokens = fitted(table, **options)
    return tokens, Dataset(Memory(table), {"t": tokens}, windows={"t": tokens.make_windows(rule=rule)})


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2))
def test_windows_cover_every_patch_of_images_of_any_size(rows, columns, side, overlap):
    table, step = several(), max(1, side - overlap)
    tokens, data = windows_of(table, patch=side, window=(rows, columns), step=step)
    batch, seen = data.all(), [set() for _ in table["image_shape"]]
    for number, (row, start) in enumerate(zip(batch.samples[WINDOW], batch.samples[START])):
        one = batch.stream.take(np.array([number]))
        size, at = one.columns["size"][0], one.columns["at"]
        whole = image_of(table, row)[start[0] * step :, start[1] * step :][: size[0], : size[1]]
        np.testing.assert_array_equal(tokens.image(one.columns["patch"], tuple(size)), whole)
        assert (at.max(0) < tokens.grid_shape).all()
        assert len(at) == np.prod(at.max(0) + 1) == data.widths[number]
        seen[row] |= {tuple(cell) for cell in at + start}
    for found, shape in zip(seen, table["image_shape"]):
        assert len(found) == tokens.cutting.grid(shape).prod()
    for name, column in tokens.normalise(batch.stream).columns.items():
        assert np.isfinite(column).all(), name


def test_windows_of_the_training_are_anywhere_and_a_pure_function():
    table = {"image": np.random.default_rng(0).normal(size=(3, 12, 10))}
    tokens, data = windows_of(table, "loose", patch=2, window=3)
    assert tokens.grid_shape == (3, 3)
    assert tokens.shape == (6, 6, 1)
    assert len(data) == 3
    assert data.width == 9
    ids, places = np.arange(3), set()
    for epoch in range(60):
        batch = data.batch(ids, SampleRandom(0, epoch, ids))
        again = data.batch(ids[::-1], SampleRandom(0, epoch, ids[::-1]))
        np.testing.assert_array_equal(again.samples[START][::-1], batch.samples[START])
        np.testing.assert_array_equal(batch.stream.columns["at"][:9], batch.stream.columns["at"][9:18])
        places |= {tuple(start) for start in batch.samples[START].tolist()}
    assert places == {(row, column) for row in range(4) for column in range(3)}


@pytest.fixture
def recipe(tmp_path):
    rng = np.random.default_rng(0)
    label = np.arange(24) % 2
    np.savez(tmp_path / "a.npz", image=rng.normal(size=(24, 10, 8)) + label[:, None, None], label=label)
    changes = {"data__files": [str(tmp_path / "a.npz")], "data__split__test": 0.2, "tokens__window": [3, 2]}
    return image_recipe(tmp_path, **changes, train__steps=4)


def test_an_image_has_the_mean_answer_of_its_windows(recipe, tmp_path):
    run = train(recipe, tmp_path / "run", show=False, report=False)
    image = np.random.default_rng(1).normal(size=(2, 10, 8))
    found = run.predict({"image": image})["probabilities"]
    windows = [image[:, 2 * row : 2 * row + 6, 2 * column : 2 * column + 4] for row in (0, 2) for column in (0, 2)]
    apart = [run.predict({"image": window})["probabilities"] for window in windows]
    np.testing.assert_allclose(found, np.mean(apart, 0), atol=1e-5)
    assert np.ptp(apart, axis=0).max() > 1e-4
    vectors = [embed(run, {"image": one}).vectors for one in (image, *windows)]
    np.testing.assert_allclose(vectors[0], np.mean(vectors[1:], 0), atol=1e-5)
    assert len(run.predict(several(channels=1), watch=run.assembly.compare(accept_drift=True))["probabilities"]) == 6
    assert run.evaluate().scores["accuracy"] >= 0
    with refuses():
        truncated_scores(run, [1.0])


@pytest.mark.parametrize(
    "changes",
    [
        {"model.trunk": "convolution"},
        {"model.trunk": "resnet2d", "model.stages": [1], "tokens.embed": "none"},
        {"tokens.embed": "convolution", "tokens.augment": ["flip", "crop"], "objective.mixup": 0.4},
        {"tokens.embed": "residual", "tokens.augment": ["flip", "crop"]},
        {"model.kind": "masked_autoencoder", "model.decoder_depth": 1, "objective.kind": "masked"},
        {"tokens.scale": "image", "tokens.window": 9, "tokens.patch": 3},  # larger than the images
    ],
    ids=["convolution", "resnet2d", "stem", "residual stem", "masked autoencoder", "large"],
)
def test_models_that_read_windows(recipe, changes, tmp_path):
    assert np.isfinite(train(recipe.change(changes), tmp_path / "run", show=False, report=True).scores["loss"])
    assert (tmp_path / "run" / "report.html").exists()


def test_mistakes(recipe):
    with refuses("tokens.periodic"):
        recipe.change({"tokens.periodic": True})
    with refuses(2, key="tokens.window"):
        Assembly.open(recipe.change({"model.kind": "decoder", "objective.kind": "next_token"})).dataset("train")
