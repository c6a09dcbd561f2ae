"""Simulated curves in files: what is written is read back the same; the verb and its mistakes."""

import csv

import numpy as np
import pytest

from sciformer.cli.main import main
from sciformer.data.columns import Lists
from sciformer.data.readers.arrays import Arrays
from sciformer.data.source import pieces
from sciformer.domains.jets.simulate import files as jet_files
from sciformer.domains.lightcurves.simulate import files as curve_files
from sciformer.domains.lightcurves.simulate.lightcurves import Options, lightcurves
from sciformer.domains.lightcurves.simulate.sections import LightCurves
from tests.errors import refuses

COLUMNS = ("time", "value", "error", "band", "limit", "clean", "label", "redshift", "period", "id")


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


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.parametrize("what", ["stars", "supernovae"])
def test_what_is_written_is_read_back(there, monkeypatch, suffix, what):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(curve_files, "CURVES_PER_WRITE", 12)  # so that files grow
    path = there / f"deep/curves{suffix}"
    curve_files.simulate_curves(path, what, 30, seed=3, log=lambda text: None)
    made = lightcurves(30, what, seed=3)
    names = [name for name in COLUMNS if name in made]
    section = LightCurves(kind="lightcurves").want(names)
    assert_same(next(pieces(section.read([path]))), made, names)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_npz_files_are_lists_of_the_reader_of_arrays(there):
    options = Options(snr=(15.0, 15.0), points=256)
    curve_files.simulate_curves(there / "a.npz", "signals", 6, options=options, log=lambda text: None)
    made = lightcurves(6, "signals", options=options)
    assert_same(Arrays(kind="arrays").read([there / "a.npz"]).load(0), made, made)
    assert_same(LightCurves(kind="lightcurves").read([there / "a.npz"]).load(0), made, made)


def test_a_long_table_has_a_row_for_each_observation(there):
    curve_files.simulate_curves(there / "a.csv", "stars", 3, log=lambda text: None)
    made = lightcurves(3, "stars")
    with (there / "a.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(made["time"].values)
    assert [float(row["time"]) for row in rows] == made["time"].values.tolist()
    assert [row["id"] for row in rows] == np.repeat(made["id"], made["time"].lengths).tolist()


def test_the_verb_writes_chosen_classes_and_replaces_only_when_told(there, capsys):
    line = ("simulate", "lightcurves", "a.csv", "--number", 12, "--classes", "RRAB", "EC", "--cadence", "asas")
    assert told(capsys, *line) == (0, "wrote 12 curves to a.csv\n", "")
    status, _, error = told(capsys, *line)
    assert status == 2
    assert all(mention in error for mention in ("a.csv", "--overwrite"))
    assert told(capsys, *line, "--overwrite", "--seed", "3")[0] == 0
    line = ("simulate", "lightcurves", "b.npz", "--what", "supernovae", "--bands", "g", "r", "--unit", "flux")
    assert told(capsys, *line, "--number", 5)[0] == 0
    line = ("simulate", "lightcurves", "c.npz", "--what", "signals", "--snr", 8, 9, "--white", "--points", 128)
    assert told(capsys, *line, "--number", 5)[0] == 0


@pytest.mark.parametrize(
    ("line", "mentions"),
    [
        ("a.txt", [".parquet, .csv or .npz", "a.txt", "a.parquet"]),
        ("a.csv --number 0", ["--number", "1 curve", "0"]),
        ("a.csv --seed -2", ["--seed", "-2"]),
        ("a.csv --what starz", ["'starz'", "'stars'?"]),
        ("a.csv --classes RRAB RRB", ["'RRB'", "'RRAB'?"]),
        ("a.csv --snr 3 4", ["`snr`", "stars"]),
        ("a.csv --data.number 3", ["--data.number"]),
    ],
)
def test_mistakes_are_answered_before_the_work(there, capsys, line, mentions):
    status, out, error = told(capsys, "simulate", "lightcurves", *line.split())
    assert (status, out) == (2, "")
    assert all(mention in " ".join(error.split()) for mention in mentions)
    assert not list(there.iterdir())


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".npz"])
def test_nothing_half_written_stays(there, suffix):
    pytest.importorskip("pyarrow")
    path = there / f"a{suffix}"
    path.write_bytes(b"older")

    def broken():
        yield lightcurves(5)
        raise OSError(28, "No space left on device")

    with refuses(path, "No space left"):
        jet_files.write_tables(path, broken(), overwrite=True, forms=curve_files.WRITERS)
    assert [entry.name for entry in there.iterdir()] == [path.name]
    assert path.read_bytes() == b"older"
