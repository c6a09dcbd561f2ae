"""Shapes with textures: which agree or do not; each told from the others."""

import numpy as np
import pytest

from sciformer.data.source import pieces
from sciformer.domains.images.simulate.cues import CLASSES, TEXTURES, Cues, shape_depth, texture_values


def test_cues_agree_as_often_as_they_should():
    for agree in (0.0, 0.3, 1.0):
        table = Cues(size=24, agree=agree).make(1024)
        assert (table["label"] == table["texture"]).mean() == pytest.approx(agree, abs=0.06 * (0 < agree < 1))
        counts = [np.unique(table[name], return_counts=True)[1] for name in ("label", "texture")]
        assert set(counts[0]) == {128}
        assert counts[1].min() > 80
    some = Cues(classes=["star", "disk", "ring"], agree=0.0, size=24).make(400)
    pairs = set(zip(some["label"].tolist(), some["texture"].tolist()))
    assert len(pairs) == 6
    assert all(one != two for one, two in pairs)


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
    table = Cues(agree=0.0, noise=0.0).make(64)
    inside = table["image"].astype(int) - table["image"][:, :1, :1]
    assert ((np.abs(inside) > 20).sum((1, 2)) > 200).all()
    assert ((inside >= -1).all((1, 2)) | (inside <= 1).all((1, 2))).all()


@pytest.mark.parametrize("agree", [1.0, 0.5])
def test_cues_agree_where_they_are_learned_and_contradict_where_they_are_judged(agree):
    opened = Cues(size=24, number=400, agree=agree).open()
    tables = {part: next(pieces(source)) for part, source in opened.sources.items()}
    found = {part: (table["label"] == table["texture"]).mean() for part, table in tables.items()}
    assert found["train"] == pytest.approx(agree, abs=0.1 * (agree < 1))
    assert found["valid"] == pytest.approx(agree, abs=0.25 * (agree < 1))
    assert (found["agree"], found["test"]) == (1, 0)
