"""`sciformer simulate`: a command for each simulation, its options the fields of the section; mistakes; plugins."""

import numpy as np
import pytest
import xarray

from sciformer.domains.jets.simulate.jets import BRANCHES
from sciformer.recipe import Recipe
from sciformer.recipe.registry import find, names, register
from tests.errors import refuses

LINES = {
    "copying_memory": ("--lag 3 --symbols 4", {"lag": 3, "symbols": 4}),
    "cues": ("--size 24 --agree 0 --noise 0.1", {"size": 24, "agree": 0.0, "noise": 0.1}),
    "flows": ("--rows 6 --columns 8 --wind 0.5", {"rows": 6, "columns": 8, "wind": 0.5}),
    "galaxies": (
        "--classes round merger --size=16 --bands 2 --unit flux",
        {"classes": ["round", "merger"], "size": 16, "bands": 2, "unit": "flux"},
    ),
    "jets": ("--classes QCD Tbqq --most 9", {"classes": ["QCD", "Tbqq"], "most": 9}),
    "lattices": (
        "--size 4 --chains 2 --samples 1 --lowest 1.5 --boundary open",
        {"size": 4, "chains": 2, "samples": 1, "lowest": 1.5, "boundary": "open"},
    ),
    "lenses": ("--size 16 --bands 3 --no-light", {"size": 16, "bands": 3, "light": False}),
    "lightcurves": (
        "--what signals --snr 8 9 --white --points 128",
        {"what": "signals", "snr": (8.0, 9.0), "white": True, "points": 128},
    ),
    "pronouns": ("--farthest 6", {"farthest": 6}),
    "quantum": ("--size 6 --j2 0.4", {"size": 6, "j2": 0.4}),
    "scenes": (
        "--things 2 3 --combinations unseen --held-out 3",
        {"things": (2, 3), "combinations": "unseen", "held_out": 3},
    ),
    "transients": ("--classes Ia II --size 16 --bands 1", {"classes": ["Ia", "II"], "size": 16, "bands": 1}),
}


def test_every_simulation_is_in_these_tests():
    assert sorted(LINES) == names("simulation")


@pytest.mark.parametrize("kind", [kind for kind in LINES if kind != "flows"])
def test_the_options_are_the_fields_of_the_section(told, refused, kind):
    line, options = LINES[kind]
    section = find("simulation", kind)(kind=kind, number=12, seed=3, **options)
    made = section.make(12) if kind not in ("lattices", "copying_memory", "pronouns", "quantum") else section.make()
    count = section.file_size()
    words = line.split()
    made_line = told("simulate", kind, "a.npz", "--number", "12", "--seed", "3", *words)
    assert made_line == f"wrote {count} {section.noun} to a.npz\n"
    with np.load("a.npz") as found:
        for name, column in made.items():
            np.testing.assert_array_equal(found[name], getattr(column, "values", column))
    again = ["simulate", kind, "--out", "a.npz", "--number", "12", *words]
    assert "--overwrite" in refused(*again)
    told(*again, "--overwrite", "--quiet")


def test_maps_are_written_as_netcdf(told, refused):
    line, options = LINES["flows"]
    made = find("simulation", "flows")(kind="flows", number=12, seed=3, **options).make()
    words = ["simulate", "flows", "a.nc", "--number", "12", "--seed", "3", *line.split()]
    assert told(*words) == "wrote 12 hours to a.nc\n"
    with xarray.open_dataset("a.nc") as found:
        np.testing.assert_array_equal(found["temperature"].values, made["temperature"])
        np.testing.assert_array_equal(found.latitude, made["latitude"])
    assert "--overwrite" in refused(*words)
    assert ".nc" in refused("simulate", "flows", "a.npz")


@pytest.mark.parametrize("kind", LINES)
def test_help_shows_every_option_with_its_meaning_and_default(told, kind):
    flat = " ".join(told("simulate", kind, "--help").replace("│", " ").split())
    section = find("simulation", kind)
    for key, field in section.model_fields.items():
        if key in ("kind", *section.recipe_keys):
            assert f"--{key.replace('_', '-')} " not in flat
        else:
            assert f"--{key.replace('_', '-')} " in flat
            assert " ".join(field.description.replace("`", "").split())[:30] in flat
    assert f"default: {section.model_fields['number'].default:,})" in flat


def test_help_lists_the_simulations(told):
    text = told("simulate", "--help")
    assert all(f"│ {kind} " in text for kind in LINES)
    assert "galaxies of eight classes" in text


@pytest.mark.parametrize(
    ("line", "mentions"),
    [
        ("galaxies a.png", [".npz or .h5", "a.png", "a.npz"]),
        ("galaxies a.npz --number 0", ["--number", "at least 1", "0"]),
        ("galaxies a.npz --seed -1", ["--seed", "-1"]),
        ("galaxies a.npz --sise 16", ["--sise", "--size?"]),
        ("galaxies a.npz --size x", ["--size", "whole number", '"x"']),
        ("galaxies a.npz --unit fluks", ["--unit", "fluks", "flux?"]),
        ("galaxies a.npz --valid 3", ["--valid"]),
        ("galaxies a.npz --classes sprial", ["'sprial'", "barred, unbarred"]),
        ("galaxies a.npz --data.size 3", ["--data.size", "--size"]),
        ("lenses a.npz --size 3", ["--size", "16", "512", "3"]),
        ("cues a.npz --size 16", ["--size", "24", "512", "16"]),
        ("cues a.npz --agree 2", ["--agree", "at most 1", "2"]),
        ("cues a.npz --classes disk", ["classes", "disk"]),
        ("cues . --number 1", ["'.'", "NAME.npz"]),
        ("lens a.npz", ["'lenses'?"]),
        ("jets", ["--out jets.root", "--by-class FOLDER"]),
        ("jets --out a.root --by-class b", ["--out and --by-class"]),
        ("jets --out a.txt", [".root, .parquet or .npz", "a.txt", "a.root"]),
        ("jets --by-class a --number 3", ["number", "10", "3"]),
        ("jets --out a.root --classes QCD Hbx", ["'Hbx'", "'Hbb'?"]),
        ("lightcurves a.txt", [".parquet, .csv or .npz", "a.txt", "a.parquet"]),
        ("lightcurves a.csv --what starz", ["starz", "stars?"]),
        ("lightcurves a.csv --classes RRAB RRB", ["'RRB'", "'RRAB'?"]),
        ("lightcurves a.csv --snr 3 4", ["`snr`", "stars"]),
        ("lightcurves a.csv --points 3", ["points", "32", "65,536", "3"]),
        ("lightcurves a.csv --what signals --snr 9 4", ["snr", "9.0 to 4.0"]),
        ("lightcurves a.csv --what signals --snr 9", ["--snr", "2 numbers"]),
        ("lightcurves a.csv --what supernovae --bands g u", ["band", "'u'"]),
        ("lattices a.npz --lowest 4", ["highest", "lowest", "4"]),
        ("lattices a.npz --coupling 0", ["coupling", "0"]),
        ("lattices a.npz --intervals 2 1", ["intervals", "2.0, 1.0"]),
        ("quantum a.npz --size 9", ["odd", "9"]),
        ("lattices a.npz --chains 0", ["--chains", "at least 1", "0"]),
        ("lattices a.npz --boundary periodical", ["--boundary", "periodical", "periodic?"]),
        ("scenes a.npz --things 3 2", ["things", "3", "2"]),
        ("scenes a.npz --things 1 5", ["things", "1", "5"]),
        ("scenes a.npz --held-out 0 --combinations unseen", ["combinations", "held_out", "0"]),
        ("scenes a.npz --combinations sen", ["--combinations", "sen", "seen?"]),
        ("copying_memory a.npz --symbols 27", ["--symbols", "at most 26", "27"]),
    ],
)
def test_mistakes_are_answered_before_the_work(refused, tmp_path, line, mentions):
    error = refused("simulate", *line.split())
    assert [mention for mention in mentions if mention not in error] == []
    assert not list(tmp_path.iterdir())


def test_a_file_for_each_class(told, tmp_path):
    uproot = pytest.importorskip("uproot")
    out = told(*["simulate", "jets", "--by-class", "all", "--number", "23", "--seed", "5"])
    files = sorted(path.name for path in (tmp_path / "all").iterdir())
    assert len(files) == 10
    assert {"HToBB_000.root", "ZJetsToNuNu_000.root", "TTBarLep_000.root"} < set(files)
    assert out.count("wrote 3 jets") == 3
    assert out.count("wrote 2 jets") == 7
    with uproot.open("all/HToCC_000.root") as file:
        tree = file["tree"]
        assert file.classnames() == {"tree;1": "TTree"}
        assert set(tree.keys()) == {*BRANCHES, "npart"}  # as in JetClass
        assert (tree["part_px"].typename, tree["jet_pt"].typename) == ("float[]", "float")
        assert tree["label_Hcc"].array().tolist() == [1, 1, 1]
        assert tree["label_QCD"].array().tolist() == [0, 0, 0]


SIMULATION = '''
import numpy as np
from pydantic import Field
from sciformer.data.readers.simulation import SimulatedSequence
from sciformer.recipe.registry import register


@register("simulation", "beads")
class Beads(SimulatedSequence):
    """Strings of beads."""

    noun = "strings"
    known_classes = ("red", "blue")
    classes: list[str] = Field(default_factory=list)
    """Colours."""
    length: int = Field(default=3, ge=1)
    """Beads on a string."""

    def make_chunk(self, rng, label, part):
        return {"image": rng.random((len(label), self.length, self.length)) + label[:, None, None]}
'''


@pytest.mark.usefixtures("own_plugins")
def test_a_simulation_of_a_plugin_is_a_kind_of_data_and_a_command(told, refused, tmp_path):
    refused(*["simulate", "beads", "a.npz", "--length", "2"])
    (tmp_path / "bead_strings.py").write_text(SIMULATION)
    line = "simulate beads a.npz --number 5 --length 2 --plugin bead_strings.py"
    assert told(*line.split()) == "wrote 5 strings to a.npz\n"
    with np.load("a.npz") as found:
        assert found["image"].shape == (5, 2, 2)
        assert set(found["label"]) == {"red", "blue"}
    assert "--length?" in refused(*line.replace("--length", "--lenght").split())
    assert "--length" in refused(*line.replace("2", "0").split())
    changes = {"data.kind": "beads", "data.number": 40, "data.length": 4, "tokens.patch": 2, "objective.label": "label"}
    recipe = Recipe.load("images/digits-vit", changes)
    assert sum(recipe.data.open().sources["train"].sizes) == 40
    with refuses("beads", key="data.kind"):
        Recipe.load("images/digits-vit", {"data.kind": "bead"})
    with refuses("'arrays'", key="simulation.kind"):
        register("simulation", "arrays")(type(recipe.data))
