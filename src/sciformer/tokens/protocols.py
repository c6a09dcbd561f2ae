"""Optional abilities of tokens: a kind declares exactly what it can do, `class Beads(Maskable, Windowed)`.

Pairwise      known about two tokens: a bias of attention
Maskable      tokens can be hidden, asked for and read out
Windowed      long samples are cut into windows, on any number of axes
Augmentable   training samples are varied and mixed
Gridded       tokens are patches of an array, side by side on a grid
Exportable    others can make the same tokens from their data
Editable      one token of a sample can be dropped, moved or changed by hand
Textual       tokens are made from text and written as text

Shared code asks `isinstance(tokens, Maskable)`, or `Maskable.require(tokens, who)` where it cannot go on without.
Each protocol has its own group of checks in `sciformer.testing`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal, Self

import numpy as np
from matplotlib.axes import Axes
from torch import Tensor, nn

from ..data.batch import Batch, Stream
from ..data.columns import Array, Table
from ..data.random import SampleRandom
from ..data.windows import Windows, truncate
from ..errors import UserError, one_of
from .base import Columns, Tokens, overridable

Mask = Callable[[Stream, float], Array]


class Ability(Tokens):
    """A protocol: something that only some kinds of tokens can do."""

    meaning: ClassVar[str] = ""
    """What tokens of this protocol can do, after `Tokens that are ...`."""

    @classmethod
    def require(cls, tokens: Tokens, who: str) -> Self:
        """The tokens, if they declare this protocol; `who` (a key and its value, or a command) cannot do without."""
        if isinstance(tokens, cls):
            return tokens
        raise UserError(
            f"{who} needs tokens that are {cls.__name__}, and `tokens.kind: {tokens.kind}` is not",
            hint=f"Tokens that are {cls.__name__} {cls.meaning}.",
            key="tokens.kind",
        )


def prefix_length(tokens: Tokens) -> int:
    """Tokens at the beginning of each sample that are no part of what is cut into windows; 0 for most kinds."""
    return tokens.prefix_tokens if isinstance(tokens, Windowed) else 0


def overrides(tokens: Tokens, method: Callable[..., Any]) -> bool:
    """Whether a kind has an answer of its own where a protocol has a default: `overrides(tokens, Augmentable.mix)`."""
    return getattr(type(tokens), method.__name__) is not method


class Pairwise(Ability):
    """Tokens whose pairs are known to be close, alike, bound: a bias of attention."""

    meaning: ClassVar[str] = "know something about each pair of them"

    @abstractmethod
    def pairs(self, heads: int) -> nn.Module | None:
        """A module from columns and their `valid` to a bias of attention; None where options leave it out.

        The bias is (B, H, N, N) for padded tokens, a `PairBias` for packed ones, whose `valid` is a Ragged.
        """


class Readout(nn.Module):
    """The way back from hidden vectors to tokens; it owns their likelihood."""

    def loss(self, hidden: Tensor, target: Columns) -> Tensor:
        """The negative log likelihood (n,) of tokens, given their hidden vectors (n, D)."""
        raise NotImplementedError

    def total(self, hidden: Tensor, target: Columns, wanted: Tensor | None = None, smoothing: float = 0.0) -> Tensor:
        """The sum of the loss, over the tokens where `wanted` (n,) is True.

        smoothing  share of the target that is spread over all tokens of a vocabulary; a readout with one overrides this
        """
        if smoothing:
            raise UserError("objective.smoothing needs tokens with a vocabulary", key="objective.smoothing")
        loss = self.loss(hidden, target)
        return loss.sum() if wanted is None else loss.masked_fill(~wanted, 0).sum()

    def predict(self, hidden: Tensor) -> Columns:
        """The likeliest tokens, as columns."""
        raise NotImplementedError


class Maskable(Ability):
    """Tokens that an objective can hide and ask for, and a model read out."""

    meaning: ClassVar[str] = "can be hidden and read out"
    hides: ClassVar[tuple[str, ...]] = ()
    """Columns of tokens that an objective hides and asks for."""
    has_mask_vector: ClassVar[bool] = True
    """Whether the model learns a vector for hidden tokens; otherwise `mask_out` puts a token there."""

    @abstractmethod
    def readout(self, dim: int, embedding: nn.Module) -> Readout:
        """The way back from hidden vectors to the columns of `hides`."""

    def maskable(self, stream: Stream) -> Array | None:
        """Mask (T,) of the tokens that an objective may hide and ask for; None: all."""
        return None

    @property
    def masks(self) -> dict[str, Mask]:
        """Named masks for `objective.mask`: functions of the maskable tokens and a share of them to a mask (T,).

        last   the last tokens of each sample: a forecast
        """
        return {"last": mask_last}

    def mask_out(self, stream: Stream, tokens: Array) -> dict[str, Array]:
        """Columns of `hides` with nothing left of the tokens where the mask (T,) is True."""
        return {name: _with_value(stream.columns[name], tokens, 0) for name in self.hides}

    def random_replacement(self, stream: Stream, tokens: Array, rng: SampleRandom) -> dict[str, Array]:
        """Columns of `hides` with random values for the tokens where the mask (T,) is True."""
        raise UserError(f"tokens of `tokens.kind: {self.kind}` cannot be replaced by random tokens", key="tokens.kind")

    def visible_part(self, dim: int) -> nn.Module | None:
        """A module from columns to vectors (..., N, D): known about a hidden token, added to its mask vector."""
        return None

    def centre_and_scale(self, stream: Stream) -> tuple[Array, Array]:
        """Centre and scale that `normalise` uses for the first column of `hides`: (T, 1), or (T, P) for P values."""
        raise UserError(f"`tokens.kind: {self.kind}` has no values with a level and a scale", key="tokens.kind")

    def draw_hidden(self, sample: Batch, answer: dict[str, Array], axes: Axes) -> None:
        """Draw the hidden part of one sample beside a model's answer; reports leave it out unless it is overridden.

        sample  as `draw` has it, with the columns that an objective adds: `hidden`, `asked`, `target ...`
        answer  the readout's answer for each token (N, ...), NaN where it was not asked
        """
        raise NotImplementedError


def mask_last(stream: Stream, share: float) -> Array:
    """Mask (T,) of the last share of the tokens of each sample, at least one."""
    count = np.maximum(1, np.round(share * stream.lengths)).astype(np.int64)
    return np.asarray(stream.position >= np.repeat(stream.lengths - count, stream.lengths))


class Windowed(Ability):
    """Tokens in a line or on a grid, whose long samples are cut into windows."""

    meaning: ClassVar[str] = "can be cut into windows"

    @overridable
    def window(self) -> int | tuple[int, ...] | None:
        """Most places that a model sees at once, along each axis; None: samples stay whole."""
        return None

    @overridable
    def stride(self) -> int | tuple[int, ...] | None:
        """Places from one window of the training to the next (default: anywhere, or end to end in many pieces)."""
        return None

    @property
    def random_windows(self) -> bool:
        """Whether all windows of a sample are alike: training sees one of each sample in every epoch, anywhere (or
        every `stride` places); evaluation as few as cover the sample, evenly."""
        return False

    @property
    def prefix_tokens(self) -> int:
        """Tokens at the beginning of a sample that every window of it begins with."""
        return 0

    @property
    def concatenates(self) -> bool:
        """Whether the samples of a table follow each other as one, cut into windows wherever these end."""
        return False

    @property
    def window_shape(self) -> tuple[int, ...] | None:
        """The window along each axis (default: a number is the window of a single axis)."""
        return (self.window,) if isinstance(self.window, int) else self.window

    @property
    def stride_shape(self) -> tuple[int, ...] | None:
        """The stride along each axis of the window."""
        return (self.stride,) * len(self.window_shape or ()) if isinstance(self.stride, int) else self.stride

    @property
    def grid_shape(self) -> int | tuple[int, ...] | None:
        """Those of a window."""
        return self.window

    def make_windows(
        self, lookahead: int = 0, stride: tuple[int, ...] | None = None, rule: Literal["full", "tail", "loose"] = "tail"
    ) -> Windows:
        """Windows of `window` places and `lookahead` more (default: those of an evaluation, which cover each sample).

        stride   places from one window to the next (default: the window)
        """
        assert self.window_shape is not None
        size = self.window_shape
        if len(size) == 1:  # prefix tokens take places of a line
            size = (size[0] + lookahead - self.prefix_tokens,)
        elif lookahead:
            message = f"the objective asks for the token after a window, so windows must have one axis, not {len(size)}"
            raise UserError(message, key="tokens.window")
        if size[0] < 1:
            message = f"a window must be longer than the {self.prefix_tokens} tokens it begins with, not {self.window}"
            raise UserError(message, key="tokens.window")
        stride = tuple(map(min, stride or self.window_shape, size))  # nothing is skipped
        even = rule == "tail" and self.random_windows and stride == size
        return Windows(size, stride, "even" if even else rule, self.prefix_tokens)

    def sample_shapes(self, stream: Stream) -> Array:
        """Places (B, A) of whole samples along each axis of a window, filled by tokens in row-major order."""
        return np.maximum(0, stream.lengths - self.prefix_tokens)[:, None]

    def shift_windows(self, stream: Stream, starts: Array) -> Stream:
        """Windows with their columns relative to the window, each cut at `starts` (B, A) (default: unchanged)."""
        return stream

    def truncate(self, stream: Stream, far: float) -> Stream:
        """The tokens at most `far` after the first of their sample, in units of a single axis `at`, or in places."""
        return truncate(stream, far, self.prefix_tokens)


class Augmentable(Ability):
    """Tokens of which training samples are varied, and two samples mixed."""

    meaning: ClassVar[str] = "can be varied and mixed"

    @abstractmethod
    def augment_stream(self, stream: Stream, rng: SampleRandom) -> Stream:
        """A variation of the training samples, as a pure function of (seed, epoch, sample)."""

    def mix(self, stream: Stream, other: Stream, share: Array) -> Stream:
        """share x + (1 - share) y of samples x and as many others y, share (B,)."""
        raise UserError(f"two samples of `tokens.kind: {self.kind}` cannot be mixed", key="tokens.kind")


class Gridded(Ability):
    """Tokens that are patches of an array, side by side on a grid of two axes or more."""

    meaning: ClassVar[str] = "are patches of an array"

    @property
    @abstractmethod
    def raster(self) -> tuple[int, ...]:
        """Sides of a patch along each axis, and channels: for trunks that assemble the array again."""

    @property
    def varies(self) -> bool:
        """Whether samples differ in their number of places along an axis, so that `grid_shape` holds the largest."""
        return False

    @property
    def mixes_tokens(self) -> bool:
        """Whether the embedding of a token reads its neighbours, as in a convolution: then none may be left out."""
        return False


class Exportable(Ability):
    """Tokens that programs without this library can make from raw data."""

    meaning: ClassVar[str] = "say how others make them"

    def example(self) -> Table | None:
        """A few samples without a meaning, of which tokens can be made; None: that takes data."""
        return None

    @overridable
    def max_tokens(self) -> int | None:
        """Most tokens of a sample; None: any number."""
        return None

    def preprocessing(self) -> dict[str, Any]:
        """The steps from raw data to the columns that a model reads, as plain JSON."""
        return {"kind": self.kind, "settings": self.model_dump(mode="json", exclude={"kind"}), "learned": self.state}

    def export_files(self) -> dict[str, str]:
        """Files that belong beside an exported model: name -> text."""
        return {}


class Editable(Ability):
    """Tokens that a person can drop, move or change, one at a time, in the raw stream of one sample."""

    meaning: ClassVar[str] = "can be edited one by one"
    changeable_columns: ClassVar[tuple[str, ...]] = ()
    """Columns of raw tokens whose values a person may change."""
    movable_column: ClassVar[str] = ""
    """Column of raw tokens with the coordinates that `move` changes; none: the place of a token in the order."""
    coordinates: ClassVar[tuple[str, ...]] = ("place",)
    """Names of these coordinates."""

    def where(self, stream: Stream, token: int) -> tuple[float, ...]:
        """The coordinates of a token, as `move` takes them."""
        return tuple(np.atleast_1d(stream.columns[self.movable_column][token])) if self.movable_column else (token,)

    def drop(self, stream: Stream, token: int) -> Stream:
        """The sample without a token."""
        self.check_token(stream, token)
        return self.refresh(stream.keep(np.arange(int(stream.lengths[0])) != token))

    def change(self, stream: Stream, token: int, column: str, value: Any) -> Stream:
        """The sample with another value of a token."""
        self.check_token(stream, token)
        one_of("the column to change", column, [name for name in self.changeable_columns if name in stream.columns])
        here = np.arange(int(stream.lengths[0])) == token
        try:
            changed = _with_value(stream.columns[column], here, value)
        except (TypeError, ValueError, OverflowError) as error:
            shape = stream.columns[column].shape[1:]
            form = f"numbers of shape {shape}" if shape else "a number"
            raise UserError(f"column `{column}` of a token is {form}, not {value!r}") from error
        return self.refresh(stream.with_columns(**{column: changed}))

    def move(self, stream: Stream, token: int, *to: float) -> Stream:
        """The sample with a token at other `coordinates`."""
        self.check_token(stream, token, *to)
        if self.movable_column:
            here = np.arange(int(stream.lengths[0])) == token
            moved = _with_value(stream.columns[self.movable_column], here, to)
            return self.refresh(stream.with_columns(**{self.movable_column: moved}))
        order = np.delete(np.arange(int(stream.lengths[0])), token)
        order = np.insert(order, int(np.clip(to[0], 0, len(order))), token)
        return self.refresh(stream.reorder(order))

    def refresh(self, stream: Stream) -> Stream:
        """An edited sample with the columns made anew that depend on several tokens (default: unchanged)."""
        return stream

    def check_token(self, stream: Stream, token: int, *to: float) -> None:
        """Refuse a token that is not there or a prefix of its sample, and another number of coordinates."""
        assert len(stream) == 1, "one sample is edited at a time"
        first, last = prefix_length(self), int(stream.lengths[0]) - 1
        if not first <= token <= last:
            raise UserError(f"tokens {first} to {last} of the sample can be edited, not token {token}")
        if to and len(to) != len(self.coordinates):
            raise UserError(f"a token is moved to its {' and '.join(self.coordinates)}, not to {len(to)} numbers")


class Textual(Windowed):
    """Tokens with a vocabulary, made from text and written as text."""

    meaning: ClassVar[str] = "are made from text and written as text"

    @property
    @abstractmethod
    def window(self) -> int:
        """Most tokens that a model sees at once."""

    @abstractmethod
    def encode(self, text: str) -> Array:
        """The ids of a text, without markers; an unknown part becomes the unknown token."""

    @abstractmethod
    def decode(self, ids: Any) -> str:
        """The text of ids; special tokens have none."""

    @property
    @abstractmethod
    def specials(self) -> dict[str, int]:
        """Ids of the special tokens that there are, by role: begin, end, separator, unknown, mask, padding."""

    def special_id(self, role: str) -> int:
        """Id of the special token of a role; refuse a vocabulary without it."""
        found = self.specials
        if role not in found:
            there = f"its special tokens are {', '.join(found)}" if found else "it has no special tokens"
            key = f"tokens.special.{role}"
            raise UserError(f"the vocabulary has no {role} token; {there}", hint=f"Name it: {key}", key=key)
        return found[role]

    @property
    @abstractmethod
    def writable(self) -> Array:
        """Mask (vocabulary,) of the ids that stand for text."""

    @property
    def end_id(self) -> int | None:
        """Id of the token that ended texts in the training; None: nothing did."""
        return self.specials.get("end") if self.has_marker("end") else None

    @property
    def letters(self) -> Literal["characters", "bytes", ""]:
        """Whether a token is one character, or one byte of UTF-8 with the byte as its id (default: neither)."""
        return ""

    @overridable
    def lower(self) -> bool:
        """Whether all letters are made small."""
        return False

    def has_marker(self, role: str) -> bool:
        """Whether samples have the special token of this role (begin, end)."""
        return True

    def same_vocabulary(self, other: Tokens) -> bool:
        """Whether both learn the same from the data, so that one of them may learn for both."""
        return False


def _with_value(column: Array, tokens: Array, value: Any) -> Array:
    column = column.copy()
    column[tokens] = value
    return column
