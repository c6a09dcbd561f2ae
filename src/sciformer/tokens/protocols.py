"""Optional protocols of tokens; a kind declares them as base classes.

    class Beads(Maskable, Windowed): ...

Pairwise      attention bias from features of token pairs
Maskable      tokens can be hidden by an objective and predicted by a readout
Restorable    hidden values are predicted in the units of the data, scored and written to files
Windowed      long samples are cut into windows, on any number of axes
Augmentable   training samples are augmented and mixed
Gridded       tokens are patches of an array, on a grid
Exportable    programs without this library can make the same tokens
Editable      single tokens of a sample can be dropped, moved or changed
Textual       tokens are encoded from text and decoded to text
Invertible    tokens can be turned back into samples

Shared code checks `isinstance(tokens, Maskable)`, or calls `Maskable.require(tokens, who)` if it needs the protocol.
Each protocol has its own group of checks in `sciformer.testing`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from matplotlib.axes import Axes
from torch import Tensor, nn

from ..data.batch import Batch, Stream
from ..data.columns import Array, Table
from ..data.random import SampleRandom
from ..data.windows import Windows, truncate
from ..errors import UserError, one_of
from .base import Columns, Tokens, overridable

if TYPE_CHECKING:
    from ..data.source import Source

Mask = Callable[[Stream, float], Array]


class Ability(Tokens):
    """Base class of the protocols of tokens."""

    meaning: ClassVar[str] = ""
    """End of the phrase `tokens that ...` in error messages."""

    @classmethod
    def require(cls, tokens: Tokens, who: str) -> Self:
        """Return the tokens; error if they do not declare this protocol.

        who  cause of the requirement, for the error: a recipe key with its value, or a command
        """
        if isinstance(tokens, cls):
            return tokens
        message = f"{who} cannot be used with `tokens.kind: {tokens.kind}`, which does not implement {cls.__name__}"
        hint = f"Choose a tokens.kind that implements {cls.__name__}: tokens that {cls.meaning}."
        raise UserError(message, hint=hint, key="tokens.kind")


def prefix_length(tokens: Tokens) -> int:
    """Number of prefix tokens of a sample (0 for most kinds).

    Each window of the sample repeats these tokens.
    """
    return tokens.prefix_tokens if isinstance(tokens, Windowed) else 0


def overrides(tokens: Tokens, method: Callable[..., Any]) -> bool:
    """Whether a kind overrides a default method of a protocol."""
    return getattr(type(tokens), method.__name__) is not method


class Pairwise(Ability):
    """Tokens with pair features, such as distances or bonds, for an attention bias."""

    meaning: ClassVar[str] = "have features of pairs"

    @abstractmethod
    def pairs(self, heads: int) -> nn.Module | None:
        """Module from columns and `valid` to an attention bias; None if there is no bias.

        The bias is (B, H, N, N) for padded tokens. For packed tokens (`valid` is a Ragged) the bias is a `PairBias`.
        """


class Readout(nn.Module):
    """Output layer from hidden vectors to tokens, with its loss."""

    def loss(self, hidden: Tensor, target: Columns) -> Tensor:
        """Negative log-likelihood (n,) of tokens, given hidden vectors (n, D)."""
        raise NotImplementedError

    def total(self, hidden: Tensor, target: Columns, wanted: Tensor | None = None, smoothing: float = 0.0) -> Tensor:
        """Sum of the loss over the tokens with `wanted` (n,) True (default: all tokens).

        smoothing  label smoothing over the vocabulary; readouts with a vocabulary override this method
        """
        if smoothing:
            message = "objective.smoothing cannot be used with tokens without a vocabulary"
            raise UserError(message, key="objective.smoothing")
        loss = self.loss(hidden, target)
        return loss.sum() if wanted is None else loss.masked_fill(~wanted, 0).sum()

    def predict(self, hidden: Tensor) -> Columns:
        """Most likely tokens, as columns."""
        raise NotImplementedError


class Maskable(Ability):
    """Maskable tokens: hidden by an objective, and predicted by a readout."""

    meaning: ClassVar[str] = "can be hidden and predicted"
    hides: ClassVar[tuple[str, ...]] = ()
    """Token columns that an objective hides and predicts."""
    has_mask_vector: ClassVar[bool] = True
    """True: masked tokens get a learned mask vector; False: `mask_out` inserts a mask token."""

    continuous: ClassVar[bool] = False
    """Whether the values of `hides` are real numbers, to which noise can be added after `normalise`."""

    @property
    def can_hide(self) -> bool:
        """Whether tokens can be hidden (default: True).

        If False, `mask_out` raises a `UserError`.
        """
        return True

    @abstractmethod
    def readout(self, dim: int, embedding: nn.Module) -> Readout:
        """Make the readout from hidden vectors to the columns of `hides`."""

    def maskable(self, stream: Stream) -> Array | None:
        """Mask (T,) of the tokens available for hiding; None (default) means all tokens."""
        return None

    @property
    def masks(self) -> dict[str, Mask]:
        """Functions for `objective.mask` by name: (maskable tokens, share) -> mask (T,)."""
        return {"last": mask_last}

    @property
    def masks_by_length(self) -> dict[str, Mask]:
        """Functions for masks with a length, by name: (tokens, length) -> mask (T,).

        The length is `objective.mask_length` in units of the data, such as hours (default: no mask has a length).
        """
        return {}

    @property
    def coarse_masks(self) -> tuple[str, ...]:
        """Names of masks with coarse values instead of hidden tokens (default: none)."""
        return ()

    def coarse_values(self, stream: Stream, tokens: Array, factor: int) -> dict[str, Array]:
        """Columns of `hides`, averaged over blocks where `tokens` (T,) is True.

        factor   number of grid cells along each side of a block
        """
        message = f"tokens of `tokens.kind: {self.kind}` have no coarse values"
        raise UserError(message, hint="Set objective.coarse: 0.", key="tokens.kind")

    def mask_out(self, stream: Stream, tokens: Array) -> dict[str, Array]:
        """Columns of `hides`, with other values (default: 0) where `tokens` (T,) is True."""
        return {name: _with_value(stream.columns[name], tokens, 0) for name in self.hides}

    def random_replacement(self, stream: Stream, tokens: Array, rng: SampleRandom) -> dict[str, Array]:
        """Columns of `hides`, with random values where `tokens` (T,) is True."""
        message = f"tokens of `tokens.kind: {self.kind}` cannot be replaced by random tokens"
        raise UserError(message, hint="Set objective.random: 0.", key="tokens.kind")

    def visible_part(self, dim: int) -> nn.Module | None:
        """Module from the visible columns of masked tokens to a vector, or None.

        The result (..., N, `dim`) is added to the mask vector of these tokens.
        """
        return None

    def centre_and_scale(self, stream: Stream) -> tuple[Array, Array]:
        """Centre and scale of column `hides[0]` in `normalise`: (T, P) for P values."""
        message = f"the values of `tokens.kind: {self.kind}` cannot be denoised: they have no centre and scale"
        raise UserError(message, key="tokens.kind")

    def draw_hidden(self, sample: Batch, answer: dict[str, Array], axes: Axes) -> None:
        """Plot hidden and predicted values of one sample in reports (default: no plot).

        sample  as in `draw`, with the columns of the objective: `hidden`, `asked`, `target ...`
        answer  predictions of the readout for each token (N, ...), NaN for tokens that are not predicted
        """
        raise NotImplementedError


class HiddenScores:
    """Scores of predicted hidden values, sample by sample: `add`, then `rows`."""

    def add(self, stream: Stream, restored: Mapping[str, Array]) -> None:
        """Add samples with the columns `asked` and `target ...`.

        restored  predictions (A, ...) for the A tokens with `asked`, in the units of the data
        """
        raise NotImplementedError

    def rows(self) -> list[dict[str, Any]]:
        """Table of the scores; all rows have the same keys."""
        raise NotImplementedError


PredictHidden = Callable[[Batch], dict[str, dict[str, Array]]]


class Restorable(Maskable):
    """Maskable tokens with predictions in the units of the data.

    The predictions of hidden values can be scored, and written to files.
    """

    meaning: ClassVar[str] = "can be restored in the units of the data"

    @abstractmethod
    def restore_values(self, stream: Stream, answer: Mapping[str, Array]) -> dict[str, Array]:
        """Predictions of the readout in the units of the data.

        stream  raw tokens (T)
        answer  predictions (T, ...) for these tokens
        """

    @abstractmethod
    def hidden_scores(self, mask: str) -> HiddenScores:
        """Scores of the hidden values of a named mask."""

    @abstractmethod
    def write_restored(
        self,
        path: Path,
        source: Source,
        tokens: Mapping[str, Tokens],
        task: HiddenTask,
        changes: Sequence[Change] = (),
    ) -> int:
        """Write predictions for the hidden values of a source to a file.

        Return the number of predicted time steps.

        tokens   tokens of all streams; the predicted streams have this kind
        changes  changes of the input (default: none). If there are any, the answers are those for the changed input,
                 and their differences from the answers for the input as it is are written too, and drawn into a PNG
                 file of the same name
        """


class Change(NamedTuple):
    """Change of the input for a counterfactual: `by` is added to all values of the column `name`.

    unit  unit of `by`; empty for the unit of the data
    """

    name: str
    by: float
    unit: str = ""


class HiddenTask(NamedTuple):
    """Task for a trained model: a named mask, and functions for hiding and prediction.

    mask     name of the mask
    length   length of the mask in units of the data, or None
    usual    length of the same mask in training, or None
    hide     `hide(batch, length)` masks raw tokens: it adds the columns `hidden`, `asked` and `target ...`
    predict  `predict(batch)` gives predictions of the readout (A, ...) for the A tokens with `asked`, by stream
    batch    number of samples that are predicted at a time
    """

    mask: str
    length: float | None
    usual: float | None
    hide: Callable[[Batch, float | None], Batch]
    predict: PredictHidden
    batch: int


def mask_last(stream: Stream, share: float) -> Array:
    """Mask (T,) of the last `share` of the tokens of each sample (at least one token)."""
    count = np.maximum(1, np.round(share * stream.lengths)).astype(np.int64)
    return np.asarray(stream.position >= np.repeat(stream.lengths - count, stream.lengths))


class Windowed(Ability):
    """Tokens on a line or grid; long samples are cut into windows."""

    meaning: ClassVar[str] = "can be cut into windows"

    @overridable
    def window(self) -> int | tuple[int, ...] | None:
        """Maximum window size along each axis (default: None, samples are not cut)."""
        return None

    @overridable
    def stride(self) -> int | tuple[int, ...] | None:
        """Distance between training windows.

        With None (default), there are three cases. If `random_windows` is true, windows start at random positions. If
        the loss is over tokens and all samples are loaded together, a window starts at every token. Otherwise windows
        are adjacent.
        """
        return None

    @property
    def random_windows(self) -> bool:
        """Whether training uses one random window of each sample per epoch.

        With a `stride`, training windows start every `stride` positions instead. An evaluation uses the smallest number
        of evenly spaced windows that cover the sample.
        """
        return False

    @property
    def prefix_tokens(self) -> int:
        """Number of tokens at the sample start, repeated in each window (default: 0)."""
        return 0

    @property
    def concatenates(self) -> bool:
        """Whether samples are concatenated, and windows may extend over several samples."""
        return False

    @property
    def window_shape(self) -> tuple[int, ...] | None:
        """`window` as a tuple, with one size per axis; None if samples are not cut."""
        return (self.window,) if isinstance(self.window, int) else self.window

    @property
    def stride_shape(self) -> tuple[int, ...] | None:
        """`stride` as a tuple, with one distance per axis of the window, or None."""
        return (self.stride,) * len(self.window_shape or ()) if isinstance(self.stride, int) else self.stride

    @property
    def grid_shape(self) -> int | tuple[int, ...] | None:
        """Number of positions along each axis (default: the window)."""
        return self.window

    def make_windows(
        self, lookahead: int = 0, stride: tuple[int, ...] | None = None, rule: Literal["full", "tail", "loose"] = "tail"
    ) -> Windows:
        """Windows of `window` positions plus `lookahead`, placed by a rule.

        rule     placement of the windows, see `Windows`
        stride   distance from one window to the next (default: the window)
        """
        assert self.window_shape is not None
        size = self.window_shape
        if len(size) == 1:  # prefix tokens take positions of the window
            size = (size[0] + lookahead - self.prefix_tokens,)
        elif lookahead:
            message = f"windows must have one axis to predict the next token, not {len(size)}"
            raise UserError(message, key="tokens.window")
        if size[0] < 1:
            prefix = f"the number of prefix tokens ({self.prefix_tokens})"
            message = f"tokens.window must be larger than {prefix}, but it is {self.window}"
            raise UserError(message, key="tokens.window")
        stride = tuple(map(min, stride or self.window_shape, size))  # so that windows skip no token
        even = rule == "tail" and self.random_windows and stride == size
        return Windows(size, stride, "even" if even else rule, self.prefix_tokens)

    def sample_shapes(self, stream: Stream) -> Array:
        """Sizes (B, A) of uncut samples along each axis, for tokens in row-major order."""
        return np.maximum(0, stream.lengths - self.prefix_tokens)[:, None]

    def shift_windows(self, stream: Stream, starts: Array) -> Stream:
        """Make columns relative to the start (B, A) of each window (default: unchanged)."""
        return stream

    def truncate(self, stream: Stream, limit: float) -> Stream:
        """Keep tokens up to a distance `limit` from the first token of each sample.

        If the column `at` has one coordinate per token, a distance is a difference of coordinates. Otherwise a distance
        is a number of tokens.
        """
        return truncate(stream, limit, self.prefix_tokens)


class Augmentable(Ability):
    """Augmentable tokens: training samples can be augmented and mixed."""

    meaning: ClassVar[str] = "can be augmented and mixed"

    @abstractmethod
    def augment_stream(self, stream: Stream, rng: SampleRandom) -> Stream:
        """Augment training samples, as a pure function of (seed, epoch, sample)."""

    def mix(self, stream: Stream, other: Stream, share: Array) -> Stream:
        """Mixup of two streams: share x + (1 - share) y, with `share` (B,)."""
        message = f"samples of `tokens.kind: {self.kind}` cannot be mixed"
        raise UserError(message, hint="Set objective.mixup: 0.", key="tokens.kind")


class Gridded(Ability):
    """Patches of an array as tokens, on a grid with two or more axes."""

    meaning: ClassVar[str] = "are patches of an array"

    @property
    @abstractmethod
    def raster(self) -> tuple[int, ...]:
        """Sides and number of channels of a patch, for trunks over the whole array."""

    @property
    def varies(self) -> bool:
        """Whether the grid size differs between samples; `grid_shape` is the largest grid."""
        return False

    @property
    def mixes_tokens(self) -> bool:
        """Whether the embedding of a token depends on its neighbours.

        If so, no token may be left out.
        """
        return False


class Preprocessing(nn.Module):
    """Exportable module from raw samples of one shape to columns of tokens.

    `forward` takes a tensor (batch, ...) of raw values. It returns the normalised columns of the model, and the mask
    `valid`.
    """

    source: str
    """Name of the raw column that the module reads."""
    axes: tuple[str, ...]
    """Names of the axes of variable size, after the batch axis."""
    sizes: list[tuple[int, ...]]
    """Sizes of the variable axes for tests of an exported graph. The sizes of the training data come first."""

    def example(self, samples: int, sizes: tuple[int, ...]) -> Tensor:
        """Random raw samples, with arrays of these sizes."""
        raise NotImplementedError


class Exportable(Ability):
    """Exportable tokens: programs without this library can make them from raw data."""

    meaning: ClassVar[str] = "describe their preprocessing for other programs"

    def example(self) -> Table | None:
        """Table of a few random samples; None if there is no example."""
        return None

    @overridable
    def max_tokens(self) -> int | None:
        """Maximum number of tokens of a sample (default: None, no limit)."""
        return None

    def preprocessing(self) -> dict[str, Any]:
        """Describe the steps from raw data to the columns of the model, as JSON."""
        return {"kind": self.kind, "settings": self.model_dump(mode="json", exclude={"kind"}), "learned": self.state}

    def preprocessing_module(self) -> Preprocessing | None:
        """Preprocessing as a graph; None if a program must compute the columns itself."""
        return None

    def export_files(self) -> dict[str, str]:
        """Files stored with an exported model: name -> text."""
        return {}


class Editable(Ability):
    """Editable tokens: a user can drop, move or change a single token."""

    meaning: ClassVar[str] = "can be edited one by one"
    changeable_columns: ClassVar[tuple[str, ...]] = ()
    """Raw token columns with values that may be changed."""
    movable_column: ClassVar[str] = ""
    """Raw token column with the coordinates for `move`. If empty, `move` changes the order of tokens."""
    coordinates: ClassVar[tuple[str, ...]] = ("place",)
    """Names of the coordinates for `move`."""

    def where(self, stream: Stream, token: int) -> tuple[float, ...]:
        """Coordinates of a token, as arguments for `move`."""
        return tuple(np.atleast_1d(stream.columns[self.movable_column][token])) if self.movable_column else (token,)

    def drop(self, stream: Stream, token: int) -> Stream:
        """Remove a token from the sample."""
        self.check_token(stream, token)
        return self.refresh(stream.keep(np.arange(int(stream.lengths[0])) != token))

    def change(self, stream: Stream, token: int, column: str, value: Any) -> Stream:
        """Change a value of a token."""
        self.check_token(stream, token)
        one_of("the column to change", column, [name for name in self.changeable_columns if name in stream.columns])
        here = np.arange(int(stream.lengths[0])) == token
        try:
            changed = _with_value(stream.columns[column], here, value)
        except (TypeError, ValueError, OverflowError) as error:
            shape = stream.columns[column].shape[1:]
            form = f"numbers of shape {shape}" if shape else "a number"
            raise UserError(f"the new value of column `{column}` must be {form}, not {value!r}") from error
        return self.refresh(stream.with_columns(**{column: changed}))

    def move(self, stream: Stream, token: int, *to: float) -> Stream:
        """Move a token.

        to   new coordinates of the token, in the order of `coordinates`
        """
        self.check_token(stream, token, *to)
        if self.movable_column:
            here = np.arange(int(stream.lengths[0])) == token
            moved = _with_value(stream.columns[self.movable_column], here, to)
            return self.refresh(stream.with_columns(**{self.movable_column: moved}))
        order = np.delete(np.arange(int(stream.lengths[0])), token)
        order = np.insert(order, int(np.clip(to[0], 0, len(order))), token)
        return self.refresh(stream.reorder(order))

    def refresh(self, stream: Stream) -> Stream:
        """Stream after an edit (default: unchanged).

        Columns that depend on several tokens must be computed again.
        """
        return stream

    def check_token(self, stream: Stream, token: int, *to: float) -> None:
        """Refuse missing tokens, prefix tokens, and a wrong number of coordinates."""
        assert len(stream) == 1, "one sample is edited at a time"
        first, last = prefix_length(self), int(stream.lengths[0]) - 1
        if not first <= token <= last:
            raise UserError(f"token {token} cannot be edited; choose one of the tokens {first} to {last} of the sample")
        if to and len(to) != len(self.coordinates):
            names = " and ".join(self.coordinates)
            raise UserError(f"the new position needs {len(self.coordinates)} coordinates ({names}), not {len(to)}")


class Textual(Windowed):
    """Tokens of text, with a vocabulary for encoding and decoding."""

    meaning: ClassVar[str] = "are encoded from text and decoded to text"

    @property
    @abstractmethod
    def window(self) -> int:
        """Maximum number of tokens in a window (context length)."""

    @abstractmethod
    def encode(self, text: str) -> Array:
        """Ids of a text, without special tokens; unknown words become the unknown token."""

    @abstractmethod
    def decode(self, ids: Any) -> str:
        """Convert ids to text, without special tokens."""

    @property
    @abstractmethod
    def specials(self) -> dict[str, int]:
        """Ids of special tokens by role: begin, end, separator, unknown, mask, padding."""

    def special_id(self, role: str) -> int:
        """Id of the special token of a role; error if the role has no token."""
        found = self.specials
        if role not in found:
            there = f"its special tokens are {', '.join(found)}" if found else "it has no special tokens"
            key = f"tokens.special.{role}"
            raise UserError(f"the vocabulary has no {role} token; {there}", hint=f"Name the token in {key}.", key=key)
        return found[role]

    @property
    @abstractmethod
    def writable(self) -> Array:
        """Mask (vocabulary,) of the ids of text; False for special tokens."""

    @property
    def end_id(self) -> int | None:
        """Id of the end token; None if training texts have no end token."""
        return self.specials.get("end") if self.has_marker("end") else None

    @property
    def letters(self) -> Literal["characters", "bytes", ""]:
        """Unit of single-letter tokens: "characters", "bytes", or "" for other tokens.

        For "bytes", the id is the UTF-8 byte. The default is "".
        """
        return ""

    @overridable
    def lower(self) -> bool:
        """Whether the text is converted to lower case."""
        return False

    def has_marker(self, role: str) -> bool:
        """Whether samples contain the special token of this role (begin or end)."""
        return True

    def nearest_words(self, word: str) -> list[str]:
        """Words of the vocabulary that are spelled like an unknown word (default: none)."""
        return []

    def same_vocabulary(self, other: Tokens) -> bool:
        """Whether `other` has equal settings and can therefore share the vocabulary."""
        return False


class Invertible(Ability):
    """Invertible tokens: generated tokens can be turned back into samples."""

    meaning: ClassVar[str] = "can be turned back into samples"
    suffix: ClassVar[str] = ""
    """Suffix of the files that `write_samples` writes."""

    @abstractmethod
    def blank(self, count: int) -> Stream:
        """Tokens of `count` samples before their generation, as the model reads them.

        If tokens are generated one after the other (`new_tokens`), these are the first tokens. Otherwise all tokens are
        there with their positions, and their values are placeholders.
        """

    @abstractmethod
    def invert(self, stream: Stream) -> Table:
        """Samples of tokens, the inverse of `tokenize` and `normalise`.

        stream   tokens as the model reads and predicts them; samples may be unfinished
        """

    @abstractmethod
    def write_samples(self, table: Table, paths: Sequence[Path]) -> None:
        """Write each sample of the table to a file with the suffix `suffix`."""

    @property
    def new_tokens(self) -> int:
        """Number of tokens generated one by one after `blank` (default: 0)."""
        return 0

    @property
    def allowed(self) -> Array | None:
        """Mask (vocabulary,) of the ids that may be generated.

        None (default) for tokens without a vocabulary.
        """
        return None


def _with_value(column: Array, tokens: Array, value: Any) -> Array:
    column = column.copy()
    column[tokens] = value
    return column
