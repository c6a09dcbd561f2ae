"""Shapes with textures: the same each time; which agree or do not; each told from the others."""

import numpy as np
import pytest

from sciformer.domains.images.simulate.cues import (
    CLASSES,
    TEXTURES,
    Options,
    cues,
    draw_labels,
    shape_depth,
    texture_values,
)
from tests.errors import refuses


def test_an_image_is_the_same_whatever_it_is_asked_for_with():
    options = Options(24, 0.5)
    whole = cues(300, 3, part="train", options=options)
    parts = [cues(n, 3, (), first, "train", options) for first, n in ((0, 7), (7, 255), (262, 38))]
    for name, column in whole.items():
        np.testing.assert_array_equal(column, np.concatenate([part[name] for part in parts]))
    np.testing.assert_array_equal(draw_labels(293, 3, first=7, part="train"), whole["label"][7:])
    others = [
        cues(1, seed, part=part, size=24)["image"].tobytes() for seed, part in ((3, "train"), (3, "agree"), (4, "test"))
    ]
    assert len(set(others)) == 3


def test_cues_agree_as_often_as_they_should():
    for agree in (0.0, 0.3, 1.0):
        table = cues(1024, size=24, agree=agree)
        assert (table["label"] == table["texture"]).mean() == pytest.approx(agree, abs=0.06 * (0 < agree < 1))
        counts = [np.unique(table[name], return_counts=True)[1] for name in ("label", "texture")]
        assert set(counts[0]) == {128}
        assert counts[1].min() > 80
    some = cues(400, classes=["star", "disk", "ring"], agree=0.0, size=24)
    pairs = set(zip(some["label"].tolist(), some["texture"].tolist()))
    assert len(pairs) == 6
    assert all(one != two for one, two in pairs)


def test_images_are_bytes_of_the_size_asked_for():
    table = cues(16, size=40)
    assert table["image"].shape == (16, 40, 40)
    assert table["image"].dtype == np.uint8
    assert (np.ptp(table["image"], axis=(1, 2)) > 60).all()


def test_shapes_and_textures_differ_from_each_other():
    v, u = np.meshgrid(np.linspace(-1.2, 1.2, 80), np.linspace(-1.2, 1.2, 80), indexing="ij")
    masks = [shape_depth(name, u[None], v[None])[0] > 0 for name in CLASSES]
    for i, one in enumerate(masks):
        assert 0.1 < one.mean() * 2.4**2 / np.pi < 0.9, CLASSES[i]
        assert not one[0].any()
        assert not one[:, 0].any()
        for other in masks[:i]:
            assert (one ^ other).sum() > 0.15 * min(one.sum(), other.sum())
    fills = [texture_values(name, 2 * u[None], 2 * v[None], np.random.default_rng(0))[0] for name in TEXTURES]
    for i, one in enumerate(fills):
        assert set(np.unique(np.sign(one))) >= {-1, 1}
        assert np.abs(one).max() <= 1
        for other in fills[:i]:
            assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.6


def test_the_shape_is_seen_whatever_fills_it():
    """The ground is darker or lighter than all of a texture."""
    table = cues(64, agree=0.0, noise=0.0)
    ground = table["image"][:, 0, 0].astype(int)
    apart = np.abs(table["image"].astype(int) - ground[:, None, None])
    assert ((apart > 20).sum((1, 2)) > 200).all()
    inside = table["image"].astype(int) - ground[:, None, None]
    assert ((inside >= -1).all((1, 2)) | (inside <= 1).all((1, 2))).all()


@pytest.mark.parametrize(
    ("arguments", "more", "mentions", "hint"),
    [
        ((0,), {}, ("number", "images", 0), ""),
        ((5, 0, ["disc"]), {}, ("class", "disc"), "'disk'"),
        ((5, 0, ["disk"]), {}, ("classes", "disk"), ""),
        ((5,), {"size": 16}, ("size", 24, 512, 16), ""),
        ((5,), {"agree": 1.5}, ("agree", 0, 1, 1.5), ""),
        ((5,), {"noise": -1.0}, ("noise", 0, 1, -1.0), ""),
    ],
)
def test_nonsense_is_refused(arguments, more, mentions, hint):
    with refuses(*mentions, hint=hint):
        cues(*arguments, **more)
