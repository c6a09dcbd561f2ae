"""Galaxies: whole, of the form of their class, held in memory while they are few, trained on."""

import importlib.util

import numpy as np
import pytest

from sciformer.domains.images.simulate import base
from sciformer.domains.images.simulate.galaxies import CLASSES, Galaxies
from sciformer.domains.images.simulate.lenses import Lenses
from sciformer.domains.images.simulate.morphology import MAKERS
from sciformer.domains.images.simulate.sersic import sersic
from tests.errors import refuses


@pytest.mark.parametrize(
    ("section", "shape", "kind"),
    [
        (Galaxies(seed=1), (64, 64, 3), np.uint8),
        (Galaxies(seed=1, size=20, bands=1), (20, 20, 1), np.uint8),
        (Galaxies(seed=1, size=33, bands=6, unit="flux"), (33, 33, 6), np.float32),
        (Lenses(seed=1), (64, 64), np.uint8),
        (Lenses(seed=1, size=24, bands=3, unit="flux"), (24, 24, 3), np.float32),
    ],
    ids=str,
)
def test_columns_are_whole_and_finite(section, shape, kind):
    table = section.make(65)
    assert table["image"].shape == (65, *shape)
    assert table["image"].dtype == kind
    for name, column in table.items():
        assert len(column) == 65
        assert column.dtype.kind == "U" or np.isfinite(column).all(), name


def test_truths_are_in_their_ranges():
    table = Galaxies(seed=1, size=20).make(16)
    assert 0 < table["axis_ratio"].min() <= table["axis_ratio"].max() <= 1
    assert table["snr"].min() >= 20
    assert table["radius"].min() > 1


def test_every_maker_gives_all_its_light_and_sums_to_one():
    for name, make in MAKERS.items():
        made = make(40, 64, np.random.default_rng(0), sersic)
        light = sum(map for map, _ in made.maps)
        assert np.isfinite(light).all(), name
        assert light.min() >= 0, name
        assert 0.7 < light.sum((1, 2)).min() <= light.sum((1, 2)).max() < 1.03, name
        assert len(made.radius) == len(made.ratio) == len(made.angle) == 40


def moments(light):
    """The centre (n, 2), as row and column, of maps (n, H, W), and short over long axis."""
    at = np.arange(64)
    weight = light / light.sum((1, 2), keepdims=True)
    x, y = (weight * at).sum((1, 2)), (weight * at[:, None]).sum((1, 2))
    xx, yy = (weight * at**2).sum((1, 2)) - x**2, (weight * at[:, None] ** 2).sum((1, 2)) - y**2
    xy = (weight * at * at[:, None]).sum((1, 2)) - x * y
    half, apart = (xx + yy) / 2, np.hypot((xx - yy) / 2, xy)
    return np.stack([y, x], 1), np.sqrt((half - apart) / (half + apart))


def uneven(light):
    """The share of light that has no partner on the other side of the centre."""
    found = []
    for one, centre in zip(light, moments(light)[0]):
        row, column = np.rint(centre).astype(int)
        part = one[row - 12 : row + 13, column - 12 : column + 13]
        found.append(np.abs(part - part[::-1, ::-1]).sum() / part.sum())
    return np.median(found)


def test_forms_are_those_of_the_classes():
    rng, ratio, odd = np.random.default_rng(1), {}, {}
    for name in CLASSES:
        light = sum(map for map, _ in MAKERS[name](100, 64, rng, sersic).maps)
        ratio[name], odd[name] = np.median(moments(light.astype(float))[1]), uneven(light.astype(float))
    assert ratio["round"] > 0.8 > ratio["between"] > 0.55 > ratio["cigar"] > 0.25
    assert ratio["edge_on"] < ratio["cigar"]
    assert ratio["unbarred"] > 0.4
    assert min(odd["irregular"], odd["merger"]) > max(odd[name] for name in ("round", "barred", "unbarred"))


def test_brighter_ones_stand_out():
    table = Galaxies(seed=2, unit="flux").make(128)
    middle = table["image"][:, 28:36, 28:36].mean((1, 2, 3))
    bright, faint = table["snr"] > 200, table["snr"] < 40
    assert min(bright.sum(), faint.sum()) > 20
    assert np.median(middle[bright]) > 5 * np.median(middle[faint])


def test_galsim_draws_the_same_where_it_is_installed():
    if importlib.util.find_spec("galsim") is None:
        with refuses("galsim", hint="pip install galsim"):
            Galaxies(engine="galsim").make(2)
        return
    from sciformer.domains.images.simulate.optics import blur
    from sciformer.domains.images.simulate.sersic import load_galsim

    n, radius, ratio = np.array([0.5, 1.0, 2.0, 3.0]), np.array([6.0, 4.0, 5.0, 8.0]), np.array([1.0, 0.4, 0.7, 0.9])
    given = 64, n, radius, ratio, np.array([0.0, 1.0, 2.0, 3.0]), np.random.default_rng(0).normal(0, 1, (4, 2))
    ours, theirs = (blur(draw(*given), np.ones(4)) for draw in (sersic, load_galsim()))
    assert (np.abs(ours - theirs).max((1, 2)) < 0.05 * theirs.max((1, 2))).all()
    assert np.abs(ours.sum((1, 2)) / theirs.sum((1, 2)) - 1).max() < 0.02


def test_few_images_stay_in_memory_and_many_do_not(monkeypatch):
    for limit, held in ((base.MAX_HELD_BYTES, True), (1000, False)):
        monkeypatch.setattr(base, "MAX_HELD_BYTES", limit)
        source = Galaxies(size=16, number=32, chunk_size=16).open().sources["train"]
        assert (source.load(1) is source.load(1)) is held
