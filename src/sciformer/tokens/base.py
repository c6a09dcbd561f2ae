"""Base class of tokens: tokenizing, embedding and drawing of one kind of data.

A kind of tokens is one class; its attributes are the keys of the `tokens:` section of a recipe. No other code of the
library knows the meaning of the tokens. A class can declare optional abilities: see `protocols`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from matplotlib.axes import Axes
from pydantic import ConfigDict
from torch import Tensor, nn

from ..data.batch import Batch, Stream, Valid
from ..data.columns import Array, Table
from ..recipe.registry import Section

Columns = dict[str, Tensor]
Drawing = Callable[[Batch, Array | None, Axes], None]

if TYPE_CHECKING:
    overridable = property
else:

    class overridable:
        """Property; a subclass may replace it by a recipe key of the same name."""

        def __init__(self, make: Callable[[Any], Any]) -> None:
            self.make, self.__doc__ = make, make.__doc__

        def __get__(self, instance: Any, owner: type) -> Any:
            if instance is None:  # hidden from the class, so that pydantic allows a field of this name
                raise AttributeError(self.make.__name__)
            return self.make(instance)


class DataFindings(NamedTuple):
    """Assumptions on the data, by name, and notes on doubtful assumptions."""

    facts: Mapping[str, str] = {}
    notes: Sequence[str] = ()


class Tokens(Section):
    """Section `tokens:` of a recipe, and base class of the kinds of tokens.

    Each kind must define `tokenize` and `embedding`.
    """

    model_config = ConfigDict(ignored_types=(overridable,))
    section = "tokens"
    source_columns: ClassVar[tuple[str, ...]] = ()
    """Columns of the table from which tokens are made."""
    host_columns: ClassVar[tuple[str, ...]] = ()
    """Token columns that no model reads; they are not sent to the device."""
    may_differ_when_finetuning: ClassVar[tuple[str, ...]] = ()
    """Keys without effect on the weights. In fine-tuning they may differ from the pretrained run."""

    # Columns of the data

    @property
    def required_columns(self) -> tuple[str, ...]:
        """Required columns of the table (default: `source_columns`)."""
        return tuple(self.source_columns)

    @property
    def optional_columns(self) -> tuple[str, ...]:
        """Optional columns, read if the data have them."""
        return ()

    @property
    def nonnegative_columns(self) -> tuple[str, ...]:
        """Columns of lists whose negative entries are left out, for example energies."""
        return ()

    @property
    def invariances(self) -> dict[str, str]:
        """Invariance of the model for each column: `shift` or `scale` (default: {}).

        shift  the offset of the column may differ from the training data
        scale  the offset and the factor may differ; also for columns that the model does not read
        """
        return {}

    def count_tokens(self, known: Callable[..., Array | None]) -> Array | None:
        """Tokens per sample, from metadata alone; None if the samples must be loaded.

        known  function of a column name. It returns the values of all samples (with `lists=True`: the lengths of the
               lists), or None if the metadata do not have this column
        """
        return None

    # Tokens and their positions

    def fit(self, tables: Iterable[Table]) -> None:
        """Learn vocabularies, scales etc. from training data, and store them in `state`."""

    def describe_data(self, profile: Mapping[str, Any]) -> DataFindings:
        """Assumptions on the training data, such as units, from a profile (default: none)."""
        return DataFindings()

    def absolute_paths(self) -> Self:
        """Copy of the section with absolute file names (default: unchanged)."""
        return self

    @abstractmethod
    def tokenize(self, table: Table) -> Stream:
        """Tokens of all samples of a table, as NumPy columns of raw values."""

    def normalise(self, stream: Stream) -> Stream:
        """Scale and centre raw tokens, after the objective has hidden some of them."""
        return stream

    @property
    def axes(self) -> int:
        """Number of coordinates of each token in the column `at` (default: 1)."""
        return 1

    @property
    def grid_shape(self) -> int | tuple[int, ...] | None:
        """Number of positions along each axis, for learned positions; None if unlimited."""
        return None

    def distance(self, stream: Stream) -> Array | None:
        """Distances (N, N) between the tokens of one sample.

        By default, these are distances between the coordinates `at`, or differences of the indices if there is no `at`.
        """
        count = int(stream.lengths.sum())
        at = stream.columns["at"].reshape(count, -1) if "at" in stream.columns else np.arange(count)[:, None]
        at = at.astype(np.float64)
        return np.sqrt(((at[:, None] - at[None]) ** 2).sum(-1))

    @property
    def distance_unit(self) -> str:
        """Unit of the distances between tokens, for axis labels."""
        return ""

    # Embedding

    @abstractmethod
    def embedding(self, dim: int) -> nn.Module:
        """Module from columns {name: (..., N, ...)} to vectors (..., N, D)."""

    def width(self, dim: int) -> int:
        """Width of the embedding (default: `dim`).

        A trunk that embeds the tokens itself may need another width.
        """
        return dim

    @property
    def initial_std(self) -> float:
        """Initial standard deviation of embedded tokens and of learned positions."""
        return 0.02

    # Labels and plots

    def token_labels(self, stream: Stream) -> list[str]:
        """Short names of the tokens of one sample, for the axes of attention maps."""
        return [str(i) for i in range(int(stream.lengths.sum()))]

    def draw(self, sample: Batch, weights: Array | None, axes: Axes) -> None:
        """Plot one sample, optionally with attention weights (N,) of its tokens."""
        n = int(sample.stream.lengths[0])
        axes.bar(np.arange(n), np.ones(n) if weights is None else weights, color="#4477aa")
        axes.set_xlabel("token")
        if weights is not None:
            axes.set_ylabel("attention")

    def alternative_drawings(self, sample: Batch) -> dict[str, Drawing]:
        """Further plots by name: functions with the arguments of `draw` (default: none)."""
        return {}


def stream_part(part: Any, stream: str) -> Any:
    """Part of a model for one stream: entry of an `nn.ModuleDict`, or `part` itself."""
    return part[stream] if isinstance(part, nn.ModuleDict) else part


def embedded(module: nn.Module, columns: Columns, valid: Valid) -> Tensor:
    """Embed tokens as (..., N, D); a module with `masked = True` also gets `valid`."""
    return module(columns, valid) if getattr(module, "masked", False) else module(columns)
