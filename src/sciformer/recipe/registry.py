"""Registry: objects of the library and of plugins, by their names in recipes.

For example, a recipe has `kind: text`; only registered names are allowed. Recipes and checkpoints never contain import
paths, so they cannot run code.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar, Literal, Self, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field

from ..errors import UserError, one_of
from ..files.seal import Stored
from .field import EXTENSION_POINTS, PLUGIN_FIELDS, SECTIONS_WITH_KIND, load, places

METRICS = {
    "metrics.calibration": "calibration_error",
    "metrics.classification": "accuracy auc balanced_accuracy efficiency_1 log_loss macro_f1",
    "metrics.regression": "coverage_68 coverage_95 mae negative_log_likelihood noise_left overlap quantile_error rmse "
    "scatter",
    "metrics.retrieval": "mean_rank pair_accuracy recall_1 recall_5 reverse_mean_rank reverse_recall_1 "
    "reverse_recall_5",
    "metrics.text": "bleu chrf entity_f1 entity_precision entity_recall exact_match perplexity token_accuracy",
}
"""Modules and their functions, whose names are the names of the metrics."""
# The library's own objects, imported when their name is used. Fields add theirs: see `field.py`.
SHARED_PLACES: dict[str, dict[str, str]] = {
    **{point: {} for point in EXTENSION_POINTS},
    "data": {
        "arrays": "sciformer.data.readers.arrays:Arrays",
        "events": "sciformer.data.readers.events.reader:EventFiles",
        "join": "sciformer.data.readers.join:Join",
        "series": "sciformer.data.readers.series.reader:SeriesFiles",
    },
    "format": {
        "csv": "sciformer.files.formats.delimited:CSV",
        "ecsv": "sciformer.files.formats.memory:ECSV",
        "fits": "sciformer.files.formats.fits:FITS",
        "hdf5": "sciformer.files.formats.hdf5:HDF5",
        "jsonl": "sciformer.files.formats.jsonlines:JSONLINES",
        "npz": "sciformer.files.formats.npz:NPZ",
        "parquet": "sciformer.files.formats.parquet:PARQUET",
        "root": "sciformer.files.formats.root:ROOT",
    },
    "model": {
        "contrastive_captioner": "sciformer.models.contrastive_captioner:ContrastiveCaptioner",
        "decoder": "sciformer.models.decoder:Decoder",
        "dual_encoder": "sciformer.models.dual_encoder:DualEncoder",
        "diffusion_transformer": "sciformer.models.diffusion_transformer:DiffusionTransformer",
        "encoder": "sciformer.models.encoder:Encoder",
        "encoder_decoder": "sciformer.models.encoder_decoder:EncoderDecoder",
        "masked_autoencoder": "sciformer.models.masked_autoencoder:MaskedAutoencoder",
        "multistream": "sciformer.models.multistream:Multistream",
        "vector_quantized": "sciformer.models.vector_quantized:VectorQuantized",
    },
    "new": {"join": "sciformer.recipe.new_join:JOIN"},
    "tokens": {"scalars": "sciformer.tokens.scalars:Scalars"},
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
    "metric": {name: f"sciformer.{module}:{name}" for module, some in METRICS.items() for name in some.split()},
    "objective": {
        "classify": "sciformer.objectives.classify:Classify",
        "contrast": "sciformer.objectives.contrast:Contrast",
        "contrast_and_caption": "sciformer.objectives.contrast_and_caption:ContrastAndCaption",
        "denoise": "sciformer.objectives.denoise:Denoise",
        "diffusion": "sciformer.objectives.diffusion:Diffusion",
        "masked": "sciformer.objectives.masked:Masked",
        "next_token": "sciformer.objectives.next_token:NextToken",
        "prompted_translation": "sciformer.objectives.seq2seq:PromptedTranslation",
        "reconstruct": "sciformer.objectives.reconstruct:Reconstruct",
        "regress": "sciformer.objectives.regress:Regress",
        "tag": "sciformer.objectives.tag:Tag",
        "translate": "sciformer.objectives.seq2seq:Translate",
    },
}
REGISTERED: dict[str, dict[str, Any]] = {point: {} for point in EXTENSION_POINTS}
"""Objects registered by plugins: extension point -> {name: object}."""
Registered = TypeVar("Registered")


class Options(BaseModel):
    """Keys of a recipe section: each field is a key, with its help text below it."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
    choices: ClassVar[Mapping[str, str]] = {}
    """Choices of a section: key (`trunk`) -> extension point. The value of the key selects a class of options, and
    the keys of this class become keys of the section."""
    choice_keys: ClassVar[Mapping[str, str]] = {}
    """`choices` of a composed class, together with the choices of the selected options."""
    plain: ClassVar[type[Any] | None] = None
    """Original class, if this class was composed by `with_choices`; else None."""

    @classmethod
    def options_beside(cls, chosen: type[Options]) -> tuple[type[Options], ...]:
        """Further classes of options in a section, if the class `chosen` is selected."""
        return ()


class Section(Options):
    """Section of a recipe.

    Instances are frozen. Values fitted to data (a vocabulary, a mean) are kept in `state`: plain JSON, stored with the
    model.
    """

    section: ClassVar[str] = ""
    neutral_keys: ClassVar[tuple[str, ...]] = ()
    """Keys without effect on samples and scores. Recipes may differ in these keys in a comparison."""
    model_keys: ClassVar[tuple[str, ...]] = ()
    """Keys of this section that describe a part of the model, such as an embedding or a head."""

    kind: str = ""
    """Kind of the section; it determines the other keys."""

    def __new__(cls, /, **values: Any) -> Self:
        """Create an instance of the subclass for these values (see `with_choices`)."""
        return object.__new__(cls if cls.plain else cls.with_choices(values))

    @classmethod
    def model_validate(cls, obj: Any, **more: Any) -> Self:
        """Validate a mapping, including the options of the kinds named in it."""
        chosen: Any = cls.with_choices(obj) if cls.plain is None and isinstance(obj, Mapping) else cls
        made: Any = super(Section, chosen).model_validate(obj, **more)
        return cast(Self, made)

    def model_post_init(self, context: Any) -> None:
        """Give the section an empty state."""
        object.__setattr__(self, "state", {})

    state: ClassVar[dict[str, Any]]

    def fresh(self) -> Self:
        """Copy of the section without its fitted state."""
        twin = self.model_copy()
        object.__setattr__(twin, "state", {})
        return twin

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the fitted state from a copy of `state`."""
        object.__setattr__(self, "state", Stored(copy.deepcopy(dict(state))))

    @classmethod
    def with_choices(cls, values: Mapping[str, Any]) -> type[Self]:
        """Compose the class for some values: `trunk: lstm` adds the options of an LSTM."""
        return with_choices(cls.plain or cls, values)


def with_choices(cls: type[Any], values: Mapping[str, Any], section: type[Options] | None = None) -> type[Any]:
    """Subclass with the options of the kinds named in `values`.

    For example, the value `trunk: lstm` adds the options of an LSTM. If these options name kinds too, the options of
    these kinds are also added.

    section  class with the method `options_beside`, for further options (default: `cls`)
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
    """Subclass of a section with the keys of the selected options.

    choices   (key, extension point, registered names) of each key that selects options
    """
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
    """Import paths of the objects of Sciformer and its fields, by name."""
    own = {**SHARED_PLACES[point], **places(point)}
    return {**own, **built_in("simulation")} if point == "data" else own


def added(point: str) -> dict[str, Any]:
    """Objects registered by plugins, by name."""
    own = REGISTERED[point]
    return {**own, **REGISTERED["simulation"]} if point == "data" else own


def register(point: str, name: str) -> Callable[[Registered], Registered]:
    """Register an object under a name: `@register("tokens", "beads")`.

    point  one of `EXTENSION_POINTS`: a section with a `kind`, a trunk, a metric, ...; a simulation is also a kind of
           `data`
    """
    one_of("the extension point", point, EXTENSION_POINTS)

    def keep(found: Registered) -> Registered:
        what = f"{getattr(found, '__name__', type(found).__name__)} cannot be registered as {name!r} because"
        if name in built_in("data" if point == "simulation" else point):
            message = f"{what} Sciformer already uses this name for {point}"
            raise UserError(message, hint="Choose another name.", key=f"{point}.kind")
        if missing := sorted(getattr(found, "__abstractmethods__", ())):
            raise UserError(f"{what} it does not define {', '.join(missing)}", key=f"{point}.kind")
        REGISTERED[point][name] = found
        return found

    return keep


def is_own(point: str, name: str) -> bool:
    """Whether the name is from a plugin."""
    return name in REGISTERED[point] or any(name in getattr(one, point) for _, one in PLUGIN_FIELDS.values())


def names(point: str) -> list[str]:
    """All names at an extension point."""
    return sorted({**built_in(point), **added(point)})


def find(point: str, name: str) -> Any:
    """Find an object by its name at an extension point; import it on first use."""
    if name in added(point):
        return added(point)[name]
    one_of(f"`{point}.kind`" if point in SECTIONS_WITH_KIND else f"the {point}", name, names(point))
    return load(built_in(point)[name])
