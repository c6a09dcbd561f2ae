"""What a recipe can say of a trunk, a position or a pooling, and how it is built from that.

A trunk stands in a recipe under its registered name (`model.trunk: lstm`). The class registered there has the trunk's
keys as fields and builds it; it stands in the file of the trunk. The same holds for positions and poolings. The modules
themselves take plain arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

from pydantic import Field
from torch import nn

from ..errors import UserError
from ..recipe.registry import Options

if TYPE_CHECKING:
    from .positions import Position

Width = Annotated[int, Field(ge=1)]


class TokenForm(NamedTuple):
    """The form of the tokens that a trunk reads.

    kind         their name, for errors
    width        numbers of an embedded token
    axes         coordinates of a token
    grid_shape   places for tokens, on a line or a grid; None where they are not counted
    raster       sides and channels of a token that is a part of an image, else none; asked only where a trunk needs it
    initial_std  standard deviation of embedded tokens before training
    leading      tokens in front of those with places: a class token
    """

    kind: str
    width: int
    axes: int = 1
    grid_shape: int | tuple[int, ...] | None = None
    raster: Callable[[], tuple[int, ...]] = tuple
    initial_std: float = 0.02
    leading: int = 0


class HeadForm(NamedTuple):
    """The heads of an attention: their number, that of keys and values, the width of each."""

    heads: int
    kv_heads: int | None
    width: int


class PositionOptions(Options):
    """Options of a position code, registered as `position`."""

    @property
    def turns_values(self) -> bool:
        """Whether values are rotated like queries and keys."""
        return False

    def build_position(self, form: TokenForm, dim: int, heads: HeadForm | None) -> Position | None:
        """The position code for a trunk of width `dim`; `heads` are None where the trunk has no attention."""
        raise NotImplementedError


class TrunkOptions(Options):
    """Options of a trunk, registered as `trunk`."""

    can_be_causal: ClassVar[bool] = False
    """Whether the trunk can read forwards, so that a decoder can use it."""
    recurrent: ClassVar[bool] = False
    """Whether the trunk reads token by token, so that its last state stands for all."""
    keeps_width: ClassVar[bool] = True
    """Whether tokens must enter with the width `dim`, which every block keeps."""
    tokens_interact: ClassVar[bool] = True
    """Whether tokens see each other."""
    takes_class_token: ClassVar[bool] = False
    """Whether the first token sees all others."""

    dim: int = Field(default=128, ge=1)
    """Width of the model (default: 128)."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout probability in training (default: 0)."""

    @property
    def blocks(self) -> int:
        """Number of blocks or layers."""
        raise NotImplementedError

    @property
    def reads_both_ways(self) -> bool:
        """Whether half of the width comes from a reader that began at the end."""
        return False

    def build_trunk(self, form: TokenForm, causal: bool = False, memory_dim: int | None = None) -> nn.Module:
        """The trunk for tokens of this form; with `memory_dim` it also attends to a memory of that width."""
        raise NotImplementedError

    def build_decoder(self, form: TokenForm, memory_dim: int, memory_window: int | None) -> nn.Module:
        """The decoder of an encoder-decoder, for a memory of this width and of at most this length."""
        return self.build_trunk(form, causal=True, memory_dim=memory_dim)


class DepthOptions(TrunkOptions):
    """Options of a trunk of `depth` blocks."""

    depth: int = Field(default=4, ge=0)
    """Number of blocks or layers (default: 4)."""

    @property
    def blocks(self) -> int:
        return self.depth


class PoolingOptions(Options):
    """Options of a pooling, registered as `pooling`."""

    has_weights: ClassVar[bool] = False
    """Whether the pooling learns; without an objective that asks for it, its weights would stay untrained."""

    def build_pool(self, dim: int, trunk: TrunkOptions) -> nn.Module:
        """The pooling of tokens of width `dim`, made by this trunk."""
        raise NotImplementedError


def needs_attention(name: str, heads: HeadForm | None) -> HeadForm:
    """Refuse a position that acts inside attention where there is none."""
    if heads is None:
        raise UserError(f"`model.position: {name}` needs a trunk with attention", key="model.position")
    return heads
