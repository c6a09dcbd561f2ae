"""Metrics of generated samples, against SciPy and by hand."""

import math

import numpy as np
import pytest
from scipy import spatial, stats

from sciformer.metrics.samples import kolmogorov_smirnov, mean_distance, nearest_samples
from tests.errors import refuses

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize(("sizes", "shift"), [((300, 200), 0.0), ((300, 200), 0.2), ((50, 400), 1.0), ((20, 30), 0.1)])
def test_two_samples_as_in_scipy(sizes, shift):
    one, other = RANDOM.normal(size=sizes[0]), RANDOM.normal(shift, size=sizes[1])
    found, theirs = kolmogorov_smirnov(one, other), stats.ks_2samp(one, other, method="asymp")
    assert found.distance == pytest.approx(theirs.statistic)
    length = math.sqrt(sizes[0] * sizes[1] / sum(sizes)) * found.distance
    assert found.p_value == pytest.approx(stats.kstwobign.sf(length), abs=1e-6)


def test_equal_samples_do_not_differ():
    values = RANDOM.normal(size=(4, 5))
    assert kolmogorov_smirnov(values, values) == (0, 1)
    with refuses("two"):
        kolmogorov_smirnov(values, [])


def test_nearest_samples_and_mean_distance():
    one, other = RANDOM.normal(size=(600, 3, 2)), RANDOM.normal(size=(50, 3, 2))
    apart = spatial.distance.cdist(one.reshape(600, -1), other.reshape(50, -1))
    index, distance = nearest_samples(one, other)
    assert np.array_equal(index, apart.argmin(1))
    np.testing.assert_allclose(distance, apart.min(1))
    np.testing.assert_allclose(mean_distance(one), spatial.distance.pdist(one.reshape(600, -1)).mean())
    assert np.isnan(mean_distance(one[:1]))
    assert np.isnan(mean_distance(one[:0]))
    assert mean_distance(np.ones((3, 2))) == 0
