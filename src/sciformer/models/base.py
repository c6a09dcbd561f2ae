"""Base class of models: the `model:` section and its trunk."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Self

from pydantic import Field, create_model, model_serializer
from torch import nn

from ..errors import UserError
from ..nn.options import TokenForm, TrunkOptions
from ..recipe.registry import Section, find, names, with_choices
from ..tokens.base import Tokens
from ..tokens.protocols import Gridded
from .network import Entrance, Network, ReadoutLayer, parameters

__all__ = ["Entrance", "Model", "Network", "ReadoutLayer", "parameters", "single"]


class TrunkChoice(TrunkOptions):
    """Model keys of every trunk; the keys of the chosen trunk are added."""

    choices: ClassVar[Mapping[str, str]] = {"trunk": "trunk"}

    trunk: str = "transformer"
    """Network between the embedding and the head (default: transformer)."""
    embedding_dropout: float | None = Field(default=None, ge=0, lt=1)
    """Dropout rate of the embedded tokens (default: the value of dropout)."""


class StreamOptions(TrunkChoice):
    """Model keys for a single stream, such as `model.source.trunk`."""

    @model_serializer
    def given(self) -> dict[str, Any]:
        """Keys set in the recipe for this stream; other keys come from the model."""
        return {key: getattr(self, key) for key in type(self).model_fields if key in self.model_fields_set}


class Model(TrunkChoice, Section):
    """Section `model:` of a recipe, with the keys of its trunk.

    Keys in a section with the name of a stream (`model.source`) replace the keys of the model for this stream.
    """

    section = "model"
    streams: ClassVar[tuple[str, ...]] = ()
    """Streams with their own section, for example `source` for `model.source`."""
    stream_options: ClassVar[type[StreamOptions]] = StreamOptions
    """Class of the sections of the streams."""
    joins_streams: ClassVar[bool] = False
    """Whether one trunk reads the tokens of all streams (default: no). If so, `predict` needs no `objective.stream`."""

    readout_layer: bool = False
    """Add a linear layer, an activation and a norm before the token readout, as in BERT (default: false)."""
    readout_norm: bool = False
    """Add only a norm before the token readout, as in ASTROMER (default: false)."""

    @classmethod
    def with_choices(cls, values: Mapping[str, Any]) -> type[Self]:
        """Subclass with the keys of the selected trunk, and a section per stream.

        values   keys and values of the section `model`; a mapping under a key unknown to the model is a stream section
        """
        plain: type[Any] = cls.plain or cls
        made = super().with_choices(values)
        streams = {key: own for key, own in values.items() if isinstance(own, Mapping) and key not in made.model_fields}
        if not streams:
            return made
        shared = {key: value for key, value in values.items() if key not in streams}
        fields = {key: with_choices(cls.stream_options, {**shared, **own}, plain) for key, own in streams.items()}
        return _with_streams(made, tuple(fields.items()))

    def for_stream(self, stream: str) -> Self:
        """Model section of one stream: keys of the stream replace keys of the model."""
        if stream not in self.streams:
            return self
        plain: type[Any] = type(self).plain or type(self)
        given = {key: getattr(self, key) for key in self.model_fields_set if key not in self.streams}
        values = {**given, **getattr(self, stream).given()}
        known = plain.with_choices(values).model_fields
        made: Self = plain(**{key: value for key, value in values.items() if key in known})
        return made

    def build(self, tokens: Mapping[str, Tokens], objective: Any) -> nn.Module:
        """Build the network for these tokens and this objective."""
        raise NotImplementedError

    def make_trunk(self, tokens: Tokens, causal: bool = False, leading: int = 0) -> nn.Module:
        """Build the trunk.

        causal    whether a token may see only earlier tokens
        leading   number of extra tokens before the tokens of a sample
        """
        if causal and not self.can_be_causal:
            found = f"`model.trunk: {self.trunk}` cannot be causal"
            message = f"`model.kind: {self.kind}` needs a causal trunk, but {found}"
            raise UserError(message, key="model.trunk")
        return self.build_trunk(self.token_form(tokens, leading), causal)

    def token_form(self, tokens: Tokens, leading: int = 0) -> TokenForm:
        """Width and positions of the tokens, as needed to build the trunk."""
        width = tokens.width(self.dim)
        if self.keeps_width and width != self.dim:
            others = ", ".join(name for name in names("trunk") if not find("trunk", name).keeps_width)
            message = f"`model.trunk: {self.trunk}` needs tokens of width {self.dim}, but their width is {width}"
            hint = f"Choose another tokens.embed, or one of the trunks {others}."
            raise UserError(message, hint=hint, key="model.trunk")
        raster = (lambda: tokens.raster) if isinstance(tokens, Gridded) else tuple
        return TokenForm(tokens.kind, width, tokens.axes, tokens.grid_shape, raster, tokens.initial_std, leading)


@cache
def _with_streams(cls: type[Model], streams: tuple[tuple[str, type[StreamOptions]], ...]) -> type[Any]:
    """Make a subclass with one section of keys per stream.

    streams   name and options class of each stream
    """
    fields: dict[str, Any] = {name: (one, Field(description=f"Keys of the stream {name}.")) for name, one in streams}
    made: type[Model] = create_model(cls.__name__, __base__=cls, **fields)
    made.streams = tuple(fields)
    return made


def single(tokens: Mapping[str, Tokens], section: Model) -> Tokens:
    """Tokens of the only stream; refuse several streams."""
    if len(tokens) != 1:
        found = f"the recipe has {len(tokens)}: {', '.join(tokens)}"
        raise UserError(f"`model.kind: {section.kind}` takes one stream of tokens, but {found}", key="tokens")
    return next(iter(tokens.values()))
