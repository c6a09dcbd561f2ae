"""Light curves of every format are read equally; selection and split."""

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sciformer.data.columns import rows_of
from sciformer.data.split import Split
from tests.data.readers.series import examples
from tests.data.readers.series.examples import ALL, apart, objects, same, section, whole
from tests.errors import refuses

ROWS = objects(23)
FORMS = {
    "lists.parquet": examples.write_lists,
    "letters.parquet": examples.write_letters,
    "struct.parquet": examples.write_struct,
    "records.parquet": examples.write_records,
    "long.parquet": examples.write_long,
    "long.csv": examples.write_csv,
    "long.ecsv": examples.write_astropy,
    "long.fits": examples.write_astropy,
    "arrays.fits": examples.write_fits_arrays,
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_says_the_same(name, tmp_path):
    path = FORMS[name](tmp_path / name, ROWS)
    data = section(path, split=ALL).want(["time", "value"], ["label", "redshift"], ["error", "band", "limit"])
    opened = data.open()
    assert opened.notes == []
    found = whole(opened.sources["train"])
    same(found, ROWS)
    assert set(found) == {"time", "value", "error", "band", "id", "label", "redshift"}
    order = [row["objectId"] for row in ROWS]
    assert found["id"].tolist() == order
    assert found["label"].tolist() == [row["type"] for row in ROWS]
    np.testing.assert_allclose(found["redshift"], [row["redshift"] for row in ROWS], rtol=1e-12)
    lengths = {id(column.lengths) for column in found.values() if hasattr(column, "lengths")}
    assert len(lengths) == 1
    same(whole(data.read([path])), ROWS)


@pytest.mark.parametrize("name", ["long.parquet", "long.csv"])
def test_rows_of_objects_anywhere(name, tmp_path):
    order = np.random.default_rng(3).permutation(len(examples.long(ROWS)["mjd"]))
    path = FORMS[name](tmp_path / name, ROWS, order=order)
    opened = section(path, split=ALL).open()
    found = whole(opened.sources["train"])
    same(found, ROWS)
    assert "type" not in found
    np.testing.assert_allclose(sorted(found["redshift"]), sorted(row["redshift"] for row in ROWS))
    assert len(opened.notes) == 1
    assert "sorted" in opened.notes[0]


def test_pieces_by_row_groups(tmp_path):
    rows = objects(150, 5)
    for path in (
        examples.write_lists(tmp_path / "a.parquet", rows, row_group_size=16),
        examples.write_long(tmp_path / "b.parquet", rows, row_group_size=50),
    ):
        opened = section(path, split=Split(valid=0.2, test=0.1), chunk_size=16).open()
        sizes = {part: len(source.sizes) for part, source in opened.sources.items()}
        assert sizes == {"train": 7, "valid": 2, "test": 1}
        tables = [whole(source) for source in opened.sources.values()]
        assert sum(map(rows_of, tables)) == 150
        for table in tables:
            same(table, [row for row in rows if row["objectId"] in set(table["id"])])
        assert sum(section().read([path]).sizes) == 150
        sent = pickle.loads(pickle.dumps(opened.sources["test"]))  # as to a worker that is not forked
        assert whole(sent)["id"].tolist() == tables[-1]["id"].tolist()


def test_padded_arrays(tmp_path):
    path = examples.write_fits_padded(tmp_path / "a.fits", ROWS)
    opened = section(path, split=ALL).want(["time", "value"], ["label"], ["error", "band"]).open()
    same(whole(opened.sources["train"]), ROWS, bands=False)
    assert len(opened.notes) == 1
    assert "have a time or value that is not finite: left out." in opened.notes[0]


def test_one_object_in_a_file(tmp_path):
    rows = objects(4, 1, least=3)
    names = [examples.write_star(tmp_path / f"{row['objectId']}.fits", row, CLASS="K") for row in rows]
    wanted = ["time", "value"], ["TEFF"], ["error", "band"]
    found = whole(section(*names, split=ALL).want(*wanted).open().sources["train"])
    same(found, rows, bands=False)
    np.testing.assert_array_equal(sorted(found["TEFF"]), sorted(5000 + len(row["mjd"]) for row in rows))
    opened = section(*names, split=ALL, quality="QUALITY", value="SAP_FLUX", label="CLASS", id="OBJECT").open()
    found = whole(opened.sources["train"])
    assert f"4 of {sum(len(row['mjd']) for row in rows)} points are flagged: left out." in opened.notes
    assert set(found["label"]) == {"K"}
    assert (apart(found, "value")[0] < 0).all()
    assert "error" not in found
    found = whole(
        section(f"A:{names[0]}", f"B:{names[1]}", split=ALL).want(["time"], ["label"]).open().sources["train"]
    )
    assert dict(zip(found["id"].tolist(), found["label"].tolist())) == {"star000": "A", "star001": "B"}


def test_text_of_numbers_alone(tmp_path):
    (tmp_path / "OGLE-1.dat").write_text("2450000.5 15.25 0.01\n2450001.5 15.5 0.02\n")
    (tmp_path / "b.txt").write_text("# HJD  mag  err\n2450000.5 15.25 0.01\n")
    found = whole(section().read([tmp_path / "OGLE-1.dat", tmp_path / "b.txt"]))
    assert found["id"].tolist() == ["OGLE-1", "b"]
    assert [part.tolist() for part in apart(found, "time")] == [[2450000.5, 2450001.5], [2450000.5]]
    assert apart(found, "error")[0].tolist() == pytest.approx([0.01, 0.02])
    (tmp_path / "c.txt").write_text("1 2450000.5 15.25 0.01 7\n")
    with refuses("5 columns", "3 names", key="data.columns", file=tmp_path / "c.txt", hint="--data.columns"):
        section().read([tmp_path / "c.txt"])
    data = section(columns=["band", "time", "value", "error", "frame"])
    assert whole(data.read([tmp_path / "c.txt"]))["band"].values.tolist() == ["1"]


def test_a_table_of_objects_beside(tmp_path):
    bare = [{name: value for name, value in row.items() if name not in ("type", "redshift")} for row in ROWS]
    path = examples.write_csv(tmp_path / "points.csv", bare)
    head = "object_id,target,z\n" + "".join(
        f"{r['objectId']},{i % 3},{r['redshift']}\n" for i, r in enumerate(ROWS[:-2])
    )
    (tmp_path / "meta.csv").write_text(head)
    data = section(path, objects=str(tmp_path / "meta.csv"), split=ALL).want(["time", "value"], ["label", "z"])
    opened = data.open()
    found = whole(opened.sources["train"])
    assert opened.notes == ["2 of 23 objects have no `label`: left out."]
    assert found["label"].tolist() == [str(i % 3) for i in range(21)]
    np.testing.assert_allclose(found["z"], [row["redshift"] for row in ROWS[:-2]])
    assert {str(tmp_path / "meta.csv"), path} == set(opened.fingerprint)
    assert rows_of(whole(data.read([path]))) == 23
    (tmp_path / "meta.csv").write_text(head + head.splitlines()[1])
    with refuses("2 for star000", key="data.objects", file=tmp_path / "meta.csv"):
        data.open()


def test_objects_stay_in_one_part(tmp_path):
    rows = objects(40, 2)
    first = examples.write_lists(tmp_path / "a.parquet", rows)
    again = examples.write_lists(tmp_path / "b.parquet", rows[:30])
    opened = section(first, again, split=Split(valid=0.2, test=0.2)).open()
    parts = [set(whole(source)["id"].tolist()) for source in opened.sources.values()]
    assert len(parts) == 3
    assert not parts[0] & parts[1] | parts[0] & parts[2] | parts[1] & parts[2]
    assert any(note.startswith("30 of 70 curves") for note in opened.notes)
    opened = section(first, test=[again], split=Split(valid=0.2)).open()
    assert any(note.startswith("30 of 30 objects of test") for note in opened.notes)


def test_few_labels_folds_and_strata(tmp_path):
    path = examples.write_lists(tmp_path / "a.parquet", objects(40, 2))
    data = section(path, labels_per_class=3, split=Split(valid=0.1, folds=4, fold=1, stratify="type"))
    found = {part: whole(source) for part, source in data.want(["time", "value"], ["label"]).open().sources.items()}
    assert dict(zip(*np.unique(found["train"]["label"], return_counts=True))) == {"MIRA": 3, "RRAB": 3}
    assert dict(zip(*np.unique(found["test"]["label"], return_counts=True))) == {"MIRA": 5, "RRAB": 5}


def test_bands_that_are_chosen_and_other_names(tmp_path):
    path = examples.write_lists(tmp_path / "a.parquet", ROWS)
    opened = section(path, split=ALL, bands=["r", "z"]).open()
    found = whole(opened.sources["train"])
    assert set(found["band"].values) == {"r"}
    assert "data.bands" in opened.notes[0]
    assert any("band z" in note and "g, r" in note for note in opened.notes)
    found = whole(section(path, split=ALL, band="none", error="none", label="none").open().sources["train"])
    assert not {"band", "error", "label"} & set(found)
    found = whole(section(path, split=ALL, value="magerr", error="none", time="MJD").open().sources["train"])
    np.testing.assert_array_equal(apart(found, "value")[0], ROWS[0]["magerr"])


def test_the_index_of_a_frame_names_objects(tmp_path):
    columns = {"time": [[1.0, 2.0], [3.0]], "mag": [[1.0, 2.0], [3.0]], "__index_level_0__": [17, 4]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    found = whole(section().read([tmp_path / "a.parquet"]))
    assert found["id"].tolist() == ["17", "4"]
    assert set(found) == {"time", "value", "id"}


def test_names_are_located(tmp_path, here):
    examples.write_lists(tmp_path / "a.parquet", ROWS)
    data = section("A:a.parquet", objects="meta.csv").absolute_paths()
    assert data.files == [f"A:{tmp_path.resolve()}/a.parquet"]
    assert data.objects == f"{tmp_path.resolve()}/meta.csv"
