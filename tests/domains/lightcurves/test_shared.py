"""Observations of real stars: what enters a model is what stands in the file, and nothing hidden leaks."""

import numpy as np
import pytest

from sciformer.assembly import Assembly
from sciformer.data.columns import select
from sciformer.data.prepare import prepare
from sciformer.data.random import SampleRandom
from sciformer.recipe import Recipe
from tests.paths import SHARED

DATA = SHARED / "lightcurves"
pytestmark = pytest.mark.skipif(not DATA.exists(), reason="no shared data beside the repository")


def opened(name, objective, **tokens):
    pytest.importorskip("pyarrow")
    sections = {
        "data": {"kind": "series", "files": [str(DATA / name)]},
        "tokens": {"kind": "observations", **tokens},
        "model": {"kind": "encoder", "dim": 8, "depth": 1, "heads": 2},
        "objective": objective,
    }
    return Assembly.open(Recipe.from_dict(sections))


def test_real_stars_with_half_of_their_points_hidden():
    assembly = opened("asas_variables.parquet", {"kind": "masked", "mask_ratio": 0.5}, errors="weight", scale="none")
    data, (tokens,) = assembly.dataset("valid"), assembly.tokens.values()
    table = select(data.source.load(0), np.arange(40))
    batch = assembly.samples(table).all()
    assert len(batch) > 40  # some are longer than a window of 200, and have two
    assert batch.stream.lengths.max() == 200

    def ready(batch):
        return prepare(batch, assembly.tokens, assembly.objective, SampleRandom(0, -1, batch.ids), training=False)

    made = ready(batch)
    hidden = made.stream.columns["hidden"].astype(bool)
    assert 0.45 < hidden.mean() < 0.55
    wild = batch.stream.with_columns(value=np.where(hidden, 99, batch.stream.columns["value"]).astype(np.float32))
    other = ready(batch.with_columns(wild))
    for name in ("features", "at"):
        np.testing.assert_array_equal(made.stream.columns[name], other.stream.columns[name])
    assert tokens.input_features == ["value"]
    weight = made.stream.columns["target weight"]
    assert weight.min() == pytest.approx(1e-3, rel=1e-3)
    assert weight.max() == pytest.approx(1.001)


def test_five_bands_of_rr_lyrae_and_their_times():
    assembly = opened("sdss_s82_rrlyrae.parquet", {"kind": "classify"}, window=1000, times="both")
    (tokens,) = assembly.tokens.values()
    assert tokens.known_bands == ["g", "i", "r", "u", "z"]
    table = assembly.dataset("train").source.load(0)
    raw = tokens.tokenize(table)
    np.testing.assert_array_equal(np.sort(raw.columns["at"]), np.sort(table["time"].values))
    made = tokens.normalise(raw)
    apart = np.diff(made.columns["at"].astype(np.float64)) - np.diff(raw.columns["at"])
    inside = np.diff(raw.sample) == 0
    assert np.abs(apart[inside]).max() * 86400 < 30  # seconds, over ten years
