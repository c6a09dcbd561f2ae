"""Tables in files of every format: atomic, in order, and read back unchanged."""

import csv
import errno
import json

import numpy as np
import pytest

from sciformer.data.columns import Lists
from sciformer.files.formats import hdf5
from sciformer.files.formats.base import TablePart, format_of
from sciformer.files.formats.root import branch_names
from sciformer.files.tables import check_table, create_table, merge_tables, table_suffixes, write_table
from tests.errors import refuses

h5py = pytest.importorskip("h5py")
parquet = pytest.importorskip("pyarrow.parquet")
uproot = pytest.importorskip("uproot")

SUFFIXES = (".csv", ".h5", ".jsonl", ".npz", ".parquet", ".root")
FLAT = {"id": np.array([1, 2]), "name": np.array(["dog", "Chat, «noir»"]), "share": np.array([0.1, 1e-5], np.float32)}
LENGTHS = np.array([2, 0, 1])
RAGGED = {
    "hit_x": Lists(np.array([0.1, 2.5, 3.0], np.float32), LENGTHS),
    "hit_n": Lists(np.arange(3), LENGTHS),
    "image": np.arange(12, dtype=np.uint8).reshape(3, 2, 2),
}


def read(path):
    """Columns of a table file of any format."""
    if path.suffix == ".root":
        with uproot.open(path) as file:
            found = file["tree"].arrays()
            return {name: found[name].to_list() for name in found.fields}
    if path.suffix == ".parquet":
        return parquet.read_table(path).to_pydict()
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as found:
            return {name: found[name].tolist() for name in found}
    if path.suffix == ".h5":
        with h5py.File(path) as file:
            return {name: (one.asstr()[:] if one.dtype.kind == "O" else one[:]).tolist() for name, one in file.items()}
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        return {name: [row[name] for row in rows] for name in rows[0]}
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {name: [row[name] for row in rows] for name in rows[0]}


def test_every_format_is_in_these_tests():
    assert tuple(table_suffixes()) == (*SUFFIXES, ".conll")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_numbers_and_texts_are_read_back(tmp_path, suffix):
    path = tmp_path / "new" / "folder" / f"a{suffix}"
    assert write_table(path, [FLAT]) == 2
    words = str if suffix == ".csv" else lambda value: value
    texts = {"share": ["0.1", "1e-05"]} if suffix == ".csv" else {"share": [0.1, 1e-5]} if suffix == ".jsonl" else {}
    assert read(path) == {name: [words(value) for value in column.tolist()] for name, column in FLAT.items()} | texts
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_lists_and_arrays_have_their_place(tmp_path, suffix):
    write_table(tmp_path / f"a{suffix}", [RAGGED, RAGGED])
    found = read(tmp_path / f"a{suffix}")
    x = np.float32([0.1, 2.5, 3.0]).tolist()
    if suffix in (".npz", ".h5"):
        assert found["hit_x"] == x * 2
        assert found["hit_n_lengths"] == [2, 0, 1] * 2
        assert np.shape(found["image"]) == (6, 2, 2)
    elif suffix == ".csv":
        assert found["hit_x"] == ["0.1", "2.5", "3.0"] * 2
        assert found["image_3"] == ["3", "3", "11"] * 2
    else:
        x = [0.1, 2.5, 3.0] if suffix == ".jsonl" else x
        assert found["hit_x"] == [x[:2], [], x[2:]] * 2
        assert found["image"][0] == ([0, 1, 2, 3] if suffix == ".parquet" else [[0, 1], [2, 3]])
        assert ("nhit" in found) is (suffix == ".root")  # counted once


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_pieces_become_one_table_with_the_types_of_the_first(tmp_path, suffix):
    path = tmp_path / f"all{suffix}"
    with create_table(path) as file:
        for start, word, kind in ((0, "a", np.float64), (3, "longer", np.int32), (6, "c", np.float64)):
            number = np.arange(start, start + 3)
            file.add({"number": number, "share": number.astype(kind), "name": np.array([word] * 3), "flag": number > 4})
        file.add({name: column[:0] for name, column in zip(("number", "share", "name", "flag"), [number] * 4)})
        assert not path.exists()
    assert file.count == 9
    found = read(path)
    assert [int(value) for value in found["number"]] == list(range(9))
    assert [float(value) for value in found["share"]] == list(range(9))
    assert found["name"] == ["a"] * 3 + ["longer"] * 3 + ["c"] * 3
    assert [str(value) == "True" for value in found["flag"]] == [number > 4 for number in range(9)]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(errno.ENOSPC, "No space left on device")])
def test_what_fails_leaves_nothing_but_the_older_file(tmp_path, suffix, error):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"older")

    def broken():
        yield FLAT
        raise error

    def write():
        write_table(path, broken(), overwrite=True)

    if error is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            write()
    else:
        with refuses("No space left", file=path):
            write()
    assert path.read_bytes() == b"older"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_is_replaced_only_when_asked(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"older")
    with refuses(file=path, hint="--overwrite"):
        write_table(path, [FLAT])
    assert path.read_bytes() == b"older"
    assert write_table(path, [FLAT], overwrite=True) == 2
    assert len(read(path)["id"]) == 2


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_places_that_cannot_be_written_are_refused(tmp_path, suffix):
    (tmp_path / "file").write_text("")
    with refuses(file=tmp_path / "file"):
        write_table(tmp_path / "file" / f"a{suffix}", [FLAT])
    (tmp_path / f"a{suffix}").mkdir()
    with refuses(file=tmp_path / f"a{suffix}"):
        write_table(tmp_path / f"a{suffix}", [FLAT], overwrite=True)


def test_endings_of_no_format_are_refused(tmp_path):
    with refuses(*SUFFIXES, tmp_path / "a.txt", file=tmp_path / "a.txt", hint=str(tmp_path / "a.csv")):
        write_table(tmp_path / "a.txt", [FLAT])
    with refuses(*SUFFIXES, file=tmp_path / "a.rot", hint="'.root'"):
        format_of(tmp_path / "a.rot")
    with refuses(".npz", hint="a.npz"):
        check_table(tmp_path / "a.csv", (".npz",))


def test_tables_of_other_columns_and_of_nothing_are_refused(tmp_path):
    with refuses("`mass`"):
        write_table(tmp_path / "a.root", [FLAT, {**FLAT, "mass": np.ones(2)}])
    with refuses(file=tmp_path / "a.csv"):
        write_table(tmp_path / "a.csv", [])
    with refuses(".parquet"):
        write_table(tmp_path / "a.csv", [{**RAGGED, "other": Lists(np.ones(3), np.ones(3, int))}])
    with refuses("`band`", hint=".parquet"):
        write_table(tmp_path / "a.root", [{"band": Lists(np.array(["g", "r"]), np.array([2]))}])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("suffix", "package", "hint"),
    [
        (".root", "uproot", "'sciformer[jets]'"),
        (".root", "awkward", "'sciformer[jets]'"),
        (".parquet", "pyarrow", "pyarrow"),
    ],
)
def test_a_missing_package_is_named_with_how_to_get_it(monkeypatch, tmp_path, suffix, package, hint):
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with refuses(f"`{package}`", hint=f"pip install {hint}"):
        check_table(tmp_path / f"a{suffix}")


def test_hdf5_stops_before_the_disk_is_full(tmp_path, monkeypatch):
    left = iter([1 << 30, 1 << 10])
    monkeypatch.setattr(hdf5.shutil, "disk_usage", lambda path: type("Usage", (), {"free": next(left)}))
    with refuses("No space left on device", file=tmp_path / "a.h5"):
        write_table(tmp_path / "a.h5", [FLAT, FLAT])
    assert list(tmp_path.iterdir()) == []


def test_json_lines_have_no_nan(tmp_path):
    write_table(tmp_path / "a.jsonl", [{"x": np.array([np.nan, np.inf, 1]), "y": np.array([[1, np.nan]] * 3)}])
    assert read(tmp_path / "a.jsonl") == {"x": [None, None, 1.0], "y": [[1.0, None]] * 3}


def test_long_texts_are_cut_in_npz_alone(tmp_path):
    texts = np.array(["a" * 5000, "b"], object)
    for suffix in SUFFIXES:
        write_table(tmp_path / f"a{suffix}", [{"text": texts}])
        expected = "a" * 999 + "…" if suffix == ".npz" else "a" * 5000
        assert read(tmp_path / f"a{suffix}")["text"] == [expected, "b"]


def test_conll_has_a_line_per_word(tmp_path):
    lists = {"word": ["New", "1 000", "x\ty"], "p": np.ones(3), "tag": ["B-a", "I-a", "O"]}
    table = {"line": np.arange(3)} | {name: Lists(np.array(column), LENGTHS) for name, column in lists.items()}
    write_table(tmp_path / "a.conll", [table, table])
    assert (tmp_path / "a.conll").read_text() == "New\tB-a\n1 000\tI-a\n\n\nx y\tO\n\n" * 2
    with refuses(".conll", key="--out", hint=".csv"):
        write_table(tmp_path / "b.conll", [FLAT])


def test_branches_have_names_that_root_can_spell():
    odd = ["score_t → b q", "score_t   b q", "0", "", "jet_pt"]
    assert list(branch_names(odd).values()) == ["score_t___b_q", "score_t___b_q__2", "_0", "_", "jet_pt"]


def test_a_csv_file_has_no_formulas_and_no_control_characters(tmp_path):
    texts = ["=cmd|' /C calc'!A0", "+a", "-a", "@a", "a=b", "-1.5", "+1e3", "-", "\x1b[31mred"]
    write_table(tmp_path / "a.csv", [{"=name": np.array(texts), "x": -np.ones(len(texts))}])
    found = read(tmp_path / "a.csv")
    assert found["'=name"] == ["'" + one for one in texts[:4]] + ["a=b", "-1.5", "+1e3", "-", "\\x1b[31mred"]
    assert set(found["x"]) == {"-1.0"}


def test_a_folder_without_permission_is_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with refuses(tmp_path, file=tmp_path, hint="--out"):
        check_table(tmp_path / "a.csv")


# Merged files


PIECES = [
    {
        **{name: column[start:stop] for name, column in FLAT.items()},
        "hit_x": Lists(np.arange(stop - start, dtype=np.float32), np.ones(stop - start, int)),
        "empty": Lists(np.zeros(0, np.int32), np.zeros(stop - start, int)),
        "image": RAGGED["image"][start:stop],
        "flag": np.array([True, False])[start:stop],
        "letters": np.array(["a", "longer"][start:stop], object),
    }
    for start, stop in ((0, 2), (1, 2), (0, 1), (0, 2))
]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_merged_files_are_the_file_of_one_process(tmp_path, suffix):
    pieces = PIECES
    if suffix == ".csv":  # which has a row for each entry of a list
        pieces = [{name: column for name, column in piece.items() if not isinstance(column, Lists)} for piece in PIECES]
    parts = []
    for number, rows in enumerate([[], [0, 1], [2], [], [3]]):
        with create_table(tmp_path / f"part-{number}{suffix}") as file:
            file.add(
                {
                    name: column[:0] if not isinstance(column, Lists) else column.take(np.arange(0))
                    for name, column in pieces[0].items()
                }
            )
            file.about["classes"] = np.array(["cat", "Hund"])
            for row in rows:
                file.add(pieces[row])
        parts.append(TablePart(tmp_path / f"part-{number}{suffix}", file.columns, file.rows, list(file.about)))
    with create_table(tmp_path / f"whole{suffix}") as file:
        for piece in pieces:
            file.add(piece)
        file.about["classes"] = np.array(["cat", "Hund"])
    assert merge_tables(tmp_path / f"merged{suffix}", parts) == 6
    if suffix == ".root":
        assert read(tmp_path / "merged.root") == read(tmp_path / "whole.root")
        with uproot.open(tmp_path / "merged.root") as merged, uproot.open(tmp_path / "whole.root") as whole:
            assert merged["tree"].typenames() == whole["tree"].typenames()
    else:
        assert (tmp_path / f"merged{suffix}").read_bytes() == (tmp_path / f"whole{suffix}").read_bytes()
