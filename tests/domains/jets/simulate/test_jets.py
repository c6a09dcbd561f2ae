"""Built-in jets: columns, cuts, reproducibility, and that they look like jets."""

import numpy as np
import pytest

from sciformer.assembly import Assembly
from sciformer.data.columns import Lists
from sciformer.domains.jets.simulate.decays import CLASSES
from sciformer.domains.jets.simulate.jets import (
    BRANCHES,
    JET_COLUMNS,
    MAX_PARTICLES,
    PARTICLE_COLUMNS,
    TYPE_FLAGS,
    Jets,
    truncate_jets,
)
from sciformer.recipe import Recipe
from tests.paths import SHARED

PYTHIA = SHARED / "jets" / "toyjets_pythia8.npz"
NUMBER = 4 * Jets.rows_per_chunk


@pytest.fixture(scope="module")
def table():
    return Jets(seed=4).make(NUMBER)


def of(table):
    return np.repeat(np.arange(NUMBER), table["part_px"].lengths)


def sums(table):
    """Momenta (4, n) of the jets."""
    names = ("px", "py", "pz", "energy")
    return np.stack([np.bincount(of(table), table[f"part_{name}"].values, NUMBER) for name in names])


def mean(table, values, name):
    """Of a class, from values of jets."""
    return float(np.mean(values[table["label"] == name]))


def test_columns_are_those_of_jetclass(table):
    assert list(table) == [*BRANCHES, "label"]
    assert {"part_px", "part_isMuon", "part_d0val", "jet_sdmass", "label_Hqql"} < set(BRANCHES)
    lengths = table["part_px"].lengths
    for name in PARTICLE_COLUMNS + TYPE_FLAGS:
        column = table[f"part_{name}"]
        assert isinstance(column, Lists)
        assert column.values.dtype == (np.int32 if name in TYPE_FLAGS else np.float32), name
        np.testing.assert_array_equal(column.lengths, lengths)
        assert np.isfinite(column.values).all()
    assert all(table[name].dtype == np.float32 and len(table[name]) == NUMBER for name in JET_COLUMNS)
    assert table["label_QCD"].dtype == np.float32
    hot = np.stack([table[f"label_{name}"] for name in CLASSES])
    np.testing.assert_array_equal(np.array(CLASSES)[hot.argmax(0)], table["label"])
    assert (hot.sum(0) == 1).all()


def test_the_cuts_hold(table):
    assert 500 <= table["jet_pt"].min() <= table["jet_pt"].max() <= 1000
    assert np.abs(table["jet_eta"]).max() < 2
    assert np.abs(table["jet_phi"]).max() <= np.float32(np.pi)
    lengths = table["part_px"].lengths
    assert 1 < lengths.min() <= lengths.max() <= MAX_PARTICLES
    np.testing.assert_array_equal(table["jet_nparticles"], lengths)
    away = np.hypot(table["part_deta"].values, table["part_dphi"].values)
    assert np.quantile(away, 0.99) < 0.8  # the axis of the cone is not quite that of the jet
    assert away.max() < 1.2
    counts = [np.count_nonzero(table["label"] == name) for name in CLASSES]
    assert max(counts) - min(counts) <= 2


def test_particles_add_up_to_their_jet(table):
    whole = table["part_px"].lengths < MAX_PARTICLES
    x, y, z, e = sums(table)[:, whole]
    np.testing.assert_allclose(np.hypot(x, y), table["jet_pt"][whole], rtol=1e-5)
    np.testing.assert_allclose(np.arcsinh(z / np.hypot(x, y)), table["jet_eta"][whole], atol=1e-5)
    np.testing.assert_allclose(e, table["jet_energy"][whole], rtol=1e-5)
    turn = np.arctan2(y, x) - table["jet_phi"][whole]
    assert np.abs((turn + np.pi) % (2 * np.pi) - np.pi).max() < 1e-5
    mass = np.sqrt(np.maximum(e**2 - x**2 - y**2 - z**2, 0))
    assert (table["jet_sdmass"][whole] <= mass * 1.001 + 0.1).all()


def test_particles_are_sorted_typed_and_placed(table):
    px, py, pz, energy = (table[f"part_{name}"].values.astype(float) for name in ("px", "py", "pz", "energy"))
    pt, jet = np.hypot(px, py), of(table)
    inside = jet[1:] == jet[:-1]
    assert (np.diff(pt)[inside] <= 1e-4 * pt[1:][inside]).all()
    kinds = np.stack([table[f"part_{name}"].values for name in TYPE_FLAGS])
    assert (kinds.sum(0) == 1).all()
    charged, tracks = table["part_charge"].values != 0, kinds[[0, 3, 4]].sum(0) == 1
    np.testing.assert_array_equal(charged, tracks)
    assert (pt[charged] > 0.45).all()
    masses = np.array([0.13957, 0, 0, 0.000511, 0.10566])[kinds.argmax(0)]
    np.testing.assert_allclose(energy, np.sqrt(px**2 + py**2 + pz**2 + masses**2), rtol=1e-6)
    eta = np.arcsinh(pz / pt)
    sign = np.where(table["jet_eta"] < 0, -1, 1)[jet]
    np.testing.assert_allclose(table["part_deta"].values, sign * (eta - table["jet_eta"][jet]), atol=2e-6)
    for name, first, growth in (("d0", 0.010, 0.080), ("dz", 0.020, 0.120)):
        error, value = table[f"part_{name}err"].values, table[f"part_{name}val"].values
        np.testing.assert_allclose(error[charged], np.hypot(first, growth / pt[charged]), rtol=1e-4)
        assert not error[~charged].any()
        assert not value[~charged].any()
        assert (value[charged] != 0).mean() > 0.9999


def test_classes_are_what_they_say(table):
    x, y, z, e = sums(table)
    mass = np.sqrt(np.maximum(e**2 - x**2 - y**2 - z**2, 0))
    near = {"Wqq": 80.4, "Zqq": 91.2, "Hbb": 125, "Hcc": 125, "Hgg": 125, "H4q": 125, "Tbqq": 172}
    for name, expected in near.items():
        assert np.median(mass[table["label"] == name]) == pytest.approx(expected, rel=0.06), name
    charged = table["part_charge"].values != 0
    sure = np.abs(table["part_d0val"].values[charged]) / table["part_d0err"].values[charged] > 3
    displaced = np.bincount(of(table)[charged], sure, NUMBER)
    count = [mean(table, displaced, name) for name in ("Hbb", "Tbqq", "Hcc", "QCD")]
    assert count[0] > 1.4 * count[1] > 1.8 * count[2] > 3 * count[3]
    pt = np.hypot(table["part_px"].values, table["part_py"].values)
    lepton = (table["part_isElectron"].values + table["part_isMuon"].values) * pt
    share = np.bincount(of(table), lepton, NUMBER) / table["jet_pt"]
    assert min(mean(table, share, name) for name in ("Hqql", "Tbl")) > 0.25
    assert max(mean(table, share, name) for name in ("QCD", "Wqq", "Hgg", "H4q")) < 0.03
    count = table["jet_nparticles"]
    assert mean(table, count, "Hgg") > 1.2 * mean(table, count, "Hbb") > 1.2 * mean(table, count, "Wqq")


@pytest.mark.skipif(not PYTHIA.is_file(), reason="no shared data beside the repository")
def test_they_come_near_those_of_pythia(table):
    with np.load(PYTHIA) as theirs:
        number, label = theirs["n"].astype(float), theirs["classes"][theirs["label"]]
        charged = np.add.reduceat(theirs["part_charge"] != 0, np.cumsum(theirs["n"].astype(int)) - theirs["n"])
        mass = theirs["jet"][:, list(theirs["jet_columns"]).index("jet_sdmass")]
    own = np.bincount(of(table), table["part_charge"].values != 0, NUMBER)
    for name in CLASSES:
        assert mean(table, table["jet_nparticles"], name) == pytest.approx(number[label == name].mean(), rel=0.13), name
        assert mean(table, own, name) == pytest.approx(charged[label == name].mean(), rel=0.13), name
        if name != "QCD":  # the proxy for the groomed mass cuts less away
            middle = np.median(table["jet_sdmass"][table["label"] == name])
            assert middle == pytest.approx(np.median(mass[label == name]), rel=0.1), name


def test_only_the_hardest_particles_and_wanted_columns():
    told = Jets(number=40, most=10).want(["part_px", "part_py"], ["label"], ["part_charge", "nothing"])
    table = told.open().sources["train"].load(0)
    assert {name for name in table if name.startswith("part_")} == {"part_px", "part_py", "part_charge"}
    assert {"label", "jet_pt", "jet_sdmass"} <= set(table)
    assert "label_QCD" not in table
    assert table["part_px"].lengths.max() == 10
    np.testing.assert_array_equal(table["jet_nparticles"], table["part_px"].lengths)
    whole = Jets().make(40, part="train")["part_px"]
    starts = [np.cumsum(column.lengths) - column.lengths for column in (whole, table["part_px"])]
    np.testing.assert_array_equal(table["part_px"].values[starts[1]], whole.values[starts[0]])
    few = {"part_px": Lists(np.arange(5.0), np.array([2, 3])), "jet_nparticles": np.array([2, 3])}
    assert truncate_jets(few, 3) is few


def test_a_recipe_puts_them_together():
    recipe = Recipe.load("jets/pfn", {"data.number": 60, "data.classes": ["QCD", "Hqql", "Tbl"]})
    data = Assembly.open(recipe)
    assert data.objective.classes == ["Hqql", "QCD", "Tbl"]
    assert {part: len(data.dataset(part)) for part in data.parts()} == {"train": 60, "valid": 6, "test": 6}
