import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from sciformer.data.readers.events.reweight import Reweight
from sciformer.data.split import Split
from tests.data.readers.events.examples import part, section, table, write_root
from tests.errors import refuses

EDGES = {"x_edges": [0.0, 1.0, 2.0, 3.0], "y_edges": [0.0, 10.0, 20.0]}


def samples(count, seed=0):
    rng = np.random.default_rng(seed)
    label = rng.choice(["a", "b", "c"], count)
    x = np.where(label == "a", rng.uniform(0, 3, count), rng.triangular(0, 2, 3, count))
    return label, x, rng.uniform(0, 20, count), rng.uniform(0.5, 1.5, count)


def spectra(label, x, y, weight):
    bins = [EDGES["x_edges"], EDGES["y_edges"]]
    return {
        one: np.histogram2d(*(v[label == one] for v in (x, y)), bins, weights=weight[label == one])[0] for one in "abc"
    }


def test_flat_spectra():
    label, x, y, base = samples(4000)
    weights = Reweight(x="x", y="y", **EDGES).learn(label, x, y, base)
    made = base * weights.of(label, x, y)
    for one, found in spectra(label, x, y, made).items():
        np.testing.assert_allclose(found, found.mean(), rtol=1e-9)
        assert found.sum() == pytest.approx(base[label == one].sum())
    assert weights.outside == 0


def test_the_spectrum_of_a_class():
    label, x, y, base = samples(4000)
    weights = Reweight(x="x", y="y", to="a", **EDGES).learn(label, x, y, base)
    before, after = spectra(label, x, y, base), spectra(label, x, y, base * weights.of(label, x, y))
    for one in "abc":
        np.testing.assert_allclose(after[one] / after[one].sum(), before["a"] / before["a"].sum(), rtol=1e-9)
    np.testing.assert_allclose(weights.of(label, x, y)[label == "a"], 1)


def test_weights_are_capped():
    x = np.concatenate([np.full(999, 0.5), [2.5]])
    weights = Reweight(x="x", y="y", cap=5, **EDGES).learn(np.full(1000, "a"), x, np.ones(1000), np.ones(1000))
    made = weights.of(np.full(1000, "a"), x, np.ones(1000))
    assert made.mean() == pytest.approx(1)
    assert made[-1] == 5
    free = Reweight(x="x", y="y", cap=1000, **EDGES).learn(np.full(1000, "a"), x, np.ones(1000), np.ones(1000))
    assert free.of(np.array(["a"]), np.array([2.5]), np.ones(1)) == pytest.approx(500)


def test_outside_and_unknown():
    weights = Reweight(x="x", y="y", **EDGES).learn(*samples(100))
    x = np.array([-1.0, 3.5, np.nan, np.inf, 3.0, 1.0])
    found = weights.of(np.full(6, "a"), x, np.full(6, 5.0))
    np.testing.assert_array_equal(found > 0, [False, False, False, False, True, True])
    assert weights.of(np.array(["zebra"]), np.array([1.0]), np.array([1.0])) == [0]
    with refuses("class a", key="data.reweight"):
        Reweight(x="x", y="y", **EDGES).learn(np.array(["a"]), np.array([9.0]), np.array([1.0]), np.ones(1))
    with refuses("flat, a, b, c", "'d'", key="data.reweight.to"):
        Reweight(x="x", y="y", to="d", **EDGES).learn(*samples(100))
    with pytest.raises(ValidationError, match="x_edges"):
        Reweight(x="x", y="y", x_edges=[0, 2, 1], y_edges=[0, 1])


@settings(max_examples=30, deadline=None)
@given(st.integers(3, 300), st.integers(0, 1000), st.floats(1.5, 20))
def test_every_class_keeps_its_sum(count, seed, cap):
    label, x, y, base = samples(count, seed)
    weights = Reweight(x="x", y="y", cap=cap, **EDGES).learn(label, x, y, base)
    made = base * weights.of(label, x, y)
    assert (made >= 0).all()
    assert (made <= cap * base * (1 + 1e-12)).all()
    for one in np.unique(label):
        assert made[label == one].sum() == pytest.approx(base[label == one].sum())


def test_weights_of_events_come_from_the_training_part(tmp_path):
    paths = [write_root(tmp_path / f"{name}.root", table(300, seed)) for name, seed in (("a", 1), ("b", 2))]
    options = {"x": "jet_pt", "y": "log(jet_mass + 1)", "x_edges": [20, 50, 80], "y_edges": [0, 1.0, 3]}
    files = [f"{name}:{path}" for name, path in zip(("one", "two"), paths)]
    data = section(*files, weight="1 + 0 * jet_pt", reweight=options, split=Split(valid=0.3, test=0), chunk_size=64)
    data = data.want(["part_px"], ["label", "weight"], ["jet_pt", "jet_mass"])
    opened = data.open()
    train, valid = part(opened), part(opened, "valid")
    outside = (train["jet_pt"] < 20) | (train["jet_pt"] > 80)
    np.testing.assert_array_equal(train["weight"] == 0, outside)
    assert train["weight"].dtype == np.float32
    for name in ("one", "two"):
        mine = (train["label"] == name) & ~outside
        bins = [options["x_edges"], options["y_edges"]]
        y = np.log(train["jet_mass"][mine] + 1)
        found = np.histogram2d(train["jet_pt"][mine], y, bins, weights=train["weight"][mine])[0]
        np.testing.assert_allclose(found, found.mean(), rtol=1e-5)
    assert set(np.round(valid["weight"], 4)) <= set(np.round(train["weight"], 4))  # nothing was learned from it
    assert any(f"{outside.sum()} of 420 samples to train on are outside" in note for note in opened.notes)
    assert (next(iter(data.read(paths).load(0)["weight"])), data.read(paths).sizes[0]) == (1, 60)
    with refuses(key="data.reweight", hint="data.label"):
        section(*paths, reweight=options).want(["part_px"]).open()
