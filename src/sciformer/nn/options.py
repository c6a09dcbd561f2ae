"""Recipe options of trunks, position codes and poolings: base classes.

A recipe names a trunk by its registered name (`model.trunk: lstm`). The class registered under this name has the keys
of the trunk as fields and builds it; it is in the file of the trunk. The same holds for position codes and poolings.
The modules themselves take plain arguments.
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

Width = Annotated[int, Field(ge=1, le=1 << 20)]


class TokenForm(NamedTuple):
    """Shape and positions of the tokens read by a trunk.

    kind         kind of the tokens, for errors
    width        width of an embedded token
    axes         number of coordinates of a token
    grid_shape   number of token positions, or shape of their grid; None if the number is not fixed
    raster       function that returns height, width and channels of an image patch (empty for other tokens)
    initial_std  standard deviation of embedded tokens before training
    leading      number of tokens without a position in front, for example a class token
    """

    kind: str
    width: int
    axes: int = 1
    grid_shape: int | tuple[int, ...] | None = None
    raster: Callable[[], tuple[int, ...]] = tuple
    initial_std: float = 0.02
    leading: int = 0


class HeadForm(NamedTuple):
    """Number of heads, number of key-value heads, and width of a head."""

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
        """Position code for trunk width `dim`; `heads` is None if there is no attention."""
        raise NotImplementedError


class TrunkOptions(Options):
    """Options of a trunk, registered as `trunk`."""

    can_be_causal: ClassVar[bool] = False
    """Whether the trunk can be causal, which a decoder needs (default: no)."""
    recurrent: ClassVar[bool] = False
    """Whether the trunk is recurrent, so that its last state represents all tokens."""
    keeps_width: ClassVar[bool] = True
    """Whether input tokens and all blocks have the width `dim` (default: yes)."""
    tokens_interact: ClassVar[bool] = True
    """Whether tokens see each other (default: yes)."""
    takes_class_token: ClassVar[bool] = False
    """Whether the first token sees all other tokens (default: no)."""

    dim: int = Field(default=128, ge=1, le=1 << 16)
    """Width of the model (default: 128)."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout rate: share of activations set to zero in training (default: 0)."""

    @property
    def blocks(self) -> int:
        """Number of blocks or layers."""
        raise NotImplementedError

    @property
    def reads_both_ways(self) -> bool:
        """Whether half of the width comes from reading the tokens in reverse order."""
        return False

    def build_trunk(self, form: TokenForm, causal: bool = False, memory_dim: int | None = None) -> nn.Module:
        """Trunk for these tokens; `memory_dim` is the width of an attended memory, if any."""
        raise NotImplementedError

    def build_decoder(self, form: TokenForm, memory_dim: int, memory_window: int | None) -> nn.Module:
        """Decoder for a memory of width `memory_dim` and at most `memory_window` tokens."""
        return self.build_trunk(form, causal=True, memory_dim=memory_dim)


class DepthOptions(TrunkOptions):
    """Options of a trunk of `depth` blocks."""

    depth: int = Field(default=4, ge=0, le=1000)
    """Number of blocks or layers (default: 4)."""

    @property
    def blocks(self) -> int:
        return self.depth


class PoolingOptions(Options):
    """Options of a pooling, registered as `pooling`."""

    has_weights: ClassVar[bool] = False
    """Whether the pooling has weights, which an objective without pooling would leave untrained (default: no)."""

    def build_pool(self, dim: int, trunk: TrunkOptions) -> nn.Module:
        """Pooling of the tokens of width `dim` from this trunk."""
        raise NotImplementedError


def needs_attention(name: str, heads: HeadForm | None) -> HeadForm:
    """Return `heads`, or raise an error if the trunk has no attention."""
    if heads is None:
        raise UserError(f"`model.position: {name}` needs a trunk with attention", key="model.position")
    return heads
