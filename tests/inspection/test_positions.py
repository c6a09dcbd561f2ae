"""How alike position codes are: by hand, of every code, of models of every kind of tokens."""

import numpy as np
import pytest
import torch

from sciformer.data.columns import Lists
from sciformer.inspection.plots.style import two_decimals
from sciformer.inspection.positions import Similarity, draw_positions, position_similarity, similarity
from sciformer.nn import Fourier, Learned, Position, RelativeBias, Rotary, Sinusoidal
from sciformer.nn.positions import grid
from tests.domains.jets.jets_table import jets
from tests.inspection.plots.test_heads import PARTICLES, PATCHES, assembled


def test_cosines_by_hand():
    code = Learned(2, 3)
    with torch.no_grad():
        code.table.copy_(torch.tensor([[2.0, 0.0], [0.0, 3.0], [0.0, 0.0]]))
    found = similarity(code, torch.arange(3))
    assert found == pytest.approx(np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 0]]))


def test_sines_know_only_the_distance():
    found = similarity(Sinusoidal(32), torch.arange(10))
    assert np.diag(found) == pytest.approx(np.ones(10))
    assert [found[i, i + 3] for i in range(7)] == pytest.approx([found[0, 3]] * 7)
    turned = similarity(Rotary(32), torch.arange(10))
    assert turned == pytest.approx(found, abs=1e-6)  # a rotation has the same angles


def test_the_correlation_by_hand():
    line = np.abs(np.subtract.outer(np.arange(6), np.arange(6)))
    assert Similarity(1 - 0.1 * line, line).correlation == pytest.approx(-1)
    assert Similarity(0.1 * line, line).correlation == pytest.approx(1)
    assert np.isnan(Similarity(np.ones((6, 6)), line).correlation)


def test_neighbours_by_hand():
    distance = np.linalg.norm(np.argwhere(np.ones((3, 3)))[:, None] - np.argwhere(np.ones((3, 3))), axis=-1)
    like = np.where(distance < 1.5, 0.5, np.where(distance > 2.5, 0.25, -0.25))  # the far corners are alike, too
    found = Similarity(like, distance, (3, 3))
    assert found.neighbours == pytest.approx((0.5, (2 * 0.25 - 14 * 0.25) / 16))
    at = np.array([0.0, 0.1, 50, 51, 52.2])  # days: the night's pair and the later three, though far less close
    apart = np.abs(np.subtract.outer(at, at))
    assert Similarity(np.where(apart < 1.3, 0.5, -0.5), apart).neighbours == (0.5, -0.5)
    near, others = Similarity(np.ones((2, 2)), np.array([[0, 1], [1, 0]])).neighbours
    assert near == 1
    assert np.isnan(others)


@pytest.mark.parametrize("code", [Fourier(16, 2), Sinusoidal(16, 2), Learned(16, (3, 4)), Rotary(16, 2)])
def test_codes_of_a_grid(code):
    found = similarity(code, grid((3, 4)))
    assert found.shape == (12, 12)
    assert np.diag(found) == pytest.approx(np.ones(12), abs=1e-5)


def test_what_has_no_code():
    assert similarity(Position(), torch.arange(3)) is None
    assert similarity(RelativeBias(2, 4), torch.arange(3)) is None


@pytest.mark.parametrize("position", ["learned", "sinusoidal", "fourier", "rotary"])
def test_patches_on_their_grid(position):
    image = np.random.default_rng(0).normal(size=(3, 6, 16))
    made, step, batch = assembled(PATCHES, {"image": image}, position=position)
    found = position_similarity(step, made, batch)
    assert found.shape == (3, 8)
    assert found.distance[0, 1] == 2  # pixels
    figure = draw_positions(found, "pixels")
    figure.draw_without_rendering()
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == list("12345678")
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == list("123")


def test_images_of_several_sizes_have_the_distances_of_the_largest():
    shapes = np.array([[4, 6], [6, 4]], np.int32)
    image = Lists(np.random.default_rng(0).normal(size=(48, 1)), shapes.prod(1))
    made, step, batch = assembled(PATCHES, {"image": image, "image_shape": shapes}, position="learned")
    found = position_similarity(step, made, batch)
    assert found.shape == (3, 3)
    assert found.distance[0, 8] == pytest.approx(4 * 2**0.5)  # pixels


def test_numbers_that_round_to_zero_have_no_sign():
    assert [two_decimals(value) for value in (-0.001, 0.004, -0.006, 0.5)] == ["0.00", "0.00", "-0.01", "0.50"]


def test_smooth_codes_are_alike_where_they_are_near():
    made, step, batch = assembled(PATCHES, {"image": np.zeros((2, 12, 12))}, position="learned")
    at = grid((6, 6)).double()
    centres = torch.rand(16, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 6
    with torch.no_grad():
        step.model.trunk.position.table.copy_(torch.exp(-(torch.cdist(at, centres) ** 2) / 4))
    assert position_similarity(step, made, batch).correlation < -0.6


def test_text_has_places_and_particles_have_none():
    text = np.array(["a b c d", "b"], object)
    made, step, batch = assembled({"kind": "text", "unit": "words", "context": 9}, {"text": text}, position="learned")
    found = position_similarity(step, made, batch)
    assert found.values.shape == (9, 9)
    assert found.shape is None
    assert found.distance[0, 8] == 8
    draw_positions(found).draw_without_rendering()
    made, step, batch = assembled(PARTICLES, jets((6, 2)))
    assert position_similarity(step, made, batch) is None
