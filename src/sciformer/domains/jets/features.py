"""Features of particles: kinematics, detector columns, and standardisation."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, model_validator

from ...data.columns import Array, sum_lists
from ...data.readers.formula import LIST_FUNCTIONS, Formula, function, parsed

FeatureSetName = Literal["kin", "kinpid", "full"]
VECTOR_COLUMNS = ("part_px", "part_py", "part_pz", "part_energy")
PLANE_COLUMNS = ("part_deta", "part_dphi")
TYPE_FLAGS = ("isChargedHadron", "isNeutralHadron", "isPhoton", "isElectron", "isMuon")
UNITS = {"GeV": 1.0, "MeV": 1e-3}  # momentum units in GeV
MAX_JET_PT, MIN_JET_PT = 1e4, 1.0  # GeV; a median outside shows another unit
MIN_MOMENTUM = 1e-8  # GeV, lower limit of momenta in logarithms and ratios
ROWS_AT_ONCE = 4096  # rows that fit into the CPU cache


def guess_unit(median_pt: float) -> tuple[str, str]:
    """Guess the unit of the momenta from the median jet pT; also return the reason."""
    unit = "MeV" if median_pt > MAX_JET_PT else "GeV"
    return unit, f"half of the jets have a pT above {format_momentum(median_pt, unit)}"


def format_momentum(value: float, unit: str) -> str:
    """Format a momentum with three digits and its unit: 242,000 MeV."""
    return f"{float(f'{value:.3g}'):,.10g} {unit}"


@dataclass
class Kinematics:
    """Momenta of particles and of their jets, for the kinematic features."""

    vector: Array  # (T, 4) px, py, pz, E
    plane: Array  # (T, 2) deta and dphi
    jet: Array  # (T, 4) pT, eta, phi, E of the jet of each particle

    @cached_property
    def pt(self) -> Array:
        return np.asarray(np.hypot(self.vector[:, 0], self.vector[:, 1]))


def _log(values: Array) -> Array:
    return np.asarray(np.log(np.maximum(values, MIN_MOMENTUM)))


KINEMATIC_FEATURES: dict[str, Callable[[Kinematics], Array]] = {
    "log_pt": lambda p: _log(p.pt),
    "log_energy": lambda p: _log(p.vector[:, 3]),
    "log_pt_rel": lambda p: _log(p.pt / np.maximum(p.jet[:, 0], MIN_MOMENTUM)),
    "log_energy_rel": lambda p: _log(p.vector[:, 3] / np.maximum(p.jet[:, 3], MIN_MOMENTUM)),
    "delta_r": lambda p: np.hypot(p.plane[:, 0], p.plane[:, 1]),
    "deta": lambda p: p.plane[:, 0],
    "dphi": lambda p: p.plane[:, 1],
}


class Feature(BaseModel):
    """Feature of a particle, standardised as clip((x - centre) * scale)."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name: str
    """Name of a kinematic feature (log_pt, log_energy, log_pt_rel, log_energy_rel, delta_r, deta or dphi), or of a
    column."""
    column: str = ""
    """Column of the data (default: the name of the feature)."""
    formula: str = ""
    """Formula over columns of the data, instead of a column."""
    change: Literal["", "tanh"] = ""
    """Function applied to the column: tanh or none (default: none)."""
    centre: float | None = 0.0
    """Value subtracted (default: 0). null means the median of the training data."""
    scale: float | None = 1.0
    """Factor (default: 1). null means 1 / s, with 68 % of the training data within s of the median."""
    clip: tuple[float, float] | None = None
    """Lower and upper limit after scaling (default: none)."""

    @model_validator(mode="after")
    def _one_source(self) -> Feature:
        if self.column and self.formula:
            raise ValueError(f"the feature {self.name} has both a column and a formula; remove one of them")
        if (self.centre is None) != (self.scale is None):
            raise ValueError(f"centre and scale of the feature {self.name} must both be numbers, or both be null")
        return self

    @property
    def is_kinematic(self) -> bool:
        return self.name in KINEMATIC_FEATURES and not self.column and not self.formula

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(Formula(self.formula).names) if self.formula else (self.column or self.name,)

    def looks_around(self, shared: Collection[str]) -> bool:
        """Whether the feature depends on other particles of the jet.

        True if the formula has a reduction or an index, or if the feature uses one of the columns `shared`.
        """
        if set(self.needs) & set(shared):
            return True
        parts = list(ast.walk(parsed(self.formula))) if self.formula else []
        calls = {function(part.func) for part in parts if isinstance(part, ast.Call)}
        return bool(calls & set(LIST_FUNCTIONS)) or any(isinstance(part, ast.Subscript) for part in parts)


_CENTRES = {"log_pt": 1.7, "log_energy": 2.0, "log_pt_rel": -4.7, "log_energy_rel": -4.7}
_MOMENTUM = [Feature(name=name, centre=centre, scale=0.7, clip=(-5, 5)) for name, centre in _CENTRES.items()]
_MOMENTUM.append(Feature(name="delta_r", centre=0.2, scale=4.0, clip=(-5, 5)))
_PLANE = [Feature(name="deta"), Feature(name="dphi")]
_TYPE = [Feature(name=name, column=f"part_{name}") for name in ("charge", *TYPE_FLAGS)]
_DISPLACED = [
    Feature(name="d0", column="part_d0val", change="tanh"),
    Feature(name="d0err", column="part_d0err", clip=(0, 1)),
    Feature(name="dz", column="part_dzval", change="tanh"),
    Feature(name="dzerr", column="part_dzerr", clip=(0, 1)),
]
FEATURE_SETS: dict[str, list[Feature]] = {
    "kin": [*_MOMENTUM, *_PLANE],
    "kinpid": [*_MOMENTUM, *_TYPE, *_PLANE],
    "full": [*_MOMENTUM, *_TYPE, *_DISPLACED, *_PLANE],
}


def standardise_features(values: Array, features: Sequence[Feature], learned: Mapping[str, Any]) -> Array:
    """Standardise features (T, F) in place: clip((x - centre) scale).

    learned    centres and scales fitted to the training data, for features with null centre and scale
    """
    for place, feature in enumerate(features):
        column = values[:, place]
        centre, scale = feature.centre, feature.scale
        if centre is None or scale is None:
            centre, scale = learned["centre"][place], learned["scale"][place]
        if centre:
            column -= np.float32(centre)
        if scale != 1:
            column *= np.float32(scale)
        if feature.clip is not None:
            np.clip(column, *feature.clip, out=column)
    return values


def stack_columns(columns: Sequence[Array], count: int | None = None) -> Array:
    """Stack columns (T,) into a float32 array (T, K)."""
    count = len(columns[0]) if count is None else count
    made = np.empty((count, len(columns)), np.float32)
    for start in range(0, count, ROWS_AT_ONCE):
        some = slice(start, start + ROWS_AT_ONCE)
        for place, column in enumerate(columns):
            made[some, place] = column[some]
    return made


def sum_jet_momenta(vector: Array, lengths: Array) -> Array:
    """Jet momenta pT, eta, phi, E (B, 4) as sums over particles (T, 4); 0 if empty."""
    px, py, pz, energy = sum_lists(vector.astype(np.float64), lengths).T
    pt = np.hypot(px, py)
    eta = np.arcsinh(pz / np.maximum(pt, MIN_MOMENTUM))
    return np.stack([pt, eta, np.arctan2(py, px), energy], -1).astype(np.float32)


def relative_kinematics(vector: Array, jet: Array) -> Array:
    """ln(pT / jet pT), deta and dphi (T, 3) of particles (T, 4).

    `jet` (T, 4) holds pT, eta, phi and E of the jet of each particle. As in JetClass, deta is multiplied by the sign of
    the jet's eta. A particle with a positive deta is therefore farther forward than the jet.
    """
    px, py, pz = vector.T[:3].astype(np.float64)
    pt = np.hypot(px, py)
    log = np.log(np.maximum(pt, MIN_MOMENTUM) / np.maximum(jet[:, 0], MIN_MOMENTUM))
    eta = jet[:, 1].astype(np.float64)
    deta = (np.arcsinh(pz / np.maximum(pt, MIN_MOMENTUM)) - eta) * np.where(eta < 0, -1, 1)
    dphi = (np.arctan2(py, px) - jet[:, 2] + np.pi) % (2 * np.pi) - np.pi
    return np.stack([log, deta, dphi], -1).astype(np.float32)


def turn_particle(vector: Array, jet: Array, deta: float, dphi: float) -> Array:
    """Move a particle (4,) to (deta, dphi) from the jet axis, at constant pT and mass.

    `jet` (4,) holds pT, eta, phi and E.
    """
    px, py, pz, energy = vector.astype(np.float64)
    pt, mass2 = np.hypot(px, py), energy**2 - px**2 - py**2 - pz**2
    eta, phi = jet[1] + deta * (-1 if jet[1] < 0 else 1), jet[2] + dphi
    momentum = np.array([pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta)])
    return np.append(momentum, np.sqrt(max(0.0, mass2 + float(momentum @ momentum)))).astype(np.float32)


def hidden_targets(vector: Array, jet: Array) -> Array:
    """Targets (T, 3) of hidden particles: scaled ln(pT / jet pT), 4 deta, 4 dphi."""
    found = relative_kinematics(vector, jet)
    found[:, 0] = (found[:, 0] + 4.7) * 0.7
    found[:, 1:] *= 4
    return np.clip(found, -5, 5)
