"""Columns of tables in memory: what each dtype of each package becomes, and columns that cannot be read."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
import torch

from sciformer.data.columns import Lists
from sciformer.files.formats.frames import read_contents, to_columns
from tests.errors import refuses

NUMBERS = {
    "half": (np.array([1, 2], np.float16), "f"),
    "other byte order": (np.array([1, 2], ">f4"), "f"),
    "bool": ([True, False], "b"),
    "unsigned": (np.array([1, 2**63], np.uint64), "u"),
    "decimal": ([Decimal("1.5"), Decimal("2")], "f"),
    "missing": ([1, None], "f"),
    "objects": (np.array([1, 2.5], object), "f"),
    "bfloat": (torch.tensor([1.0, 2.0], dtype=torch.bfloat16), "f"),
    "masked": (np.ma.array([1.0, 2.0], mask=[True, False]), "f"),
    "arrow decimal": (pa.array([Decimal("1.5"), None]), "f"),
    "arrow dictionary": (pa.array([7, 8]).dictionary_encode(), "i"),
    "arrow null": (pa.nulls(2), "f"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name):
    values, kind = NUMBERS[name]
    column = to_columns("x", values)["x"]
    assert (column.dtype.kind, len(column), column.dtype.isnative) == (kind, 2, True)
    masks = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else [False, False]
    for found, given, masked in zip(column.tolist(), list(getattr(values, "to_pylist", lambda: values)()), masks):
        assert np.isnan(found) if given is None or masked else found == given


PANDAS = {
    "Int64": ([1, None, 3], [1, np.nan, 3]),
    "Float32": ([1.5, None, 3], [1.5, np.nan, 3]),
    "boolean": ([True, False, True], [True, False, True]),
    "category": (["a", None, "b"], ["a", "", "b"]),
    "string": (["a", None, "b"], ["a", "", "b"]),
    "float64[pyarrow]": ([1.5, None, 3], [1.5, np.nan, 3]),
    "string[pyarrow]": (["a", None, "b"], ["a", "", "b"]),
}


@pytest.mark.parametrize("dtype", PANDAS)
def test_dtypes_of_pandas(dtype):
    pandas = pytest.importorskip("pandas")
    given, expected = PANDAS[dtype]
    column = read_contents(pandas.DataFrame({"x": pandas.Series(given, dtype=dtype)})).columns["x"]
    assert column.dtype.kind in "fbU"
    np.testing.assert_array_equal(column, expected)


def test_lists_of_any_dtype():
    for cells in (
        [[1, 2], [], [3]],
        [np.array([1, 2], np.int8), None, np.array([3])],
        [(1, 2), (), torch.tensor([3])],
        np.array([[1.0, 2.0], [], np.array([3])], object),
        pa.array([[1, 2], None, [3]]),
    ):
        column = to_columns("x", cells)["x"]
        assert isinstance(column, Lists)
        assert (column.values.tolist(), column.lengths.tolist()) == ([1, 2, 3], [2, 0, 1])


UNREADABLE = {
    "datetime64": np.array(["2024-01-01"], "datetime64[D]"),
    "complex": np.array([1j]),
    "object": [object()],
    "int, str": [1, "a"],
    "float, list": [1.0, [2.0]],
    "strings": [[1.0], ["a"]],
    "objects": [[{"a": 1}], [{"a": 2}]],
    "different lengths": [[[1.0], [1.0, 2.0]]],
    "timestamp": pa.array([0], pa.timestamp("s")),
}


@pytest.mark.parametrize("word", UNREADABLE)
def test_columns_that_cannot_be_read_are_described(word):
    found = read_contents({"x": UNREADABLE[word]})
    assert not found.columns
    assert word in found.others["x"]


def test_dates_of_pandas_are_described():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"when": pandas.to_datetime(["2024-01-01"]), "x": [1]})
    found = read_contents(frame)
    assert list(found.columns) == ["x"]
    assert "datetime64" in found.others["when"]


def test_tables_that_are_none():
    pandas = pytest.importorskip("pandas")
    with refuses("'x'"):
        read_contents(pandas.DataFrame([[1, 2]], columns=["x", "x"]))
    with refuses("`x`", "`y`", 1, 2):
        read_contents({"x": [1], "y": [1, 2]})
    for single in ("a", 1.0, np.array(1.0), {"a": [1]}):
        with refuses("`x`"):
            read_contents({"x": single})
    with refuses("generator"):
        read_contents(one for one in [1])
    assert len(read_contents(pandas.DataFrame({"x": []})).columns["x"]) == 0
