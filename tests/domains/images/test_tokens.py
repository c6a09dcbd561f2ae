import numpy as np
import pytest

from sciformer.data.random import SampleRandom
from sciformer.domains.images.tokens import Patches
from tests.errors import refuses

RNG = np.random.default_rng(0)


def fitted(images, **options):
    """Patches that were fitted on an array of images, or on a table."""
    tokens = Patches(kind="patches", **options)
    tokens.fit([images if isinstance(images, dict) else {"image": images}])
    return tokens


def images_of(stream, tokens):
    return tokens.image(stream.columns["patch"].reshape(len(stream), -1, stream.columns["patch"].shape[-1]))


def test_nothing_is_legal():
    tokens = fitted(np.ones((2, 4, 4)), augment=("flip", "turn", "negate"))
    stream = tokens.tokenize({"image": np.zeros((0, 4, 4))})
    assert len(stream) == 0
    assert len(tokens.normalise(tokens.augment_stream(stream, SampleRandom(0, 0, [])))) == 0


@pytest.mark.parametrize("pieces", [1, 3])
def test_fit_and_normalise(pieces):
    images = RNG.normal(size=(60, 8, 4, 3)) * [1, 0.01, 0] + [1e8, -3, 7]  # a constant channel among them
    tokens = Patches(kind="patches", patch=2)
    tokens.fit({"image": part} for part in [images[:0], *np.array_split(images, pieces)])
    np.testing.assert_allclose(tokens.state["mean"], images.mean((0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(tokens.state["deviation"], images.std((0, 1, 2)), rtol=1e-6)
    stream = tokens.normalise(tokens.tokenize({"image": images}))
    assert stream.columns["patch"].dtype == np.float32
    found = images_of(stream, tokens)
    np.testing.assert_allclose(found.mean((0, 1, 2)), 0, atol=1e-4)
    np.testing.assert_allclose(found.std((0, 1, 2)), [1, 1, 0], atol=1e-4)
    plain = fitted(images, patch=2, scale="none")
    raw = plain.normalise(plain.tokenize({"image": images})).columns["patch"]
    np.testing.assert_array_equal(raw, plain.tokenize({"image": images}).columns["patch"].astype(np.float32))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, bool, np.float32, np.int32])
def test_whole_numbers_and_signs(dtype):
    images = RNG.integers(0, 2, (50, 4, 4)).astype(dtype)
    tokens = fitted(images, augment=("negate",))
    stream = tokens.tokenize({"image": images})
    varied = tokens.augment_stream(stream, SampleRandom(0, 0, np.arange(50)))
    ratio = images_of(varied, tokens).sum((1, 2, 3)) / np.maximum(1, images.astype(int).sum((1, 2)))
    assert set(ratio.tolist()) == {1.0, -1.0}
    assert 10 < (ratio > 0).sum() < 40
    assert np.isfinite(tokens.normalise(varied).columns["patch"]).all()


def symmetries(image):
    flips = [image, image[:, ::-1]]
    return [np.rot90(one, k) for one in flips for k in range(4)]


@pytest.mark.parametrize("augment", [("flip",), ("turn",), ("flip", "turn"), ("roll",), ("roll", "flip", "turn")])
def test_variations_are_symmetries_and_pure(augment):
    images = RNG.normal(size=(40, 4, 4, 2))
    tokens = fitted(images, patch=2, augment=augment, periodic=True)
    stream, ids = tokens.tokenize({"image": images}), np.arange(40) + 100
    varied = tokens.augment_stream(stream, SampleRandom(0, 1, ids))
    found = images_of(varied, tokens)
    np.testing.assert_array_equal(varied.columns["at"], stream.columns["at"])
    np.testing.assert_array_equal(np.sort(found.reshape(40, 16, 2), 1), np.sort(images.reshape(40, 16, 2), 1))
    kinds = set()
    for image, one in zip(images, found):
        shifts = [(a, b) for a in range(4) for b in range(4)] if "roll" in augment else [(0, 0)]
        matches = [
            (shift, k)
            for shift in shifts
            for k, other in enumerate(symmetries(np.roll(image, shift, (0, 1))))
            if np.array_equal(other, one)
        ]
        assert matches
        kinds.add(matches[0])
    assert len(kinds) >= {("flip",): 2, ("turn",): 4, ("flip", "turn"): 8}.get(augment, 12)
    order = RNG.permutation(40)[:11]
    again = tokens.augment_stream(stream.take(order), SampleRandom(0, 1, ids[order]))
    np.testing.assert_array_equal(images_of(again, tokens), found[order])
    other = images_of(tokens.augment_stream(stream, SampleRandom(0, 2, ids)), tokens)
    assert not np.array_equal(other, found)
    assert tokens.augment_stream(stream, SampleRandom(0, 1, ids)).columns["patch"] is not stream.columns["patch"]
    np.testing.assert_array_equal(images_of(stream, tokens), images)  # the data stay as they are


def test_distances_go_round_where_edges_touch():
    stream = fitted(np.ones((1, 8, 8)), patch=2).tokenize({"image": np.ones((1, 8, 8))})
    flat = fitted(np.ones((1, 8, 8)), patch=2).distance(stream)
    ring = fitted(np.ones((1, 8, 8)), patch=2, periodic=True).distance(stream)
    assert flat[0, 3] == 6
    assert ring[0, 3] == 2
    np.testing.assert_allclose(flat[0, 5], np.sqrt(8))
    np.testing.assert_array_equal(ring, ring.T)


@pytest.mark.parametrize(
    ("images", "options", "key", "mentions"),
    [
        (np.ones((2, 6, 3)), {}, "tokens.patch", ("4 x 4", "6 x 3")),
        (np.ones((2, 6, 6)), {"step": 5}, "tokens.step", (4, 5)),
        (np.full((2, 4, 4), "a"), {}, None, ("(2, 4, 4)", "<U1")),
        (np.ones((2, 6)), {}, None, ("(n, height, width)", "(2, 6)")),
        (np.ones((0, 4, 4)), {}, None, ()),
        (np.where(np.arange(48).reshape(3, 4, 4) == 20, np.nan, 1), {}, None, ("NaN", "sample 1", "1 pixels")),
    ],
)
def test_images_that_are_refused(images, options, key, mentions):
    with refuses(*mentions, key=key):
        fitted(images, **options)


def test_mistakes():
    tokens = fitted(np.ones((1, 4, 8)), augment=("turn",))
    stream = tokens.tokenize({"image": np.ones((1, 4, 8))})
    with refuses("4 x 8", key="tokens.augment"):
        tokens.augment_stream(stream, SampleRandom(0, 0, [0]))
    with refuses("tokens.periodic: true", key="tokens.periodic"):
        fitted(np.ones((1, 4, 8)), augment=("roll",)).augment_stream(stream, SampleRandom(0, 0, [0]))
    with refuses("1 channels", "not 2", "(1, 4, 8, 2)"):
        tokens.tokenize({"image": np.ones((1, 4, 8, 2))})
    with refuses("`image`", "text"):
        tokens.tokenize({"text": np.ones(1)})
    with refuses(hint="fit"):
        _ = Patches(kind="patches").grid_shape
    with refuses("patches", key="tokens.kind"):
        tokens.random_replacement(stream, np.zeros(2, bool), SampleRandom(0, 0, [0]))
    tables = ({"image": np.ones((1, 4, 4, n))} for n in (1, 3))
    with refuses("1 channels", 3):
        Patches(kind="patches").fit(tables)
    overlapping = fitted(np.ones((1, 4, 8)), step=2, embed="convolution")
    for make in (lambda: overlapping.readout(4, None), lambda: overlapping.embedding(8)):
        with refuses("tokens.step: 2", key="tokens.step"):
            make()
    with refuses("tokens.embed: convolution", "3 x 3", key="tokens.patch"):
        fitted(np.ones((1, 6, 6)), patch=3, embed="convolution").embedding(8)
