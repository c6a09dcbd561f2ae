"""Jets in files: what is written is read back the same; nothing half-written stays; the verb and its mistakes."""

import importlib
import importlib.util

import numpy as np
import pytest

from sciformer.cli.main import main
from sciformer.data.columns import Lists
from sciformer.data.readers.arrays import Arrays
from sciformer.data.readers.events.reader import EventFiles
from sciformer.data.source import pieces
from sciformer.domains.jets.simulate import files
from sciformer.domains.jets.simulate.decays import CLASSES
from sciformer.domains.jets.simulate.jets import BRANCHES, jets
from tests.errors import refuses

pytest.importorskip("uproot")
pytest.importorskip("pyarrow")


@pytest.fixture
def there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def told(capsys, *words):
    capsys.readouterr()
    status = main([str(word) for word in words])
    out, error = capsys.readouterr()
    return status, out, error


def assert_same(found, made, names):
    for name in names:
        if isinstance(made[name], Lists):
            np.testing.assert_array_equal(found[name].lengths, made[name].lengths)
            np.testing.assert_array_equal(found[name].values, made[name].values)
        else:
            np.testing.assert_array_equal(found[name], made[name])


@pytest.mark.parametrize("suffix", [".root", ".parquet"])
def test_what_is_written_is_read_back(there, monkeypatch, suffix):
    monkeypatch.setattr(files, "JETS_PER_WRITE", 60)  # so that files grow
    path = there / f"deep/jets{suffix}"
    assert files.write_tables(path, files.make_tables(150, 3, CLASSES, "builtin")) == 150
    made = jets(150, seed=3)
    section = EventFiles(kind="events", classes={name: f"label_{name}" for name in CLASSES})
    assert_same(next(pieces(section.read([path]))), made, [*BRANCHES, "label"])
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_root_files_are_like_those_of_jetclass(there):
    import uproot

    files.simulate_jets(there / "a.root", 40, log=lambda text: None)
    with uproot.open(there / "a.root") as file:
        tree = file["tree"]
        assert file.classnames() == {"tree;1": "TTree"}
        assert set(tree.keys()) == {*BRANCHES, "npart"}
        assert tree["part_px"].typename == "float[]"
        assert tree["jet_pt"].typename == "float"
        assert tree.num_entries == 40


def test_npz_files_are_lists_of_the_reader_of_arrays(there):
    files.simulate_jets(there / "a.npz", 30, seed=2, log=lambda text: None)
    assert_same(Arrays(kind="arrays").read([there / "a.npz"]).load(0), jets(30, 2), [*BRANCHES, "label"])


def test_a_file_for_each_class(there, capsys):
    status, out, _ = told(capsys, "simulate", "jets", "--by-class", "all", "--number", "23", "--seed", "5")
    assert status == 0
    names = sorted(path.name for path in (there / "all").iterdir())
    assert len(names) == 10
    assert {"HToBB_000.root", "ZJetsToNuNu_000.root", "TTBarLep_000.root"} < set(names)
    assert out.count("wrote 3 jets") == 3
    assert out.count("wrote 2 jets") == 7
    found = next(pieces(EventFiles(kind="events").read([there / "all/HToCC_000.root"])))
    assert found["label_Hcc"].all()
    assert not found["label_QCD"].any()


def test_the_verb_writes_chosen_classes_and_replaces_only_when_told(there, capsys):
    line = ("simulate", "jets", "--number", 12, "--out", "a.parquet", "--classes", "QCD", "Tbqq")
    assert told(capsys, *line) == (0, "wrote 12 jets to a.parquet\n", "")
    status, _, error = told(capsys, *line)
    assert status == 2
    assert all(mention in error for mention in ("a.parquet", "--overwrite"))
    before = (there / "a.parquet").stat().st_mtime_ns
    assert told(capsys, *line, "--overwrite", "--seed", "3")[0] == 0
    assert (there / "a.parquet").stat().st_mtime_ns > before


@pytest.mark.parametrize(
    ("line", "mentions"),
    [
        ("", ["--out jets.root", "--by-class FOLDER"]),
        ("--out a.root --by-class b", ["--out and --by-class"]),
        ("--out a.txt", [".root, .parquet or .npz", "a.txt", "a.root"]),
        ("--out a.root --number 0", ["--number", "1 jet", "0"]),
        ("--by-class a --number 3", ["--number", "10 jets", "3"]),
        ("--out a.root --seed -2", ["--seed", "-2"]),
        ("--out a.root --classes QCD Hbx", ["'Hbx'", "'Hbb'?"]),
        ("--out a.root --engine pithia", ["'pithia'", "'pythia'?"]),
        ("--out a.root --data.number 3", ["--data.number"]),
    ],
)
def test_mistakes_are_answered_before_the_work(there, capsys, line, mentions):
    status, out, error = told(capsys, "simulate", "jets", *line.split())
    assert (status, out) == (2, "")
    assert all(mention in " ".join(error.split()) for mention in mentions)
    assert not list(there.iterdir())


@pytest.mark.parametrize("suffix", [".root", ".parquet", ".npz"])
def test_nothing_half_written_stays(there, suffix):
    path = there / f"a{suffix}"
    path.write_bytes(b"older")

    def broken():
        yield jets(20)
        raise OSError(28, "No space left on device")

    with refuses(path, "No space left"):
        files.write_tables(path, broken(), overwrite=True)
    assert [entry.name for entry in there.iterdir()] == [path.name]
    assert path.read_bytes() == b"older"


def test_pythia_that_is_missing_is_named_with_its_pip_line(there, capsys, monkeypatch):
    from sciformer.domains.jets.simulate import pythia

    def missing(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(pythia.importlib, "import_module", missing)
    status, _, error = told(capsys, "simulate", "jets", "--engine", "pythia", "--out", "a.root")
    assert status == 2
    assert "pip install --only-binary :all: pythia8mc fastjet" in " ".join(error.split())
    assert not list(there.iterdir())


@pytest.mark.skipif(not all(map(importlib.util.find_spec, ("pythia8mc", "fastjet"))), reason="no Pythia installed")
def test_jets_of_pythia(there):
    files.simulate_jets(there / "a.root", 20, seed=1, engine="pythia", log=lambda text: None)
    section = EventFiles(kind="events", classes={name: f"label_{name}" for name in CLASSES})
    found = next(pieces(section.read([there / "a.root"])))
    assert {name: np.count_nonzero(found["label"] == name) for name in CLASSES} == dict.fromkeys(CLASSES, 2)
    assert ((found["jet_pt"] >= 500) & (found["jet_pt"] <= 1000)).all()
    assert found["part_px"].lengths.min() > 1
    heavy = np.isin(found["label"], ["Tbqq", "Hcc", "Hgg"])
    assert np.median(found["jet_sdmass"][heavy]) > 60
