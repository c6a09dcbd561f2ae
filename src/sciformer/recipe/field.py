"""Manifest of a field of science: its names in recipes and their objects.

    FIELD = Field(
        title="Jets of particles",
        tokens={"particles": ".tokens:Particles"},
        simulation={"jets": ".simulate.jets:Jets"},
    )

Every folder below `domains/` and every folder of a plugin has a `FIELD` in its `__init__.py`. Values are import paths
`module:attribute`, relative to the folder. Modules are imported when a name is used, so listing fields is fast.
Nothing else in the library names a field.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

DOMAINS_PACKAGE = "sciformer.domains"
SECTIONS_WITH_KIND = ("data", "tokens", "model", "objective")
"""Sections of a recipe whose `kind` selects their class."""
EXTENSION_POINTS = (*SECTIONS_WITH_KIND, "trunk", "position", "pooling", "metric", "format", "simulation", "new")
"""Extension points: keys of a manifest, and first argument of `register(point, name)`."""


@dataclass(frozen=True)
class Field:
    """Manifest of a field: the names it adds at each extension point.

    title        title of the field, in a few words
    uses         names of other fields that this field needs; without them, this field is not loaded
    data, tokens, model, objective   classes for the `kind` of a section
    trunk        classes of options for `model.trunk`
    simulation   simulated data: a `kind` of `data`, and `sciformer simulate NAME`
    position, pooling, metric, format   see `EXTENSION_POINTS`
    new          `Guess` objects for `sciformer new NAME` (`recipe/guess.py`)
    importers    `Importer` objects for models of other libraries, tried in turn
    data_files   functions for `sciformer import FILE.yaml`, which convert data configurations of other libraries
    exporters    `Exporter` objects for runs, tried in turn
    estimators   functions that choose a recipe for arrays or texts (`recipe/estimator.py`), tried in turn
    report       functions (page, found) that add a section to the report of a run
    renamed      recipe key (`data.kind`) -> {old name: new name}
    """

    title: str
    uses: tuple[str, ...] = ()
    data: Mapping[str, str] = field(default_factory=dict)
    tokens: Mapping[str, str] = field(default_factory=dict)
    model: Mapping[str, str] = field(default_factory=dict)
    objective: Mapping[str, str] = field(default_factory=dict)
    trunk: Mapping[str, str] = field(default_factory=dict)
    position: Mapping[str, str] = field(default_factory=dict)
    pooling: Mapping[str, str] = field(default_factory=dict)
    metric: Mapping[str, str] = field(default_factory=dict)
    format: Mapping[str, str] = field(default_factory=dict)
    simulation: Mapping[str, str] = field(default_factory=dict)
    new: Mapping[str, str] = field(default_factory=dict)
    importers: tuple[str, ...] = ()
    data_files: tuple[str, ...] = ()
    exporters: tuple[str, ...] = ()
    estimators: tuple[str, ...] = ()
    report: tuple[str, ...] = ()
    renamed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


PLUGIN_FIELDS: dict[str, tuple[str, Field]] = {}
"""Fields of plugins: name -> (package, manifest)."""


def fields() -> dict[str, Field]:
    """All fields by name: folders below `domains/` and plugin folders."""
    return {**_library_fields(), **{name: one for name, (_, one) in PLUGIN_FIELDS.items()}}


@cache
def _library_fields() -> dict[str, Field]:
    """Fields below `domains/`, if all fields in `uses` exist."""
    package = importlib.import_module(DOMAINS_PACKAGE)
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__) if module.ispkg)
    found: dict[str, Field] = {name: importlib.import_module(f"{DOMAINS_PACKAGE}.{name}").FIELD for name in names}
    while lacking := [name for name, one in found.items() if not found.keys() >= {*one.uses}]:
        for name in lacking:
            del found[name]
    return found


def package_of(field: str) -> str:
    """Name of the Python package of a field."""
    return PLUGIN_FIELDS[field][0] if field in PLUGIN_FIELDS else f"{DOMAINS_PACKAGE}.{field}"


def places(point: str) -> dict[str, str]:
    """Import paths `module:attribute` from all fields for an extension point, by name."""
    found = [(home, *named) for home, one in fields().items() for named in getattr(one, point).items()]
    return {name: f"{package_of(home)}{place}" for home, name, place in found}


def load(place: str) -> Any:
    """Import the object at `module:attribute`."""
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)


def extensions(what: str) -> Iterator[Any]:
    """Objects of all fields at an extension point without names, such as `importers`."""
    for home, one in fields().items():
        for place in getattr(one, what):
            yield load(f"{package_of(home)}{place}")
