"""Scores of maps against plain formulas."""

import numpy as np
import pytest

from sciformer.data.batch import Batch
from sciformer.data.random import SampleRandom
from sciformer.domains.atmosphere.scores import area_weights, fair_crps, gaussian_crps
from sciformer.domains.atmosphere.tokens import Cubes
from sciformer.objectives.masked import Masked
from tests.domains.atmosphere.neighbourhoods_table import neighbourhoods


def test_weights_are_areas_also_at_the_border_of_a_region_and_at_the_poles():
    latitude = np.linspace(-90, 90, 61)
    weight = area_weights(latitude, 3.0)
    assert weight.sum() == pytest.approx(2)  # of the whole sphere
    assert weight[0] == pytest.approx(1 - np.cos(np.deg2rad(1.5)))
    region = area_weights(np.arange(50, 58.1, 0.25), 0.25)
    np.testing.assert_allclose(region / region.mean(), (c := np.cos(np.deg2rad(np.arange(50, 58.1, 0.25)))) / c.mean())


def test_the_crps_of_a_normal_distribution_is_the_mean_over_many_members():
    rng = np.random.default_rng(0)
    truth = np.array([[0.3, -2.0, 4.0]])
    members = 1 + 2 * rng.normal(size=(1, 20_000, 3))
    exact = gaussian_crps(np.ones((1, 3)), np.full((1, 3), 2.0), truth)
    np.testing.assert_allclose(fair_crps(members, truth), exact, rtol=0.02)


@pytest.mark.parametrize("missing", [False, True])
def test_scores_are_the_formulas_on_maps(missing):
    rng = np.random.default_rng(1)
    table = neighbourhoods(levels=2, missing=missing)
    tokens = Cubes(kind="cubes", field="t", cube=(2, 2, 3), loss="crps", members=5)
    tokens.fit([table])
    batch = Batch({"tokens": tokens.tokenize(table)}, {}, np.arange(5))
    objective = Masked(kind="masked", mask="forecast", mask_length=4)
    seen = objective.corrupt(batch, {"tokens": tokens}, SampleRandom(0, 0, batch.ids)).stream
    members = (table["t climatology"][:, None] + rng.normal(size=(5, 5, 2, 6, 4, 6))).astype(np.float32)
    cut = np.stack([tokens.tokenize({**table, "t": members[:, m]}).columns["value"] for m in range(5)], 1)
    asked = seen.columns["asked"].astype(bool)
    scores = tokens.hidden_scores("forecast")
    rows = np.arange(5)  # in two parts
    for some in (rows[:2], rows[2:]):
        part = seen.take(some)
        mine = np.isin(seen.sample, some)
        own = cut[mine][asked[mine]]
        scores.add(part, {"value": own.mean(1), "members": own})
    found = {(row["level"], row["lead"]): row for row in scores.rows()}
    assert len(found) == 2 * 4
    weight = area_weights(table["latitude"], 1.0)[:, :, None] * np.ones(6)
    truth, usual = table["t"].astype(float), table["t climatology"].astype(float)
    for level, lead in ((0, 1), (1, 4)):
        time = 1 + lead
        maps = {name: [] for name in ("squares", "bias", "acc", "crps", "variance")}
        for sample in range(5):
            y, c = truth[sample, level, time], usual[sample, level, time]
            if not np.isfinite(y).any():
                continue
            x = members[sample, :, level, time].astype(float)
            w = np.where(np.isfinite(y), weight[sample], 0)
            y = np.nan_to_num(y)
            m = x.mean(0)
            maps["squares"].append((w * (m - y) ** 2).sum() / w.sum())
            maps["bias"].append((w * (m - y)).sum() / w.sum())
            norm = np.sqrt((w * (m - c) ** 2).sum() * (w * (y - c) ** 2).sum())
            maps["acc"].append((w * (m - c) * (y - c)).sum() / norm)
            pairs = np.abs(x[:, None] - x).sum((0, 1)) / (2 * 5 * 4)
            maps["crps"].append((w * (np.abs(x - y).mean(0) - pairs)).sum() / w.sum())
            maps["variance"].append((w * x.var(0, ddof=1)).sum() / w.sum())
        row = found[(500.0, 850.0)[level], f"{lead} h"]
        means = {name: np.mean(values) for name, values in maps.items()}
        assert row["maps"] == len(maps["bias"])
        assert row["rmse"] == pytest.approx(np.sqrt(means["squares"]), rel=1e-4)
        assert row["bias"] == pytest.approx(means["bias"], rel=1e-3, abs=1e-4)
        assert row["acc"] == pytest.approx(means["acc"], rel=1e-3, abs=1e-4)
        assert row["crps"] == pytest.approx(means["crps"], rel=1e-3)
        assert row["spread_skill"] == pytest.approx(np.sqrt(6 / 5 * means["variance"] / means["squares"]), rel=1e-3)
