"""Kinds and places: combinations, groups, no overlap, clear relations."""

import numpy as np
import pytest

from sciformer.domains.images.scenes.placement import Kinds, draw_kinds, draw_places, held_out
from sciformer.domains.images.scenes.rendering import templates


@pytest.mark.parametrize("number", [0, 1, 2, 6])
def test_each_shape_and_each_colour_is_held_out_equally(number):
    apart = held_out(number)
    assert set(apart.sum(0)) == set(apart.sum(1)) == {number}


def test_kinds_are_in_canonical_order_from_the_given_combinations():
    counts = np.repeat([1, 2, 3, 4], 300)
    seen, unseen = np.flatnonzero(~held_out(2)), np.flatnonzero(held_out(2))
    found = draw_kinds(np.random.default_rng(0), counts, seen)
    real = found.shape >= 0
    np.testing.assert_array_equal(real.sum(1), counts)
    assert set((found.shape * 8 + found.colour)[real].tolist()) == set(seen.tolist())
    assert set(found.size[real].tolist()) == {0, 1, 2}
    code = np.where(real, (found.shape * 8 + found.colour) * 3 + found.size, 999)
    assert (np.diff(code, axis=1) >= 0).all()
    assert (code[counts == 2][:, 0] == code[counts == 2][:, 1]).mean() == pytest.approx(0.25, abs=0.08)
    found = draw_kinds(np.random.default_rng(0), counts, np.arange(64), unseen)
    apart = np.isin(found.shape * 8 + found.colour, unseen) & (found.shape >= 0)
    assert apart.any(1).all()
    assert not apart[counts > 2].all(1).all()


def test_the_most_crowded_scenes_find_places():
    """Two groups of large things, whose relation must be clear for each pair."""
    shapes = np.array([[4, 4, 5, 5], [5, 5, 5, 5], [4, 5, 5, 5], [4, 4, 4, 3]])
    shapes.sort(1)
    kinds = Kinds(shapes, np.zeros_like(shapes), np.full_like(shapes, 2))
    x, y = draw_places(np.random.default_rng(0), kinds, 64)
    box = templates(64).boxes[kinds.shape, kinds.size]
    left, top = x + box[..., 0], y + box[..., 1]
    right, bottom = left + box[..., 2], top + box[..., 3]
    assert min(left.min(), top.min()) >= 0
    assert max(right.max(), bottom.max()) <= 64
    for i in range(4):
        for j in range(i):
            gaps = (
                left[:, i] - right[:, j],
                left[:, j] - right[:, i],
                top[:, i] - bottom[:, j],
                top[:, j] - bottom[:, i],
            )
            assert (np.max(gaps, 0) >= 2).all()
