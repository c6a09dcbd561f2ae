"""Files that are truncated, hostile or in an impossible place, met by a training."""

import os
import time
import zipfile

import numpy as np
import pytest

from sciformer.data.readers.events.reader import EventFiles
from sciformer.data.readers.series.reader import SeriesFiles
from sciformer.domains.images.reader.reader import ImageFiles
from sciformer.files.formats.npz import read_arrays
from sciformer.training import checkpoint
from tests.data.readers.events.examples import padded, table, write_parquet, write_root
from tests.data.readers.series.examples import objects, write_star
from tests.domains.images.reader.examples import bomb, picture, pixels
from tests.errors import refuses
from tests.faults import fault
from tests.training.tiny import assert_same, go

ALL = {"valid": 0.0, "test": 0.0}


def write_hdf5(path, columns):
    import h5py

    made, mask = padded(columns)
    with h5py.File(path, "w") as file:
        for name, array in {**made, "part_mask": mask, "jet_pt": columns["jet_pt"]}.items():
            file.create_dataset(name, data=array)


def events(files, **options):
    return EventFiles(kind="events", files=files, split=ALL, **options).want(["part_px", "jet_pt"])


def curves(files, **options):
    names = {"time": "TIME", "value": "PDCSAP_FLUX", "label": "TEFF"}
    return SeriesFiles(kind="series", files=files, split=ALL, **names, **options).want(["TEFF"])


def images(files, **options):
    return ImageFiles(kind="images", files=files, split=ALL, **options)


FORMATS = {
    "root": (lambda path, seed: write_root(path, table(30, seed)), events),
    "h5": (lambda path, seed: write_hdf5(path, table(30, seed)), events),
    "parquet": (lambda path, seed: write_parquet(path, table(30, seed)), events),
    "fits": (lambda path, seed: write_star(path, objects(seed=seed, least=300)[0]), curves),
    "png": (lambda path, seed: picture(path, pixels(40, 40, 3)), images),
}


@fault(
    "a truncated ROOT, HDF5, Parquet, FITS or PNG file among good ones",
    "refused with its name; with `data.bad_files: skip` it is left out and listed",
)
@pytest.mark.parametrize("name", FORMATS)
def test_truncated_file_among_good_ones(tmp_path, name):
    write, section = FORMATS[name]
    files = [tmp_path / f"{letter}.{name}" for letter in "abc"]
    for seed, file in enumerate(files):
        write(file, seed)
    whole = files[1].read_bytes()
    files[1].write_bytes(whole[: int(0.6 * len(whole))])
    first, cut, last = map(str, files)
    with refuses(file=cut, hint="--data.bad_files skip"):
        section([first, cut, last]).open()
    opened, expected = section([first, cut, last], bad_files="skip").open(), section([first, last]).open()
    assert sum(opened.sources["train"].sizes) == sum(expected.sources["train"].sizes) > 0
    assert any(cut in note for note in opened.notes)


@fault(
    "an archive with names such as `../x`, a picture of 40,000 x 40,000 pixels, an array that unpacks to 1 TB",
    "refused before it is unpacked; no file is written",
)
def test_hostile_files(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    np.save(folder / "x.npy", np.zeros((3, 4, 4)))
    with zipfile.ZipFile(folder / "slip.npz", "w") as file:
        file.write(folder / "x.npy", "../../escaped.npy")
        file.write(folder / "x.npy", "image.npy")
    assert read_arrays(folder / "slip.npz").keys() <= {"image", "../../escaped"}
    with zipfile.ZipFile(folder / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as file:
        header = b"\x93NUMPY\x01\x00v\x00" + str({"descr": "<f8", "fortran_order": False, "shape": (1 << 37,)}).encode()
        file.writestr("image.npy", header.ljust(127) + b"\n" + bytes(1 << 20))
    with refuses("image", file=folder / "bomb.npz"):
        read_arrays(folder / "bomb.npz")
    bomb(folder / "huge.png", 40_000)
    with refuses("1,600,000,000", file=folder / "huge.png"):
        images([str(folder / "huge.png")]).open()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["bomb.npz", "huge.png", "in", "slip.npz", "x.npy"]


@fault("the clock set back by a year during a training", "the same result")
def test_clock_jump(tmp_path, texts, monkeypatch):
    recipe, reference = texts
    now, calls = time.time, []
    monkeypatch.setattr(time, "time", lambda: now() - 3.2e7 * (calls.append(0) or len(calls) > 3))
    go(recipe, tmp_path, stop_after=6)
    assert_same(go(recipe, tmp_path), reference)


@fault("a run folder whose path is longer than the system allows", "refused before the first step; nothing is left")
@pytest.mark.parametrize("name", ["x" * 300, "/".join(["x" * 200] * 25)], ids=["name", "path"])
def test_path_too_long(tmp_path, texts, name):
    with refuses(hint="shorter"):
        go(texts[0], tmp_path / name)
    assert not list(tmp_path.iterdir())


@fault("no inode left for another file", "stops with an error; the same command continues with the same result")
def test_no_inodes(tmp_path, texts, monkeypatch):
    recipe, reference = texts
    go(recipe, tmp_path, stop_after=4)
    mkdir = os.mkdir

    def full(path, *more, **options):
        if "step-" in str(path):
            raise OSError(28, "No space left on device", str(path))
        mkdir(path, *more, **options)

    monkeypatch.setattr(os, "mkdir", full)
    with refuses("No space left"):
        go(recipe, tmp_path)
    monkeypatch.undo()
    assert checkpoint.steps(tmp_path / "checkpoints") == [4]
    assert_same(go(recipe, tmp_path), reference)
