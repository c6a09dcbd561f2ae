"""Objects joined with their pictures and light curves: gaps, notes, splits, and what is refused."""

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
