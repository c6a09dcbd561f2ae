"""Images of any height and width: padding, overlap, several shapes in one data set, other sizes than trained on."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer.data.batch import Batch
from sciformer.data.columns import Lists, select
from sciformer.domains.images.tokens import Patches
from sciformer.models.encoder import Encoder
from sciformer.nn.positions import grid
from sciformer.objectives.base import Objective
from sciformer.testing import check_tokens
from sciformer.tokens.base import embedded
from tests.domains.images.test_tokens import fitted
from tests.errors import refuses

RNG = np.random.default_rng(0)


def several(count=6, channels=2, dtype=np.uint8, low=5, high=14):
    rng = np.random.default_rng([low, high])  # its own: others draw as often as an example needs
    shapes = rng.integers(low, high, (count, 2)).astype(np.int32)
    shapes[-1] = shapes[0]  # two are alike
    lengths = shapes.prod(1).astype(np.int64)
    values = rng.integers(0, 200, (int(lengths.sum()), channels)).astype(dtype)
    return {"image": Lists(values, lengths), "image_shape": shapes}


def image_of(table, row):
    height, width = table["image_shape"][row]
    return select(table, np.array([row]))["image"].values.reshape(height, width, -1)


@settings(max_examples=60, deadline=None)
@given(st.integers(3, 11), st.integers(3, 11), st.integers(1, 3), st.integers(1, 3), st.data())
def test_padding_and_overlap(height, width, side, wide, data):
    step, channels = data.draw(st.sampled_from([None, *range(1, min(side, wide) + 1)])), data.draw(st.integers(0, 3))
    given_ = RNG.integers(0, 255, (3, height, width, *([channels] if channels else []))).astype(np.uint8)
    images = given_ if channels else given_[..., None]
    tokens = fitted(given_, patch=(side, wide), step=step)
    stream = tokens.tokenize({"image": given_})
    rows, columns = tokens.grid_shape
    down, aside = (step, step) if step else (side, wide)
    assert height <= (rows - 1) * down + side < height + down or rows == 1
    assert width <= (columns - 1) * aside + wide < width + aside or columns == 1
    assert stream.lengths.tolist() == [rows * columns] * 3
    cut = stream.columns["patch"].reshape(3, rows * columns, -1)
    np.testing.assert_array_equal(tokens.image(cut), images)
    fill = np.asarray(tokens.state["mean"], np.float32)
    for number, (row, column) in enumerate(stream.columns["at"][: rows * columns]):
        whole = np.tile(fill, (side, wide, 1))
        piece = images[0, row * down : row * down + side, column * aside : column * aside + wide]
        whole[: piece.shape[0], : piece.shape[1]] = piece
        np.testing.assert_array_equal(cut[0, number], whole.reshape(-1).astype(cut.dtype))
    assert set(stream.columns) == {"patch", "at"}
    assert tokens.token_labels(stream.take(np.array([0])))[-1] == f"{rows - 1},{columns - 1}"


def test_what_is_padded_is_zero_once_scaled():
    images = RNG.integers(0, 255, (5, 6, 5, 3)).astype(np.uint8)
    stretches = ({"stretch": "asinh", "softening": 20.0}, {"stretch": "log"}, {"stretch": "sqrt"})
    for options in ({}, {"scale": "image"}, *stretches):
        tokens = fitted(images, **options)
        stream = tokens.normalise(tokens.tokenize({"image": images}))
        seen = stream.columns["patch"].reshape(5, 2, 2, 4, 4, 3).swapaxes(2, 3).reshape(5, 8, 8, 3)
        np.testing.assert_allclose(seen[:, 6:], 0, atol=1e-6)
        np.testing.assert_allclose(seen[:, :, 5:], 0, atol=1e-6)
        assert abs(seen[:, :6, :5].mean()) < 1e-5
        if options.get("scale") != "image":
            np.testing.assert_allclose(seen[:, :6, :5].std((0, 1, 2)), 1, atol=1e-5)


def test_images_of_several_shapes():
    table = several()
    tokens = fitted(table, patch=(4, 3))
    assert tokens.varies
    assert tokens.state["shape"] == [*table["image_shape"].max(0).tolist(), 2]
    np.testing.assert_allclose(tokens.state["mean"], table["image"].values.mean(0))
    stream = tokens.tokenize(table)
    places = np.asarray(tokens.grid_shape)
    for row, (height, width) in enumerate(table["image_shape"]):
        one = stream.take(np.array([row]))
        rows, columns = -(-height // 4), -(-width // 3)
        assert one.lengths.tolist() == [rows * columns]
        cells = grid((int(rows), int(columns))).numpy()
        np.testing.assert_array_equal(one.columns["cell"], cells)
        spread = grid((int(rows), int(columns)), tuple(places.tolist())).numpy()
        np.testing.assert_allclose(one.columns["at"], spread, atol=1e-5)
        np.testing.assert_array_equal(tokens.image(one.columns["patch"], (height, width)), image_of(table, row))
        alone = tokens.tokenize({"image": image_of(table, row)[None]})  # as an array
        for name, column in one.columns.items():
            np.testing.assert_array_equal(alone.columns[name], column)
    assert stream.columns["at"].dtype == np.float32
    assert tokens.token_labels(stream.take(np.array([0])))[0] == "0,0"


def test_arrays_of_different_shapes_vary_too():
    tables = [{"image": np.ones((2, 8, 6))}, {"image": np.zeros((3, 5, 9))}]
    tokens = Patches(kind="patches", patch=2)
    tokens.fit(tables)
    assert tokens.state["shape"] == [8, 9, 1]
    assert all("cell" in tokens.tokenize(table).columns for table in tables)
    tokens.fit(tables[:1])
    assert "varies" not in tokens.state


def test_other_sizes_than_trained_on():
    images = RNG.normal(size=(4, 8, 8))
    tokens = fitted(images, patch=2)
    other = tokens.tokenize({"image": RNG.normal(size=(2, 12, 6))})
    np.testing.assert_allclose(other.columns["at"][:18], grid((6, 3), (4, 4)).numpy(), atol=1e-6)
    network = Encoder(kind="encoder", dim=8, depth=1, heads=2).build({"t": tokens}, Objective()).eval()
    with torch.no_grad():
        for stream in (other, tokens.tokenize({"image": images})):
            seen = Batch({"t": tokens.normalise(stream)}, aside={"t": tokens.host_columns}).inputs().stream
            assert "size" not in seen.columns
            assert network.pool(network.encode(seen)).isfinite().all()
    # Images like those of the training, given as lists, are the same tokens.
    table = {"image": Lists(images.reshape(-1, 1), np.full(4, 64)), "image_shape": np.full((4, 2), 8, np.int32)}
    again, plain = tokens.tokenize(table), tokens.tokenize({"image": images})
    np.testing.assert_array_equal(again.columns["at"], plain.columns["at"])
    np.testing.assert_array_equal(again.columns["patch"], plain.columns["patch"])


@pytest.mark.parametrize("patch", [1, 2, 4, (4, 2)])
@pytest.mark.parametrize("embed", ["convolution", "residual"])
def test_a_stem_sees_only_its_image(patch, embed):
    table = several(low=6, high=12)
    tokens = fitted(table, patch=patch, embed=embed)
    torch.manual_seed(0)
    stem = tokens.embedding(16).eval()
    stream = tokens.normalise(tokens.tokenize(table))
    view = Batch({"t": stream}).inputs().stream
    packed = Batch({"t": stream}).inputs(packed=True).stream
    with torch.no_grad():
        together = embedded(stem, view.columns, view.valid)[view.valid]
        torch.testing.assert_close(embedded(stem, packed.columns, packed.valid), together, rtol=1e-4, atol=1e-5)
        trained = embedded(stem.train(), view.columns, view.valid)[view.valid]
        if embed == "convolution":
            torch.testing.assert_close(trained, together)
        else:  # batch norms see every image, but no padding
            again = embedded(stem, packed.columns, packed.valid)
            torch.testing.assert_close(again, trained, rtol=1e-4, atol=1e-5)
            assert not torch.allclose(trained, together)
            together = embedded(stem.eval(), view.columns, view.valid)[view.valid]
        stem.eval()
        start = 0
        for row, length in enumerate(stream.lengths):
            alone = Batch({"t": stream.take(np.array([row]))}).inputs().stream
            found = embedded(stem, alone.columns, alone.valid)[0]
            torch.testing.assert_close(found, together[start : start + length], rtol=1e-4, atol=1e-5)
            start += length


def test_the_stem_on_a_full_grid_is_the_plain_convolution():
    images = RNG.normal(size=(3, 8, 16, 2)).astype(np.float32)
    tokens = fitted(images, patch=4, embed="convolution")
    stem = tokens.embedding(16).eval()
    view = Batch({"t": tokens.normalise(tokens.tokenize({"image": images}))}).inputs().stream
    masked = Batch({"t": tokens.normalise(tokens.tokenize({"image": images}))}).inputs(rows=4, width=8).stream
    with torch.no_grad():
        found = stem(view.columns, view.valid)
        x = torch.from_numpy((images - tokens.state["mean"]) / tokens.state["deviation"]).float().movedim(-1, 1)
        for conv, norm in zip(stem.convs, stem.norms):
            x = torch.nn.functional.gelu(norm(conv(x).movedim(1, -1))).movedim(-1, 1)
        torch.testing.assert_close(found, stem.linear(x.movedim(1, -1).flatten(1, 2)), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(stem(masked.columns, masked.valid)[:3], found, rtol=1e-4, atol=1e-5)


def test_the_residual_stem_needs_no_places_where_images_fill_the_grid():
    images = RNG.normal(size=(3, 8, 16, 2)).astype(np.float32)
    tokens = fitted(images, patch=4, embed="residual")
    torch.manual_seed(0)
    stem = tokens.embedding(16).eval()
    view = Batch({"t": tokens.normalise(tokens.tokenize({"image": images}))}).inputs().stream
    with torch.no_grad():
        found = stem(view.columns, view.valid)
        assert found.shape == (3, 8, 16)
        general = stem.trunk(view.columns["patch"], view.valid, at=view.columns["at"])
        torch.testing.assert_close(stem.linear(general), found)
        changed = view.columns["patch"].clone()
        changed[:, 0] += 1  # the other patches of an image see it
        moved = stem({**view.columns, "patch": changed}, view.valid) - found
    assert (moved.abs().amax((0, 2)) > 1e-4).sum() > 1


def test_windows_that_do_not_fill_the_grid_keep_their_places():
    rng = np.random.default_rng(0)
    tokens = fitted(rng.normal(size=(4, 12, 12)), patch=4, embed="residual", window=2)
    torch.manual_seed(0)
    stem = tokens.embedding(8).eval()
    tall = {"image": rng.normal(size=(1, 8, 4))}
    shapes = np.array([[8, 8], [8, 4]], np.int32)
    values = np.concatenate([rng.normal(size=64), tall["image"].ravel()])[:, None]
    both = {"image": Lists(values, shapes.prod(1).astype(np.int64)), "image_shape": shapes}
    with torch.no_grad():
        together, alone = (
            stem(view.columns, view.valid)
            for table in (both, tall)
            for view in [Batch({"t": tokens.normalise(tokens.tokenize(table))}).inputs().stream]
        )
    assert together.shape == (2, 4, 8)
    torch.testing.assert_close(together[1, :2], alone[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "table"),
    [
        ({"patch": 4, "scale": "image", "target": "patch"}, {"image": RNG.normal(size=(4, 10, 7, 3))}),
        ({"patch": (4, 2), "embed": "convolution"}, several()),
        ({"patch": (4, 2), "embed": "residual"}, several()),
        ({"patch": 4, "embed": "none", "stretch": "asinh", "scale": "image"}, several()),
        ({"patch": 3, "augment": ("flip", "crop", "rotate", "shift", "noise")}, several(channels=1, dtype=np.float32)),
        ({"patch": 3, "stretch": "sqrt", "augment": ("noise",)}, {"image": RNG.integers(0, 999, (3, 9, 9, 20))}),
    ],
)
def test_conformance(options, table):
    assert check_tokens(Patches(kind="patches", **options), table) == []


def test_shapes_that_are_refused():
    table = several()
    with refuses("`image_shape`", "(n, 2)"):
        Patches(kind="patches").fit([{"image": table["image"]}])
    wrong = table["image_shape"].copy()
    wrong[2, 0] += 1
    with refuses("image 2", f"{wrong[2, 0]} x {wrong[2, 1]}", f"{table['image'].lengths[2]} pixels"):
        Patches(kind="patches").fit([{**table, "image_shape": wrong}])
    stream = fitted(table).tokenize(table)
    with refuses():
        fitted(table).mix(stream, stream, np.ones(len(stream)))
