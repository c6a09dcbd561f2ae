"""The manifest of a field of science: the names it adds to the library, and where each leads.

    FIELD = Field(
        title="Jets of particles",
        tokens={"particles": ".tokens:Particles"},
        simulation={"jets": ".simulate.jets:Jets"},
    )

A folder below `domains/` has such a `FIELD` in its `__init__.py`, and so has the folder of a plugin. Places are
`module:attribute` relative to that folder; they are imported when a name is used, so that listing the fields is cheap.
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
"""Sections of a recipe whose class is chosen by their `kind`."""
EXTENSION_POINTS = (*SECTIONS_WITH_KIND, "trunk", "position", "pooling", "metric", "format", "simulation", "new")
"""What the manifest of a field lists by name, and a plugin can register with `register(point, name)`."""


@dataclass(frozen=True)
class Field:
    """What a field adds.

    title        the field in a few words
    uses         other fields whose parts it uses; it is absent where one of these is
    data, tokens, model, objective   classes that a recipe names under `kind`
    trunk        functions (model section, width of the tokens) -> module, for `model.trunk`
    simulation   classes of simulated data: a `kind` of `data`, and `sciformer simulate NAME`
    position, pooling, metric, format   as in `EXTENSION_POINTS`
    new          `Guess`es of `sciformer new NAME` (`recipe/guess.py`)
    importers    `Importer`s of models of others, asked in turn
    data_files   importers of others' data configurations: functions of `sciformer import FILE.yaml`
    exporters    `Exporter`s of runs, asked in turn
    report       functions (page, found) that add a section to the report of a run
    renamed      by key of a recipe (`data.kind`), old name -> new name
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
    report: tuple[str, ...] = ()
    renamed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


PLUGIN_FIELDS: dict[str, tuple[str, Field]] = {}
"""Fields of plugins: name -> package and manifest."""


def fields() -> dict[str, Field]:
    """The fields by name: the folders below `domains/`, and those of plugins."""
    return {**_library_fields(), **{name: one for name, (_, one) in PLUGIN_FIELDS.items()}}


@cache
def _library_fields() -> dict[str, Field]:
    """The folders below `domains/`, without those that use a field that is not there."""
    package = importlib.import_module(DOMAINS_PACKAGE)
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__) if module.ispkg)
    found: dict[str, Field] = {name: importlib.import_module(f"{DOMAINS_PACKAGE}.{name}").FIELD for name in names}
    while lacking := [name for name, one in found.items() if not found.keys() >= {*one.uses}]:
        for name in lacking:
            del found[name]
    return found


def package_of(field: str) -> str:
    """The package of a field."""
    return PLUGIN_FIELDS[field][0] if field in PLUGIN_FIELDS else f"{DOMAINS_PACKAGE}.{field}"


def places(what: str) -> dict[str, str]:
    """Name -> absolute place `module:attribute`, over all fields, of one of `EXTENSION_POINTS`."""
    return {
        name: f"{package_of(home)}{place}"
        for home, one in fields().items()
        for name, place in getattr(one, what).items()
    }


def load(place: str) -> Any:
    """The object at an absolute place `module:attribute`."""
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)


def extensions(what: str) -> Iterator[Any]:
    """The objects that fields list without a name: importers, exporters, sections of the report."""
    for home, one in fields().items():
        for place in getattr(one, what):
            yield load(f"{package_of(home)}{place}")
