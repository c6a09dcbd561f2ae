"""Simulated images in files: what is written is read back the same; the verbs and their mistakes."""

import numpy as np
import pytest

from sciformer.cli.main import main
from sciformer.domains.images.simulate import files
from sciformer.domains.images.simulate.cues import cues
from sciformer.domains.images.simulate.galaxies import galaxies
from sciformer.domains.images.simulate.lenses import lenses


@pytest.fixture
def there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files, "IMAGES_PER_WRITE", 4)  # so that files grow
    return tmp_path


def told(capsys, *words):
    capsys.readouterr()
    status = main([str(word) for word in words])
    out, error = capsys.readouterr()
    return status, out, error


LINES = [
    ("galaxies a.npz --classes round merger --size 16 --seed 3", galaxies, {"seed": 3, "classes": ["round", "merger"]}),
    ("galaxies a.npz --bands 2 --unit flux --size 16", galaxies, {"bands": 2, "unit": "flux"}),
    ("lenses a.npz --size 16 --bands 3 --dark", lenses, {"bands": 3, "light": False}),
    ("cues a.npz --size 24 --agree 0", cues, {"size": 24, "agree": 0.0}),
]


@pytest.mark.parametrize(("line", "make", "more"), LINES)
def test_what_is_written_is_what_is_made(there, capsys, line, make, more):
    status, out, _ = told(capsys, "simulate", *line.split(), "--number", 10, "--quiet")
    assert status == 0
    assert "wrote 10" in out
    table = make(10, **{"size": 16, **more})
    with np.load("a.npz") as found:
        assert sorted(found.files) == sorted(table)
        for name, column in table.items():
            np.testing.assert_array_equal(found[name], column)


def test_hdf5_grows_piece_by_piece(there, capsys):
    h5py = pytest.importorskip("h5py")
    assert told(capsys, "simulate", "galaxies", "a.h5", "--number", 10, "--size", 16, "--quiet")[0] == 0
    table = galaxies(10, size=16)
    with h5py.File("a.h5") as file:
        np.testing.assert_array_equal(file["image"][:], table["image"])
        assert file["label"].asstr()[:].tolist() == table["label"].tolist()


@pytest.mark.parametrize(
    ("line", "mentions"),
    [
        ("galaxies a.png", [".npz or .h5", "a.png", "a.npz"]),
        ("galaxies a.npz --number 0", ["--number", "galaxies", "0"]),
        ("galaxies a.npz --classes sprial", ["galaxies", "'sprial'", "barred, unbarred"]),
        ("galaxies a.npz --data.size 3", ["--data.size", "Galaxies"]),
        ("lenses a.npz --size 3", ["size", "16 to 512", "3"]),
        ("lenses a.npz --bands 0", ["bands", "1 to 20", "0"]),
        ("cues a.npz --agree 2", ["agree", "0 and 1", "2"]),
        ("lens a.npz", ["'lenses'?"]),
    ],
)
def test_mistakes_are_answered(there, capsys, line, mentions):
    status, out, error = told(capsys, "simulate", *line.split())
    assert status != 0
    assert all(mention in " ".join((out + error).split()) for mention in mentions)
    assert not list(there.iterdir())


def test_a_file_is_not_replaced_unless_asked(there, capsys):
    (there / "a.npz").write_bytes(b"mine")
    line = ("simulate", "cues", "a.npz", "--number", 4, "--size", 24, "--quiet")
    status, out, error = told(capsys, *line)
    assert status != 0
    assert "--overwrite" in out + error
    assert told(capsys, *line, "--overwrite")[0] == 0


def test_a_disk_without_room_is_told_before_it_is_full(there, capsys, monkeypatch):
    pytest.importorskip("h5py")
    left = iter([1 << 30, 1 << 10])
    monkeypatch.setattr(files.shutil, "disk_usage", lambda path: type("Usage", (), {"free": next(left)}))
    status, _, error = told(capsys, "simulate", "cues", "a.h5", "--number", 10, "--size", 24, "--quiet")
    assert status == 2
    assert all(mention in " ".join(error.split()) for mention in ("a.h5", "No space left on device"))
    assert not list(there.iterdir())


def test_a_folder_is_no_file(there, capsys):
    status, _, error = told(capsys, "simulate", "cues", ".", "--number", 1)
    assert status == 2
    assert all(mention in " ".join(error.split()) for mention in ("'.'", "NAME.npz"))
