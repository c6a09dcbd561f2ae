"""The core of the contract of tokens: what a token is, how it enters a model, how a person looks at it.

A field is one class with these answers, and its fields are the `tokens:` section of a recipe. Nothing else in the
library knows what the tokens mean. Further abilities are protocols that a class declares or not: see `protocols`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Self

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
        """A property that a kind may also give as a field of its section, under the same name."""

        def __init__(self, make: Callable[[Any], Any]) -> None:
            self.make, self.__doc__ = make, make.__doc__

        def __get__(self, instance: Any, owner: type) -> Any:
            if instance is None:  # a class has the field, or nothing of that name
                raise AttributeError(self.make.__name__)
            return self.make(instance)


class Tokens(Section):
    """The `tokens:` section: the required core of a kind of tokens. Only `tokenize` and `embedding` have no default."""

    model_config = ConfigDict(ignored_types=(overridable,))
    section = "tokens"
    source_columns: ClassVar[tuple[str, ...]] = ()
    """Columns of the table that tokens are made of."""
    host_columns: ClassVar[tuple[str, ...]] = ()
    """Columns of tokens that no model reads: they stay on the host."""
    may_differ_when_finetuning: ClassVar[tuple[str, ...]] = ()
    """Fields that may differ from those of a run whose weights are taken: nothing learned depends on them."""

    # Which columns of the data?

    @property
    def required_columns(self) -> tuple[str, ...]:
        """Columns of the table without which there are no tokens (default: `source_columns`)."""
        return tuple(self.source_columns)

    @property
    def optional_columns(self) -> tuple[str, ...]:
        """Further columns, read where the data have them."""
        return ()

    @property
    def nonnegative_columns(self) -> tuple[str, ...]:
        """Columns of lists whose entries are 0 or more: a negative entry is no token."""
        return ()

    def count_tokens(self, known: Callable[..., Array | None]) -> Array | None:
        """Tokens per sample, from metadata alone; None if the samples must be loaded to know.

        known  a column of all samples by its name, or with `lists=True` the lengths of its lists; None where unknown
        """
        return None

    # What is a token, and where is it?

    def fit(self, tables: Iterable[Table]) -> None:
        """Learn from the training data whatever tokenising and scaling need; keep it in `state`, as plain JSON."""

    def absolute_paths(self) -> Self:
        """The same section with absolute names of files, if it has any."""
        return self

    @abstractmethod
    def tokenize(self, table: Table) -> Stream:
        """The tokens of all samples of a table: columnar NumPy, raw values."""

    def normalise(self, stream: Stream) -> Stream:
        """Scale and centre raw tokens, after an objective has hidden some of them."""
        return stream

    @property
    def axes(self) -> int:
        """Coordinates of a token in its column `at` (default: 1, also for the place in the order)."""
        return 1

    @property
    def grid_shape(self) -> int | tuple[int, ...] | None:
        """Places for tokens that a model has, on a line or a grid; None where places are not counted."""
        return None

    def distance(self, stream: Stream) -> Array | None:
        """Distances (N, N) between the tokens of one sample (default: of their coordinates `at`, or their places)."""
        count = int(stream.lengths.sum())
        at = stream.columns["at"].reshape(count, -1) if "at" in stream.columns else np.arange(count)[:, None]
        at = at.astype(np.float64)
        return np.sqrt(((at[:, None] - at[None]) ** 2).sum(-1))

    @property
    def distance_unit(self) -> str:
        """Unit of distances, for pictures."""
        return ""

    # How does it enter the model?

    @abstractmethod
    def embedding(self, dim: int) -> nn.Module:
        """A module from columns {name: (..., N, ...)} to vectors (..., N, D)."""

    def width(self, dim: int) -> int:
        """Width of the embedding for a model of width `dim` (default: dim); another where tokens enter as they are."""
        return dim

    @property
    def initial_std(self) -> float:
        """Standard deviation of embedded tokens before training, with which learned positions begin too."""
        return 0.02

    # How does a person look at it?

    def token_labels(self, stream: Stream) -> list[str]:
        """A short name for each token of one sample, for the axes of an attention matrix."""
        return [str(i) for i in range(int(stream.lengths.sum()))]

    def draw(self, sample: Batch, weights: Array | None, axes: Axes) -> None:
        """Draw one sample in its natural form, with a weight (N,) on each token if given."""
        n = int(sample.stream.lengths[0])
        axes.bar(np.arange(n), np.ones(n) if weights is None else weights, color="#4477aa")
        axes.set_xlabel("token")
        if weights is not None:
            axes.set_ylabel("attention")

    def alternative_drawings(self, sample: Batch) -> dict[str, Drawing]:
        """Further ways to draw this sample, by name, each called as `draw` is."""
        return {}


def stream_part(part: Any, stream: str) -> Any:
    """What a model has for a stream: `part` itself, or of parts by stream (an `nn.ModuleDict`) that of this stream."""
    return part[stream] if isinstance(part, nn.ModuleDict) else part


def embedded(module: nn.Module, columns: Columns, valid: Valid) -> Tensor:
    """Tokens as vectors (..., N, D). An embedding with the attribute `masked` also gets `valid`, for norms over the
    batch."""
    return module(columns, valid) if getattr(module, "masked", False) else module(columns)
