"""Masks and pictures of things: boxes, colours, smooth borders."""

import numpy as np
import pytest

from sciformer.domains.images.scenes.rendering import GROUND, render, render_things, templates
from sciformer.domains.images.scenes.things import BACKGROUND, COLOURS, SHAPES, SIZES
from tests.domains.images.scenes.examples import SIDE, thing


@pytest.mark.parametrize("side", [64, 128])
def test_masks_fill_their_boxes_and_differ(side):
    made = templates(side)
    assert made.mask.shape[:2] == (len(SHAPES), len(SIZES))
    flat = made.mask.reshape(24, *made.mask.shape[2:])
    for mask, (left, top, width, height) in zip(flat, made.boxes.reshape(24, 4)):
        rows, columns = np.nonzero(mask)
        assert (columns.min() - made.reach, rows.min() - made.reach) == (left, top)
        assert (np.ptp(columns) + 1, np.ptp(rows) + 1) == (width, height)
        assert mask.max() == 1
        assert ((mask > 0) & (mask < 1)).any() or mask.sum() == (mask > 0).sum()
    for i in range(24):
        for j in range(i):
            assert np.abs(flat[i] - flat[j]).sum() > 0.15 * min(flat[i].sum(), flat[j].sum())


def test_sizes_differ_in_area():
    area = templates(64).mask.sum((2, 3))
    assert (area[:, 1:] > 1.4 * area[:, :-1]).all()


def test_pictures_have_the_colours_of_their_things_in_their_boxes():
    things = [thing("large yellow square", 20, 40), thing("small cyan disc", 45, 12)]
    image = render_things(things, SIDE)
    assert image.shape == (SIDE, SIDE, 3)
    for one in things:
        assert tuple(image[one.y, one.x]) == COLOURS[one.kind.colour]
        left, top, width, height = one.box
        image[top : top + height, left : left + width] = BACKGROUND
    assert (image == GROUND).all()


def test_triangles_point_upwards_and_lie_in_the_margin_too():
    one = thing("large white triangle", 20, 20)
    widths = (render_things([one], SIDE) != GROUND).any(2).sum(1)
    rows = np.flatnonzero(widths)
    assert widths[rows[-1]] > 2 * widths[rows[0]]
    corner = render(np.array([[2]]), np.array([[0]]), np.array([[0]]), np.array([[5]]), np.array([[5]]), SIDE)
    assert (corner[0, :12, :12] != GROUND).any()
    assert (render(*np.full((3, 1, 2), -1), *np.zeros((2, 1, 2), int), SIDE) == GROUND).all()
