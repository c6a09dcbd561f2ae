"""Particle tokens: particles of a jet with momentum, type and impact parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from pydantic import Field, field_validator
from torch import nn

from ...data.batch import Batch, Stream
from ...data.columns import Array, Lists, Table
from ...data.profile import MIDDLE
from ...data.readers.formula import Formula
from ...errors import UserError, one_of
from ...tokens.base import DataFindings
from ...tokens.protocols import Editable, Exportable, Maskable, Pairwise, Readout
from .features import (
    FEATURE_SETS,
    KINEMATIC_FEATURES,
    MAX_JET_PT,
    MIN_JET_PT,
    PLANE_COLUMNS,
    TYPE_FLAGS,
    UNITS,
    VECTOR_COLUMNS,
    Feature,
    FeatureSetName,
    Kinematics,
    format_momentum,
    guess_unit,
    hidden_targets,
    relative_kinematics,
    stack_columns,
    standardise_features,
    sum_jet_momenta,
    turn_particle,
)
from .layers import (
    PAIR_FEATURES,
    LinearEmbedding,
    PairName,
    ParticleEmbedding,
    ParticlePairs,
    ParticleReadout,
    RankEmbedding,
)

Width = Annotated[int, Field(ge=1, le=1 << 16)]
TARGET_PREFIX = "target "
TYPE_SYMBOLS = dict(zip(TYPE_FLAGS, ("π±", "h⁰", "γ", "e", "μ")))
MARKERS = ("o", "s", "D", "^", "v", "X")
MAX_FITTED_PARTICLES = 1_000_000  # particles used to fit centres and scales


class Particles(Pairwise, Maskable, Exportable, Editable):
    """Particles of jets in order of falling pT, with features and pair features.

    Columns of particles are lists, columns of jets are numbers. If `plane` or `jet` is missing in the data, its values
    are computed from the sum of the particles. As in JetClass (arXiv 2202.03772), deta is multiplied by the sign of the
    jet's pseudorapidity. If an objective hides particles, the jet is the sum of the visible particles, and the model
    knows only the rank in pT of a hidden particle.
    """

    hides: ClassVar[tuple[str, ...]] = ("vector", "type")
    model_keys: ClassVar[tuple[str, ...]] = ("embed", "widths")
    host_columns: ClassVar[tuple[str, ...]] = ("raw", "plane", "jet", "type")
    may_differ_when_finetuning: ClassVar[tuple[str, ...]] = ("vector", "unit", "plane", "jet", "types", "max_tokens")
    changeable_columns: ClassVar[tuple[str, ...]] = ("vector", "type", "raw")
    movable_column: ClassVar[str] = "plane"
    coordinates: ClassVar[tuple[str, ...]] = ("deta", "dphi")

    vector: tuple[str, str, str, str] = VECTOR_COLUMNS
    """Columns px, py, pz and E of particles."""
    unit: Literal["GeV", "MeV"] = "GeV"
    """Unit of the columns `vector`, and of pT and E of `jet` (default: GeV). MeV are divided by 1000, because features,
    drawings and exports are in GeV."""
    plane: tuple[str, str] = PLANE_COLUMNS
    """Columns deta and dphi of particles, relative to the jet axis. Missing columns are computed from the momenta."""
    jet: tuple[str, str, str, str] = ("jet_pt", "jet_eta", "jet_phi", "jet_energy")
    """Columns pT, eta, phi and E of the jet. If a column is missing, all four columns are computed from
    the momenta."""
    types: tuple[str, ...] = tuple(f"part_{name}" for name in TYPE_SYMBOLS)
    """Columns of particle types, with 1 for particles of the type. They are used in plots and as target for hidden
    particles."""
    features: FeatureSetName | list[Feature] = "full"
    """Input features (default: full): kin (7, from momenta), kinpid (13, also charge and type), full (17, also impact
    parameters), or a list of features. A feature is a name or {name, column, formula, centre, scale, clip}, with the
    standardisation clip((x - centre) scale)."""
    max_tokens: int = Field(default=128, ge=1)
    """Maximum number of particles per jet (default: 128). The particles of highest pT are kept."""
    at: Literal["plane", "vector"] = "plane"
    """Coordinates of a particle, for trunks with coordinates (default: plane). plane: deta and dphi; vector: E, px, py
    and pz."""
    embed: Literal["layers", "linear", "features"] = "layers"
    """Embedding of the features (default: layers). layers: an MLP of `widths`; linear: one matrix; features: no
    embedding."""
    widths: tuple[Width, ...] = (128, 512)
    """Widths of the hidden layers of the embedding (default: 128, 512)."""
    pair_features: tuple[PairName, ...] = PAIR_FEATURES
    """Pair features for the attention bias: ln_kt, ln_z, ln_delta, ln_m2 (default: all; [] for no bias)."""
    pair_widths: tuple[Width, ...] = (64, 64, 64)
    """Widths of the hidden layers from pair features to attention heads (default: 64, 64, 64)."""
    pair_last: bool = True
    """Activation after the last pair layer (default: true). True means `use_pre_activation_pair=False` in weaver."""
    pair_bias: bool = True
    """Biases in the pair layers (default: true)."""

    @field_validator("features", mode="before")
    @classmethod
    def _features_by_name(cls, value: Any) -> Any:
        return [{"name": one} if isinstance(one, str) else one for one in value] if isinstance(value, list) else value

    @property
    def feature_list(self) -> list[Feature]:
        return FEATURE_SETS[self.features] if isinstance(self.features, str) else self.features

    @property
    def column_features(self) -> list[Feature]:
        return [feature for feature in self.feature_list if not feature.is_kinematic]

    @property
    def required_columns(self) -> tuple[str, ...]:
        own = (name for feature in self.column_features for name in feature.needs)
        return tuple(dict.fromkeys([*self.vector, *own]))

    @property
    def optional_columns(self) -> tuple[str, ...]:
        return (*self.plane, *self.jet, *self.types)

    @property
    def nonnegative_columns(self) -> tuple[str, ...]:
        return (self.vector[3],)

    def count_tokens(self, known: Callable[..., Array | None]) -> Array | None:
        found = known(self.vector[0], lists=True)
        return None if found is None else np.minimum(found, self.max_tokens).astype(np.int64)

    @property
    def axes(self) -> int:
        return 2 if self.at == "plane" else 4

    # Tokens and coordinates

    def fit(self, tables: Iterable[Table]) -> None:
        """Fit null centres and scales of features: median and 68 % interval."""
        if not any(feature.scale is None for feature in self.feature_list):
            return
        rows, count = [], 0
        for table in tables:
            stream = self.tokenize(table)
            rows.append(self._raw_features(stream))
            count += len(rows[-1])
            if count >= MAX_FITTED_PARTICLES:
                break
        if not count:
            raise UserError("the training data have no particles to fit the feature scales")
        values = np.concatenate(rows)[:MAX_FITTED_PARTICLES].astype(np.float64)
        low, centre, high = np.percentile(values, [16, 50, 84], axis=0)
        wide = np.maximum(high - centre, centre - low)
        self.state.update(centre=centre.tolist(), scale=(1 / np.where(wide > 0, wide, 1)).tolist())

    def tokenize(self, table: Table) -> Stream:
        """Make tokens of the particles, in order of falling pT.

        vector  (T, 4) px, py, pz and E
        plane   (T, 2) deta and dphi
        jet     (T, 4) pT, eta, phi and E of the jet of each particle
        type    (T,) index of the particle type
        raw     (T, K) features from columns or formulas
        """
        parts = [particle_column(table, name) for name in self.vector]
        lengths, like = parts[0].lengths.astype(np.int64), self.vector[0]
        for name, part in zip(self.vector, parts):
            check_lengths(part, lengths, name, like)
        vector = stack_columns([part.values for part in parts])
        factor = np.float32(UNITS[self.unit])
        if factor != 1:
            vector *= factor
        check_finite(vector, "/".join(self.vector))
        if (wrong := vector[:, 3] < 0).any():
            message = f"{wrong.sum()} particles have a negative energy in column `{self.vector[3]}`"
            raise UserError(message, hint="Remove these particles from the data.")
        if all(name in table for name in self.jet):
            jets = np.stack([np.asarray(table[name]) for name in self.jet], -1).astype(np.float32)
            jets[:, [0, 3]] *= factor
        else:
            jets = sum_jet_momenta(vector, lengths)
        jet = np.repeat(jets, lengths, axis=0)
        if all(name in table for name in self.plane):
            angles = [check_lengths(particle_column(table, name), lengths, name, like).values for name in self.plane]
            plane = stack_columns(angles)
        else:
            plane = relative_kinematics(vector, jet)[:, 1:]
        features = self.column_features
        raw = stack_columns([feature_values(table, feature, lengths, like) for feature in features], len(vector))
        check_finite(raw, ", ".join(feature.name for feature in features))
        columns = {"vector": vector, "jet": jet, "type": self._type(table, len(vector)), "plane": plane, "raw": raw}
        stream = self._hardest_first(Stream(columns, lengths))
        kept = np.minimum(lengths, self.max_tokens)
        return stream if (kept == lengths).all() else stream.cut(stream.starts, kept)

    def describe_data(self, profile: Mapping[str, Any]) -> DataFindings:
        """State the unit of the momenta, and add a note if another unit is likely."""
        levels = [profile["columns"].get(name, {}).get("level") for name in self.vector[:2]]
        counts = next(iter(profile["tokens"].values()), None)
        if counts is None or None in levels:
            return DataFindings()
        x, y = (level[MIDDLE] for level in levels)
        pt = float(np.hypot(x, y)) * counts[MIDDLE]  # mean |px| and |py| times the number of particles
        seen = f"in {self.unit}; a usual jet has a pT of about {format_momentum(pt, self.unit)}"
        factor, notes = UNITS[self.unit], list[str]()
        if not MIN_JET_PT <= pt * factor <= MAX_JET_PT and (other := guess_unit(pt)[0]) != self.unit:
            notes.append(f"The momenta are read {seen}: they seem to be in {other} (--tokens.unit {other}).")
        return DataFindings({"momenta": seen}, notes)

    def normalise(self, stream: Stream) -> Stream:
        """Add `features` (T, F), zero for hidden particles, and coordinates `at`."""
        at = stream.columns["plane"] if self.at == "plane" else stream.columns["vector"][:, [3, 0, 1, 2]]
        found = standardise_features(self._raw_features(stream), self.feature_list, self.state)
        columns = {"features": np.ascontiguousarray(found), "at": at}
        if "hidden" in stream.columns:
            columns["features"][stream.columns["hidden"].astype(bool)] = 0
            columns["rank"] = stream.position
        if (target := TARGET_PREFIX + "vector") in stream.columns:
            columns[target] = hidden_targets(stream.columns[target], stream.columns["jet"])
        return stream.with_columns(**columns)

    def _raw_features(self, stream: Stream) -> Array:
        """Features (T, F) before standardisation, contiguous in memory for each feature."""
        kinematics = Kinematics(stream.columns["vector"], stream.columns["plane"], stream.columns["jet"])
        found = np.empty((len(self.feature_list), len(stream.columns["vector"])), np.float32)
        own = iter(stream.columns["raw"].T)
        for place, feature in enumerate(self.feature_list):
            found[place] = KINEMATIC_FEATURES[feature.name](kinematics) if feature.is_kinematic else next(own)
        return found.T

    def _hardest_first(self, stream: Stream) -> Stream:
        px, py = stream.columns["vector"][:, 0], stream.columns["vector"][:, 1]
        pt2 = px.astype(np.float64) ** 2 + py.astype(np.float64) ** 2
        rises = np.diff(pt2, prepend=np.inf) > 1e-6 * pt2  # a larger rise than the rounding of a sorted file
        rises[stream.starts[stream.lengths > 0]] = False
        return stream.reorder(np.lexsort((-pt2, stream.sample))) if rises.any() else stream

    def _type(self, table: Table, count: int) -> Array:
        """Particle types (T,): index of the largest type column; len(types) if all are 0."""
        kind, largest = np.full(count, len(self.types), np.int8), np.zeros(1, np.int8)
        if all(name in table for name in self.types):
            for number, name in enumerate(self.types):
                flag = particle_column(table, name).values
                np.copyto(kind, number, where=flag > largest)
                largest = np.maximum(flag, largest)
        return kind

    # Embedding, masking and readout

    def width(self, dim: int) -> int:
        """Width of the tokens: `dim`, or the number of features without an embedding."""
        return len(self.feature_list) if self.embed == "features" else dim

    def embedding(self, dim: int) -> nn.Module:
        if self.embed == "layers":
            return ParticleEmbedding(len(self.feature_list), (*self.widths, dim))
        return LinearEmbedding(len(self.feature_list), dim if self.embed == "linear" else None)

    def pairs(self, heads: int) -> nn.Module | None:
        if not self.pair_features:
            return None
        return ParticlePairs(self.pair_features, self.pair_widths, heads, self.pair_last, self.pair_bias)

    def visible_part(self, dim: int) -> nn.Module:
        return RankEmbedding(self.max_tokens, dim)

    def readout(self, dim: int, embedding: nn.Module) -> Readout:
        return ParticleReadout(dim, len(self.types) + 1)

    def maskable(self, stream: Stream) -> Array:
        """Mask of maskable particles: all except the only particle of a jet."""
        return np.repeat(stream.lengths > 1, stream.lengths)

    def mask_out(self, stream: Stream, tokens: Array) -> dict[str, Array]:
        """Columns without the hidden particles; jet momenta and angles are recomputed."""
        for feature in self.column_features:
            if feature.looks_around((*self.jet, *self.plane)):
                raise UserError(
                    f"feature `{feature.name}` ({feature.formula or feature.column or feature.name}) depends on other "
                    "particles, so it cannot be used with hidden particles",
                    hint="Use log_pt_rel, log_energy_rel, delta_r, deta or dphi, which are recomputed.",
                    key="tokens.features",
                )
        columns = {name: stream.columns[name].copy() for name in ("vector", "type", "raw")}
        for column in columns.values():
            column[tokens] = 0
        columns |= self._about_jet(columns["vector"], stream)
        columns["plane"][tokens] = 0
        return columns

    def _about_jet(self, vector: Array, stream: Stream) -> dict[str, Array]:
        """Jet momenta from the sum of particles, and particle angles to the jet axis."""
        jet = sum_jet_momenta(vector, stream.lengths)[stream.sample]
        return {"jet": jet, "plane": relative_kinematics(vector, jet)[:, 1:]}

    # Editing

    def move(self, stream: Stream, token: int, *to: float) -> Stream:
        """Move a particle to (deta, dphi) from the jet axis, at constant pT and mass."""
        self.check_token(stream, token, *to)
        turned = turn_particle(stream.columns["vector"][token], stream.columns["jet"][token], *to)
        return self.change(stream, token, "vector", turned)

    def refresh(self, stream: Stream) -> Stream:
        """Recompute the jet as the sum of its particles; sort the particles by falling pT."""
        return self._hardest_first(stream.with_columns(**self._about_jet(stream.columns["vector"], stream)))

    # Export

    def example(self) -> Table:
        rng, lengths = np.random.default_rng(0), np.array([9, 5, 12])
        table: dict[str, Array | Lists] = {
            name: Lists(rng.uniform(0, 1, lengths.sum()).astype(np.float32), lengths) for name in self.required_columns
        }
        momentum = rng.normal([300, 0, 100], 15, (lengths.sum(), 3)) / lengths.mean()
        energy = np.sqrt((momentum**2).sum(-1) + 0.14**2)
        for name, values in zip(self.vector, (*momentum.T, energy)):
            table[name] = Lists((values / UNITS[self.unit]).astype(np.float32), lengths)
        return table

    def preprocessing(self) -> dict[str, Any]:
        features, scaled = [], "as they are" if self.unit == "GeV" else f"times {UNITS[self.unit]:g}"
        for place, feature in enumerate(self.feature_list):
            one = feature.model_dump(mode="json")
            if feature.scale is None:
                one |= {"centre": self.state["centre"][place], "scale": self.state["scale"][place]}
            one["from"] = "momenta" if feature.is_kinematic else "formula" if feature.formula else "column"
            features.append(one)
        return {
            "kind": self.kind,
            "order": "falling transverse momentum",
            "most": self.max_tokens,
            "features": features,
            "columns": {
                "features": "clip((x - centre) scale) of each feature, in this order",
                "vector": f"{', '.join(self.vector)} {scaled} (px, py, pz, E in GeV)",
                "at": "deta, dphi" if self.at == "plane" else "E, px, py, pz",
            },
            "momenta": {
                "log_pt": "ln pT",
                "log_energy": "ln E",
                "log_pt_rel": "ln(pT / jet pT)",
                "log_energy_rel": "ln(E / jet E)",
                "delta_r": "sqrt(deta^2 + dphi^2)",
                "deta": f"{self.plane[0]}: (eta - jet eta) times the sign of the jet's eta",
                "dphi": f"{self.plane[1]}: phi - jet phi, in -pi .. pi",
            },
        }

    # Drawing

    @property
    def symbols(self) -> list[str]:
        """Short name of each particle type, and `?` for unknown types."""
        return [TYPE_SYMBOLS.get(name.partition("_")[2], name) for name in self.types] + ["?"]

    def token_labels(self, stream: Stream) -> list[str]:
        """Label of each particle: type and pT, such as «π± 34 GeV»."""
        symbols, pt = self.symbols, np.hypot(*stream.columns["vector"].T[:2])
        digits = np.where(pt < 10, 1, 0)
        return [f"{symbols[kind]} {p:.{d}f} GeV" for kind, p, d in zip(stream.columns["type"], pt, digits)]

    def draw(self, sample: Batch, weights: Array | None, axes: Axes) -> None:
        """Plot particles in deta and dphi: marker by type, area by pT, colour by weight."""
        columns, symbols = sample.stream.columns, self.symbols
        plane, kind, pt = columns["plane"], columns["type"], np.hypot(*columns["vector"].T[:2])
        size = 6 + 240 * np.sqrt(pt / max(float(pt.max(initial=0)), 1e-9)) ** 1.5
        shade = np.zeros(len(pt)) if weights is None else np.asarray(weights, np.float64)
        scale = Normalize(0, max(float(shade.max(initial=0)), 1e-12))
        axes.plot([0], [0], "+", color="#bb3333", markersize=12, zorder=1)
        for number in np.unique(kind).tolist():
            here = np.flatnonzero(kind == number)
            look: dict[str, Any] = {"marker": MARKERS[number % len(MARKERS)], "label": symbols[number]}
            look |= {"color": "#4477aa"} if weights is None else {"c": shade[here], "cmap": "YlOrRd", "norm": scale}
            look |= {"edgecolors": "#333333", "linewidths": 0.5, "alpha": 0.85}
            axes.scatter(plane[here, 0], plane[here, 1], s=size[here], **look)
        reach = max(0.1, 1.1 * float(np.abs(plane).max(initial=0)))
        axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xlabel="Δη", ylabel="Δφ")
        if len(pt):
            legend = axes.legend(fontsize="x-small", loc="upper right", frameon=False, handletextpad=0.1, borderpad=0)
            for handle in filter(None, legend.legend_handles):
                handle.set(array=None, sizes=[25], facecolor="#cccccc")

    def distance(self, stream: Stream) -> Array:
        """Distances Delta R = sqrt(deta^2 + dphi^2) (N, N) between particles."""
        plane = stream.columns["plane"].astype(np.float64)
        apart = np.abs(plane[:, None] - plane[None])
        apart[..., 1] = np.minimum(apart[..., 1], np.abs(2 * np.pi - apart[..., 1]))
        return np.sqrt((apart**2).sum(-1))


# Columns of particles in a table: lists of finite numbers, as long as the lists of momenta


def particle_column(table: Table, name: str) -> Lists:
    """Column of particles in a table; error if it has no lists."""
    one_of("a column of particles", name, table)
    column = table[name]
    if not isinstance(column, Lists):
        raise UserError(f"column `{name}` must have a list for each jet, but is an array of shape {column.shape}")
    return column


def feature_values(table: Table, feature: Feature, lengths: Array, like: str) -> Array:
    """Values (T,) of a feature from a column of the data or a formula over columns."""
    if not feature.formula:
        (name,) = feature.needs
        values = check_lengths(particle_column(table, name), lengths, name, like).values
        return getattr(np, feature.change)(values) if feature.change else values
    found = Formula(feature.formula).of(table)
    if not isinstance(found, Lists):
        found = Lists(np.repeat(np.broadcast_to(found, len(lengths)), lengths), lengths)
    return check_lengths(found, lengths, feature.formula, like).values


def check_lengths(column: Lists, lengths: Array, name: str, like: str) -> Lists:
    """Return the column; error if its list lengths differ from the column `like`."""
    if not np.array_equal(column.lengths, lengths):
        row = int(np.argmax(column.lengths != lengths))
        found = f"{column.lengths[row]} particles in `{name}`, but {lengths[row]} particles in `{like}`"
        raise UserError(f"sample {row} has {found}")
    return column


def check_finite(values: Array, what: str) -> None:
    """Refuse NaN and infinite numbers in values (T, K)."""
    if not np.isfinite(values).all():
        raise UserError(f"{(~np.isfinite(values).all(-1)).sum()} particles have NaN or infinite values in {what}")
