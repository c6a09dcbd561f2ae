"""Files that claim more than they hold, or whose data lie elsewhere, are refused before anything is unpacked."""

import gzip
import io
import zipfile

import numpy as np
import pytest

from sciformer.data.readers.text_parts import read_text
from sciformer.domains.images.reader.arrays import open_arrays
from sciformer.files import limits
from sciformer.files.formats.base import Layout, open_file
from sciformer.files.formats.delimited import read_delimited
from sciformer.files.formats.npz import read_arrays
from sciformer.files.limits import free_memory
from tests.domains.images.reader.examples import idx
from tests.errors import refuses

h5py = pytest.importorskip("h5py")


@pytest.fixture
def little_memory(monkeypatch):
    """A machine with 1 MB of free memory."""
    for module in ("limits", "formats.npz", "formats.hdf5", "formats.delimited"):
        monkeypatch.setattr(f"sciformer.files.{module}.check_memory", limits.check_memory)
    monkeypatch.setattr("sciformer.files.limits.free_memory", lambda: 1 << 20)
    monkeypatch.setattr("sciformer.data.readers.text_parts.free_memory", lambda: 1 << 20)


def test_free_memory_is_a_number_of_bytes():
    assert 1 << 20 < free_memory() < 1 << 50


def test_packed_files_must_fit_into_memory(tmp_path, little_memory):
    np.savez_compressed(tmp_path / "a.npz", image=np.zeros((3, 1 << 20)))
    assert (tmp_path / "a.npz").stat().st_size < 100_000
    with refuses(f"{3 * 8 * (1 << 20) + 128:,}", f"{1 << 20:,}", file=tmp_path / "a.npz"):
        read_arrays(tmp_path / "a.npz")
    with gzip.open(tmp_path / "a.txt.gz", "wb") as file:
        file.write(b"a" * (2 << 20))
    with refuses("0.0 GiB", file=tmp_path / "a.txt.gz"):
        read_text(tmp_path / "a.txt.gz")


def test_a_parsed_table_must_fit_into_memory(tmp_path, little_memory):
    (tmp_path / "a.csv").write_text("id,time,value\n" + "1,2,3\n" * 5_000)
    with refuses(f"{1 << 20:,}", file=tmp_path / "a.csv"):
        read_delimited(tmp_path / "a.csv", Layout())


def test_an_array_must_be_as_large_as_its_header_claims(tmp_path):
    whole = io.BytesIO()
    np.lib.format.write_array_header_1_0(whole, {"descr": "<f8", "fortran_order": False, "shape": (1 << 40,)})
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        file.writestr("image.npy", whole.getvalue())
    with refuses("image", f"{8 << 40:,}", file=tmp_path / "a.npz"):
        read_arrays(tmp_path / "a.npz")
    with refuses("image", f"{8 << 40:,}", file=tmp_path / "a.npz"):
        open_arrays(tmp_path / "a.npz")
    idx(tmp_path / "a.idx", np.zeros((2, 4, 4), np.uint8))
    raw = bytearray((tmp_path / "a.idx").read_bytes())
    raw[4:8] = b"\xff" * 4
    (tmp_path / "a.idx").write_bytes(raw)
    with refuses(f"{(2**32 - 1) * 16:,}", file=tmp_path / "a.idx"):
        open_arrays(tmp_path / "a.idx")


def hdf5(path, write):
    with h5py.File(path, "w") as file:
        write(file)
    return path


def of_others(folder):
    """HDF5 files whose numbers are in a text file, or in another HDF5 file."""
    (folder / "secret").write_bytes(bytes(80))
    hdf5(folder / "other.h5", lambda file: file.create_dataset("x", data=np.arange(10.0)))
    layout = h5py.VirtualLayout((10,), "f8")
    layout[:] = h5py.VirtualSource(str(folder / "other.h5"), "x", (10,))
    stored = [(str(folder / "secret"), 0, 80)]
    yield hdf5(folder / "a.h5", lambda file: file.create_dataset("x", (10,), "f8", external=stored))
    yield hdf5(folder / "b.h5", lambda file: file.create_virtual_dataset("x", layout))


def test_hdf5_reads_no_other_file(tmp_path):
    for path in of_others(tmp_path):
        with refuses("`x`", file=path, hint="itself"):
            open_file(path, Layout())
        with refuses("`x`", file=path, hint="itself"):
            open_arrays(path)
    linked = hdf5(
        tmp_path / "c.h5",
        lambda file: file.update({"y": np.arange(3.0), "x": h5py.ExternalLink("other.h5", "x")}),
    )
    opened = open_file(linked, Layout())
    assert [*opened.columns] == ["y"]
    opened.close()


def test_hdf5_that_claims_far_more_than_it_stores(tmp_path, little_memory):
    huge = hdf5(tmp_path / "a.h5", lambda file: file.create_dataset("x", (1 << 40,), "f4", chunks=(1024,)))
    with refuses("`x`", f"{4 << 40:,}", file=huge):
        open_file(huge, Layout())
    wide = hdf5(tmp_path / "b.h5", lambda file: file.create_dataset("x", (8, 1 << 20), "f4", chunks=(1, 1 << 20)))
    with refuses("`x`", f"{4 << 20:,}", file=wide):
        open_file(wide, Layout())
    fine = hdf5(tmp_path / "c.h5", lambda file: file.create_dataset("x", data=np.zeros(9), chunks=True))
    open_file(fine, Layout()).close()
