"""Recipes for jets: columns found in every layout and format, and that the recipes load, check and train."""

from pathlib import Path

import awkward
import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import uproot

from sciformer.assembly import Assembly
from sciformer.cli.main import main
from sciformer.data.columns import Lists
from sciformer.data.readers.formula import Formula
from sciformer.domains.jets.new import (
    find_class_flags,
    find_label,
    find_observers,
    find_partial_flags,
    find_particles,
    find_weight,
    group_momenta,
    inspect_files,
    momentum_formulas,
    tag_by_class,
)
from sciformer.domains.jets.simulate.jets import Jets
from sciformer.files.formats.base import Layout, opened
from sciformer.recipe import Recipe
from sciformer.recipe.new import new
from sciformer.run import train
from tests.domains.jets.jets_table import ragged, write_root
from tests.errors import refuses
from tests.paths import SHARED as DATA
from tests.recipe.written import TINY, written

SHARED = DATA / "jets"
SMALL = {"tokens.widths": [8], "tokens.pair_widths": [4], "train.batch": 8}
FLAGS = {"Hbb": "label_Hbb", "other": "1 - label_Hbb"}
SMALL_CLASSIFIER = {**SMALL, "model.class_depth": 1}


pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture(scope="module")
def simulated():
    """Jets of three classes with at most 20 particles."""
    table = {**Jets(classes=["QCD", "Hbb", "Tbqq"]).make(60)}
    table.pop("label", None)
    return {name: column for name, column in table.items() if not name.startswith("label_") or column.any()}


def write_parquet(path, table, **more):
    made = {name: awkward.to_arrow(ragged(column), extensionarray=False) for name, column in table.items()}
    pyarrow.parquet.write_table(pyarrow.table({**made, **more}), path)


def classifier(*names):
    """The recipe for files, and its page."""
    return written("jets", names, **SMALL_CLASSIFIER)


# Whole recipes


def test_jetclass_in_root_becomes_a_recipe_that_trains(simulated, tmp_path):
    write_root("jets.root", simulated)
    assert str(new("jets", ["jets.root"])) == "jets.yaml"
    recipe, page = classifier("jets.root")
    assert "# Classes: QCD, Hbb, Tbqq.\n" in page
    assert recipe.data.classes == {name: f"label_{name}" for name in ("QCD", "Hbb", "Tbqq")}
    assert recipe.data.new == {}
    assert recipe.tokens.features == "full"
    assert (recipe.objective.background, recipe.objective.spectrum) == ("QCD", "jet_sdmass")
    assert {"entry", "jet_pt", "jet_eta", "jet_sdmass"} <= set(recipe.data.observers)
    assert not any(name.startswith(("label", "npart")) for name in recipe.data.observers)
    run = train(recipe.change(TINY | SMALL_CLASSIFIER), tmp_path / "run", show=False, report=False)
    assert main(["predict", "run", "jets.root", "--out", "scores.root", "--quiet"]) == 0
    with uproot.open("scores.root") as file:
        found = file["tree"].arrays()
    assert len(found) == 60
    assert found["entry"].to_list() == list(range(60))
    np.testing.assert_allclose(found["jet_pt"], simulated["jet_pt"])
    scores = np.stack([np.asarray(found[f"score_{name}"]) for name in run.assembly.objective.classes], 1)
    np.testing.assert_allclose(scores.sum(1), 1, atol=1e-5)


def test_momenta_in_other_words_and_a_column_with_the_class(simulated):
    pt = Lists(np.hypot(simulated["part_px"].values, simulated["part_py"].values), simulated["part_px"].lengths)
    phi = np.arctan2(simulated["part_py"].values, simulated["part_px"].values)
    eta = np.arcsinh(simulated["part_pz"].values / pt.values)
    polar = {"pt": pt, "eta": Lists(eta, pt.lengths), "phi": Lists(phi, pt.lengths)}
    table = {f"{stem}_{name}": column for stem in ("cand", "genpart") for name, column in polar.items()}
    table |= {"cand_energy": simulated["part_energy"], "is_signal": simulated["label_Hbb"].astype(np.int64)}
    table |= {"event_weight": np.ones(60), "jet_pt": simulated["jet_pt"]}
    write_parquet("a.parquet", table)
    recipe, page = classifier("a.parquet")
    assert recipe.data.new["part_px"] == "cand_pt * cos(cand_phi)"
    assert recipe.data.new["part_energy"] == "cand_energy"
    assert recipe.data.classes == {"signal": "is_signal", "background": "1 - is_signal"}
    assert recipe.objective.background == "background"
    assert (recipe.data.weight, recipe.objective.weight) == ("event_weight", "weight")
    assert recipe.tokens.features == "kin"
    assert "genpart_pt" in page
    assert inspect_files([Path("a.parquet")]).samples == 60


def test_a_column_with_the_class_by_its_name(simulated):
    names = ["QCD" if flag else "Higgs" for flag in simulated["label_QCD"]]
    table = {name: column for name, column in simulated.items() if not name.startswith("label")}
    for path in ("a.parquet", "b.parquet"):
        write_parquet(path, table, label=names)
    recipe, page = classifier("a.parquet", "b.parquet")
    assert (recipe.data.label, recipe.objective.background) == ("label", "QCD")
    assert "Higgs, QCD." in page
    assert recipe.data.observers[:2] == ["file", "entry"]


def test_files_by_class_by_tags_and_by_part(simulated, capsys):
    bare = {name: column for name, column in simulated.items() if not name.startswith("label_")}
    for name in ("train_0", "val_0"):
        for kind in ("HToBB", "QCD"):
            write_root(f"{kind}_{name}.root", bare)
    names = ["HToBB:HToBB_train_0.root", "QCD:QCD_train_0.root", "HToBB:HToBB_val_0.root", "QCD:QCD_val_0.root"]
    assert str(new("jets", names)) == "HToBB_train_0.yaml"
    recipe, page = classifier(*names)
    assert recipe.data.files == names[:2]
    assert recipe.data.valid == names[2:]
    assert "HToBB, QCD." in page
    assert "valid:" in page.partition("split:")[0]
    recipe = Recipe.load(new("jets", [name.partition(":")[2] for name in names[:2]], overwrite=True))
    assert [name.partition(":")[0] for name in recipe.data.files] == ["HToBB_train", "QCD_train"]
    assert main(["new", "jets", names[0], "QCD_train_0.root", "--overwrite"]) == 2
    told = capsys.readouterr().err
    assert all(mention in told for mention in ("QCD_train_0.root", "CLASS:NAME"))


def test_without_a_class_hidden_particles_are_asked_for(simulated):
    write_root("a.root", {name: column for name, column in simulated.items() if name.startswith("part_")})
    recipe, page = written("jets", ["a.root"], **SMALL)
    assert recipe.objective.kind == "masked"
    assert "data.label" in page


def test_padded_arrays_without_names(simulated):
    most, lengths = 20, np.minimum(20, simulated["part_px"].lengths)
    padded = np.zeros((60, most, 4), np.float32)
    for place, name in enumerate(("energy", "px", "py", "pz")):
        column = simulated[f"part_{name}"]
        stops = column.lengths.cumsum()
        for row, (stop, long) in enumerate(zip(stops, column.lengths)):
            padded[row, : lengths[row], place] = column.values[stop - long : stop][:most]
    np.savez("a.npz", X=padded, y=np.arange(60) % 2)
    recipe, _ = classifier("a.npz")
    assert recipe.data.axes == {"X": ["part_energy", "part_px", "part_py", "part_pz"]}
    assert (recipe.data.label, recipe.tokens.max_tokens) == ("y", 24)
    quark = np.zeros_like(padded)
    quark[..., 0] = np.hypot(padded[..., 1], padded[..., 2])
    quark[..., 3] = np.where(quark[..., 0] > 0, 211, 0)
    with h5py.File("b.h5", "w") as file:
        file["X"], file["y"] = quark, np.arange(60) % 2
    recipe, _ = classifier("b.h5")
    assert recipe.data.axes == {"X": ["part_pt", "part_rapidity", "part_phi", "part_pid"]}
    assert recipe.data.new["part_pz"] == "part_pt * sinh(part_rapidity)"


def test_of_several_trees_the_known_one(simulated):
    write_root("a.root", simulated, ("Runs", "Events"))
    recipe, _ = classifier("a.root")
    assert recipe.data.tree == "Events"


# What cannot be guessed


def test_what_is_no_jet_is_answered(tmp_path):
    write_root("a.root", {"x": np.arange(20.0), "Jet_pt": Lists(np.ones(40), np.full(20, 2))})
    with refuses("px, py, pz", "Jet_pt", hint="data.new"):
        new("jets", ["a.root"])
    (tmp_path / "b.root").write_text("text")
    with refuses("b.root", "HDF5, NPZ, Parquet, ROOT"):
        new("jets", ["b.root"])
    few = {f"part_{name}": Lists(np.ones(3, np.float32), np.ones(3, np.int64)) for name in ("px", "py", "pz", "energy")}
    write_root("c.root", few)
    with refuses("10 jets", "have 3"):
        new("jets", ["c.root"])
    with refuses("nothing.root"):
        new("jets", ["QCD:nothing.root"])
    assert list(tmp_path.glob("*.yaml")) == []


def test_one_column_of_0_and_1_is_the_class(simulated):
    bare = {name: column for name, column in simulated.items() if not name.startswith("label_")}
    flag = simulated["label_Tbqq"].astype(bool)
    write_root("a.root", bare | {"Jet_isTop": flag, "Jet_nsv": flag.astype(np.int32)})
    recipe, _ = classifier("a.root")
    assert recipe.data.classes == {"Top": "Jet_isTop", "other": "1 - Jet_isTop"}
    assert (recipe.objective.kind, recipe.objective.background) == ("discriminate", "other")
    assembly = Assembly.open(recipe)
    assert assembly.objective.classes == ["Top", "other"]
    given = Recipe.load(new("jets", ["a.root"], "given.yaml", changes={"data.label": "Jet_isTop"}))
    assert (given.data.label, given.data.classes, given.objective.background) == ("Jet_isTop", {}, "False")


def test_flags_that_exclude_each_other_leave_a_rest():
    a, b, both = np.array([1, 0, 0]), np.array([0, 1, 0]), np.array([1, 1, 0])
    found = find_partial_flags({"is_a": a, "is_b": b})
    assert found == ({"a": "is_a", "b": "is_b", "other": "1 - is_a - is_b"}, "other")
    assert find_partial_flags({"is_a": a, "is_c": both}) == ({}, "")
    assert find_partial_flags({"isData": np.ones(3), "isolation": a, "Jet_nsv": a}) == ({}, "")
    assert find_partial_flags({"is_signal_new": a})[0] == {"signal": "is_signal_new", "background": "1 - is_signal_new"}


def test_classes_without_use_are_said(simulated):
    write_root("a.root", {name: column for name, column in simulated.items() if not name.startswith("label_")})
    recipe, _ = written("jets", ["a.root"], **SMALL)
    assert recipe.objective.kind == "masked"
    write_root("a.root", simulated)
    for change, key in (({"data.label": "label_Hbb"}, "data.label"), ({"data.classes": FLAGS}, "data.classes")):
        assert any(key in note for note in Assembly.open(recipe.change(change)).splits.notes)
    assert Assembly.open(recipe).splits.notes == []


def test_momenta_in_mev(simulated):
    names = ["part_px", "part_py", "part_pz", "part_energy", "jet_pt", "jet_energy"]

    def times(column):
        return Lists(column.values * 1000, column.lengths) if isinstance(column, Lists) else column * 1000

    write_root("gev.root", simulated)
    write_root("mev.root", simulated | {name: times(simulated[name]) for name in names})
    (gev, _), (mev, page) = classifier("gev.root"), classifier("mev.root")
    assert (gev.tokens.unit, mev.tokens.unit) == ("GeV", "MeV")
    assert "# The momenta are taken in MeV" in page
    one, other = (Assembly.open(recipe) for recipe in (gev, mev))
    assert "GeV" in one.data_facts["momenta"]
    assert one.profile_notes == other.profile_notes
    first, second = (made.dataset("train").all(8).streams["tokens"].columns for made in (one, other))
    np.testing.assert_allclose(first["vector"], second["vector"], rtol=1e-5)
    np.testing.assert_allclose(first["jet"], second["jet"], rtol=1e-5)
    for recipe, right in ((mev.change({"tokens.unit": "GeV"}), "MeV"), (gev.change({"tokens.unit": "MeV"}), "GeV")):
        assert any(f"--tokens.unit {right}" in note for note in Assembly.open(recipe).profile_notes)


@pytest.fixture(scope="module")
def in_events(simulated):
    """The same jets in events of 0 to 2 jets, with shuffled particles that are found by index."""
    rng, px, py, pz = np.random.default_rng(0), *(simulated[f"part_{axis}"] for axis in ("px", "py", "pz"))
    pt = np.hypot(px.values, py.values)
    columns = {"pt": pt, "eta": np.arcsinh(pz.values / pt), "phi": np.arctan2(py.values, px.values)}
    counts = np.tile([2, 0, 1], 20)
    event, number = np.repeat(np.arange(60), counts), np.concatenate([np.arange(count) for count in counts])
    jet = np.repeat(np.arange(60), px.lengths)
    order = np.lexsort((rng.random(len(jet)), event[jet]))
    lengths = np.bincount(event[jet], minlength=60)
    place = np.arange(len(jet)) - np.repeat(lengths.cumsum() - lengths, lengths)
    back = np.lexsort((rng.random(len(jet)), event[jet]))
    table = {f"PFCands_{name}": Lists(column[order].astype(np.float32), lengths) for name, column in columns.items()}
    table["FatJetPFCands_jetIdx"] = Lists(number[jet[order]][back].astype(np.int32), lengths)
    table["FatJetPFCands_pFCandsIdx"] = Lists(place[back].astype(np.int32), lengths)
    for name in ("pt", "eta", "phi"):
        table[f"FatJet_{name}"] = Lists(np.asarray(simulated[f"jet_{name}"], np.float32), counts)
    table["FatJet_isTop"] = Lists(simulated["label_Tbqq"].astype(bool), counts)
    return table | {"event": np.arange(60) + 100}


def test_jets_of_events_by_index(simulated, in_events):
    write_root("a.root", in_events)
    recipe, page = classifier("a.root")
    keys = {"of": "FatJet_", "index": "FatJetPFCands_jetIdx", "members": "PFCands_", "at": "FatJetPFCands_pFCandsIdx"}
    assert recipe.data.objects.model_dump() == keys
    assert recipe.data.classes == {"Top": "FatJet_isTop", "other": "1 - FatJet_isTop"}
    assert recipe.data.split.by == "row"
    assert "# Found: 60 jets" in page
    file = opened(Path("a.root"), Layout(objects=recipe.data.objects))
    found = file.read(["PFCands_pt", "FatJet_pt", "row", "object", "event"], 0, file.rows)
    pt = np.hypot(simulated["part_px"].values, simulated["part_py"].values)
    np.testing.assert_array_equal(found["PFCands_pt"].lengths, simulated["part_px"].lengths)
    sample = np.repeat(np.arange(60), simulated["part_px"].lengths)
    read = found["PFCands_pt"].values
    np.testing.assert_allclose(read[np.lexsort((read, sample))], pt[np.lexsort((pt, sample))], rtol=1e-6)
    np.testing.assert_allclose(found["FatJet_pt"], simulated["jet_pt"], rtol=1e-6)
    assert found["row"][:4].tolist() == [0, 0, 2, 3]
    assert found["object"][:4].tolist() == [0, 1, 0, 0]
    assert (found["event"] == found["row"] + 100).all()
    for start, stop in ((0, 1), (1, 5), (2, 3), (58, 60)):
        some = file.read(["PFCands_pt"], start, stop)["PFCands_pt"]
        np.testing.assert_array_equal(some.values, found["PFCands_pt"].take(np.arange(start, stop)).values)
    train(recipe.change(TINY | SMALL_CLASSIFIER), "run", show=False, report=False)


def test_particles_beside_their_index(in_events):
    beside = {
        name.replace("FatJetPFCands_", "JetPFCands_").replace("FatJet_", "Jet_").replace("PFCands_", "JetPFCands_")
        if not name.startswith("FatJetPFCands")
        else "JetPFCands_jetIdx": column
        for name, column in in_events.items()
        if name != "FatJetPFCands_pFCandsIdx"
    }
    write_root("a.root", beside)
    recipe, _ = classifier("a.root")
    assert recipe.data.objects.model_dump(exclude_defaults=True) == {"of": "Jet_", "index": "JetPFCands_jetIdx"}
    sources = Assembly.open(recipe).splits.sources.values()
    assert sum(sum(source.sizes) for source in sources) == 60


@pytest.mark.parametrize(
    ("change", "key", "words"),
    [
        ({"FatJetPFCands_jetIdx": 7}, "data.objects.index", ("7", "2 objects")),
        ({"FatJetPFCands_pFCandsIdx": -1}, "data.objects.at", ("-1", "entries")),
    ],
)
def test_wrong_numbers_of_jets(in_events, change, key, words):
    ((name, value),) = change.items()
    values = in_events[name].values.copy()
    values[0] = value
    write_root("good.root", in_events)
    recipe, _ = classifier("good.root")
    write_root("good.root", in_events | {name: Lists(values, in_events[name].lengths)})
    with refuses(*words, key=key, file="good.root"):
        Assembly.open(recipe)
    with refuses("Fat_", key="data.objects.of", hint="FatJet_"):
        Assembly.open(recipe.change({"data.objects.of": "Fat_"}))
    with refuses("idx", key="data.objects.index"):
        Assembly.open(recipe.change({"data.objects.index": "idx"}))


def test_charge_and_type_from_pdg_codes(simulated):
    px, py, pz = (simulated[f"part_{axis}"] for axis in ("px", "py", "pz"))
    pt = np.hypot(px.values, py.values)
    codes = np.random.default_rng(0).choice([211, -211, 22, 130, 11, -13, 2212, -2112], len(pt))
    rows = np.stack([pt, np.arcsinh(pz.values / pt), np.arctan2(py.values, px.values), codes], -1)
    padded = np.zeros((60, int(px.lengths.max()), 4))
    padded[np.arange(padded.shape[1]) < px.lengths[:, None]] = rows
    np.savez("qg.npz", X=padded, y=simulated["label_QCD"].astype(float))
    recipe, _ = classifier("qg.npz")
    assert recipe.tokens.features == "kinpid"
    assert (recipe.data.label, recipe.objective.background) == ("y", "0")
    columns = {"part_pid": Lists(codes, px.lengths)}
    for name in ("part_charge", "part_isChargedHadron", "part_isNeutralHadron", "part_isElectron", "part_isMuon"):
        columns[name] = Formula(recipe.data.new[name]).of(columns)
    table = {name: column.values.astype(int) for name, column in columns.items()}
    charges = {211: 1, -211: -1, 22: 0, 130: 0, 11: -1, -13: 1, 2212: 1, -2112: 0}
    assert table["part_charge"].tolist() == [charges[code] for code in codes.tolist()]
    assert table["part_isChargedHadron"].tolist() == np.isin(abs(codes), (211, 2212)).astype(int).tolist()
    assert table["part_isNeutralHadron"].tolist() == np.isin(abs(codes), (130, 2112)).astype(int).tolist()


def test_a_part_without_a_readable_file_is_left_out(simulated):
    for name in ("top_train", "top_test"):
        write_root(f"{name}.root", simulated)
    whole = Path("top_train.root").read_bytes()
    Path("top_other.root").write_bytes(whole[: len(whole) // 2])
    recipe, page = classifier("top_train.root", "top_other.root", "top_test.root")
    assert recipe.data.extra_parts == {}
    assert recipe.data.test == ["top_test.root"]
    assert recipe.data.bad_files == "skip"
    assert "# left out top_other.root" in page
    assert "Download or write it again." in page
    assert Assembly.open(recipe).dataset("test").samples == 60


# Names


def test_momenta_by_their_names():
    assert group_momenta(["part_px", "part_deta", "PT", "PartPt", "a.Eta", "eta_rel", "pte"]) == {
        "part_": {"px": "part_px"},
        "": {"pt": "PT"},
        "Part": {"pt": "PartPt"},
        "a.": {"eta": "a.Eta"},
    }
    assert momentum_formulas({"px": "part_px", "py": "part_py", "pz": "part_pz", "energy": "part_energy"}) == {}
    heavy = momentum_formulas({"px": "a", "py": "b", "pz": "c", "mass": "m"})
    assert heavy["part_energy"] == "sqrt(a**2 + b**2 + c**2 + m**2)"
    assert momentum_formulas({"pt": "a", "eta": "b", "phi": "c"})["part_energy"] == "a * cosh(b)"


@pytest.mark.parametrize(
    ("stems", "best"),
    [
        (("part_", "genpart_"), "part_"),
        (("Electron_", "PFCands_", "Jet_"), "PFCands_"),
        (("Particle.", "ParticleFlowCandidate.", "Jet."), "ParticleFlowCandidate."),
        (("tracks_", "constituents_"), "constituents_"),
        (("foo_", "muon_"), "foo_"),
    ],
)
def test_the_likeliest_set_is_taken(stems, best):
    kinds = {f"{stem}{part}": "list" for stem in stems for part in ("pt", "eta", "phi")}
    assert next(iter(find_particles(kinds).parts.values())).startswith(best)


def test_classes_labels_weights_and_observers():
    flags = {"label_a": np.array([1, 0, 0]), "label_b": np.array([0, 1, 1]), "label_c": np.array([1, 1, 1])}
    assert find_class_flags({name: flags[name] for name in ("label_a", "label_b")}) == {"a": "label_a", "b": "label_b"}
    assert find_class_flags(flags) == {}
    assert find_label({"jet_label": np.array([3, 4]), "target": np.array([0.5, 1])}) == "jet_label"
    assert find_label({"target": np.array([0.5, 1])}) == ""
    assert find_weight({"genWeight": np.array([1.0, -1])})[0] == ""
    table = {"jet_pt": np.ones(2), "Jet_size": np.ones(2), "other": np.ones(2), "event": np.ones(2)}
    assert find_observers(table, ["event"]) == ["jet_pt"]
    assert tag_by_class(["a/HToBB_000.root", "a/HToBB_001.root", "b/QCD_1.root"])[1] == "HToBB:a/HToBB_001.root"
    assert tag_by_class(["a_0.root", "a_1.root"]) == []


# Real files


@pytest.mark.skipif(not SHARED.is_dir(), reason="no shared data beside the repository")
@pytest.mark.parametrize(
    ("name", "features", "found"),
    [
        ("toyjets_jetclass_format.root", "full", "classes"),
        ("real/JetClassII_example.parquet", "full", "jet_label"),
        ("real/events_delphes_example.root", "full", "Delphes"),
        ("real/pfnano.root", "full", "NanoAOD with PF candidates"),
    ],
)
def test_real_layouts(name, features, found):
    path = new("jets", [str(SHARED / name)])
    assert Recipe.load(path).tokens.features == features
    assert found in path.read_text("utf-8")
    if found != "jet_label":  # a hundred jets of 188 classes cannot be divided
        pooled = Recipe.load(path).model.pool == "class_attention"
        written("jets", [str(SHARED / name)], **(SMALL_CLASSIFIER if pooled else SMALL), **{"tokens.max_tokens": 16})
