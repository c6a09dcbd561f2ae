import numpy as np
import pytest

from sciformer.data.columns import Lists, rows_of, select
from sciformer.data.fileset import split_tag
from sciformer.data.split import Split
from tests.data.readers.events.examples import NAMES, part, same, section, table, whole, write_parquet, write_root
from tests.errors import refuses

ALL = Split(valid=0, test=0)
CLASSES = {"a": "label_a", "b": "label_b > 0.5"}


@pytest.fixture
def files(tmp_path):
    """Two files, of 40 and 25 events."""
    found = {"one.root": table(40, 1), "two.root": table(25, 2)}
    return {write_root(tmp_path / name, columns, basket=16): columns for name, columns in found.items()}


def sorted_by(found, name):
    """Rows of a table sorted by a column."""
    return select(found, np.argsort(found[name], kind="stable"))


def test_all_columns_unless_told(files):
    opened = section(*files, split=ALL).open()
    found = part(opened)
    assert {*NAMES, "jet_pt", "label_a", "npart_px"} <= set(found)
    assert rows_of(found) == 65
    mine, other = sorted_by(found, "jet_pt"), [sorted_by(columns, "jet_pt") for columns in files.values()]
    for name in ("part_px", "part_charge"):
        assert mine[name].values.sum() == pytest.approx(sum(columns[name].values.sum() for columns in other), abs=1e-3)


def test_only_what_is_wanted_is_read(files):
    data = section(*files, split=ALL, new={"pt": "hypot(part_px, part_py)"}, observers=["event"], classes=CLASSES)
    found = part(data.want(["part_px", "pt"], ["label"], ["part_e", "nowhere"]).open())
    assert set(found) == {"part_px", "pt", "part_e", "event", "label"}
    (first, columns), *_ = files.items()
    alone = part(section(first, split=ALL, chunk_size=16).want(["part_px", "jet_pt"]).open())
    same(sorted_by(alone, "jet_pt"), sorted_by(columns, "jet_pt"), ["part_px", "jet_pt"])


def test_names_that_are_not_there(files):
    first = next(iter(files))
    with refuses("`part_pX`", file=first, hint="'part_px'"):
        section(*files).want(["part_pX"]).open()
    with refuses("`label`", "CLASS:FILES", file=first, hint="data.classes"):
        section(*files).want(["part_px"], ["label"]).open()
    for wanted, name, key, options in (
        ("part_px", "jet_p", "data.observers", {"observers": ["jet_p"]}),
        ("part_py", "part_px", "data.observers", {"observers": ["part_px"]}),
        ("part_px", "labl_a", "data.classes", {"classes": {"a": "labl_a"}}),
        ("part_px", "jet_p", "data.select", {"select": "jet_p > 3"}),
        ("pt", "part_x", "data.new.pt", {"new": {"pt": "part_x * 2"}}),
    ):
        with refuses(f"`{name}`", key, key=key, file=first):
            section(*files, **options).want([wanted]).open()
    with refuses("a -> b -> a", key="data.new"):
        section(*files, new={"a": "b + 1", "b": "a + 1"}).want(["a"]).open()


def test_new_columns_may_use_each_other_and_hide_old_ones(files):
    new = {"half": "jet_pt / 2", "quarter": "half / 2", "jet_pt": "jet_pt * 10"}
    found = part(section(*files, split=ALL, new=new).want(["quarter", "jet_pt"]).open())
    np.testing.assert_allclose(found["quarter"], found["jet_pt"] / 4, rtol=1e-6)


def test_selection(files):
    data = section(*files, split=ALL, select="jet_pt > 50 and sum(part_charge) >= 0").want(["part_px"], [], ["jet_pt"])
    opened = data.open()
    found = part(opened)
    kept = sum(
        int(((c["jet_pt"] > 50) & (np.add.reduceat(c["part_charge"].values, starts(c)) >= 0)).sum())
        for c in files.values()
    )
    assert rows_of(found) == kept
    assert (found["jet_pt"] > 50).all()
    assert f"{65 - kept} of 65 samples are not selected." in opened.notes
    one, two = files
    notes = section(one, test=[two], select="jet_pt > 50").want(["part_px"]).open().notes
    left_out = [int((files[name]["jet_pt"] <= 50).sum()) for name in (one, two)]
    assert notes[0].startswith(f"{left_out[0]} of 40 samples are")
    assert notes[1].startswith(f"{left_out[1]} of 25 samples of test are")
    with refuses("65", "train", hint="65 of 65"):
        section(*files, select="jet_pt < 0").want(["part_px"]).open()
    with refuses("data.select", key="data.select", file=next(iter(files))):
        section(*files, select="part_px > 0").want(["part_px"]).open()


def starts(columns):
    lengths = columns["part_px"].lengths
    return lengths.cumsum() - lengths


def test_classes_by_flags(files):
    found = part(section(*files, split=ALL, classes=CLASSES).want(["part_px"], ["label"], ["label_a"]).open())
    np.testing.assert_array_equal(found["label"], np.where(found["label_a"] > 0, "a", "b"))
    (first, columns), *_ = files.items()
    wrong = dict(
        columns, label_b=np.where(np.arange(40) == 17, 1, columns["label_b"]), label_a=columns["label_a"].copy()
    )
    wrong["label_a"][17] = 1
    write_root(first, wrong)
    with refuses("entry 17", first, "a and b", key="data.classes", file=first, hint="data.select"):
        section(first, classes=CLASSES).want(["part_px"], ["label"]).open()
    opened = (
        section(first, split=ALL, classes=CLASSES, select="label_a + label_b == 1").want(["part_px"], ["label"]).open()
    )
    assert rows_of(part(opened)) == 39


def test_classes_by_tags(files, tmp_path):
    one, two = files
    found = part(section(f"top:{one}", f"QCD:{two}", split=ALL).want(["part_px"], ["label"]).open())
    assert dict(zip(*np.unique(found["label"], return_counts=True))) == {"QCD": 25, "top": 40}
    found = part(section(f"top:{tmp_path}/*.root", split=ALL).want(["part_px"], ["label"]).open())
    assert (found["label"] == "top").all()
    assert rows_of(found) == 65
    with refuses("two.root", file=two, hint="CLASS:FILES"):
        section(f"top:{one}", two).open()
    with refuses("one.root", "top", "QCD", file=one):
        section(f"top:{one}", f"QCD:{one}").open()
    with refuses("data.classes", key="data.classes", hint="top:"):
        section(f"top:{one}", classes=CLASSES).open()
    with refuses("'top:root://host//a.root'", hint="xrdcp"):
        section("top:root://host//a.root").open()


def test_tags_and_names(tmp_path, monkeypatch):
    assert split_tag("HToBB:data/*.root") == ("HToBB", "data/*.root")
    assert split_tag("data/a.root") == ("", "data/a.root")
    assert split_tag("W:/data/a.root") == ("W", "/data/a.root")
    monkeypatch.chdir(tmp_path)
    write_root(tmp_path / "odd:name.root", table(3))
    assert split_tag("odd:name.root") == ("", "odd:name.root")
    found = section("x:a*.root", valid=["y:b.root"], test=["c.root"]).absolute_paths()
    assert (found.files, found.valid) == ([f"x:{tmp_path}/a*.root"], [f"y:{tmp_path}/b.root"])
    assert found.test == [f"{tmp_path}/c.root"]
    assert found.absolute_paths() == found


def test_a_column_that_has_the_class(files):
    found = part(section(*files, split=ALL, label="flag").want(["part_px"], ["label"], ["flag"]).open())
    np.testing.assert_array_equal(found["label"], found["flag"])


def test_parts_are_drawn_or_have_their_own_files(files):
    one, two = files
    names = ["part_px", "event", "jet_pt"]
    opened = section(one, two, split=Split(valid=0.2, test=0.2, by="event")).want(names).open()
    groups = {name: set(part(opened, name)["event"].tolist()) for name in opened.sources}
    assert list(opened.sources) == ["train", "valid", "test"]
    assert not (groups["train"] & groups["valid"] | groups["train"] & groups["test"] | groups["valid"] & groups["test"])
    assert sum(sum(source.sizes) for source in opened.sources.values()) == 65
    own = section(one, valid=[two], test=[two]).want(names).open()
    assert [sum(source.sizes) for source in own.sources.values()] == [40, 25, 25]
    assert set(own.fingerprint) == {one, two}
    again = section(one, two, split=Split(valid=0.2, test=0.2, by="event"), chunk_size=16).want(names).open()
    for name in opened.sources:  # the division does not depend on how files are read
        assert set(part(again, name)["jet_pt"].tolist()) == set(part(opened, name)["jet_pt"].tolist())


def test_entries_that_are_not_finite_and_samples_without_any(tmp_path):
    columns = table(30, 3)
    values = columns["part_px"].values.copy()
    lengths = columns["part_px"].lengths
    first = lengths.cumsum() - lengths
    values[first[4] : first[5]] = np.nan
    values[first[9]] = np.inf
    columns["part_px"] = Lists(values, lengths)
    bare = table(5, 4, least=0)
    bare = {name: Lists(c.values[:0], c.lengths * 0) if isinstance(c, Lists) else c for name, c in bare.items()}
    paths = write_root(tmp_path / "a.root", columns), write_root(tmp_path / "b.root", bare)
    data = section(*paths, split=ALL).want(["part_px", "part_py", "jet_pt"])
    opened = data.open()
    found = part(opened)
    dropped = int(lengths[4]) + 1
    empty = 6 + (lengths[9] == 1)
    assert rows_of(found) == 35 - empty
    assert np.isfinite(found["part_px"].values).all()
    assert f"{dropped} of {lengths.sum()} entries of lists are not finite: left out." in opened.notes
    assert f"{empty} of 35 samples have no entries: left out." in opened.notes
    kept = section(*paths, split=ALL, empty="keep").want(["part_px", "jet_pt"]).open()
    assert rows_of(part(kept)) == 35
    assert sum(data.aligned(paths).sizes) == 35
    assert sum(data.read(paths).sizes) == 35 - empty
    every = data.with_empty(paths)
    assert sum(every.sizes) == 35
    assert data.empty_rows(whole(every)).sum() == empty
    assert any(note.startswith(f"{empty} of 35 samples") and "NaN" in note for note in every.notes)
    keeping = section(*paths, split=ALL, empty="keep").want(["part_px", "jet_pt"])
    assert keeping.empty_rows(whole(keeping.with_empty(paths))) is None
    chosen = section(*paths, split=ALL, select="jet_pt > 50").want(["part_px", "part_py", "jet_pt"])
    assert sum(chosen.with_empty(paths).sizes) == np.sum(np.concatenate([columns["jet_pt"], bare["jet_pt"]]) > 50)
    np.testing.assert_array_equal(
        whole(data.aligned(paths))["jet_pt"], np.concatenate([columns["jet_pt"], bare["jet_pt"]])
    )


def test_most_entries(files):
    found = part(section(*files, split=ALL, most=2).want(["part_px", "part_py"]).open())
    full = part(section(*files, split=ALL).want(["part_px"]).open())
    np.testing.assert_array_equal(found["part_px"].lengths, np.minimum(full["part_px"].lengths, 2))
    keep = np.arange(len(full["part_px"].values)) - np.repeat(
        full["part_px"].lengths.cumsum() - full["part_px"].lengths, full["part_px"].lengths
    )
    np.testing.assert_array_equal(found["part_px"].values, full["part_px"].values[keep < 2])


def test_other_files_are_read_in_order_and_may_lack_the_truth(files, tmp_path):
    data = section(
        *files, classes=CLASSES, observers=["event", "entry", "flag"], weight="jet_mass", select="jet_pt > 50"
    )
    data = data.want(["part_px"], ["label", "weight"], ["jet_pt"])
    found = whole(data.read(list(files)))
    assert set(found) == {"part_px", "jet_pt", "label", "weight", "event", "entry", "flag"}
    expected = np.concatenate([np.flatnonzero(c["jet_pt"] > 50) for c in files.values()])
    np.testing.assert_array_equal(found["entry"], expected)
    lean = {name: column for name, column in table(12, 5).items() if name in ("part_px", "jet_pt", "event")}
    path = write_parquet(tmp_path / "lean.parquet", lean)
    found = whole(data.read([path]))
    assert set(found) == {"part_px", "jet_pt", "event", "entry"}
    assert sum(data.aligned([path]).sizes) == 12
    every = section(*files, select="jet_pt > 50", select_new="").want(["part_px"])
    assert sum(every.read(list(files)).sizes) == 65
    unsure = dict(table(12, 5), label_a=np.zeros(12), label_b=np.zeros(12))
    found = whole(data.read([write_parquet(tmp_path / "unsure.parquet", unsure)]))
    assert set(found["label"]) == {""}
    with refuses("`part_px`", "tokens", file=tmp_path / "none.parquet"):
        data.read([write_parquet(tmp_path / "none.parquet", {"jet_pt": lean["jet_pt"]})])


def test_classes_by_a_column_that_is_called_label(tmp_path):
    columns = table(20, 3) | {"label": np.arange(20) % 2}
    path = write_parquet(tmp_path / "one.parquet", columns)
    data = section(path, split=ALL, classes={"odd": "label == 1", "even": "label == 0"}, observers=["entry"])
    found = sorted_by(part(data.want(["part_px"], ["label"]).open()), "entry")
    assert list(found["label"]) == ["even", "odd"] * 10
