"""Recipe options of trunks, positional encodings and poolings: base classes.

A recipe selects a trunk by its registered name (`model.trunk: lstm`). The options class with this name has the recipe
keys of the trunk as attributes, and builds the trunk. It is defined in the file of the trunk. Positional encodings and
poolings have the same kind of options class. The modules themselves take plain arguments.
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
    """Width and positions of the input tokens of a trunk.

    kind         kind of the tokens in the recipe, for error messages
    width        width of an embedded token
    axes         number of coordinates of a token
    grid_shape   number of token positions, or shape of their grid; None if the number is not fixed
    raster       function that returns height, width and channels of an image patch; an empty tuple for other tokens
    initial_std  standard deviation of embedded tokens before training
    leading      number of tokens without a position at the beginning, for example 1 for a class token
    """

    kind: str
    width: int
    axes: int = 1
    grid_shape: int | tuple[int, ...] | None = None
    raster: Callable[[], tuple[int, ...]] = tuple
    initial_std: float = 0.02
    leading: int = 0


class HeadForm(NamedTuple):
    """Number of heads, number of key-value heads (None: same number), width of a head."""

    heads: int
    kv_heads: int | None
    width: int


class PositionOptions(Options):
    """Base class of the options of positional encodings (registry `position`)."""

    @property
    def turns_values(self) -> bool:
        """Whether values are rotated too, like queries and keys."""
        return False

    def build_position(self, form: TokenForm, dim: int, heads: HeadForm | None) -> Position | None:
        """Build the positional encoding for a trunk of width `dim`.

        heads  heads of the trunk, or None for a trunk without attention
        """
        raise NotImplementedError


class TrunkOptions(Options):
    """Base class of the options of trunks (registry `trunk`)."""

    can_be_causal: ClassVar[bool] = False
    """Whether the trunk can be causal, as a decoder must be (default: no)."""
    recurrent: ClassVar[bool] = False
    """Whether the trunk is recurrent and its last state represents all tokens (default: no)."""
    keeps_width: ClassVar[bool] = True
    """Whether the width is `dim` from the input to the last block (default: yes)."""
    tokens_interact: ClassVar[bool] = True
    """Whether the output of a token depends on other tokens (default: yes)."""
    takes_class_token: ClassVar[bool] = False
    """Whether a class token can be used: the first token must see all other tokens (default: no)."""

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
        """Whether the trunk is bidirectional: half of the width is for the reverse order."""
        return False

    def build_trunk(self, form: TokenForm, causal: bool = False, memory_dim: int | None = None) -> nn.Module:
        """Build the trunk.

        memory_dim  width of the encoder's output, for a trunk with cross-attention
        """
        raise NotImplementedError

    def build_decoder(self, form: TokenForm, memory_dim: int, memory_window: int | None) -> nn.Module:
        """Build a decoder for a memory of width `memory_dim`.

        memory_window  maximum number of memory tokens; None means no limit
        """
        return self.build_trunk(form, causal=True, memory_dim=memory_dim)


class DepthOptions(TrunkOptions):
    """Base class of the options of trunks with `depth` blocks."""

    depth: int = Field(default=4, ge=0, le=1000)
    """Number of blocks or layers (default: 4)."""

    @property
    def blocks(self) -> int:
        return self.depth


class PoolingOptions(Options):
    """Base class of the options of poolings (registry `pooling`)."""

    has_weights: ClassVar[bool] = False
    """Whether the pooling has weights (default: no). An objective without pooling would not train these weights."""

    def build_pool(self, dim: int, trunk: TrunkOptions) -> nn.Module:
        """Build the pooling of tokens of width `dim`; `trunk`: options of the trunk."""
        raise NotImplementedError


def needs_attention(name: str, heads: HeadForm | None) -> HeadForm:
    """Return `heads`; raise an error if the trunk has no attention (None)."""
    if heads is None:
        raise UserError(f"`model.position: {name}` needs a trunk with attention", key="model.position")
    return heads
