"""Particles: features, order, angles, and how a person looks at them."""

import numpy as np
import pytest

from sciformer.data.columns import Lists, select
from sciformer.domains.jets.tokens import Particles
from sciformer.testing import check_tokens
from tests.domains.jets.jets_table import TYPES, jets
from tests.errors import refuses
from tests.paths import SHARED

DATA = SHARED / "jets"


def made(**fields):
    return Particles(kind="particles", **fields)


def stream_of(table, **fields):
    tokens = made(**fields)
    return tokens.normalise(tokens.tokenize(table))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"features": "kin", "at": "vector"},
        {"features": "kinpid", "pair_features": (), "embed": "linear"},
        {"max_tokens": 4},
        {"features": ["log_pt", {"name": "part_charge", "centre": None, "scale": None, "clip": [-2, 2]}]},
    ],
)
@pytest.mark.parametrize("sums", [True, False])
def test_they_keep_every_promise(fields, sums):
    assert check_tokens(made(**fields), jets(sums=sums), draw=sums) == []


@pytest.mark.parametrize(("features", "count"), [("kin", 7), ("kinpid", 13), ("full", 17)])
def test_features_are_those_of_the_paper(features, count):
    """In its order, centred, scaled and clipped as published."""
    table = jets(seed=1)
    table["part_px"].values[0] *= 1e4  # to be clipped
    stream = stream_of(table, features=features)
    order = np.lexsort((-np.hypot(table["part_px"].values, table["part_py"].values), stream.sample))

    def column(name):
        return table[f"part_{name}"].values[order].astype(np.float64)

    jet_pt, jet_energy = (table[name][stream.sample] for name in ("jet_pt", "jet_energy"))
    pt, energy, deta, dphi = np.hypot(column("px"), column("py")), column("energy"), column("deta"), column("dphi")
    expected = [
        (np.log(pt) - 1.7) * 0.7,
        (np.log(energy) - 2.0) * 0.7,
        (np.log(pt / jet_pt) + 4.7) * 0.7,
        (np.log(energy / jet_energy) + 4.7) * 0.7,
        (np.hypot(deta, dphi) - 0.2) * 4,
    ]
    expected = [np.clip(values, -5, 5) for values in expected]
    if features != "kin":
        expected += [column("charge"), *(column(name) for name in TYPES)]
    if features == "full":
        for name in ("d0", "dz"):
            expected += [np.tanh(column(f"{name}val")), np.clip(column(f"{name}err"), 0, 1)]
    expected += [deta, dphi]
    assert stream.columns["features"].shape[1] == count == len(expected)
    assert stream.columns["features"].max() == 5
    np.testing.assert_allclose(stream.columns["features"], np.stack(expected, -1), atol=2e-6)
    assert stream.columns["features"].dtype == np.float32


def test_the_hardest_come_first_and_stay():
    table = jets((9, 0, 1, 5))
    whole, cut = stream_of(table), stream_of(table, max_tokens=4)
    assert cut.lengths.tolist() == [4, 0, 1, 4]
    pt = np.hypot(*whole.columns["vector"].T[:2])
    for start, length in zip(whole.starts, whole.lengths):
        assert (np.diff(pt[start : start + length]) <= 0).all()
    kept = np.concatenate([np.arange(9)[:4], [9], 10 + np.arange(4)])
    for name in ("vector", "raw", "plane", "features"):
        np.testing.assert_array_equal(cut.columns[name], whole.columns[name][kept])


def test_the_type_is_that_of_the_largest_column():
    table = jets((3,))
    for name, values in zip(TYPES, ([0, 0.2, 0], [0, 0.7, 0], [0, 0.1, 0], [0, 0, 0], [0, 0.7, 1])):
        table[f"part_{name}"] = Lists(np.array(values, np.float32), table["part_px"].lengths)
    stream = stream_of(table)
    pt = np.hypot(table["part_px"].values, table["part_py"].values)
    assert stream.columns["type"].tolist() == [[5, 1, 4][i] for i in np.argsort(-pt)]


def test_negative_energies_are_refused():
    table = jets((4, 3))
    table["part_energy"].values[[1, 5]] *= -1
    with refuses("`part_energy`", "2 particles"):
        stream_of(table)


def test_angles_are_made_where_they_are_missing():
    """With the sign of the jet's pseudorapidity, as in JetClass."""
    table = jets((7, 1, 20, 5, 30), seed=4)
    assert set(np.sign(table["jet_eta"])) == {-1, 1}
    bare = {name: column for name, column in table.items() if name not in ("part_deta", "part_dphi", "jet_pt")}
    given, made_up = stream_of(table), stream_of(bare)
    np.testing.assert_allclose(made_up.columns["plane"], given.columns["plane"], atol=2e-5)
    np.testing.assert_allclose(made_up.columns["features"], given.columns["features"], atol=2e-4)
    mirrored = {**bare, "part_pz": Lists(-bare["part_pz"].values, bare["part_pz"].lengths)}
    np.testing.assert_allclose(stream_of(mirrored).columns["plane"], made_up.columns["plane"], atol=2e-5)


def test_scales_left_open_are_learned():
    tokens = made(features=["log_pt", {"name": "log_energy", "centre": None, "scale": None}])
    table = jets((200, 300), seed=2)
    tokens.fit([table])
    values = tokens.normalise(tokens.tokenize(table)).columns["features"][:, 1]
    low, middle, high = np.percentile(values, [16, 50, 84])
    assert abs(middle) < 1e-5
    assert max(-low, high) == pytest.approx(1, abs=1e-4)
    with refuses():
        tokens.fit([])


def test_mistakes_are_named():
    table = jets()
    short, holed = np.array([2, 1, 1, 1, 1]), np.where(np.arange(33) == 4, np.nan, 1)
    for change, mentions, hint in (
        ({"part_px": None}, ("'part_px'",), "Did you mean"),
        ({"part_d0val": None}, ("'part_d0val'",), "Did you mean"),
        ({"part_pz": np.zeros(5)}, ("`part_pz`", "(5,)"), ""),
        ({"part_charge": Lists(np.zeros(6), short)}, ("`part_charge`", "sample 0", "2 particles", "6 particles"), ""),
        ({"part_pz": Lists(holed, table["part_px"].lengths)}, ("part_pz", "1 particles"), ""),
    ):
        wrong = {name: column for name, column in {**table, **change}.items() if column is not None}
        with refuses(*mentions, hint=hint):
            made().tokenize(wrong)
    with pytest.raises(ValueError, match="both a column and a formula"):
        made(features=[{"name": "x", "column": "a", "formula": "b"}])


def test_a_formula_is_a_feature():
    table = jets()
    feature = {"name": "pt", "formula": "hypot(part_px, part_py)"}
    tokens = made(features=[feature, "dphi"])
    assert set(tokens.required_columns) >= {"part_px", "part_py"}
    stream = tokens.normalise(tokens.tokenize(table))
    np.testing.assert_allclose(stream.columns["features"][:, 0], np.hypot(*stream.columns["vector"].T[:2]), rtol=1e-5)


def test_words_name_type_and_momentum():
    table = jets((2,))
    table["part_px"] = Lists(np.array([3.0, 34.2]), np.array([2]))
    table["part_py"] = Lists(np.zeros(2), np.array([2]))
    for number, name in enumerate(TYPES):
        table[f"part_{name}"] = Lists(np.array([number == 2, number == 0]), table["part_px"].lengths)
    assert made().token_labels(made().tokenize(table)) == ["π± 34 GeV", "γ 3.0 GeV"]
    bare = {name: column for name, column in table.items() if not name.startswith("part_is")}
    assert made(features="kin").token_labels(made(features="kin").tokenize(bare)) == ["? 34 GeV", "? 3.0 GeV"]


def test_distance_goes_round():
    tokens = made()
    stream = tokens.tokenize(jets((3,)))
    stream.columns["plane"][:] = [[0, 3.1], [0, -3.1], [0.3, -2.7]]
    apart = tokens.distance(stream)
    assert apart[0, 1] == pytest.approx(2 * np.pi - 6.2, abs=1e-6)
    assert apart[1, 2] == pytest.approx(0.5, abs=1e-6)


@pytest.mark.skipif(not DATA.exists(), reason="data beside the repository")
def test_features_of_real_jets_are_the_official_ones():
    parquet = pytest.importorskip("pyarrow.parquet")
    found = parquet.read_table(DATA / "real/JetClassII_example.parquet")
    table = {}
    for name in found.column_names:
        column = found[name].combine_chunks()
        if name.startswith("part_"):
            table[name] = Lists(column.flatten().to_numpy(zero_copy_only=False), np.diff(column.offsets.to_numpy()))
        elif name.startswith("jet_"):
            table[name] = column.to_numpy(zero_copy_only=False)
    with np.load(DATA / "part_parity.npz") as file:
        stream = stream_of(select(table, file["jetclass2_index"]))
        inside = file["mask"][:, 0] > 0
        expected = {name: file[name].transpose(0, 2, 1)[inside] for name in ("features", "vectors", "points")}
    assert stream.lengths.tolist() == inside.sum(1).tolist()
    np.testing.assert_allclose(stream.columns["features"], expected["features"], atol=1e-6)
    np.testing.assert_array_equal(stream.columns["vector"], expected["vectors"])
    np.testing.assert_array_equal(stream.columns["at"], expected["points"])
