"""Names in a recipe: where each leads, and how a user's file adds its own.

A recipe says `kind: text`; only what was registered can be meant by it. Nothing in a recipe or a checkpoint is ever an
import path, so neither can run code.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict

from .errors import UserError, one_of

# The library's own classes are imported when a recipe names them.
BUILT_IN: dict[str, dict[str, str]] = {
    "data": {
        "arrays": "sciformer.data.readers.arrays:Arrays",
        "columns": "sciformer.data.readers.columns:Columns",
        "cues": "sciformer.data.readers.rendered:Cues",
        "curves": "sciformer.data.readers.curves:Curves",
        "events": "sciformer.data.readers.events:Events",
        "galaxies": "sciformer.data.readers.rendered:Galaxies",
        "images": "sciformer.data.readers.images:ImageFiles",
        "jets": "sciformer.data.readers.jets:Jets",
        "lattices": "sciformer.data.readers.lattices:Lattices",
        "lenses": "sciformer.data.readers.rendered:Lenses",
        "lightcurves": "sciformer.data.readers.lightcurves:LightCurves",
        "lines": "sciformer.data.readers.lines:Lines",
        "parallel": "sciformer.data.readers.parallel:Parallel",
        "pronouns": "sciformer.data.readers.pronouns:Pronouns",
        "recall": "sciformer.data.readers.recall:Recall",
        "text": "sciformer.data.readers.text:TextFiles",
    },
    "tokens": {
        "observations": "sciformer.tokens.observations:Observations",
        "particles": "sciformer.tokens.particles:Particles",
        "patches": "sciformer.tokens.patches:Patches",
        "text": "sciformer.tokens.text:Text",
    },
    "model": {
        "decoder": "sciformer.models.decoder:Decoder",
        "encoder": "sciformer.models.encoder:Encoder",
        "encoder_decoder": "sciformer.models.encoder_decoder:EncoderDecoder",
        "masked_autoencoder": "sciformer.models.masked_autoencoder:MaskedAutoencoder",
    },
    "objective": {
        "classify": "sciformer.objectives.classify:Classify",
        "continue": "sciformer.objectives.written:Continue",
        "masked": "sciformer.objectives.masked:Masked",
        "next_token": "sciformer.objectives.next_token:NextToken",
        "recover": "sciformer.objectives.recover:Recover",
        "regress": "sciformer.objectives.regress:Regress",
        "tag": "sciformer.objectives.tag:Tag",
        "translate": "sciformer.objectives.translate:Translate",
    },
}
REGISTERED: dict[str, dict[str, type[Section]]] = {section: {} for section in BUILT_IN}
Class = TypeVar("Class", bound="type[Section]")


class Section(BaseModel):
    """A section of a recipe: its fields are the keys, the text under a field is its help.

    Instances are frozen: what a section learns from data (a vocabulary, a mean) it keeps in `state`, plain JSON that is
    stored with the model.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
    section: ClassVar[str] = ""

    kind: str = ""
    """Which one, by its registered name."""

    def model_post_init(self, context: Any) -> None:
        """Give every instance its own empty state."""
        object.__setattr__(self, "state", {})

    state: ClassVar[dict[str, Any]]

    def fresh(self) -> Self:
        """The same section with a state of its own, empty as yet."""
        twin = self.model_copy()
        object.__setattr__(twin, "state", {})
        return twin


def register(section: str, name: str) -> Callable[[Class], Class]:
    """Make a class known under a name: `@register("tokens", "beads")` above it, in a file given with --plugin."""
    one_of("the section of a recipe", section, BUILT_IN)

    def keep(found: Class) -> Class:
        if name in BUILT_IN[section]:
            message = f"{found.__name__} cannot be registered as {name!r} because Sciformer has a kind of that name"
            raise UserError(message, hint="Choose another name.", key=f"{section}.kind")
        REGISTERED[section][name] = found
        return found

    return keep


def names(section: str) -> list[str]:
    """All names a recipe may use in this section."""
    return sorted({**BUILT_IN[section], **REGISTERED[section]})


def find(section: str, name: str) -> type[Section]:
    """The class behind a name."""
    if name in REGISTERED[section]:
        return REGISTERED[section][name]
    one_of(f"`{section}.kind`", name, names(section))
    module, _, attribute = BUILT_IN[section][name].partition(":")
    found: type[Section] = getattr(importlib.import_module(module), attribute)
    return found
