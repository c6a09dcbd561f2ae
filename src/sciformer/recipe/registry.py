"""Names in a recipe: where each leads, and how a user's file adds its own.

A recipe says `kind: text`; only what was registered can be meant by it. Nothing in a recipe or a checkpoint is ever an
import path, so neither can run code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict

from ..errors import UserError, one_of
from .field import EXTENSION_POINTS, SECTIONS_WITH_KIND, load, places

# The library's own objects, imported when their name is used. Fields add theirs: see `field.py`.
SHARED_PLACES: dict[str, dict[str, str]] = {
    **{point: {} for point in EXTENSION_POINTS},
    "data": {
        "arrays": "sciformer.data.readers.arrays:Arrays",
        "events": "sciformer.data.readers.events.reader:EventFiles",
        "series": "sciformer.data.readers.series.reader:SeriesFiles",
    },
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
REGISTERED: dict[str, dict[str, Any]] = {point: {} for point in EXTENSION_POINTS}
"""Objects of plugins, by extension point and name."""
Registered = TypeVar("Registered")


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


def built_in(point: str) -> dict[str, str]:
    """Name -> place of the objects that come with the library, those of its fields among them."""
    return {**SHARED_PLACES[point], **places(point)}


def register(point: str, name: str) -> Callable[[Registered], Registered]:
    """Register an object under a name: `@register("tokens", "beads")` above a class, in a file given with --plugin.

    point  one of `EXTENSION_POINTS`: a section of a recipe, or trunk, position, pooling, metric, format, simulation
    """
    one_of("the extension point", point, EXTENSION_POINTS)

    def keep(found: Registered) -> Registered:
        what = f"{getattr(found, '__name__', type(found).__name__)} cannot be registered as {name!r} because"
        if name in built_in(point):
            message = f"{what} Sciformer has a {point} of that name"
            raise UserError(message, hint="Choose another name.", key=f"{point}.kind")
        if missing := sorted(getattr(found, "__abstractmethods__", ())):
            raise UserError(f"{what} it does not define {', '.join(missing)}", key=f"{point}.kind")
        REGISTERED[point][name] = found
        return found

    return keep


def names(point: str) -> list[str]:
    """All names that can be used at an extension point."""
    return sorted({**built_in(point), **REGISTERED[point]})


def find(point: str, name: str) -> Any:
    """The object behind a name."""
    if name in REGISTERED[point]:
        return REGISTERED[point][name]
    one_of(f"`{point}.kind`" if point in SECTIONS_WITH_KIND else f"the {point}", name, names(point))
    return load(built_in(point)[name])
