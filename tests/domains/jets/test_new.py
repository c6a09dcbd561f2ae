"""Recipes for jets: columns found in every layout and format, and that the recipes load, check and train."""

from pathlib import Path

import awkward
import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import uproot

from sciformer.cli.main import main
from sciformer.data.columns import Lists
from sciformer.domains.jets.new import (
    find_class_flags,
    find_label,
    find_observers,
    find_particles,
    find_weight,
    group_momenta,
    inspect_files,
    momentum_formulas,
    tag_by_class,
)
from sciformer.domains.jets.simulate.jets import Jets
from sciformer.recipe import Recipe
from sciformer.recipe.new import new
from sciformer.run import train
from tests.domains.jets.jets_table import ragged, write_root
from tests.errors import refuses
from tests.paths import SHARED as DATA
from tests.recipe.written import TINY, written

SHARED = DATA / "jets"
SMALL = {"tokens.widths": [8], "tokens.pair_widths": [4], "train.batch": 8}
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
    assert (recipe.data.label, recipe.data.weight, recipe.objective.weight) == ("is_signal", "event_weight", "weight")
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
    with refuses("px, py, pz and energy", "Jet_pt", hint="data.new"):
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
