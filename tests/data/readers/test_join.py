"""Objects joined with their pictures and light curves: gaps, notes, splits, and what is refused."""

import re

import numpy as np
import pytest

from sciformer.data.readers.join import Join
from sciformer.data.source import pieces
from tests.data.readers.objects import NO_CURVE, NO_MASS, NO_PICTURE, data_keys, write_objects
from tests.errors import refuses


@pytest.fixture
def folder(tmp_path):
    return write_objects(tmp_path / "objects")


def opened(folder, streams=None, **changes):
    keys = data_keys(folder, **changes)
    for name, some in (streams or {}).items():
        keys["streams"][name] = {**keys["streams"].get(name, {}), **some}
    return Join.model_validate(keys)


def rewrite(path, change):
    lines = path.read_text().splitlines()
    path.write_text("\n".join(change(lines)) + "\n")


def test_every_object_keeps_its_row_and_its_own_streams(folder):
    source = opened(folder).read([folder / "objects.csv"])
    (table,) = pieces(source)
    assert table["name"].tolist() == [f"o{i}" for i in range(24)]
    has = {
        name: np.array([i not in some for i in range(24)]) for name, some in (("image", NO_PICTURE), ("time", NO_CURVE))
    }
    np.testing.assert_array_equal(table["image"].lengths, 64 * has["image"])
    np.testing.assert_array_equal(table["image_shape"], 8 * np.stack([has["image"]] * 2, 1))
    np.testing.assert_array_equal(table["time"].lengths, (4 + np.arange(24) % 3) * has["time"])
    np.testing.assert_array_equal(np.isnan(table["mass"]), np.isin(np.arange(24), NO_MASS))
    bright = table["image"].take(np.array([3, 7])).values.mean() - table["image"].take(np.array([0, 4])).values.mean()
    assert bright > 60  # pictures stand with their own objects
    faint = table["value"].take(np.array([0, 4])).values.mean() - table["value"].take(np.array([3, 7])).values.mean()
    assert faint > 0.3
    counted = [note for note in source.notes if "24 objects" in note]
    assert sorted(note.split()[0] + note.split()[-1] for note in counted) == ["2curve.", "2image."]


def test_the_split_is_by_row_by_group_or_by_class(folder):
    splits = opened(folder, split={"valid": 0.25, "test": 0.25, "by": "field", "stratify": "label"}).open()
    assert list(splits.sources) == ["train", "valid", "test"]
    tables = {part: source.load(0) for part, source in splits.sources.items()}
    fields = [set(table["field"].tolist()) for table in tables.values()]
    assert sum(map(len, fields)) == len(set().union(*fields))
    assert sum(len(table["name"]) for table in tables.values()) == 24
    assert {name.rpartition("/")[2] for name in splits.fingerprint} == {"objects.csv", "curves.csv"}
    assert len(splits.small_files) == 22
    own = write_objects(folder.parent / "more", count=9, seed=1)
    splits = opened(folder, test=[str(own / "objects.csv")]).open()
    assert len(splits.sources["test"].load(0)["name"]) == 9


def test_rows_of_the_second_table_without_an_object_are_noted(folder):
    rewrite(folder / "curves.csv", lambda lines: [*lines, "stranger,1,20,0.1,g"])
    notes = opened(folder).open().notes
    assert any("1 of 23" in note for note in notes)


def test_a_stream_of_one_file_per_object_may_be_a_series(folder):
    lines = (folder / "curves.csv").read_text().splitlines()
    for i in (0, 3):
        own = [line.partition(",")[2] for line in lines[1:] if line.startswith(f"o{i},")]
        (folder / f"{i}.csv").write_text("\n".join(["time,value,error,band", *own]) + "\n")
    (folder / "few.csv").write_text("name,curve,label\nx,3.csv,a\ny,,a\nz,0.csv,b\n")
    source = Join(kind="join", streams={"curve": {"kind": "series", "column": "curve"}}).read([folder / "few.csv"])
    assert source.load(0)["time"].lengths.tolist() == [4, 0, 4]
    expected = [float(line.split(",")[2]) for line in lines if line.startswith("o3,")]
    np.testing.assert_allclose(source.load(0)["value"].values[:4], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "streams", "key", "mentions"),
    [
        (None, {"image": {"column": "pictur"}}, "data.streams.image.column", ["pictur"]),
        (None, {"image": {"kind": "pictures"}}, "data.streams.image.kind", ["pictures"]),
        (None, {"image": {"kind": "join"}}, "data.streams.image.kind", ["join"]),
        (None, {"image": {"sise": 3}}, "data.streams.image.sise", ["sise"]),
        (None, {"image": {"size": "x"}}, "data.streams.image.size", ["data.streams.image.size"]),
        (None, {"curve": {"column": "label"}}, "data.streams.curve.column", ["label"]),
        (None, {"curve": {"column": "field"}}, "data.streams.curve.column", ["field"]),
        (None, {"curve": {"column": "mass"}}, "data.streams.curve.column", ["mass"]),
        (lambda lines: [*lines, lines[1]], {}, "data.streams.image.column", ["pictures/0.png"]),
        (lambda lines: [*lines, "o0,,1,1,a,0"], {}, "data.streams.curve.column", ["o0"]),
        (lambda lines: [*lines, "o99,lost.png,1,1,a,9"], {}, "data.streams.image.column", ["lost.png"]),
        (lambda lines: lines[:1], {}, None, ["objects.csv"]),
    ],
)
def test_what_cannot_be_joined(folder, change, streams, key, mentions):
    if change:
        rewrite(folder / "objects.csv", change)
    with refuses(*mentions, key=key):
        opened(folder, streams).open()


def test_unreadable_pictures_and_missing_columns(folder):
    with refuses("weight", key="data.files"):
        opened(folder).want(["weight", "image"]).open()
    with refuses(key="data.streams"):
        Join(kind="join", files=[str(folder / "objects.csv")]).open()
    two = {"twin": {"kind": "series", "files": [str(folder / "curves.csv")], "column": "name"}}
    with refuses("time", key="data.streams.twin"):
        opened(folder, two).want(["time"]).open()
    (folder / "pictures" / "0.png").write_bytes(b"no picture")
    with refuses("0.png"):
        opened(folder).open()


def curve_files(folder, count=6):
    """A table with a file of a light curve for each object."""
    lines = (folder / "curves.csv").read_text().splitlines()
    rows = ["name,curve,mass,label"]
    for i in range(count):
        own = [line.partition(",")[2] for line in lines[1:] if line.startswith(f"o{i if i not in NO_CURVE else 0},")]
        (folder / f"{i}.csv").write_text("\n".join(["time,value,error,band", *own]) + "\n")
        rows.append(f"o{i},{i}.csv,{i},{'ab'[i % 2]}")
    (folder / "few.csv").write_text("\n".join(rows) + "\n")
    return Join(kind="join", files=[str(folder / "few.csv")], streams={"curve": {"kind": "series", "column": "curve"}})


def test_files_without_valid_values_are_a_missing_stream(folder):
    section = curve_files(folder)
    (folder / "3.csv").write_text("time,value,error,band\n1,nan,0.1,g\n2,nan,0.1,r\n")
    lines = (folder / "4.csv").read_text().splitlines()
    (folder / "4.csv").write_text("\n".join([*lines, "99,nan,0.1,g"]) + "\n")
    source = section.read([folder / "few.csv"])
    assert (source.load(0)["time"].lengths == 0).tolist() == [False, False, False, True, False, False]
    assert len(lines) - 1 == source.load(0)["time"].lengths[4]
    assert any("3.csv" in note and note.startswith("1 of 6") for note in source.notes)


@pytest.mark.parametrize("text", ["", "time,value,error,band\n", "mjd;nothing\n"])
def test_the_error_of_a_single_file_says_what_to_do(folder, text):
    section = curve_files(folder)
    (folder / "3.csv").write_text(text)
    with refuses("3.csv", key="data.streams.curve.column", hint="empty"):
        section.read([folder / "few.csv"])


def test_a_file_with_several_objects_is_named(folder):
    section = curve_files(folder)
    (folder / "3.csv").write_text((folder / "curves.csv").read_text())
    with refuses("3.csv", key="data.streams.curve"):
        section.read([folder / "few.csv"])


def test_lists_of_the_same_table_are_a_stream(folder):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path, values = folder / "all.parquet", [[20.0, 21.0], [], None, [float("nan")], [20.0, float("nan"), 22.0], [19.0]]
    times = [[1.0, 2.0], [], None, [1.0], [1.0, 2.0, 3.0], [1.0]]
    columns = {"name": [f"o{i}" for i in range(6)], "time": times, "value": values, "label": list("ababab")}
    parquet.write_table(pyarrow.table(columns), path)
    keys = {"kind": "series", "files": [str(path)], "column": "name", "id": "name"}
    source = Join(kind="join", streams={"curve": keys}).read([path])
    assert source.load(0)["time"].lengths.tolist() == [2, 0, 0, 0, 2, 1]
    assert any(note.startswith("3 of 6") and "curve" in note for note in source.notes)


def test_a_stream_that_no_tokens_use_is_noted(folder):
    def noted(*names):
        return [note for note in opened(folder).want([*names]).open().notes if "No tokens" in note]

    assert len(noted("mass")) == 2
    assert [note for note in noted("mass", "time") if "image" in note]
    assert not noted("time", "image")
    with refuses("time", key="data.files", hint="data.streams"):
        Join.model_validate(data_keys(folder, streams={"image": data_keys(folder)["streams"]["image"]})).want(
            ["time"]
        ).open()


def test_a_stream_that_all_objects_lack_is_refused_in_training(folder):
    rewrite(folder / "objects.csv", lambda lines: [re.sub(r"pictures/\d+.png", "", line) for line in lines])
    with refuses("picture", "image", key="data.streams.image.column", hint="data.streams.image"):
        opened(folder).open()
