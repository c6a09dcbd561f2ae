"""What is seen when files of events are opened: lengths and classes, bad entries, classes of which nothing is left."""

import numpy as np

from sciformer.data.source import pieces
from tests.data.readers.events.examples import section, table, whole, write_root
from tests.errors import refuses


def test_what_was_seen_at_the_opening_is_not_read_again(tmp_path):
    columns, path = table(60, least=0), tmp_path / "a.root"
    columns["part_px"].values[3] = np.nan
    write_root(path, columns, basket=16)
    made = section(path, classes={"a": "label_a", "b": "label_b"}, chunk_size=16, split={"valid": 0.2, "test": 0})
    opened = made.want(["part_px", "part_py"], ["label"]).open()
    for source in opened.sources.values():
        tables = list(pieces(source))
        lengths = np.concatenate([one["part_px"].lengths for one in tables])
        labels = np.concatenate([one["label"] for one in tables])
        np.testing.assert_array_equal(source.known_column("part_px", lists=True), lengths)
        np.testing.assert_array_equal(source.known_column("label"), labels)
        assert (
            source.known_column("part_px")
            is source.known_column("jet_pt")
            is source.known_column("jet_pt", lists=True)
            is None
        )


def test_entries_below_zero_where_there_are_none(tmp_path):
    columns, path = table(20), tmp_path / "a.root"
    total = len(columns["part_e"].values)
    columns["part_e"].values[[0, 5]] = -1
    columns["part_px"].values[5] = np.nan
    write_root(path, columns)
    told = section(path, split={"valid": 0, "test": 0}).want(["part_px", "part_e"], positive=["part_e"])
    opened = told.open()
    assert opened.notes[:2] == [
        f"1 of {total - 1} entries of lists are not finite: left out.",
        f"1 of {total - 1} entries of lists are negative in `part_e`: left out.",
    ]
    assert len(whole(opened.sources["train"])["part_e"].values) == total - 2


def test_answers_know_their_file(tmp_path):
    paths = [tmp_path / "a.root", tmp_path / "b.root"]
    for seed, path in enumerate(paths):
        write_root(path, table(20, seed))
    found = whole(section(observers=["file", "entry"]).want(["part_px"]).read(paths))
    assert found["file"].tolist() == ["a.root"] * 20 + ["b.root"] * 20
    assert found["entry"].tolist() == [*range(20), *range(20)]


def test_a_class_of_which_nothing_is_left_is_named(tmp_path):
    columns = table(20)
    write_root(tmp_path / "good.root", columns)
    for name in ("part_px", "part_py"):
        columns[name].values[:] = np.nan
    write_root(tmp_path / "gone.root", columns)
    (tmp_path / "cut.root").write_bytes((tmp_path / "good.root").read_bytes()[:900])
    total = len(columns["part_px"].values)
    for other, why in (("gone", f"{total} of "), ("cut", "cut.root")):
        files = [f"{kind}:{tmp_path / name}.root" for kind, name in (("top", other), ("QCD", "good"))]
        made = section(*files, bad_files="skip").want(["part_px", "part_py"], ["label"])
        with refuses("top", "train", hint=why):
            made.open()
