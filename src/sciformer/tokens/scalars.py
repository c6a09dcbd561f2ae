"""Scalar tokens: one token per named number of a sample."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import numpy as np
import torch
from matplotlib.axes import Axes
from pydantic import Field
from torch import Tensor, nn

from ..data.batch import Batch, Stream
from ..data.columns import Array, Lists, Table
from ..errors import UserError, one_of
from .base import Columns
from .protocols import Editable, Exportable, Maskable, Readout

TARGET = "target value"


class Scalars(Maskable, Exportable, Editable):
    """Numbers of a sample, one token per column of the table.

    A missing number (NaN) is a token with a learned vector. Numbers are scaled by mean and standard deviation of the
    training data.
    """

    hides: ClassVar[tuple[str, ...]] = ("value",)
    continuous: ClassVar[bool] = True
    changeable_columns: ClassVar[tuple[str, ...]] = ("value",)

    columns: tuple[str, ...] = Field(min_length=1)
    """Columns of the table, each with one number per sample."""
    log: tuple[str, ...] = ()
    """Columns whose logarithm is used; their numbers must be positive (default: none)."""
    drop_missing: bool = False
    """Leave out missing numbers, so that a sample may have no tokens (default: false). Otherwise a missing number is a
    token with a learned vector."""

    @property
    def required_columns(self) -> tuple[str, ...]:
        return self.columns

    def fit(self, tables: Iterable[Table]) -> None:
        """Learn mean and standard deviation of each column, without missing numbers."""
        for name in self.log:
            one_of("tokens.log, a column", name, self.columns, key="tokens.log")
        values = np.concatenate([self._values(table) for table in tables] or [np.zeros((0, len(self.columns)))])
        known = np.isfinite(values)
        if not known.any(0).all():
            name = self.columns[int(known.any(0).argmin())]
            message, hint = (
                f"column `{name}` has no finite number in the training data",
                "Remove it from tokens.columns.",
            )
            raise UserError(message, hint=hint, key="tokens.columns")
        deviation = np.nanstd(values, 0)
        self.state["mean"] = np.nanmean(values, 0).tolist()
        self.state["deviation"] = np.where(deviation > 0, deviation, 1).tolist()

    def _values(self, table: Table) -> Array:
        """Numbers (B, K) of the columns, NaN if missing."""
        found = []
        for name in self.columns:
            one_of("tokens.columns, a column", name, table, key="tokens.columns")
            column = table[name]
            if isinstance(column, np.ndarray) and column.dtype.kind in "USO":
                word = next((one for one in column.astype(str).tolist() if not _is_number(one)), "")
                hint = "Replace the text by a number or an empty cell, or remove the column from tokens.columns."
                raise UserError(f"column `{name}` has text, for example {word!r}", hint=hint, key="tokens.columns")
            if isinstance(column, Lists) or column.ndim != 1 or column.dtype.kind not in "biuf":
                raise UserError(f"column `{name}` must have one number for each sample", key="tokens.columns")
            values = column.astype(np.float64)
            if name in self.log:
                if (values <= 0).any():
                    message = f"column `{name}` has numbers that are not positive, which have no logarithm"
                    raise UserError(message, hint="Remove it from tokens.log.", key="tokens.log")
                values = np.log(values)
            found.append(np.where(np.isfinite(values), values, np.nan))
        return np.stack(found, 1)

    def tokenize(self, table: Table) -> Stream:
        """Make the columns `value` (T,), with NaN for missing numbers, and `name` (T,).

        `name` is the index of the number in `columns`.
        """
        values = self._values(table)
        count, each = values.shape
        columns = {"value": values.ravel(), "name": np.tile(np.arange(each), count)}
        stream = Stream(columns, np.full(count, each, np.int64))
        return stream.keep(np.isfinite(columns["value"])) if self.drop_missing else stream

    def normalise(self, stream: Stream) -> Stream:
        """Scale the values, and add `known` (T,), False for missing numbers."""
        name, made = stream.columns["name"], dict[str, Array]()
        mean, deviation = (np.asarray(self.state[key])[name] for key in ("mean", "deviation"))
        for key in {"value", TARGET} & stream.columns.keys():
            made[key] = np.nan_to_num((stream.columns[key] - mean) / deviation).astype(np.float32)
        made["known"] = np.isfinite(stream.columns["value"])
        return stream.with_columns(**made)

    def distance(self, stream: Stream) -> None:
        """None, because numbers have no positions."""
        return

    def embedding(self, dim: int) -> nn.Module:
        return ScalarEmbedding(len(self.columns), dim)

    def maskable(self, stream: Stream) -> Array:
        """Mask of the numbers, False if missing."""
        return np.asarray(np.isfinite(stream.columns["value"]))

    def visible_part(self, dim: int) -> nn.Module:
        return ScalarName(len(self.columns), dim)

    def readout(self, dim: int, embedding: nn.Module) -> Readout:
        return ScalarReadout(dim)

    def centre_and_scale(self, stream: Stream) -> tuple[Array, Array]:
        name = stream.columns["name"]
        return np.asarray(self.state["mean"])[name, None], np.asarray(self.state["deviation"])[name, None]

    def example(self) -> Table:
        rng = np.random.default_rng(0)
        table: dict[str, Array | Lists] = {}
        for name, mean, deviation in zip(self.columns, self.state["mean"], self.state["deviation"]):
            drawn = rng.normal(mean, deviation, 3)
            table[name] = np.exp(drawn) if name in self.log else drawn
        return table

    def token_labels(self, stream: Stream) -> list[str]:
        return [self.columns[number] for number in stream.columns["name"]]

    def draw(self, sample: Batch, weights: Array | None, axes: Axes) -> None:
        """Plot the scaled numbers as bars, or the weights of their tokens."""
        name = sample.stream.columns["name"]
        values = self.normalise(sample.stream).columns["value"] if weights is None else weights
        axes.barh(np.arange(len(name)), values, color="#4477aa")
        axes.set_yticks(np.arange(len(name)), self.token_labels(sample.stream))
        axes.invert_yaxis()
        axes.set_xlabel("standard deviations from the mean" if weights is None else "weight")

    def draw_hidden(self, sample: Batch, answer: dict[str, Array], axes: Axes) -> None:
        columns = self.normalise(sample.stream).columns
        places = np.arange(len(columns["name"]))
        axes.plot(places, np.where(columns["known"] | columns["hidden"], columns[TARGET], np.nan), "o", label="true")
        axes.plot(places, answer["value"], "x", label="predicted")
        axes.set_xticks(places, self.token_labels(sample.stream))
        axes.set_ylabel("standard deviations")
        axes.legend()


class ScalarEmbedding(nn.Module):
    """Embedding of the number z with the index k.

    known     x = E[k] + z S[k]
    missing   x = E[k] + M[k]
    """

    def __init__(self, count: int, dim: int) -> None:
        super().__init__()
        self.name, self.slope, self.missing = (_table(count, dim) for _ in range(3))

    def forward(self, columns: Columns) -> Tensor:
        """Embed numbers (..., N) -> (..., N, D)."""
        name, known = columns["name"], columns["known"].bool()[..., None]
        value = columns["value"][..., None] * self.slope(name)
        return self.name(name) + torch.where(known, value, self.missing(name).to(value.dtype))


class ScalarName(nn.Module):
    """Embedding of the name of a hidden number."""

    def __init__(self, count: int, dim: int) -> None:
        super().__init__()
        self.name = _table(count, dim)

    def forward(self, columns: Columns) -> Tensor:
        found: Tensor = self.name(columns["name"])
        return found


class ScalarReadout(Readout):
    """Readout m = w h + b of a hidden number z, with the loss (z - m)^2."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, 1)
        nn.init.normal_(self.linear.weight, std=0.02)
        nn.init.zeros_(self.linear.bias)

    def loss(self, hidden: Tensor, target: Columns) -> Tensor:
        return (self.linear(hidden)[..., 0] - target["value"]) ** 2

    def predict(self, hidden: Tensor) -> Columns:
        return {"value": self.linear(hidden)[..., 0]}


def _is_number(text: str) -> bool:
    try:
        float(text or "nan")
    except ValueError:
        return False
    return True


def _table(count: int, dim: int) -> nn.Embedding:
    table = nn.Embedding(count, dim)
    nn.init.normal_(table.weight, std=0.02)
    return table
