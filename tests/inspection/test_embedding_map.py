"""Vectors as a map."""

import errno

import numpy as np
import pytest
from matplotlib.figure import Figure

from sciformer.evaluation.embed import Embedded
from sciformer.inspection.embedding_map import draw_map, principal, write_map
from tests.errors import refuses

RNG = np.random.default_rng(0)
VECTORS = (RNG.normal(size=(60, 5)) * [3, 1, 0.5, 0.1, 0] + 7).astype(np.float32)


def test_components_are_those_of_the_covariance():
    found = principal(VECTORS)
    values, directions = np.linalg.eigh(np.cov(VECTORS.T.astype(np.float64)))
    for i in range(2):
        expected = (VECTORS - VECTORS.mean(0)) @ directions[:, -1 - i]
        assert np.abs(np.corrcoef(expected, found.points[:, i])[0, 1]) == pytest.approx(1)
        assert found.points[:, i].var(ddof=1) == pytest.approx(values[-1 - i])
        assert found.shares[i] == pytest.approx(values[-1 - i] / values.sum(), rel=1e-5)
    mirrored = principal(-VECTORS)
    np.testing.assert_allclose(mirrored.points, -found.points, atol=1e-6)  # the sign is that of the direction
    flat = principal(np.ones((3, 1)))
    assert flat.points.shape == (3, 2)
    assert flat.shares.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("column", "labels"),
    [
        (np.array(["b", "a", "a_$"] * 20), ["a", r"a_\$", "b"]),
        (np.arange(60) % 3, ["0", "1", "2"]),
        (np.array([f"class {n}" for n in np.arange(60) % 20]), 13),
        (RNG.normal(size=60), []),
        (None, []),
    ],
)
def test_colours(column, labels):
    figure = draw_map(Embedded(VECTORS, {} if column is None else {"label": column}), "label")
    found = figure.axes[0].get_legend_handles_labels()[1]
    assert (len(found) if isinstance(labels, int) else found) == labels
    assert sum(len(part.get_offsets()) for part in figure.axes[0].collections) == 60
    assert "% of the variance" in figure.axes[0].get_xlabel()


def test_mistakes(tmp_path):
    found = Embedded(VECTORS, {"kind": np.arange(60)})
    with refuses(".png", "map.txt"):
        write_map(tmp_path / "map.txt", found)
    with refuses("'kin'", key="--by", hint="'kind'"):
        write_map(tmp_path / "map.png", found, "kin")
    write_map(tmp_path / "new" / "map.png", found, "label")
    assert (tmp_path / "new" / "map.png").exists()
    with refuses(1):
        principal(VECTORS[:1])
    with refuses("NaN"):
        principal(VECTORS * np.nan)


def test_a_full_disk_leaves_no_half_a_picture(tmp_path, monkeypatch):
    def full(figure, path, **options):
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", full)
    with refuses("map.png", "No space left on device"):
        write_map(tmp_path / "map.png", Embedded(VECTORS, {}))
    assert not list(tmp_path.iterdir())
    with refuses(tmp_path, hint="NAME.png"):
        write_map(tmp_path, Embedded(VECTORS, {}))
