"""What belongs to a domain: what is a token, how does it enter the model, how does a person look at it?

A domain is one class with these answers, and its fields are the `tokens:` section of a recipe. Nothing else in the
library knows what the tokens mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray
from pydantic import ConfigDict
from torch import Tensor, nn

from ..data.batch import Batch, Stream, Valid
from ..data.columns import Table
from ..data.random import SampleRandom
from ..errors import UserError
from ..recipe.registry import Section

Array = NDArray[Any]
Columns = dict[str, Tensor]
Drawing = Callable[[Batch, Array | None, Axes], None]

if TYPE_CHECKING:
    overridable = property
else:

    class overridable:
        """A property that a domain may also give as a field of its section, under the same name."""

        def __init__(self, make: Callable[[Any], Any]) -> None:
            self.make, self.__doc__ = make, make.__doc__

        def __get__(self, instance: Any, owner: type) -> Any:
            if instance is None:  # a class has the field, or nothing of that name
                raise AttributeError(self.make.__name__)
            return self.make(instance)


class Readout(nn.Module):
    """The way back from hidden vectors to tokens; it owns their likelihood."""

    def loss(self, hidden: Tensor, target: Columns, smoothing: float = 0.0) -> Tensor:
        """The negative log likelihood (n,) of tokens, given their hidden vectors (n, D).

        smoothing  share of the target that is spread over all tokens, where there is a vocabulary of them
        """
        raise NotImplementedError

    def total(self, hidden: Tensor, target: Columns, wanted: Tensor | None = None, smoothing: float = 0.0) -> Tensor:
        """The sum of the loss, over the tokens where `wanted` (n,) is True."""
        loss = self.loss(hidden, target, smoothing) if smoothing else self.loss(hidden, target)
        return loss.sum() if wanted is None else loss.masked_fill(~wanted, 0).sum()

    def predict(self, hidden: Tensor) -> Columns:
        """The likeliest tokens, as columns."""
        raise NotImplementedError


class Tokens(Section):
    """The ground of every domain: the answers a domain gives, with those that can be guessed."""

    model_config = ConfigDict(ignored_types=(overridable,))
    section = "tokens"
    source_columns: ClassVar[tuple[str, ...]] = ()
    """Columns of the table that tokens are made of."""
    hides: ClassVar[tuple[str, ...]] = ()
    """Columns of tokens that an objective hides and asks for."""
    host_columns: ClassVar[tuple[str, ...]] = ()
    """Columns of tokens that no model reads: they stay on the host."""

    may_differ_when_finetuning: ClassVar[tuple[str, ...]] = ()
    """Fields that may differ from those of a run whose weights are taken: what was learned does not depend on them."""
    has_mask_vector: ClassVar[bool] = True
    """Whether the model learns a vector for hidden tokens; otherwise `mask_out` puts one of the tokens there."""
    writes_text: ClassVar[bool] = False
    """Whether tokens are made from text by `encode`, and text from tokens by `decode`."""

    @property
    def required_columns(self) -> tuple[str, ...]:
        """Columns of the table without which there are no tokens."""
        return tuple(self.source_columns)

    @property
    def optional_columns(self) -> tuple[str, ...]:
        """Further columns that are taken where the data have them."""
        return ()

    @property
    def nonnegative_columns(self) -> tuple[str, ...]:
        """Columns of lists whose entries are 0 or more: where one is not, there is no token."""
        return ()

    @property
    def counted_column(self) -> tuple[str, int] | None:
        """The column of lists that has an entry for each token, and how many are kept of a list; None: who wants to
        know the number of tokens must make them."""
        return None

    def count_tokens(self, told: Callable[..., Array | None]) -> Array | None:
        """How many tokens every sample has, by what the data tell before they are loaded; None: who wants to know must
        make them.

        told   a column of all samples by its name, or with `lists=True` how long its lists are; None where unknown
        """
        found = None if self.counted_column is None else told(self.counted_column[0], lists=True)
        return (
            None
            if found is None or self.counted_column is None
            else np.minimum(found, self.counted_column[1]).astype(np.int64)
        )

    # What is a token, and where is it?

    def fit(self, tables: Iterable[Table]) -> None:
        """Learn from the training data what tokenising and scaling need; keep it in `state`, as plain JSON."""

    def same_vocabulary(self, other: Tokens) -> bool:
        """Whether both learn the same from the data, so that one of them may learn for both."""
        return False

    def absolute_paths(self) -> Self:
        """The same section with absolute names of files, if it has any."""
        return self

    def tokenize(self, table: Table) -> Stream:
        """The tokens of all samples of a table: columnar NumPy, raw values."""
        raise NotImplementedError

    def augment_stream(self, stream: Stream, rng: SampleRandom) -> Stream:
        """A variation of the training samples, as a pure function of (seed, epoch, sample); none unless given."""
        return stream

    def mix(self, stream: Stream, other: Stream, share: Array) -> Stream:
        """share x + (1 - share) y of samples x and as many others y, share (B,)."""
        raise UserError(f"two samples of `tokens.kind: {self.kind}` cannot be mixed", key="tokens.kind")

    def normalise(self, stream: Stream) -> Stream:
        """Scaling and centring, after an objective has hidden what it hides."""
        return stream

    def truncate(self, stream: Stream, far: float) -> Stream:
        """The tokens that are at most so far after the first of their sample: in units of `at` before it is scaled (a
        time, say), by their places where there is no such axis. What every window begins with stays."""
        at, own = stream.columns.get("at"), stream.position >= self.prefix_tokens
        if at is None or at.ndim > 1:
            at = stream.position - self.prefix_tokens
        first = np.full(len(stream), np.inf)
        np.minimum.at(first, stream.sample[own], at[own])
        return stream.keep(~own | (at - first[stream.sample] <= far))

    def centre_and_scale(self, stream: Stream) -> tuple[Array, Array]:
        """What `normalise` subtracts from the values of each token, the first column of `hides`, and what it then
        divides them by: (T, 1), or (T, P) where a token has several."""
        raise UserError(f"`tokens.kind: {self.kind}` has no values with a level and a scale", key="tokens.kind")

    @overridable
    def window(self) -> int | None:
        """The most tokens a model sees at once, where samples are cut into windows of that length."""
        return None

    @overridable
    def stride(self) -> int | None:
        """How far apart the windows of the training begin; None: anywhere, or end to end in data of many pieces."""
        return None

    @property
    def random_windows(self) -> bool:
        """Whether windows of a long sample are alike: in training one of each sample in every epoch, anywhere, unless
        there is a stride; where it is judged as many as it takes, evenly from its beginning to its end."""
        return False

    @property
    def prefix_tokens(self) -> int:
        """How many tokens at the beginning of a sample every window of it begins with."""
        return 0

    @property
    def concatenates(self) -> bool:
        """Whether the samples of a table follow each other as one, cut into windows wherever these end."""
        return False

    @property
    def axes(self) -> int:
        """The number of coordinates of a token in its column `at`; without such a column, one: its place."""
        return 1

    @property
    def grid_shape(self) -> int | tuple[int, ...] | None:
        """How many places there are for tokens, on a line or a grid; None where they are not counted."""
        return self.window

    @property
    def raster(self) -> tuple[int, int, int] | None:
        """Height, width and channels of a token that is a part of an image; None: it is not."""
        return None

    @overridable
    def varies(self) -> bool:
        """Whether samples differ in their number of places along an axis, so that `grid_shape` holds the largest."""
        return False

    @overridable
    def max_tokens(self) -> int | None:
        """The most tokens of a sample (default: those of a window)."""
        return self.window

    @property
    def initial_std(self) -> float:
        """The deviation of the numbers of an embedded token before training, with which learned places begin too."""
        return 0.02

    # How does it enter the model, and how does it come back?

    def width(self, dim: int) -> int:
        """The width of what the embedding for a model of width `dim` gives; another where tokens enter as they are."""
        return dim

    def embedding(self, dim: int) -> nn.Module:
        """A module from columns {name: (..., N, ...)} to vectors (..., N, D)."""
        raise NotImplementedError

    @overridable
    def mixes_tokens(self) -> bool:
        """Whether the embedding of a token depends on its neighbours, as in a convolution; then all must be there."""
        return False

    def visible_part(self, dim: int) -> nn.Module | None:
        """What a hidden token still shows: a module from columns to vectors (..., N, D), added to what stands for it;
        None: nothing."""
        return None

    def pairs(self, heads: int) -> nn.Module | None:
        """What is known about two tokens: a module from columns and their `valid`, or None.

        It returns a bias (B, H, N, N) for padded tokens, a PairBias for packed ones, whose `valid` is a Ragged.
        """
        return None

    def readout(self, dim: int, embedding: nn.Module) -> Readout:
        """The way back, for objectives that ask for tokens."""
        raise UserError(f"`tokens.kind: {self.kind}` has no readout for this objective", key="tokens.kind")

    def has_marker(self, role: str) -> bool:
        """Whether samples have the special token of this role (begin, end); False only where a key turns it off."""
        return True

    def maskable(self, stream: Stream) -> Array | None:
        """(T,) which tokens an objective may hide and ask for; None: all."""
        return None

    def mask_out(self, stream: Stream, tokens: Array) -> dict[str, Array]:
        """Columns of `hides` with nothing left of the tokens where the mask (T,) is True."""
        return {name: _blank(stream.columns[name], tokens) for name in self.hides}

    def random_replacement(self, stream: Stream, tokens: Array, rng: SampleRandom) -> dict[str, Array]:
        """Columns of `hides` in which the tokens where the mask (T,) is True are random ones."""
        raise UserError(f"tokens of `tokens.kind: {self.kind}` cannot be replaced by random tokens", key="tokens.kind")

    # How do others make it?

    def example(self) -> Table | None:
        """A few samples without a meaning, of which tokens can be made; None: that takes data."""
        return None

    def preprocessing(self) -> dict[str, Any]:
        """How raw data become the columns that a model reads, as plain JSON for programs without this library."""
        return {"kind": self.kind, "settings": self.model_dump(mode="json", exclude={"kind"}), "learned": self.state}

    def export_files(self) -> dict[str, str]:
        """Files that belong beside an exported model: name -> text."""
        return {}

    # How does a person look at it?

    def token_labels(self, stream: Stream) -> list[str]:
        """A short name for each token of one sample, for the axes of an attention matrix."""
        return [str(i) for i in range(int(stream.lengths.sum()))]

    def draw(self, sample: Batch, weights: Array | None, axes: Axes) -> None:
        """One sample in its natural form, with a weight (N,) for each token drawn on it if given."""
        n = int(sample.stream.lengths[0])
        axes.bar(np.arange(n), np.ones(n) if weights is None else weights, color="#4477aa")
        axes.set_xlabel("token")
        if weights is not None:
            axes.set_ylabel("attention")

    def alternative_drawings(self, sample: Batch) -> dict[str, Drawing]:
        """Further ways to draw this sample, by name, each called as `draw` is."""
        return {}

    def draw_hidden(self, sample: Batch, answer: dict[str, Array], axes: Axes) -> None:
        """What was hidden of one sample beside what a model says of it; not drawn unless given.

        sample  as `draw` has it, with the columns that an objective adds: `hidden`, `asked`, `target ...`
        answer  the readout's answer for each token (N, ...), NaN where it was not asked, as the model gives it
        """
        raise NotImplementedError

    def distance(self, stream: Stream) -> Array | None:
        """How far two tokens of one sample are apart (N, N), in the domain's units; their places unless given."""
        if "at" in stream.columns:
            at = stream.columns["at"].reshape(int(stream.lengths.sum()), -1).astype(np.float64)
        else:
            at = np.arange(int(stream.lengths.sum()), dtype=np.float64)[:, None]
        return np.sqrt(((at[:, None] - at[None]) ** 2).sum(-1))

    @property
    def distance_unit(self) -> str:
        """The unit of distances, for pictures; not said unless given."""
        return ""


def embedded(module: nn.Module, columns: Columns, valid: Valid) -> Tensor:
    """Tokens as vectors (..., N, D). An embedding with the attribute `masked` is also told which tokens are real, for
    norms over the batch."""
    return module(columns, valid) if getattr(module, "masked", False) else module(columns)


def _blank(column: Array, tokens: Array) -> Array:
    column = column.copy()
    column[tokens] = 0
    return column
