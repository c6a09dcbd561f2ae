"""Positional encodings: learned, sinusoidal, rotary, Fourier, relative, and more.

A positional encoding has three methods, and trunks with attention call all of them:

    embed(x, at)             add the encoding to the embedding before the first block
    rotation(at, dtype)      rotation of queries and keys inside every attention
    bias(at, memory_at)      bias of the attention scores

`at` holds the coordinates of the tokens: (N,) or (B, N) on a line, (N, A) or (B, N, A) with A axes; integers or real
numbers. By default the coordinates are 0, 1, 2, ...
"""

from __future__ import annotations

import itertools
import math
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ..errors import UserError, one_of
from .options import HeadForm, PositionOptions, TokenForm, needs_attention
from .ragged import Ragged

Rotation = tuple[Tensor, Tensor, bool]
Periods = tuple[float, float]


class Position(nn.Module):
    """Base class of positional encodings, and the empty encoding (for sets of tokens).

    axes    number of coordinates of a token
    inside  whether the encoding acts inside attention; if so, trunks without attention cannot use it
    """

    axes: int = 1
    inside: bool = False

    def fits(self, dim: int, heads: int, head_dim: int) -> None:
        """Check that this encoding matches the width and the heads of the trunk."""
        for name, found in (("dim", dim), ("heads", heads), ("head_dim", head_dim)):
            made_for = getattr(self, name, found)
            if made_for != found:
                raise UserError(
                    f"{type(self).__name__} was made for {name} {made_for}, but the trunk has {name} {found}"
                )

    def fits_without_attention(self, dim: int, trunk: nn.Module) -> None:
        """Check that a trunk of width `dim` without attention can use this encoding."""
        if self.inside:
            message = f"{type(self).__name__} acts inside attention, but {type(trunk).__name__} has no attention"
            raise UserError(message, hint="Choose a positional encoding that is added to the tokens.")
        self.fits(dim, 1, dim)

    def place(self, n: int, start: int | Tensor, device: torch.device) -> Tensor:
        """Default coordinates of n tokens: start, start + 1, ..."""
        if self.axes > 1:
            message = f"the coordinates `at` are missing, but {type(self).__name__} has {self.axes} axes"
            raise UserError(message, hint="Pass at=grid((height, width)).")
        return torch.arange(n, device=device) + start

    def locate(self, x: Tensor, at: Tensor | None, real: Tensor | None = None, start: int | Tensor = 0) -> Tensor:
        """Coordinates (B or 1, N, A) of the tokens x (B, N, D), 0 at padding.

        at    (N,) or (B, N) with one axis, (N, A) or (B, N, A) with A axes (default: start, start + 1, ...)
        real  (B, N) mask of real tokens
        """
        batch, n = x.shape[:2]
        if type(self) is Position:  # coordinates are not used
            return torch.zeros(1, n, 1, device=x.device)
        if at is None:
            at = self.place(n, start, x.device)
        shape = tuple(at.shape)
        if self.axes == 1 and shape in ((n,), (batch, n), (1, n)):
            at = at.expand(1, n)[..., None] if at.dim() == 1 else at[..., None]
        elif shape == (n, self.axes):
            at = at[None]
        elif shape not in ((batch, n, self.axes), (1, n, self.axes)):
            one, each = ((n,), (batch, n)) if self.axes == 1 else ((n, self.axes), (batch, n, self.axes))
            raise UserError(f"coordinates `at` must have shape {one} or {each} (axes: {self.axes}), not {shape}")
        return at if real is None else at.masked_fill(~real[..., None], 0)

    def embed(self, x: Tensor, at: Tensor) -> Tensor:
        """Add the positional encoding to x (B, N, D)."""
        return x

    def rotation(self, at: Tensor, dtype: torch.dtype) -> Rotation | None:
        """Rotation of queries and keys of `dtype`, or None."""
        return None

    def bias(self, at: Tensor, memory_at: Tensor) -> Tensor | None:
        """Bias (B or 1, H, N, M) of the attention scores, or None."""
        return None

    def columns(self, at: Tensor) -> Tensor:
        """Coordinates in the shape (..., N, A); error if the number of axes is wrong."""
        if self.axes == 1 and ((at.dim() < 3 and at.shape[-1:] != (1,)) or at.dim() < 2):
            at = at[..., None]
        if at.shape[-1] != self.axes:
            raise UserError(f"coordinates must have shape (..., N, {self.axes}), not {tuple(at.shape)}")
        return at


def packed_places(position: Position, ragged: Ragged, device: torch.device) -> Tensor:
    """Default coordinates of packed tokens: 0, 1, 2, ... within each sequence."""
    places = position.place(ragged.longest, 0, device)
    if not len(places):
        return places.new_zeros(ragged.total, *places.shape[1:])
    return places[ragged.position.clamp(max=len(places) - 1)]


def add_positions(position: Position, x: Tensor, valid: Tensor | Ragged | None, at: Tensor | None) -> Tensor:
    """Add a positional encoding to tokens x (B, N, D) or packed (T, D)."""
    if not isinstance(valid, Ragged):
        return position.embed(x, position.locate(x, at, valid))
    at = packed_places(position, valid, x.device) if at is None and type(position) is not Position else at
    return position.embed(x[None], position.locate(x[None], at, valid.inside[None]))[0]


def grid(shape: tuple[int, ...], span: tuple[int, ...] | None = None) -> Tensor:
    """Coordinates (N, A) of the N cells of a grid, row by row.

    With `span`, the cells are spread evenly over a grid of the shape `span`. In this way, positions learned on that
    grid can be used for images of other sizes.
    """
    lines = [torch.arange(size) for size in shape]
    if span is not None:
        lines = [(line + 0.5) * (wide / len(line)) - 0.5 for line, wide in zip(lines, span)]
    return torch.stack(torch.meshgrid(*lines, indexing="ij"), -1).flatten(0, -2)


class AdditiveEncoding(Position):
    """Abstract additive positional encoding: x <- x + PE(p)."""

    def code(self, at: Tensor) -> Tensor:
        """Encoding PE (..., N, D) of coordinates (..., N), or (..., N, A) with A axes."""
        raise NotImplementedError

    def embed(self, x: Tensor, at: Tensor) -> Tensor:
        return x + self.code(at).to(x.dtype)


class Learned(AdditiveEncoding):
    """Learned positional encoding PE(p) = table[p].

    shape  number of positions, or shape of their grid
    scale  initial standard deviation of the table. Choose the standard deviation of the embedded tokens, because a much
           smaller encoding would have no effect

    At real-valued coordinates, the rows of neighbouring positions are interpolated.
    """

    def __init__(self, dim: int, shape: int | tuple[int, ...], scale: float = 0.02) -> None:
        super().__init__()
        self.dim, self.shape = dim, (shape,) if isinstance(shape, int) else tuple(shape)
        self.axes = len(self.shape)
        self.table = nn.Parameter(torch.empty(math.prod(self.shape), dim).normal_(std=scale))

    def place(self, n: int, start: int | Tensor, device: torch.device) -> Tensor:
        if isinstance(start, int) and start + n > len(self.table):
            raise UserError(
                f"there are {start + n} tokens, but only {len(self.table)} learned positions",
                hint="Make Learned with a larger shape, or pass coordinates with at=grid(shape, span=learned_shape).",
            )
        index = torch.arange(n, device=device) + start
        if self.axes == 1:
            return index
        sizes = [math.prod(self.shape[axis + 1 :]) for axis in range(self.axes)]
        return torch.stack([index // size % whole for size, whole in zip(sizes, self.shape)], -1)

    def code(self, at: Tensor) -> Tensor:
        at = self.columns(at)
        if not at.is_floating_point():
            checked = not at.is_cuda and at.numel() and not torch.compiler.is_compiling()
            if checked and (at.amin() < 0 or (at >= at.new_tensor(self.shape)).any()):
                raise UserError(
                    f"positions must be inside the learned shape {self.shape}, "
                    f"but they go from {int(at.min())} to {int(at.max())}"
                )
            return F.embedding(_ravel(at, self.shape), self.table)  # indexing would sum gradients in varying order
        low = at.floor()
        part = at - low
        code = torch.zeros((), device=at.device)
        for corner in itertools.product((0, 1), repeat=self.axes):
            step = at.new_tensor(corner)
            weight = torch.where(step == 1, part, 1 - part).prod(-1, keepdim=True)
            last = at.new_tensor(self.shape) - 1
            index = torch.minimum((low + step).clamp(min=0), last).long()
            code = code + weight.to(self.table.dtype) * F.embedding(_ravel(index, self.shape), self.table)
        return code


def _ravel(at: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Row-major index (...) of the cells `at` (..., A) of a grid of this shape."""
    index = at[..., 0]
    for axis, size in enumerate(shape[1:], 1):
        index = index * size + at[..., axis]
    return index


class Sinusoidal(AdditiveEncoding):
    """Sinusoidal positional encoding (arXiv 1706.03762).

        PE(p, 2i) = sin(p / base^(2i / d)),   PE(p, 2i + 1) = cos(p / base^(2i / d))

    The position p may be any real number. d is the width divided by the number of axes. With `periods` (shortest,
    longest) the periods of the sinusoids are spaced evenly in the logarithm instead.
    """

    def __init__(self, dim: int, axes: int = 1, base: float = 10_000.0, periods: Periods | None = None) -> None:
        super().__init__()
        if dim % (2 * axes):
            wanted = f"divisible by {2 * axes} for sinusoidal positions (axes: {axes})"
            raise UserError(f"dim must be {wanted}, not {dim}")
        self.dim, self.axes, self.base, self.periods = dim, axes, base, checked(periods)

    def code(self, at: Tensor) -> Tensor:
        angle = angles(self.columns(at), self.dim // self.axes, self.base, self.periods)  # (..., N, A, d / 2)
        return torch.stack([angle.sin(), angle.cos()], -1).flatten(-3)


class Rotary(Position):
    """RoPE: rotate the pair (x_2i, x_2i+1) at position p by p / base^(2i / d).

    The product of query and key then depends only on the difference of their positions (arXiv 2104.09864). p may be any
    real number. d is the rotated width of a head divided by the number of axes.

    pairs    neighbours: pairs (x_2i, x_2i+1); halves: pairs (x_i, x_i+d/2), as in LLaMA
    periods  shortest and longest period; the periods between them are evenly spaced in the logarithm
    heads    number of heads; with `periods`, each head has different periods (default: the same for all heads)
    share    rotated fraction of a head
    """

    inside = True

    def __init__(
        self,
        head_dim: int,
        axes: int = 1,
        base: float = 10_000.0,
        pairs: str = "neighbours",
        *,
        periods: Periods | None = None,
        heads: int | None = None,
        share: float = 1.0,
    ) -> None:
        super().__init__()
        one_of("pairs", pairs, ("neighbours", "halves"))
        if head_dim % (2 * axes):
            wanted = f"divisible by {2 * axes} for rotary positions (axes: {axes})"
            raise UserError(f"head_dim must be {wanted}, not {head_dim}")
        self.turned = round(share * head_dim / (2 * axes))  # rotated pairs on each axis
        if not 0 < self.turned <= head_dim // (2 * axes):
            raise UserError(f"share must be at most 1, and enough for one rotated pair of channels, not {share:g}")
        self.head_dim, self.axes, self.base, self.pairs = head_dim, axes, base, pairs
        self.periods, self.spread = checked(periods), 1 if heads is None or periods is None else heads
        if self.spread > 1:
            self.heads = self.spread  # checked against the trunk in `fits`

    def rotation(self, at: Tensor, dtype: torch.dtype) -> Rotation:
        """Cosines and sines (B or 1, 1 or H, N, E / 2) of the rotation angles.

        They are in single precision, or in `dtype` if `dtype` is more precise.
        """
        at = self.columns(at)
        at = at if at.dim() == 3 else at[None]
        angle = angles(at, 2 * self.turned * self.spread, self.base, self.periods)  # (B, N, A, pairs of all heads)
        angle = angle.unflatten(-1, (self.turned, self.spread)).movedim(-1, 1)
        if rest := self.head_dim // (2 * self.axes) - self.turned:
            angle = F.pad(angle, (0, rest))
        angle = angle.flatten(-2)
        exact = torch.promote_types(dtype, torch.float32)
        return angle.cos().to(exact), angle.sin().to(exact), self.pairs == "halves"


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Rotate the pairs of x (B, H, N, E): (a, b) -> (a cos - b sin, a sin + b cos)."""
    cos, sin, halves = rotation
    a, b = x.chunk(2, -1) if halves else x.unflatten(-1, (-1, 2)).unbind(-1)
    turned = a * cos - b * sin, a * sin + b * cos
    out = torch.cat(turned, -1) if halves else torch.stack(turned, -1).flatten(-2)
    return out.to(x.dtype)


def angles(at: Tensor, dim: int, base: float, periods: Periods | None = None) -> Tensor:
    """Angles p / base^(2i / dim) of positions p for i < dim / 2.

    With `periods` the angles are 2 pi p / P_i, where the periods P_i go from the shortest to the longest, evenly spaced
    in the logarithm. The angles are in double precision, except on MPS.
    """
    exact = torch.float32 if at.device.type == "mps" else torch.float64
    power = torch.arange(0, dim, 2, dtype=exact, device=at.device) / dim
    if periods is None:
        return at.to(exact)[..., None] * base**-power
    shortest, longest = periods
    share = power * (dim / max(1, dim - 2))  # from 0 to 1
    return at.to(exact)[..., None] * (2 * math.pi / shortest * (shortest / longest) ** share)


def checked(periods: Periods | None) -> Periods | None:
    """Return `periods`; error unless 0 < shortest < longest."""
    if periods is not None and not 0 < periods[0] < periods[1]:
        found = f"not {periods[0]:g} and {periods[1]:g}"
        raise UserError(f"the shortest and longest of `periods` must satisfy 0 < shortest < longest, {found}")
    return periods


class Fourier(Position):
    """Learned Fourier features (arXiv 2106.02795).

        PE(p) = W [sin(2 pi F p); cos(2 pi F p)]

    Times or positions p may be real-valued and irregular. The initial frequencies F are normal with standard deviation
    `scale`; choose a scale of about 1 / (shortest relevant distance). With `periods` (shortest, longest) the initial
    frequencies are evenly spaced in the logarithm instead. Subtract the mean from large coordinates first.
    """

    def __init__(
        self, dim: int, axes: int = 1, features: int = 64, scale: float = 1.0, periods: Periods | None = None
    ) -> None:
        super().__init__()
        self.dim, self.axes = dim, axes
        self.frequency = nn.Parameter(torch.empty(axes, features).normal_(std=scale))
        if checked(periods) is not None:
            whole = angles(torch.ones(axes), 2 * features, 1.0, periods) / (2 * math.pi)
            self.frequency.data.copy_(whole)
        self.linear = nn.Linear(2 * features, dim)

    def embed(self, x: Tensor, at: Tensor) -> Tensor:
        at = self.columns(at)
        exact = at.dtype if at.is_floating_point() else self.frequency.dtype
        # A sum instead of a matrix product: autocast must not round the coordinates.
        angle = 2 * math.pi * (at.to(exact)[..., None] * self.frequency.to(exact)).sum(-2)
        waves = torch.cat([angle.sin(), angle.cos()], -1).to(self.linear.weight.dtype)
        return x + self.linear(waves).to(x.dtype)


class RelativeBias(Position):
    """Learned relative position bias, similar to T5 (arXiv 1910.10683).

        bias_ij = table[head, clip(p_j - p_i, -span, span)]        on a sequence or a grid
        bias_ij = table[head, (p_j - p_i) mod period]              on a ring or a torus, if `period` is given

    p is an integer position; with several axes, the rule holds for each axis.
    """

    inside = True

    def __init__(self, heads: int, span: int, axes: int = 1, period: tuple[int, ...] | None = None) -> None:
        super().__init__()
        self.heads, self.span, self.axes, self.period = heads, span, axes, period
        self.shape = (2 * span + 1,) * axes if period is None else period
        self.table = nn.Parameter(torch.zeros(math.prod(self.shape), heads))

    def bias(self, at: Tensor, memory_at: Tensor) -> Tensor:
        i, j = self.columns(at), self.columns(memory_at)
        offset = (j[..., None, :, :] - i[..., :, None, :]).round()
        if self.period is None:
            offset = offset.clamp(-self.span, self.span) + self.span
        else:
            offset = offset.remainder(offset.new_tensor(self.period))
        index = _ravel(offset.long(), self.shape)
        bias = F.embedding(index, self.table).movedim(-1, -3)
        return bias if bias.dim() == 4 else bias[None]


class UnpairedSinusoidal(AdditiveEncoding):
    """Sinusoidal positional encoding of ASTROMER (arXiv 2205.01677).

        PE(p, j) = sin(a_j) for even j, cos(a_j) for odd j,   a_j = p / base^(2j / d)

    Every channel j has its own frequency, from 1 down to 1 / base^2. d is the width divided by the number of axes.
    """

    def __init__(self, dim: int, axes: int = 1, base: float = 10_000.0) -> None:
        super().__init__()
        if dim % axes:
            wanted = f"divisible by {axes} for unpaired sinusoidal positions (axes: {axes})"
            raise UserError(f"dim must be {wanted}, not {dim}")
        self.dim, self.axes, self.base = dim, axes, base

    def code(self, at: Tensor) -> Tensor:
        at = self.columns(at)
        exact = torch.float32 if at.device.type == "mps" else torch.float64
        place = torch.arange(self.dim // self.axes, device=at.device)
        angle = at.to(exact)[..., None] * self.base ** (-2 * place.to(exact) / len(place))
        return torch.where(place % 2 == 0, angle.sin(), angle.cos()).flatten(-2)


class Modulation(Position):
    """Time modulation x <- x (1 + s(p)) + b(p) (TimeModAttn, arXiv 2201.08482).

        s(p) = sum_k  u_k sin(2 pi k p / longest) + v_k cos(2 pi k p / longest),   k = 1 ... harmonics

    s and b are Fourier series of the time p, with learned coefficients for each channel. With several axes, the series
    of all axes are added.
    """

    def __init__(self, dim: int, axes: int = 1, longest: float = 1000.0, harmonics: int = 12) -> None:
        super().__init__()
        if longest <= 0 or not 1 <= harmonics <= 512:
            found = f"longest = {longest:g} and harmonics = {harmonics}"
            raise UserError(f"longest must be above 0, and harmonics must be from 1 to 512, not {found}")
        self.dim, self.axes, self.longest, self.harmonics = dim, axes, longest, harmonics
        self.linear = nn.Linear(2 * harmonics * axes, 2 * dim)

    def embed(self, x: Tensor, at: Tensor) -> Tensor:
        at = self.columns(at)
        exact = torch.float32 if at.device.type == "mps" else torch.float64
        number = torch.arange(1, self.harmonics + 1, dtype=exact, device=at.device)
        angle = (2 * math.pi / self.longest) * at.to(exact)[..., None] * number
        waves = torch.cat([angle.sin(), angle.cos()], -1).flatten(-2).to(self.linear.weight.dtype)
        scale, shift = self.linear(waves).to(x.dtype).chunk(2, -1)
        return x * (1 + scale) + shift


# Recipe options


class AutoPositionOptions(PositionOptions):
    """`position: auto`: learned or sinusoidal; no encoding if there is no attention."""

    def build_position(self, form: TokenForm, dim: int, heads: HeadForm | None) -> Position | None:
        if heads is None:
            return None
        if form.grid_shape is None:
            return Sinusoidal(dim, form.axes)
        return Learned(dim, form.grid_shape, form.initial_std)


class NoPositionOptions(PositionOptions):
    """`position: none`: no positional encoding, for sets or recurrent trunks."""

    def build_position(self, form: TokenForm, dim: int, heads: HeadForm | None) -> None:
        return None


class LearnedOptions(PositionOptions):
    """`position: learned`: a learned table of positions."""

    position_scale: float | None = Field(default=None, gt=0)
    """Initial standard deviation of learned positions (default: the standard deviation of the token embeddings). The
    published ViT uses 0.02."""

    def build_position(self, form: TokenForm, dim: int, heads: HeadForm | None) -> Learned:
        if form.grid_shape is None:
            raise UserError(
                "`model.position: learned` needs a fixed number of positions, "
                f"but this number is not fixed for `tokens.kind: {form.kind}`",
                key="model.position",
            )
        return Learned(dim, form.grid_shape, self.position_scale or form.initial_std)


class PeriodOptions(PositionOptions):
    """Base class of the options of positional encodings with a range of periods."""

    periods: tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]] | None = None
    """Shortest and longest period of the sinusoids, in units of the coordinates (default: depends on the positional
    encoding). The other periods are evenly spaced in the logarithm between these two. rotary gives each head different
    periods (if kv_heads equals heads); fourier uses the periods as initial values; modulation uses the longest period
    divided by 1, 2, 3, ... down to the shortest period."""


class SinusoidalOptions(PeriodOptions):
    """`position: sinusoidal`: sines and cosines (arXiv 1706.03762)."""

    def build_position(self, form: TokenForm, dim: int, heads: HeadForm | None) -> Sinusoidal:
        return Sinusoidal(dim, form.axes, periods=self.periods)


class UnpairedSinusoidalOptions(PositionOptions):
    """`position: unpaired`: sinusoidal, with one frequency per channel (ASTROMER)."""

    def build_position(self, form: TokenForm, dim: int, heads: HeadForm | None) -> UnpairedSinusoidal:
        return UnpairedSinusoidal(dim, form.axes)


class RotaryOptions(PeriodOptions):
    """`position: rotary`: RoPE, a rotation of queries and keys."""

    rotary_base: float = Field(default=10_000.0, gt=1)
    """Base of the rotary frequencies (default: 10,000). Not used if `periods` is set."""
    rotary_share: float = Field(default=1.0, gt=0, le=1)
    """Fraction of each head that is rotated (default: 1)."""
    rotary_values: bool = False
    """Rotate values too, by their position relative to the query: sum_j a_ij R(p_j - p_i) v_j (default: false). A head
    can then compute a Fourier spectrum of the tokens around the query (arXiv 2310.10375)."""

    @property
    def turns_values(self) -> bool:
        return self.rotary_values

    def build_position(self, form: TokenForm, dim: int, heads: HeadForm | None) -> Rotary:
        number, kv_heads, width = needs_attention("rotary", heads)
        apart = number if kv_heads in (None, number) else None  # heads that share keys share periods
        return Rotary(width, form.axes, self.rotary_base, periods=self.periods, heads=apart, share=self.rotary_share)


class FourierOptions(PeriodOptions):
    """`position: fourier`: learned Fourier features of the coordinates."""

    def build_position(self, form: TokenForm, dim: int, heads: HeadForm | None) -> Fourier:
        return Fourier(dim, form.axes, periods=self.periods)


class ModulationOptions(PeriodOptions):
    """`position: modulation`: scale and shift by learned Fourier series (TimeModAttn)."""

    def build_position(self, form: TokenForm, dim: int, heads: HeadForm | None) -> Modulation:
        if self.periods is None:
            return Modulation(dim, form.axes)
        return Modulation(dim, form.axes, self.periods[1], round(self.periods[1] / self.periods[0]))


class RelativeBiasOptions(PositionOptions):
    """`position: relative`: a learned bias for each difference of positions."""

    periodic: bool = False
    """Differences of positions around a ring or a torus: the last token is next to the first one (default: false).
    Needs tokens with a fixed number of positions."""

    def build_position(self, form: TokenForm, dim: int, heads: HeadForm | None) -> RelativeBias:
        places, count = form.grid_shape, needs_attention("relative", heads).heads
        longest = places if isinstance(places, int) else max(places or (64,))
        if not self.periodic:
            return RelativeBias(count, longest, form.axes)
        if places is None:
            message = (
                f"model.periodic needs a fixed number of positions, which `tokens.kind: {form.kind}` does not have"
            )
            raise UserError(message, hint="Remove model.periodic.", key="model.periodic")
        period = (places,) * form.axes if isinstance(places, int) else places
        return RelativeBias(count, longest, form.axes, period)
