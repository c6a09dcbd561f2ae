"""One token per named number: scales, missing numbers, hidden numbers."""

import numpy as np
import pytest
import torch

from sciformer.data.batch import Batch
from sciformer.data.columns import Lists
from sciformer.data.random import SampleRandom
from sciformer.objectives.masked import Masked
from sciformer.tokens.scalars import Scalars
from tests.errors import refuses

TABLE = {"mass": np.array([1, 2, 6]), "size": np.array([np.e, np.nan, 1.0]), "kind": np.array(["a", "b", "c"])}


def made(**keys):
    tokens = Scalars(kind="scalars", **{"columns": ("mass", "size"), "log": ("size",), **keys})
    tokens.fit(iter([TABLE]))
    return tokens


def test_numbers_are_scaled_and_missing_ones_marked():
    tokens = made()
    assert tokens.state["mean"] == [3.0, 0.5]
    columns = tokens.normalise(tokens.tokenize(TABLE)).columns
    expected = [(1 - 3) / np.std([1, 2, 6]), 1, -1 / np.std([1, 2, 6]), 0, 3 / np.std([1, 2, 6]), -1]
    np.testing.assert_allclose(columns["value"], expected, rtol=1e-6)
    assert columns["known"].tolist() == [True, True, True, False, True, True]
    assert made(drop_missing=True).tokenize(TABLE).lengths.tolist() == [2, 1, 2]


def test_a_missing_number_is_a_learned_vector_of_its_own():
    tokens = made()
    torch.manual_seed(0)
    layer = tokens.embedding(8)
    stream = tokens.normalise(tokens.tokenize(TABLE))
    columns = {name: torch.from_numpy(np.asarray(column)) for name, column in stream.columns.items()}
    found = layer(columns)
    torch.testing.assert_close(found[3], layer.name.weight[1] + layer.missing.weight[1])
    torch.testing.assert_close(found[1], layer.name.weight[1] + layer.slope.weight[1])
    columns["value"][3] = 7
    assert torch.equal(layer(columns), found)


def test_missing_numbers_are_not_asked_for():
    tokens = made()
    objective = Masked(kind="masked", mask_ratio=1.0)
    stream = objective.corrupt(
        Batch({"tokens": tokens.tokenize(TABLE)}, ids=np.arange(3)),
        {"tokens": tokens},
        SampleRandom(0, 0, np.arange(3)),
    ).stream
    assert stream.columns["asked"].tolist() == [True, True, True, False, True, True]
    assert not tokens.normalise(stream).columns["value"][stream.columns["hidden"]].std() > 1e3
    assert tokens.normalise(stream).columns["target value"][1] == pytest.approx(1)


@pytest.mark.parametrize(
    ("keys", "table", "key"),
    [
        ({"columns": ("weight",), "log": ()}, TABLE, "tokens.columns"),
        ({"columns": ("kind",), "log": ()}, TABLE, "tokens.columns"),
        ({"columns": ("mass",), "log": ()}, {"mass": Lists(np.ones(3), np.array([1, 2]))}, "tokens.columns"),
        ({"columns": ("mass",), "log": ()}, {"mass": np.array([np.nan, np.inf])}, "tokens.columns"),
        ({"columns": ("mass",), "log": ("size",)}, TABLE, "tokens.log"),
        ({"columns": ("mass",), "log": ("mass",)}, {"mass": np.array([1.0, 0])}, "tokens.log"),
    ],
)
def test_columns_that_are_no_numbers(keys, table, key):
    with refuses(key=key):
        Scalars(kind="scalars", **keys).fit(iter([table]))


def test_text_among_the_numbers_is_named():
    tokens = Scalars(kind="scalars", columns=("mass",))
    with refuses("mass", "bright", key="tokens.columns", hint="empty"):
        tokens.tokenize({"mass": np.array(["1.5", "", "bright"])})
