"""Patches of arrays on one to four axes, against plain loops."""

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer.tokens.cutting import PatchGrid


@st.composite
def cases(draw):
    axes = draw(st.integers(1, 4))
    sides = tuple(draw(st.integers(1, 3)) for _ in range(axes))
    overlap = draw(st.booleans())
    steps = tuple(draw(st.integers(1, side)) for side in sides) if overlap else sides
    sizes = tuple(draw(st.integers(1, 6)) for _ in range(axes))
    return PatchGrid(sides, steps), sizes, draw(st.integers(0, 3)), draw(st.integers(1, 2))


def cells(cutting, sizes):
    """Cells in row-major order: along each axis as many as it takes to reach the end."""
    line = [
        [place for place in range(size) if place == 0 or (place - 1) * step + side < size]
        for size, side, step in zip(sizes, cutting.sides, cutting.steps)
    ]
    return list(product(*line))


@settings(max_examples=150, deadline=None)
@given(cases())
def test_patches_against_a_loop(case):
    cutting, sizes, count, channels = case
    arrays = np.random.default_rng(0).normal(size=(count, *sizes, channels))
    fill, grid = np.arange(channels) - 7.0, cells(cutting, sizes)
    assert cutting.grid(sizes).tolist() == [max(cell[axis] for cell in grid) + 1 for axis in range(len(sizes))]
    expected, inside = [], []
    for array, cell in product(arrays, grid):
        patch, here = [], []
        for offset in product(*map(range, cutting.sides)):
            place = tuple(c * step + o for c, step, o in zip(cell, cutting.steps, offset))
            here.append(all(p < size for p, size in zip(place, sizes)))
            patch.append(array[place] if here[-1] else fill)
        expected.append(np.concatenate(patch))
        inside.append(here)
    found = cutting.cut(arrays, fill)
    assert found.shape == (count * len(grid), np.prod(cutting.sides) * channels)
    if count:
        np.testing.assert_array_equal(found, expected)
        where = np.array(grid * count), np.tile(sizes, (count * len(grid), 1))
        np.testing.assert_array_equal(cutting.inside(*where), inside)
        back = cutting.assemble(found.reshape(count, len(grid), -1), sizes)
        np.testing.assert_array_equal(back, arrays)
        assert back.flags.c_contiguous


def test_of_patches_that_overlap_the_first_one_counts():
    cutting = PatchGrid((2, 3), (1, 2))
    patches = np.repeat(np.arange(6.0), 6).reshape(1, 6, 6)
    image = cutting.assemble(patches, (4, 5))[0, ..., 0]
    assert image.tolist() == [[0, 0, 0, 1, 1], [0, 0, 0, 1, 1], [2, 2, 2, 3, 3], [4, 4, 4, 5, 5]]
