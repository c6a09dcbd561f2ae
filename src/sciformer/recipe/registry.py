"""Names in a recipe: where each leads, and how a user's file adds its own.

A recipe says `kind: text`; only what was registered can be meant by it. Nothing in a recipe or a checkpoint is ever an
import path, so neither can run code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict

from ..errors import UserError, one_of
from .field import load, places

# The library's own classes, imported when a recipe names them. Fields add theirs: see `field.py`.
SHARED_CLASSES: dict[str, dict[str, str]] = {
    "data": {
        "arrays": "sciformer.data.readers.arrays:Arrays",
        "events": "sciformer.data.readers.events.reader:EventFiles",
        "series": "sciformer.data.readers.series.reader:SeriesFiles",
    },
    "tokens": {},
    "model": {
        "decoder": "sciformer.models.decoder:Decoder",
        "encoder": "sciformer.models.encoder:Encoder",
        "encoder_decoder": "sciformer.models.encoder_decoder:EncoderDecoder",
        "masked_autoencoder": "sciformer.models.masked_autoencoder:MaskedAutoencoder",
    },
    "objective": {
        "classify": "sciformer.objectives.classify:Classify",
        "denoise": "sciformer.objectives.denoise:Denoise",
        "masked": "sciformer.objectives.masked:Masked",
        "next_token": "sciformer.objectives.next_token:NextToken",
        "prompted_translation": "sciformer.objectives.seq2seq:PromptedTranslation",
        "regress": "sciformer.objectives.regress:Regress",
        "tag": "sciformer.objectives.tag:Tag",
        "translate": "sciformer.objectives.seq2seq:Translate",
    },
}
SECTIONS_WITH_KIND = tuple(SHARED_CLASSES)
"""Sections of a recipe that have a `kind`."""
REGISTERED_CLASSES: dict[str, dict[str, type[Section]]] = {section: {} for section in SECTIONS_WITH_KIND}
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


def built_in(section: str) -> dict[str, str]:
    """Name -> place of the classes that come with the library, those of its fields among them."""
    return {**SHARED_CLASSES[section], **places(section)}


def register(section: str, name: str) -> Callable[[Class], Class]:
    """Make a class known under a name: `@register("tokens", "beads")` above it, in a file given with --plugin."""
    one_of("the section of a recipe", section, SECTIONS_WITH_KIND)

    def keep(found: Class) -> Class:
        if name in built_in(section):
            message = f"{found.__name__} cannot be registered as {name!r} because Sciformer has a kind of that name"
            raise UserError(message, hint="Choose another name.", key=f"{section}.kind")
        REGISTERED_CLASSES[section][name] = found
        return found

    return keep


def names(section: str) -> list[str]:
    """All names a recipe may use in this section."""
    return sorted({**built_in(section), **REGISTERED_CLASSES[section]})


def find(section: str, name: str) -> type[Section]:
    """The class behind a name."""
    if name in REGISTERED_CLASSES[section]:
        return REGISTERED_CLASSES[section][name]
    one_of(f"`{section}.kind`", name, names(section))
    found: type[Section] = load(built_in(section)[name])
    return found
