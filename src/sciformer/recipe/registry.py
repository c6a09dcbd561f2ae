"""Names in a recipe: where each leads, and how a user's file adds its own.

A recipe says `kind: text`; only what was registered can be meant by it. Nothing in a recipe or a checkpoint is ever an
import path, so neither can run code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar, Literal, Self, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field

from ..errors import UserError, one_of
from .field import EXTENSION_POINTS, PLUGIN_FIELDS, SECTIONS_WITH_KIND, load, places

# The library's own objects, imported when their name is used. Fields add theirs: see `field.py`.
SHARED_PLACES: dict[str, dict[str, str]] = {
    **{point: {} for point in EXTENSION_POINTS},
    "data": {
        "arrays": "sciformer.data.readers.arrays:Arrays",
        "events": "sciformer.data.readers.events.reader:EventFiles",
        "series": "sciformer.data.readers.series.reader:SeriesFiles",
    },
    "format": {
        "csv": "sciformer.files.formats.delimited:CSV",
        "ecsv": "sciformer.files.formats.memory:ECSV",
        "fits": "sciformer.files.formats.fits:FITS",
        "hdf5": "sciformer.files.formats.hdf5:HDF5",
        "npz": "sciformer.files.formats.npz:NPZ",
        "parquet": "sciformer.files.formats.parquet:PARQUET",
        "root": "sciformer.files.formats.root:ROOT",
    },
    "model": {
        "decoder": "sciformer.models.decoder:Decoder",
        "encoder": "sciformer.models.encoder:Encoder",
        "encoder_decoder": "sciformer.models.encoder_decoder:EncoderDecoder",
        "masked_autoencoder": "sciformer.models.masked_autoencoder:MaskedAutoencoder",
    },
    "trunk": {
        "conformer": "sciformer.nn.trunks.conformer:ConformerOptions",
        "convolution": "sciformer.nn.trunks.convolution:ConvNetOptions",
        "deep_sets": "sciformer.nn.trunks.deep_sets:DeepSetsOptions",
        "edge_conv": "sciformer.nn.trunks.edge_conv:EdgeConvOptions",
        "gru": "sciformer.nn.trunks.recurrent:GRUOptions",
        "lstm": "sciformer.nn.trunks.recurrent:LSTMOptions",
        "point_cloud_transformer": "sciformer.nn.trunks.point_cloud_transformer:PointCloudTransformerOptions",
        "resnet": "sciformer.nn.trunks.resnet:ResNetOptions",
        "resnet2d": "sciformer.nn.trunks.resnet2d:ResNet2dOptions",
        "rnn": "sciformer.nn.trunks.recurrent:RecurrentOptions",
        "transformer": "sciformer.nn.transformer:TransformerOptions",
    },
    "position": {
        "auto": "sciformer.nn.positions:AutoPositionOptions",
        "fourier": "sciformer.nn.positions:FourierOptions",
        "learned": "sciformer.nn.positions:LearnedOptions",
        "modulation": "sciformer.nn.positions:ModulationOptions",
        "none": "sciformer.nn.positions:NoPositionOptions",
        "relative": "sciformer.nn.positions:RelativeBiasOptions",
        "rotary": "sciformer.nn.positions:RotaryOptions",
        "sinusoidal": "sciformer.nn.positions:SinusoidalOptions",
        "unpaired": "sciformer.nn.positions:UnpairedSinusoidalOptions",
    },
    "pooling": {
        "attention": "sciformer.nn.pooling:AttentionPoolOptions",
        "auto": "sciformer.nn.pooling:AutoPoolingOptions",
        "blocks": "sciformer.nn.pooling:BlockPoolOptions",
        "class_attention": "sciformer.nn.pooling:ClassAttentionOptions",
        "class_token": "sciformer.nn.pooling:ClassTokenOptions",
        "first": "sciformer.nn.pooling:FirstOptions",
        "gru": "sciformer.nn.pooling:GRUPoolOptions",
        "last": "sciformer.nn.pooling:LastOptions",
        "lstm": "sciformer.nn.pooling:LSTMPoolOptions",
        "max": "sciformer.nn.pooling:MaxOptions",
        "mean": "sciformer.nn.pooling:MeanOptions",
        "sum": "sciformer.nn.pooling:SumOptions",
    },
    "metric": {
        name: f"sciformer.metrics:{name}"
        for name in (
            "accuracy",
            "auc",
            "bleu",
            "calibration_error",
            "chrf",
            "coverage_68",
            "coverage_95",
            "efficiency_1",
            "entity_f1",
            "entity_precision",
            "entity_recall",
            "macro_f1",
            "mae",
            "negative_log_likelihood",
            "noise_left",
            "overlap",
            "perplexity",
            "quantile_error",
            "rmse",
            "scatter",
            "token_accuracy",
        )
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


class Options(BaseModel):
    """Keys of a section of a recipe: each field is a key, the text under it is its help."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
    choices: ClassVar[Mapping[str, str]] = {}
    """Key -> extension point. The `Options` registered there under the key's value add their keys to the section."""
    choice_keys: ClassVar[Mapping[str, str]] = {}
    """The same of a class with the keys of its choices, those of what was chosen among them."""
    plain: ClassVar[type[Any] | None] = None
    """The class without the keys of its choices, where this one has them."""

    @classmethod
    def options_beside(cls, chosen: type[Options]) -> tuple[type[Options], ...]:
        """Further options where these are chosen."""
        return ()


class Section(Options):
    """A section of a recipe.

    Instances are frozen: what a section learns from data (a vocabulary, a mean) it keeps in `state`, plain JSON that is
    stored with the model.
    """

    section: ClassVar[str] = ""

    kind: str = ""
    """Which one, by its registered name."""

    def __new__(cls, /, **values: Any) -> Self:
        """An instance of the class that has the keys of what the values choose."""
        return object.__new__(cls if cls.plain else cls.with_choices(values))

    @classmethod
    def model_validate(cls, obj: Any, **more: Any) -> Self:
        """The section that the values of a mapping describe."""
        chosen: Any = cls.with_choices(obj) if cls.plain is None and isinstance(obj, Mapping) else cls
        made: Any = super(Section, chosen).model_validate(obj, **more)
        return cast(Self, made)

    def model_post_init(self, context: Any) -> None:
        """Give every instance its own empty state."""
        object.__setattr__(self, "state", {})

    state: ClassVar[dict[str, Any]]

    def fresh(self) -> Self:
        """The same section with a state of its own, empty as yet."""
        twin = self.model_copy()
        object.__setattr__(twin, "state", {})
        return twin

    @classmethod
    def with_choices(cls, values: Mapping[str, Any]) -> type[Self]:
        """This class with the keys of what `values` choose: `trunk: lstm` adds the options of an LSTM."""
        return with_choices(cls.plain or cls, values)


def with_choices(cls: type[Any], values: Mapping[str, Any], section: type[Options] | None = None) -> type[Any]:
    """A class of options with those that `values` choose, and those that these choose in turn.

    section  the class that says which options stand beside those (default: the same)
    """
    owners: list[Any] = [cls]
    found: list[type[Options]] = []
    points: dict[str, str] = {}
    for owner in owners:
        for key, point in owner.choices.items():
            default = owner.model_fields[key].default
            chosen = values.get(key, default)
            one = find(point, chosen if chosen in names(point) else default)
            points[key] = point
            for more in (one, *(section or cls).options_beside(one)):
                if not any(issubclass(other, more) for other in owners):
                    found.append(more)
                    owners.append(more)
    known = tuple((key, point, tuple(names(point))) for key, point in points.items())
    return _composed(cls, tuple(found), known) if known else cls  # type: ignore[arg-type]


@cache
def _composed(
    cls: type[Any], options: tuple[type[Options], ...], choices: tuple[tuple[str, str, tuple[str, ...]], ...]
) -> type[Any]:
    """The class of a section with the keys of its options; each choice is one of the registered names."""
    bases = (*reversed(options), cls)
    fields = {key: next(one.model_fields[key] for one in bases if key in one.model_fields) for key, _, _ in choices}
    body = {
        "__doc__": cls.__doc__,
        "__module__": cls.__module__,
        "__annotations__": {key: Literal[known] for key, _, known in choices},
        "model_config": ConfigDict(use_attribute_docstrings=False),
        "plain": cls,
        "choice_keys": {key: point for key, point, _ in choices},
        **{key: Field(default=info.default, description=info.description) for key, info in fields.items()},
    }
    metaclass: Any = type(cls)
    made: type[Any] = metaclass(cls.__name__, bases, body)
    return made


def built_in(point: str) -> dict[str, str]:
    """Name -> place of the objects that come with the library, those of its fields among them."""
    own = {**SHARED_PLACES[point], **places(point)}
    return {**own, **built_in("simulation")} if point == "data" else own


def added(point: str) -> dict[str, Any]:
    """Name -> object that plugins have registered."""
    own = REGISTERED[point]
    return {**own, **REGISTERED["simulation"]} if point == "data" else own


def register(point: str, name: str) -> Callable[[Registered], Registered]:
    """Register an object under a name: `@register("tokens", "beads")` above a class, in a file given with --plugin.

    point  one of `EXTENSION_POINTS`: a section of a recipe with a `kind`, a trunk, a metric, ...; a simulation is a
           kind of `data` too
    """
    one_of("the extension point", point, EXTENSION_POINTS)

    def keep(found: Registered) -> Registered:
        what = f"{getattr(found, '__name__', type(found).__name__)} cannot be registered as {name!r} because"
        if name in built_in("data" if point == "simulation" else point):
            message = f"{what} Sciformer has a {point} of that name"
            raise UserError(message, hint="Choose another name.", key=f"{point}.kind")
        if missing := sorted(getattr(found, "__abstractmethods__", ())):
            raise UserError(f"{what} it does not define {', '.join(missing)}", key=f"{point}.kind")
        REGISTERED[point][name] = found
        return found

    return keep


def is_own(point: str, name: str) -> bool:
    """Whether a name comes from a plugin."""
    return name in REGISTERED[point] or any(name in getattr(one, point) for _, one in PLUGIN_FIELDS.values())


def names(point: str) -> list[str]:
    """All names that can be used at an extension point."""
    return sorted({**built_in(point), **added(point)})


def find(point: str, name: str) -> Any:
    """The object behind a name."""
    if name in added(point):
        return added(point)[name]
    one_of(f"`{point}.kind`" if point in SECTIONS_WITH_KIND else f"the {point}", name, names(point))
    return load(built_in(point)[name])
