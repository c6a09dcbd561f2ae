import json
import sys

import h5py
import numpy as np
import pytest
import uproot

from sciformer.data.columns import Lists, select
from sciformer.files.formats.base import Format, Kind, Layout, TableFile, TableWriter, open_file, recognise
from sciformer.files.formats.padded import events_table
from sciformer.files.tables import write_table
from sciformer.recipe.registry import register
from tests.data.readers.events.examples import (
    NAMES,
    add_tree,
    jagged,
    padded,
    same,
    section,
    table,
    whole,
    write_parquet,
    write_root,
)
from tests.errors import refuses

EVENTS = table()
LISTS = {name: EVENTS[name] for name in NAMES}
SINGLE = {name: column for name, column in EVENTS.items() if name not in NAMES}


def read(path, names=None, start=0, stop=None, **layout):
    file = open_file(path, Layout(**layout))
    found = file.read(list(names or file.columns), start, file.rows if stop is None else stop)
    file.close()
    return found


@pytest.mark.parametrize("basket", [None, 7, 1])
def test_root_trees(tmp_path, basket):
    path = tmp_path / "a.root"
    write_root(path, EVENTS, basket=basket)
    same(read(path, EVENTS), EVENTS)
    for start, stop in ((0, 1), (3, 22), (7, 14), (39, 40), (5, 5)):
        found = read(path, EVENTS, start, stop)
        rows = np.arange(start, stop)
        same(found, {n: c.take(rows) if isinstance(c, Lists) else c[rows] for n, c in EVENTS.items()})
        assert len({id(found[name].lengths) for name in NAMES}) == 1
    assert open_file(path, Layout()).columns["part_px"] == "list"
    assert open_file(path, Layout()).columns["npart_px"] == open_file(path, Layout()).columns["jet_pt"] == "value"


def test_root_tuples(tmp_path):
    path = tmp_path / "a.root"
    with uproot.recreate(path) as file:
        file.mkrntuple("tree", {name: jagged(column) for name, column in EVENTS.items()})
    same(read(path, EVENTS), EVENTS)
    same(read(path, NAMES, 5, 9), {name: LISTS[name].take(np.arange(5, 9)) for name in NAMES})


def test_fixed_arrays_and_names_of_parts(tmp_path):
    path = tmp_path / "a.root"
    with uproot.recreate(path) as file:
        file.mktree("tree", {"wide": np.dtype((np.float32, (3,))), "x": np.int64})
        file["tree"].extend({"wide": np.arange(12, dtype=np.float32).reshape(4, 3), "x": np.arange(4)})
    found = read(path)
    assert found["wide"].shape == (4, 3)
    assert found["wide"].dtype == np.float32
    assert open_file(path, Layout()).columns == {"wide": "value", "x": "value"}


def test_which_tree(tmp_path):
    path = tmp_path / "a.root"
    with uproot.recreate(path) as file:
        add_tree(file, "one", {"x": np.arange(3)})
        add_tree(file, "inside/two", {"x": np.arange(4)})
        file["words"] = "text"
    with refuses("one, inside/two", key="data.tree", file=path, hint="--data.tree"):
        open_file(path, Layout())
    with refuses("`tow`", "one, inside/two", key="data.tree", file=path):
        open_file(path, Layout("tow"))
    assert len(read(path, tree="inside/two")["x"]) == 4
    with uproot.recreate(tmp_path / "b.root") as file:
        file["words"] = "text"
    with refuses("words", file=tmp_path / "b.root"):
        open_file(tmp_path / "b.root", Layout())


@pytest.mark.parametrize("groups", [None, 7, 1])
def test_parquet(tmp_path, groups):
    path = tmp_path / "a.parquet"
    write_parquet(path, EVENTS, groups)
    same(read(path, EVENTS), EVENTS)
    same(read(path, NAMES, 5, 30), {name: LISTS[name].take(np.arange(5, 30)) for name in NAMES})


def test_parquet_gaps_and_what_is_no_number(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "a.parquet"
    columns = {"x": [1, None, 3], "lists": [[1.0, None], [], [2.0]], "text": ["a", "b", "c"], "deep": [[[1]], [], []]}
    pq.write_table(pa.table(columns), path)
    found = read(path, ["x", "lists"])
    np.testing.assert_array_equal(found["x"], [1, np.nan, 3])
    np.testing.assert_array_equal(found["lists"].values, [1, np.nan, 2])
    file = open_file(path, Layout())
    with refuses("`text`", "string", "data.observers", key="data.observers", file=path):
        file.need("text", "data.observers")
    with refuses("`deep`", "list<", "a test", file=path):
        file.need("deep", "a test")
    pq.write_table(pa.table({"lists": [[1.0], None]}), path)
    with refuses("1", "`lists`", file=path):
        read(path)


def test_parquet_with_fewer_rows_than_none(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": np.arange(7)}), path)
    raw = bytearray(path.read_bytes())
    place = raw.rindex(b"\x16\x0e", 0, raw.index(b"ARROW:schema"))  # the last count of 7, that of the group
    raw[place + 1] = 0x0F  # -8
    path.write_bytes(raw)
    assert pq.ParquetFile(path).metadata.row_group(0).num_rows == -8
    with refuses("-8", file=path):
        open_file(path, Layout())


def write_h5(path, arrays):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return path


def save(path, arrays):
    if path.suffix == ".npz":
        np.savez(path, **arrays)
        return path
    return write_h5(path, arrays)


@pytest.mark.parametrize("name", ["a.h5", "a.npz"])
def test_padded_arrays(tmp_path, name):
    wide, mask = padded(LISTS)
    lengths = LISTS["part_px"].lengths
    for extra in ({"mask": mask}, {"valid": mask.astype(np.int8)}, {"count": lengths.astype(np.uint8)}):
        path = save(tmp_path / name, {**wide, **SINGLE, **extra})
        same(read(path, EVENTS), EVENTS)
        same(read(path, NAMES, 4, 20), {key: LISTS[key].take(np.arange(4, 20)) for key in NAMES})
    path = save(tmp_path / name, {**wide, **SINGLE, "real": mask})
    same(read(path, EVENTS, mask="real"), EVENTS)
    same(read(path, EVENTS, mask="zeros"), EVENTS)
    assert open_file(path, Layout()).columns["part_px"] == "value"  # nobody said what the second axis is
    with refuses("'rael'", key="data.mask", file=path, hint="'real'"):
        open_file(path, Layout(mask="rael"))


@pytest.mark.parametrize("name", ["a.h5", "a.npz"])
def test_one_array_with_a_last_axis(tmp_path, name):
    wide, mask = padded(LISTS)
    cube = np.stack([wide[one].astype(np.float32) for one in NAMES], -1)
    path = save(tmp_path / name, {"X": cube, "y": SINGLE["flag"], "jet": np.stack([SINGLE["jet_pt"]] * 2, 1)})
    found = read(path, ["X_0", "X_4", "y"])
    same({"part_px": found["X_0"], "part_charge": found["X_4"], "flag": found["y"]}, EVENTS, ["part_px", "flag"])
    axes = {"X": list(NAMES), "jet": ["jet_pt", "again"]}
    same(read(path, [*NAMES, "jet_pt"], axes=axes), EVENTS, [*NAMES, "jet_pt"])
    with refuses("5", "1", "data.axes.X", key="data.axes.X", file=path):
        open_file(path, Layout(axes={"X": ["a"]}))
    path = save(tmp_path / name, {"X": cube, "mask": mask})
    same(read(path, NAMES, axes={"X": list(NAMES)}), LISTS)


@pytest.mark.parametrize("name", ["a.h5", "a.npz"])
def test_flat_values_with_counts(tmp_path, name):
    flat = {key: column.values for key, column in LISTS.items()}
    lengths = LISTS["part_px"].lengths
    path = save(tmp_path / name, {**flat, **SINGLE, "n": lengths.astype(np.uint8)})
    same(read(path, EVENTS), EVENTS)
    same(read(path, NAMES, 9, 17), {key: LISTS[key].take(np.arange(9, 17)) for key in NAMES})
    own = {f"{key}_lengths": lengths for key in NAMES}
    same(read(save(tmp_path / name, {**flat, **SINGLE, **own}), EVENTS), EVENTS)


def test_fields_with_a_flag_for_the_real_ones(tmp_path):
    wide, mask = padded(LISTS)
    tracks = np.zeros(mask.shape, [*((key, wide[key].dtype) for key in NAMES), ("valid", "?")])
    for key in NAMES:
        tracks[key] = np.where(mask, wide[key], np.nan if wide[key].dtype.kind == "f" else 0)
    tracks["valid"] = mask
    jets = np.zeros(len(mask), [("jet_pt", "f4"), ("event", "i8"), ("part_px", "f4"), ("text", "S3")])
    jets["jet_pt"], jets["event"] = SINGLE["jet_pt"], SINGLE["event"]
    path = write_h5(tmp_path / "a.h5", {"jets": jets, "tracks": tracks, "edges": np.arange(7.0)})
    found = read(path, ["tracks.part_px", "tracks.part_e", "jets.jet_pt"])
    same({name.partition(".")[2]: c for name, c in found.items()}, EVENTS, ["part_px", "part_e", "jet_pt"])
    file = open_file(path, Layout())
    assert (file.need("part_py", ""), file.need("event", "")) == ("tracks.part_py", "jets.event")
    with refuses("`part_px`", "jets.part_px, tracks.part_px", file=path):
        file.need("part_px", "a test")
    with refuses("`jets.text`", "|S3", file=path):
        file.need("jets.text", "a test")
    with refuses("`edges`", "(7,)", "40", file=path):
        file.need("edges", "a test")
    file.close()


def write_frame(path, layout, names=True):
    """Write a table as pandas does with pytables: column names are pickled lists."""
    wide, _ = padded(LISTS, 200)
    four = [wide[f"part_{axis}"] for axis in ("e", "px", "py", "pz")]
    numbers = np.stack(four, -1).reshape(len(wide["part_px"]), -1).astype(np.float32)
    words = [f"{axis}_{number}" for number in range(200) for axis in ("E", "PX", "PY", "PZ")]
    labels = np.stack([SINGLE["event"], SINGLE["flag"]], 1).astype(np.int64)
    with h5py.File(path, "w") as file:
        group = file.create_group("table")
        if layout == "fixed":
            group.attrs["pandas_type"] = np.bytes_(b"frame")
            group["axis0"], group["axis1"] = np.array([*words, "ttv", "is_signal_new"], "S"), np.arange(len(labels))
            group["block0_items"], group["block0_values"] = np.array(words, "S"), numbers
            group["block1_items"], group["block1_values"] = np.array(["ttv", "is_signal_new"], "S"), labels
            return path
        group.attrs["pandas_type"] = np.bytes_(b"frame_table")
        form = [("index", "i8"), ("values_block_0", "f4", (numbers.shape[1],)), ("values_block_1", "i8", (2,))]
        rows = np.zeros(len(labels), form)
        rows["values_block_0"], rows["values_block_1"] = numbers, labels
        group["table"] = rows
        if names:
            for block, listed in enumerate((words, ["ttv", "is_signal_new"])):
                pickled = "(lp0\n" + "".join(f"V{word}\np{i}\na" for i, word in enumerate(listed, 1)) + "."
                group["table"].attrs[f"values_block_{block}_kind"] = np.bytes_(pickled.encode())
    return path


@pytest.mark.parametrize(("layout", "names"), [("table", True), ("table", False), ("fixed", True)])
def test_tables_of_pandas_are_read_without_unpickling(tmp_path, monkeypatch, layout, names):
    monkeypatch.setitem(sys.modules, "pickle", None)
    path = write_frame(tmp_path / "a.h5", layout, names)
    found = read(path, ["PX", "PY", "PZ", "E", "is_signal_new"])
    same({f"part_{axis.lower()}": found[axis] for axis in ("PX", "PY", "PZ", "E")}, LISTS, NAMES[:4])
    np.testing.assert_array_equal(found["is_signal_new"], SINGLE["flag"])


def test_tables_of_pandas_that_nobody_knows(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        group = file.create_group("mine")
        group.attrs["pandas_type"] = np.bytes_(b"frame_table")
        group["table"] = np.zeros(3, [("index", "i8"), ("values_block_0", "f4", (5,))])
        group["table"].attrs["values_block_0_kind"] = np.bytes_(b"cos\nsystem\n(S'true'\ntR.")
    with refuses("5", "float32", "values_block_0", file=tmp_path / "a.h5", hint="format='fixed'"):
        open_file(tmp_path / "a.h5", Layout())


def test_tables_in_memory():
    given = {"part_px": jagged(LISTS["part_px"]), "part_py": LISTS["part_py"]}
    found = events_table({**given, "jet_pt": SINGLE["jet_pt"], "flag": list(SINGLE["flag"])})
    same(found, EVENTS, ["part_px", "part_py", "jet_pt", "flag"])
    assert found["part_px"].lengths is found["part_py"].lengths
    import awkward as ak

    same(
        events_table(ak.zip({name: jagged(EVENTS[name]) for name in ("jet_pt", "event")})), EVENTS, ["jet_pt", "event"]
    )
    lists = events_table({"x": [[1.0, 2.0], [], [3.0]]})["x"]
    np.testing.assert_array_equal(lists.lengths, [2, 0, 1])
    fields = np.zeros(3, [("a", "f4"), ("b", "i8")])
    assert set(events_table(fields)) == {"a", "b"}
    with refuses("`a`", "2", "`b`", "3"):
        events_table({"a": np.zeros(2), "b": np.zeros(3)})
    with refuses("`x`", "2 * var * var * int64"):
        events_table({"x": ak.Array([[[1]], []])})
    with refuses("ndarray"):
        events_table(np.zeros(3))
    with refuses("`x`", "None", hint="awkward.fill_none"):
        events_table({"x": ak.Array([1, None])})


def test_forms_are_known_by_how_files_begin(tmp_path):
    path = tmp_path / "named.root"
    write_parquet(path, EVENTS)
    assert recognise(path)[0].name == "Parquet"
    same(whole(section().read([path])), EVENTS, NAMES)


@pytest.mark.parametrize(
    ("name", "begin", "module", "hint"),
    [
        ("a.root", b"root", "uproot", "'sciformer[jets]'"),
        ("a.h5", b"\x89HDF", "h5py", "h5py"),
        ("a.parquet", b"PAR1", "pyarrow.parquet", "pyarrow"),
        ("a.fits", b"SIMPLE  =", "astropy.io.fits", "'sciformer[astro]'"),
        ("a.ecsv", b"# %ECSV", "astropy.table", "'sciformer[astro]'"),
    ],
)
def test_a_missing_package_is_named(tmp_path, monkeypatch, name, begin, module, hint):
    (tmp_path / name).write_bytes(begin)
    monkeypatch.setitem(sys.modules, module, None)
    with refuses(f"`{module.partition('.')[0]}`", hint=f"pip install {hint}"):
        open_file(tmp_path / name, Layout())


@pytest.mark.parametrize("name", ["a.parquet", "listed.parquet", "a.npz"])
def test_classes_may_be_words(tmp_path, name):
    import pyarrow as pa

    path, words = tmp_path / name, np.array(["one", "other"])[EVENTS["flag"].astype(int)]
    if name == "a.npz":
        lists, mask = padded(EVENTS)
        np.savez(path, **lists, mask=mask, jet_pt=EVENTS["jet_pt"], kind=words)
    else:
        write_parquet(path, dict(EVENTS, kind=pa.array(words).dictionary_encode() if "listed" in name else words))
    made = section(path, label="kind").want(["part_px"], ["label"])
    np.testing.assert_array_equal(whole(made.read([path]))["label"], words)
    assert set(whole(made.open().sources["train"])["label"]) == {"one", "other"}
    with refuses("`kind`", key="data.observers", file=path):
        section(path, label="jet_pt", observers=["kind"]).want(["part_px"]).open()
    with refuses("`kind`", "kind > 0"):
        section(path, label="kind", select="kind > 0").want(["part_px"]).open()


class ToyTable(TableFile):
    """A table of JSON: a number or a list for each row of a column."""

    def __init__(self, path, layout):
        super().__init__(path, layout)
        self.data = events_table(json.loads(path.read_text().removeprefix("TOY1 ")))
        self.rows = len(next(iter(self.data.values())))
        self.edges = np.array([0, self.rows])
        for name, column in self.data.items():
            self.add_column(name, Kind(isinstance(column, Lists), words=False), "numbers")

    def get(self, names, start, stop):
        return select({name: self.data[name] for name in names}, np.arange(start, stop))


class ToyWriter(TableWriter):
    """Writer of a `ToyTable`, in one piece."""

    def add(self, table):
        lists = {name: jagged(column).tolist() for name, column in table.items()}
        self.path.write_text("TOY1 " + json.dumps(lists))

    def close(self, about):
        pass


@pytest.mark.usefixtures("own_plugins")
def test_a_format_of_a_plugin_is_written_and_read(tmp_path):
    path = tmp_path / "events.toy"
    register("format", "toy")(Format("TOY", (".toy",), writer=ToyWriter, reader=ToyTable, magic=(b"TOY1",)))
    write_table(path, [EVENTS])
    same(whole(section().read([path])), EVENTS)
    made = section(path, classes={"a": "label_a", "b": "label_b"}, select="jet_pt > 30", chunk_size=16)
    opened = made.want(["part_px", "part_py"], ["label"]).open()
    assert sum(sum(source.sizes) for source in opened.sources.values()) == (EVENTS["jet_pt"] > 30).sum()
    (tmp_path / "other.toy").write_text("TOY2")
    with refuses("ROOT, TOY", file=tmp_path / "other.toy"):
        section(tmp_path / "other.toy").open()


def test_events_of_a_table_in_fits(tmp_path):
    from astropy.table import Table

    Table(SINGLE).write(tmp_path / "a.fits")
    same(whole(section().read([tmp_path / "a.fits"])), SINGLE)
