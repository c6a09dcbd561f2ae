"""Small files of events in every format, all with the same columns."""

import numpy as np

from sciformer.data.columns import Lists
from sciformer.data.fileset import concatenate_shared
from sciformer.data.readers.events.reader import EventFiles
from sciformer.data.source import pieces

NAMES = ("part_px", "part_py", "part_pz", "part_e", "part_charge")


def table(rows=40, seed=0, least=1):
    """Events with 1 to 7 entries each; `label_a` and `label_b` mark the class."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(least, 8, rows)
    total = int(lengths.sum())
    made = {name: Lists(rng.normal(size=total).astype(np.float32), lengths) for name in NAMES[:3]}
    px, py, pz = (made[name].values for name in NAMES[:3])
    made["part_e"] = Lists(np.sqrt(px**2 + py**2 + pz**2 + 0.02).astype(np.float32), lengths)
    made["part_charge"] = Lists(rng.integers(-1, 2, total).astype(np.int32), lengths)
    made["jet_pt"] = rng.uniform(10, 100, rows).astype(np.float32)
    made["jet_mass"] = rng.uniform(0, 10, rows)
    made["event"] = np.arange(rows) // 2 + 1000 * seed
    made["label_a"] = rng.integers(0, 2, rows).astype(np.float32)
    made["label_b"] = 1 - made["label_a"]
    made["flag"] = rng.integers(0, 2, rows).astype(bool)
    return made


def jagged(column):
    import awkward as ak

    return ak.unflatten(column.values, column.lengths) if isinstance(column, Lists) else column


def write_root(path, columns, tree="tree", basket=None):
    """Write a TTree with counted arrays, with `basket` rows per basket."""
    import uproot

    rows = len(next(iter(columns.values())))
    with uproot.recreate(path) as file:
        add_tree(file, tree, columns, basket or max(rows, 1))
    return str(path)


def add_tree(file, name, columns, basket=1000):
    import awkward as ak

    arrays = {key: jagged(column) for key, column in columns.items()}
    forms = {key: ak.to_packed(a).type.content if isinstance(a, ak.Array) else a.dtype for key, a in arrays.items()}
    made = file.mktree(name, forms)
    rows = len(next(iter(columns.values())))
    for start in range(0, rows, basket):
        made.extend({key: array[start : start + basket] for key, array in arrays.items()})


def write_parquet(path, columns, groups=None):
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = {}
    for name, column in columns.items():
        if isinstance(column, Lists):
            offsets = np.concatenate([[0], column.lengths.cumsum()]).astype(np.int32)
            arrays[name] = pa.ListArray.from_arrays(offsets, pa.array(column.values))
        else:
            arrays[name] = pa.array(column)
    pq.write_table(pa.table(arrays), path, row_group_size=groups)
    return str(path)


def padded(columns, most=9):
    """Arrays (n, most) padded with zeros, and their mask."""
    made = {}
    for name, column in columns.items():
        if isinstance(column, Lists):
            mask = np.arange(most) < column.lengths[:, None]
            wide = np.zeros(mask.shape, column.values.dtype)
            wide[mask] = column.values
            made[name] = wide
    return made, mask


def section(*files, **options):
    return EventFiles(kind="events", files=[str(file) for file in files], **options)


def whole(source):
    """All pieces of a source as one table."""
    return concatenate_shared(list(pieces(source)))


def part(opened, name="train"):
    return whole(opened.sources[name])


def same(found, expected, names=None):
    """Assert that the columns of two tables are equal."""
    for name in names or expected:
        mine, other = found[name], expected[name]
        if isinstance(other, Lists):
            assert isinstance(mine, Lists), name
            np.testing.assert_array_equal(mine.lengths, other.lengths, err_msg=name)
            np.testing.assert_array_equal(mine.values, other.values, err_msg=name)
        else:
            np.testing.assert_array_equal(mine, other, err_msg=name)
