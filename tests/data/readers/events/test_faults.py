"""Broken, foreign, empty and unusual files; workers; and a complete assembly."""

import multiprocessing
import os
import pickle

import h5py
import numpy as np
import pytest
import uproot

from sciformer.assembly import Assembly, data_with_columns
from sciformer.data.columns import Lists, rows_of
from sciformer.data.source import pieces
from sciformer.data.split import Split
from sciformer.files.formats import base as event_files
from sciformer.recipe import Recipe
from tests.data.readers.events.examples import part, same, section, table, whole, write_parquet, write_root
from tests.errors import refuses

ALL = Split(valid=0, test=0)


def truncated(path, share=0.6):
    raw = path.read_bytes()
    path.write_bytes(raw[: int(share * len(raw))])
    return path


def damaged(path):
    """Overwrite the middle of a file, where the baskets are, with zeros."""
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 3 : 2 * len(raw) // 3] = bytes(2 * len(raw) // 3 - len(raw) // 3)
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize("name", ["a.root", "a.parquet", "a.h5", "a.npz"])
@pytest.mark.parametrize("harm", [truncated, damaged])
def test_broken_files_are_named(tmp_path, name, harm):
    path, columns = tmp_path / name, table(500)
    if name == "a.root":
        write_root(path, columns)
    elif name == "a.parquet":
        write_parquet(path, columns)
    else:
        lengths = columns["part_px"].lengths
        arrays = {key: c.values if isinstance(c, Lists) else c for key, c in columns.items()} | {"n": lengths}
        if name == "a.npz":
            np.savez_compressed(path, **arrays)
        else:
            with h5py.File(path, "w") as file:
                for key, array in arrays.items():
                    file.create_dataset(key, data=array, compression="gzip")
    harm(path)
    with refuses(path, file=path):
        section(path).want(["part_px", "part_py", "part_pz", "jet_pt"]).open()


def test_foreign_and_empty_files(tmp_path):
    text = tmp_path / "a.root"
    text.write_text("hello, this is no ROOT file at all")
    with refuses("ROOT", "HDF5", "Parquet", "NPZ", "b'hello, t'", file=text):
        section(text).open()
    empty = tmp_path / "b.root"
    with uproot.recreate(empty) as file:
        file.mktree("tree", {"x": np.float32})
    with refuses("b.root", file=empty):
        section(empty).open()
    (tmp_path / "c.root").write_bytes(b"")
    with refuses("c.root", file=tmp_path / "c.root"):
        section(tmp_path / "c.root").open()
    with refuses("d.root", file=tmp_path / "d.root"):
        section(tmp_path / "d.root").open()
    with refuses(key="data.files", hint="--data.files"):
        section().open()
    (tmp_path / "e.root.gz").write_bytes(b"not packed")
    with refuses(file=tmp_path / "e.root.gz"):
        section(tmp_path / "e.root.gz").open()
    np.savez(tmp_path / "pickled.npz", x=np.array([{}, []], object))
    with refuses("Python objects", file=tmp_path / "pickled.npz"):
        section(tmp_path / "pickled.npz").open()


def test_bad_files_are_left_out_and_listed(tmp_path):
    good, other = table(30, 1), table(20, 2)
    paths = [tmp_path / f"{name}.root" for name in "abcd"]
    write_root(paths[0], good)
    write_root(paths[1], other)
    truncated(paths[1])
    paths[2].write_text("text")
    write_root(paths[3], {"jet_pt": other["jet_pt"]})
    options = {"split": ALL, "bad_files": "skip"}
    opened = section(*paths, **options).want(["part_px", "jet_pt"]).open()
    same(part(opened), good, ["part_px", "jet_pt"])
    assert len(opened.notes) == 3
    assert [f"left out {path}" in note for path, note in zip(paths[1:], opened.notes)] == [True] * 3
    assert "column `part_px`" in opened.notes[2]
    assert set(opened.fingerprint) == {str(paths[0])}
    with refuses("train", hint=str(paths[2])):
        section(*paths[2:], **options).want(["part_px"]).open()
    with refuses(file=paths[1], hint="--data.bad_files skip"):
        section(*paths).want(["part_px"]).open()
    with refuses("b.root", file=paths[1]):  # answers would stand beside the wrong events
        section(*paths, **options).want(["part_px"]).read(paths[:2])


def test_what_is_a_list_here_and_a_number_there(tmp_path):
    columns = table(20)
    write_root(tmp_path / "a.root", columns)
    write_root(tmp_path / "b.root", dict(columns, part_px=columns["jet_pt"]))
    opened = section(tmp_path / "a.root", tmp_path / "b.root", split=ALL).want(["part_px"]).open()
    with refuses("`part_px`"):
        part(opened)


def test_a_file_that_changes_is_opened_anew(tmp_path):
    path = tmp_path / "a.root"
    write_root(path, table(20, 1))
    assert sum(section(path).read([path]).sizes) == 20
    write_root(path, table(31, 2))
    assert sum(section(path).read([path]).sizes) == 31


def test_few_files_are_open_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(event_files, "MAX_OPEN_FILES", 3)
    event_files.release()
    for number in range(8):
        write_root(tmp_path / f"{number}.root", table(20, number))
    opened = section(tmp_path / "*.root", split=ALL, chunk_size=64).want(["part_px", "event"]).open()
    assert rows_of(part(opened)) == 160
    assert len(event_files._OPENED) == 3
    assert max(opened.sources["train"].sizes) <= 64


def _worker(source, queue):
    queue.put((os.getpid(), float(whole(source)["part_px"].values.sum())))


def test_workers_open_the_files_themselves(tmp_path):
    path = tmp_path / "a.root"
    write_root(path, table(50))
    source = section(path, split=ALL, select="jet_pt > 20").want(["part_px"]).open().sources["train"]
    expected = float(whole(source)["part_px"].values.sum())
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=_worker, args=(source, queue))
    process.start()
    owner, found = queue.get(timeout=60)
    process.join()
    assert owner != os.getpid()
    assert found == expected
    sent = pickle.loads(pickle.dumps(source))  # as to a worker that is not forked
    assert float(whole(sent)["part_px"].values.sum()) == expected


@pytest.mark.parametrize("tagged", [True, False])
def test_pieces_are_mixed(tmp_path, tagged):
    """Every piece has samples of every class, although each file has a single class."""
    names = []
    for number, name in enumerate("abcd"):
        path = write_root(tmp_path / f"{name}.root", table(400, number), basket=50)
        names.append(f"{name}:{path}" if tagged else path)
    sources = section(*names, chunk_size=256, split=Split(valid=0.25, test=0)).want(["part_px", "event"]).open().sources
    assert len(sources["train"].sizes) > 4
    for piece, size in enumerate(sources["train"].sizes):
        files = sources["train"].load(piece)["event"] // 1000
        assert len(files) == size
        counts = np.bincount(files, minlength=4)
        assert counts.min() > 0.7 * counts.max()
    assert sum(sources["train"].sizes) + sum(sources["valid"].sizes) == 1600
    assert len(sources["valid"].sizes) <= 3  # few samples of many files are one piece


def test_a_recipe_reads_only_what_it_needs(tmp_path):
    paths = [write_root(tmp_path / f"{name}.root", table(60, number)) for number, name in enumerate("ab")]
    vector = ["part_px", "part_py", "part_pz", "part_e"]
    recipe = Recipe.from_dict(
        {
            "data": {
                "kind": "events",
                "files": paths,
                "classes": {"a": "label_a", "b": "label_b"},
                "weight": "jet_mass",
                "observers": ["event", "entry"],
                "chunk_size": 32,
            },
            "tokens": {"kind": "particles", "features": "kin", "vector": vector},
            "model": {"kind": "encoder", "dim": 8, "depth": 1, "heads": 2},
            "objective": {"kind": "classify", "plot_against": "jet_mass"},
            "train": {"steps": 2},
        }
    )
    data = data_with_columns(recipe)
    assert set(data.state["truth"]) == {"jet_mass", "label"}
    assert set(data.state["names"]) == set(vector)
    assert recipe.data.state == {}
    made = Assembly.open(recipe)
    assert ["objective.weight" in note for note in made.splits.notes] == [True]
    train = made.dataset("train")
    assert len(train.sizes) == 3
    batch = train.batch(np.array([0, 40, 95]))
    assert {"label", "weight", "event", "entry", "jet_mass"} <= set(batch.samples)
    assert not {"flag", "label_a", "part_charge"} & {*batch.samples, *batch.stream.columns}
    assert made.objective.classes == ["a", "b"]
    again = Assembly.open(recipe, made.state(), write=False)
    np.testing.assert_array_equal(
        again.dataset("test").all().samples["entry"], made.dataset("test").all().samples["entry"]
    )
    assert len(made.read(paths[:1])) == 60
    assert recipe.change({"objective.weight": "weight"}).data == recipe.data
    assert Assembly.open(recipe.change({"objective.weight": "weight"})).splits.notes == []


def test_other_files_may_lack_what_stands_beside_the_answers(tmp_path):
    columns = table(20)
    less = {name: column for name, column in columns.items() if name not in ("jet_mass", "label_b")}
    paths = [tmp_path / "a.root", tmp_path / "b.root"]
    for path, some in zip(paths, (columns, less)):
        write_root(path, some)
    options = {"classes": {"a": "label_a", "b": "label_b"}, "observers": ["jet_mass", "jet_pt"], "chunk_size": 16}
    source = section(**options).want(["part_px"], ["label"]).read(paths)
    found = whole(source)  # pieces with other columns could not be joined
    assert len(found["jet_pt"]) == 40
    assert not {"jet_mass", "label"} & set(found)
    assert source.notes == [f"`{name}` is not in {paths[1]}: left out." for name in ("label", "jet_mass")]
    assert section(**options).want(["part_px"], ["label"]).read(paths[:1]).notes == []


def test_what_is_left_out_of_other_files_is_said(tmp_path):
    columns, path = table(20, least=0), str(tmp_path / "a.root")
    empty, total = int((columns["part_px"].lengths == 0).sum()), len(columns["part_px"].values)
    columns["part_px"].values[0] = np.nan
    write_root(path, columns)
    notes = section().want(["part_px"]).read([path]).notes
    assert notes[0] == f"1 of {total} entries of lists are not finite: left out."
    assert notes[1].startswith((f"{empty} of 20 samples", f"{empty + 1} of 20 samples"))
    columns["part_px"].values[:] = np.nan
    write_root(path, columns)
    with refuses("20", hint=f"{total} of {total}"):
        section().want(["part_px"]).read([path])


def test_a_class_that_is_missing_is_found(tmp_path):
    import pyarrow as pa

    columns, path = table(20), tmp_path / "a.parquet"
    write_parquet(path, dict(columns, kind=pa.array(["x", "y"] * 9 + [None, "x"])))
    made = section(path, label="kind").want(["part_px"], ["label"])
    with refuses("`kind`", "entry 18", key="data.label", file=path, hint="1 of 20"):
        made.open()
    assert whole(made.read([path]))["label"][18] == ""


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
        assert source.known_column("part_px") is source.known_column("jet_pt", lists=True) is None


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
