"""Invalid light curves: counted, cleaned by the rules, or refused with a hint."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.io import fits

from sciformer.data.columns import rows_of
from sciformer.data.readers.series.clean import truths
from sciformer.data.readers.series.curves import form_of
from sciformer.data.readers.series.reader import SeriesFiles
from sciformer.data.source import pieces
from sciformer.files.formats.memory import words
from tests.data.readers.series import examples
from tests.data.readers.series.examples import ALL, apart, objects, section, whole
from tests.errors import refuses

BAD = {
    "id": ["a", "b", "c", "d"],
    "time": [[3.0, 1.0, 2.0, np.nan], [5.0, 5.0, 6.0], [1.0], []],
    "mag": [[13.0, 11.0, np.inf, 14.0], [10.0, 20.0, 30.0], [9.0], []],
    "magerr": [[0.1, 0.2, 0.1, 0.1], [1.0, 2.0, 0.0], [-1.0], []],
    "band": [["g", "g", "g", "g"], ["g", "g", ""], ["r"], []],
}


def write(path, columns, **types):
    pq.write_table(pa.table({n: pa.array(c, types.get(n)) for n, c in columns.items()}), path)
    return str(path)


def read(path, **more):
    opened = section(path, split=ALL, **more).open()
    return whole(opened.sources["train"]), opened.notes


def test_all_that_may_be_wrong_with_points(tmp_path):
    path = write(tmp_path / "a.parquet", BAD, band=pa.list_(pa.string()))
    table, notes = read(path)
    assert table["id"].tolist() == ["a", "b"]
    assert [part.tolist() for part in apart(table, "time")] == [[1.0, 3.0], [5.0]]
    assert [part.tolist() for part in apart(table, "value")] == [[11.0, 13.0], [12.0]]  # (10 + 20 / 4) / (1 + 1 / 4)
    assert apart(table, "error")[1].tolist() == pytest.approx([1 / np.sqrt(1.25)])
    counts = ["2 of 8 points", "1 of 8 points", "1 of 8 points", "1 of 8 points", "1 of 4 objects", "2 of 4 objects"]
    words = ["finite", "band", "error", "mean", "sorted", "no points"]
    assert [note.startswith(count) and word in note for note, count, word in zip(notes, counts, words)] == [True] * 6
    assert len(notes) == 6
    table, notes = read(path, bad_errors="keep", same_time="keep")
    assert table["id"].tolist() == ["a", "b", "c"]
    assert [len(part) for part in apart(table, "time")] == [2, 2, 1]
    assert np.isnan(apart(table, "error")[2]).all()
    assert any("kept, the error unknown (NaN)" in note for note in notes)
    table, notes = read(path, same_time="first", min_points=2)
    assert table["id"].tolist() == ["a"]
    assert "3 of 4 objects have fewer than 2 points: left out." in notes
    assert rows_of(whole(section().aligned([path]))) == 4
    data = section(min_points=2)
    found = data.with_empty([path])
    assert data.empty_rows(whole(found)).tolist() == [False, True, True, True]
    assert "3 of 4 objects have fewer than 2 points: their predictions are NaN." in found.notes
    assert section().read([path]).notes == read(path)[1]


def test_nothing_is_left(tmp_path):
    path = write(
        tmp_path / "a.parquet", {"id": ["a"], "time": [[1.0, 2.0]], "mag": [[1.0, 2.0]], "magerr": [[0.0, 0.0]]}
    )
    with refuses("for train", "2 of 2", hint="--data.error none"):
        read(path)
    assert rows_of(read(path, error="none")[0]) == 1


def test_upper_limits_need_no_error(tmp_path):
    columns = {
        "oid": ["a"] * 4,
        "mjd": [1.0, 2.0, 3.0, 3.0],
        "flux": [-1.0, 5.0, 2.0, 4.0],
        "fluxerr": [0.5, np.nan, 1.0, 0.0],
        "upper_limit": [0, 1, 0, 1],
    }
    table, notes = read(write(tmp_path / "a.parquet", columns))
    assert table["limit"].values.tolist() == [False, True, False, True]
    assert table["value"].values.tolist() == [-1.0, 5.0, 2.0, 4.0]
    np.testing.assert_array_equal(table["error"].values, np.array([0.5, np.nan, 1.0, np.nan], np.float32))
    assert notes == []
    plain = write(tmp_path / "b.parquet", {name: column for name, column in columns.items() if name != "upper_limit"})
    opened = section(tmp_path / "a.parquet", plain, split=ALL).want(["time", "value"], [], ["limit", "clean"]).open()
    assert whole(opened.sources["train"])["limit"].values.sum() == 2
    assert [note[:6] for note in opened.notes] == ["2 of 8", "1 of 2"]
    assert truths(np.array(["<", "", "True", "no"])).tolist() == [True, False, True, False]
    with refuses("'maybe'", key="data.limit"):
        truths(np.array(["maybe"]))


def test_times_keep_their_precision(tmp_path):
    time = 60000.123456789 + np.arange(3) / 86400
    table, _ = read(write(tmp_path / "a.parquet", {"id": ["a"], "hmjd": [time.tolist()], "mag": [[1.0, 2.0, 3.0]]}))
    np.testing.assert_array_equal(table["time"].values, time)
    assert "error" not in table
    fits.BinTableHDU.from_columns(
        [fits.Column("TIME", "D", array=time * 86400, unit="s"), fits.Column("RATE", "E", array=np.arange(3))]
    ).writeto(tmp_path / "a.fits")
    table, _ = read(tmp_path / "a.fits")
    np.testing.assert_allclose(table["time"].values, time, rtol=1e-15)


def test_words_and_missing_cells(tmp_path):
    (tmp_path / "a.csv").write_text("star;mjd;mag;magerr;filter\n007;1.0;null;0.1;g\n007;2.0;5.5;;g\n8;3.0;6;0.1;r\n")
    table, notes = read(tmp_path / "a.csv", bad_errors="keep")
    assert table["id"].tolist() == ["007", "8"]
    assert table["value"].values.tolist() == [5.5, 6.0]
    assert np.isnan(table["error"].values[0])
    assert len(notes) == 2
    assert words(np.array([1.0, 2.5, np.nan])).tolist() == ["1", "2.5", ""]
    assert words(np.array([b"g ", None, 3], object)).tolist() == ["g", "", "3"]
    (tmp_path / "c.csv").write_text("source_id,time,flux\n4295806720000000001,1,1\n4295806720000000002,2,2\n")
    assert read(tmp_path / "c.csv")[0]["id"].tolist() == ["4295806720000000001", "4295806720000000002"]
    large = {
        "source_id": [4295806720000000001, 4295806720000000002] * 2,
        "time": [1.0, 2, 3, 4],
        "flux": [1.0, 2, 3, 4],
    }
    assert read(write(tmp_path / "b.parquet", large))[0]["id"].tolist() == [str(one) for one in large["source_id"][:2]]


def test_columns_that_are_not_there(tmp_path):
    path = examples.write_lists(tmp_path / "a.parquet", objects(20))
    with refuses("`magg`", key="data.value", file=path, hint="'mag'"):
        read(path, value="magg")
    with refuses("`redshif`", "objective", file=path, hint="'redshift'"):
        section(path).want(["time", "value"], ["redshif"]).open()
    with refuses("tokens", key="data.limit", file=path, hint="--data.limit NAME"):
        section(path).want(["time", "limit"]).open()
    with refuses("objective", key="data.label", file=path, hint="--data.objects"):
        section(path, label="none").want(["time", "value"], ["label"]).open()
    with refuses("`night`", key="data.split", file=path):
        section(path, split={"by": "night"}).open()
    with refuses("`filter`", key="data.value", file=path):
        read(path, value="filter")
    odd = write(tmp_path / "b.parquet", {"a": [1.0], "b": [2.0]})
    with refuses("a, b", key="data.time", file=odd, hint="--data.time NAME"):
        read(odd)
    two = write(tmp_path / "c.parquet", {"time": [1.0], "aper_mag": [2.0], "model_mag": [2.0]})
    with refuses("aper_mag, model_mag", key="data.value", file=two, hint="--data.value NAME"):
        read(two)
    section(path).want(["time"], ["redshif"]).read([path])
    note = section(path, meta=["colour"]).want(["time"]).read([path]).notes
    assert note == [f"`colour` is not in {path}: left out."]


def test_objects_that_do_not_fit(tmp_path):
    path = write(tmp_path / "a.parquet", {"id": ["x", "y"], "time": [[1.0], [1.0, 2.0]], "mag": [[1.0], [1.0]]})
    with refuses("`time`", "`value`", "object y", file=path):
        read(path)
    rows = objects(20, least=3)
    letters = [{**row, "filter": "".join(row["filter"])} for row in rows]
    letters[7]["filter"] = "g"
    with refuses("`filter`", "row 7", "'g'", key="data.band", file=tmp_path / "b.parquet"):
        read(
            examples.write_lists(
                tmp_path / "b.parquet", [{**row, "filter": row["filter"] * 1} for row in _long(letters)]
            )
        )
    (tmp_path / "c.csv").write_text("name,mjd,mag,type\na,1,1,X\na,2,1,Y\n")
    with refuses("`type`", "object a", "X, Y", key="data.label", file=tmp_path / "c.csv", hint="--data.label NAME"):
        read(tmp_path / "c.csv", label="type")
    assert "label" not in read(tmp_path / "c.csv")[0]
    (tmp_path / "d.csv").write_text("id,mjd,mag\n" + "".join(f"{n},{n}.5,1\n" for n in range(20)))
    with refuses("`id`", key="data.id", file=tmp_path / "d.csv", hint="--data.id none"):
        read(tmp_path / "d.csv")
    assert rows_of(read(tmp_path / "d.csv", id="none")[0]) == 1
    one = examples.write_lists(
        tmp_path / "e.parquet", [{n: v for n, v in row.items() if n != "filter"} for row in rows]
    )
    other = examples.write_lists(tmp_path / "f.parquet", rows)
    with refuses(other, "`filter`", key="data.band", file=one, hint="--data.band none"):
        section(one, other).open()


def _long(rows):
    """Curves long enough to recognise bands spelled by letters."""
    return [
        {n: np.tile(v, 4) if np.ndim(v) else v * 4 if n == "filter" and len(v) > 1 else v for n, v in r.items()}
        for r in rows
    ]


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
def test_lists_beside_single_values(tmp_path, order):
    points = {"name": ["a", "b", "a", "b"][order], "mjd": [1.0, 2.0, 3.0, 4.0], "mag": [1.0] * 4}
    path = write(tmp_path / "long.parquet", {**points, "odd": [[1.0, 2.0]] * 4})
    for role in ("value", "error", "band", "limit", "id", "label", "quality"):
        with refuses("`odd`", key=f"data.{role}", file=path):
            read(path, **{role: "odd"})
    with refuses("`odd`", "`mjd`", file=path):
        list(pieces(section(meta=["odd"]).want(["time", "value"]).read([path])))
    assert "odd" not in read(path)[0]
    lists = {"name": ["a", "b"], "mjd": [[1.0], [2.0, 3.0]], "mag": [[1.0], [1.0, 1.0]], "odd": [1.0, 2.0]}
    path = write(tmp_path / "lists.parquet", lists)
    for role in ("value", "error", "limit", "quality"):
        with refuses("`odd`", key=f"data.{role}", file=path):
            read(path, **{role: "odd"})
    for role in ("id", "label"):
        with refuses("`mag`", key=f"data.{role}", file=path):
            read(path, value="mjd", time="mjd", **{role: "mag"})


def test_files_that_are_no_light_curves(tmp_path):
    good = examples.write_lists(tmp_path / "good.parquet", objects(20))
    raw = (tmp_path / "good.parquet").read_bytes()
    star = examples.write_star(tmp_path / "s.fits", objects(1, least=2000)[0])
    spoilt = {
        "cut.parquet": (raw[: len(raw) // 2], "Parquet"),
        "cut.fits": ((tmp_path / "s.fits").read_bytes()[:20000], "FITS"),
        "image.fits": (None, "0 PRIMARY"),
        "a.h5": (b"\x89HDF\r\n\x1a\n" + b"\0" * 600, "HDF5"),
        "a.npy": (b"\x93NUMPY\x01\0", "sciformer.data.read_series"),
        "a.xml": (b"<?xml version='1.0'?><VOTABLE>", "b'<?xml"),
        "a.bin": (b"\0\1\2\3" * 20, r"b'\x00\x01"),
        "cut.csv": (b"id,mjd,mag\na,1,2\na,2", "'a,2'"),
        "cut.csv.gz": (gzip.compress(b"id,mjd,mag\n" + b"a,1,2\n" * 999)[:-12], "cut.csv.gz"),
        "date.csv": (b"mjd,mag\n2020-01-01,1\n2020-01-02,2\n", "`mjd`"),
        "word.csv": (b"mjd,mag\n1,2\n2,3\n3,bad\n", "`mag` has 'bad' in line 4."),
        "error.csv": (b"mjd,mag,error\n1,2,.1\n2,3,.1\n3,4,bad\n", "`error` has 'bad' in line 4."),
        "twice.csv": (b"mjd,mag,mag\n1,2,3\n", "'mag'"),
        "head.csv": (b"mjd,mag\n", "head.csv"),
        "bad.ecsv": (b"# %ECSV 1.0\n# ---\n# datatype: [\nx y\n", "ECSV"),
    }
    fits.PrimaryHDU(np.zeros((4, 4))).writeto(tmp_path / "image.fits")
    places = {"cut.csv": {"line": 3}, "date.csv": {"key": "data.time"}, "word.csv": {"key": "data.value"}}
    places["error.csv"] = {"key": "data.error", "hint": "--data.error none"}
    for name, (content, mention) in spoilt.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with refuses(mention, file=tmp_path / name, **places.get(name, {})):
            read(tmp_path / name)
        opened = section(good, tmp_path / name, split=ALL, bad_files="skip").open()
        assert sum(opened.sources["train"].sizes) == 20
        assert opened.notes[0].startswith(f"left out {tmp_path / name}: ")
    with refuses(file=tmp_path / "a.bin", hint="--data.bad_files skip"):
        section(good, tmp_path / "a.bin").open()
    with refuses("train", hint="a.bin"):
        section(tmp_path / "a.bin", bad_files="skip").open()
    with refuses("'NOTHING'", "0 PRIMARY, 1 LIGHTCURVE, 2 APERTURE", key="data.table", file=star):
        read(star, table="NOTHING")
    assert rows_of(read(star, table="1")[0]) == 1
    plain = SeriesFiles(kind="series", error="none").want(["time", "value"], wishes=["error"])
    (table,) = pieces(plain.read([tmp_path / "error.csv"]))
    assert "error" not in table


@pytest.mark.parametrize(("name", "form"), [("a.parquet", "Parquet"), ("b.fits", "FITS"), ("c.ecsv", "ECSV")])
def test_a_file_that_is_not_what_its_name_says(tmp_path, name, form):
    (tmp_path / name).write_text("hello\n")
    with refuses(form, "b'hello", file=tmp_path / name):
        form_of(tmp_path / name)


@pytest.mark.parametrize("missing", ["", "nan", "NaN", "null"])
def test_times_that_are_missing_are_no_words(tmp_path, missing):
    rows = [f"s{row // 5},{missing},{15 + row % 7}" for row in range(600)]
    (tmp_path / "a.csv").write_text("\n".join(["id,time,mag", *rows]))
    with refuses("600 of 600 points", "not finite"):
        read(tmp_path / "a.csv")
    known = [row.replace(f",{missing},", f",{place},") for place, row in enumerate(rows)]
    (tmp_path / "b.csv").write_text("\n".join(["id,time,mag", *rows[:300], *known[300:]]))
    assert read(tmp_path / "b.csv")[1][0].startswith("300 of 600 points")


@pytest.mark.parametrize("form", ["lists", "rows"])
def test_new_files_need_no_labels(form, tmp_path):
    """The label of the recipe is needed for training and evaluation, not for predictions."""
    rows = objects()
    columns = examples.long(rows) if form == "rows" else {name: [row[name] for row in rows] for name in rows[0]}
    unlabelled = write(tmp_path / "new.parquet", {name: one for name, one in columns.items() if name != "type"})
    recipe = section(label="type", id="objectId")
    found = whole(recipe.read([unlabelled]))
    assert "label" not in found
    assert rows_of(found) == len(rows)
    assert "label" in whole(recipe.read([write(tmp_path / "old.parquet", columns)]))
    with refuses("type", key="data.label"):
        section(unlabelled, label="type", id="objectId", split=ALL).open()
