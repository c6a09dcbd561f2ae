"""Validation of a recipe document: its sections, or a list of all errors."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from ..errors import UserError
from . import document
from .document import Document
from .field import SECTIONS_WITH_KIND
from .options import alternatives, annotation_at, describe_mismatch, describe_type, field_at, format_value, keys_of
from .registry import find, names
from .renamed import KEYS as RENAMED
from .renamed import new_value
from .yaml import Keys, dotted_key

SECTIONS = ("about", *SECTIONS_WITH_KIND, "train")
ABSENT = object()
MAX_INTEGER = 2**63 - 1  # largest integer in random generators and arrays
Classes = dict[Keys, type[BaseModel]]


class UnknownKeyError(UserError):
    """Error for an unknown recipe key."""


class About(BaseModel):
    """Section `about:`: a description of the recipe, without effect on a run."""

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True, use_attribute_docstrings=True)

    title: str | None = None
    """Title of the recipe in one line."""
    paper: str | None = None
    """Paper of the method."""
    data: str | None = None
    """Training data and their source."""
    command: str | None = None
    """Command of the measured run."""
    hardware: str | None = None
    """Hardware of the measured run."""
    time: str | None = None
    """Duration of the measured run."""
    score: str | None = None
    """Id of a row in benchmarks/results, or `unmeasured`."""
    note: str | None = None
    """Remarks on the recipe."""


def train_class() -> type[BaseModel]:
    """Class of the section `train`, the only section without kinds."""
    found: type[BaseModel] = importlib.import_module("sciformer.training.config").Train
    return found


def classes_of(source: Document) -> tuple[Classes, list[UserError]]:
    """Class of each section with a known kind, and errors about unknown kinds."""
    classes: Classes = {("about",): About}
    problems: list[UserError] = []
    tokens: Any = source.values.get("tokens")
    streams = tokens if _are_streams(tokens) else {}
    for section in SECTIONS_WITH_KIND:
        parts: dict[Keys, Any] = {(section,): source.values.get(section)}
        if section == "tokens" and streams:
            parts = {(section, name): stream for name, stream in streams.items()}
        for keys, part in parts.items():
            name, known, kind = dotted_key(keys), ", ".join(names(section)), (*keys, "kind")
            if part is None:
                hint = f"Write {name} with a `kind`, one of {known}."
                problems.append(source.whole.error(f"the section {name} is missing", keys, hint))
            elif not isinstance(part, dict):
                problems.append(source.error(keys, f"{name} must be a section with a `kind`, not {format_value(part)}"))
            elif "kind" not in part:
                problems.append(source.error(kind, f"{name}.kind is missing", f"Choose one of {known}."))
            elif part["kind"] not in names(section):
                problems.append(_unknown_kind(section, keys, part["kind"], source))
            else:
                own = {key: one for key, one in part.items() if key in streams or not isinstance(one, dict)}
                classes[keys] = find(section, part["kind"]).with_choices(own)
    classes[("train",)] = train_class()
    return classes, problems


def without_replaced_keys(source: Document) -> Document:
    """Remove the options of a trunk, position, ... replaced by a later document.

    If `trunk: lstm` is merged over a base with a transformer, the `heads` of the base are removed. Keys from the same
    or a later document stay; the validation refuses them if they are unknown.
    """
    values = dict(source.values)
    for keys, cls in classes_of(source)[0].items():
        if getattr(cls, "choice_keys", ()):
            values[str(keys[0])] = _kept_keys(source, keys, cls, 0)
    return replace(source, values=values)


def _kept_keys(source: Document, keys: Keys, cls: Any, latest: int) -> dict[str, Any]:
    """Keys of a section, without the options of replaced kinds."""
    latest = max([latest, *(source.layers.get((*keys, key), 0) for key in cls.choice_keys)])
    kept = {
        key: value
        for key, value in value_at(source.values, keys).items()
        if key in cls.model_fields or source.layers.get((*keys, key), 0) >= latest
    }
    streams = getattr(cls, "streams", ())
    return kept | {one: _kept_keys(source, (*keys, one), cls.model_fields[one].annotation, latest) for one in streams}


def _unknown_kind(section: str, keys: Keys, kind: Any, source: Document) -> UserError:
    """Error for an unknown kind, with its new name or the nearest name."""
    at, known = (*keys, "kind"), names(section)
    if (new := new_value(f"{section}.kind", kind)) in known:
        return _renamed_error(at, kind, new, source)
    near = difflib.get_close_matches(str(kind), known, n=1)
    hint = f"Did you mean {near[0]}?" if near else "Load a kind of your own with --plugin FILE."
    return source.error(at, f"{dotted_key(at)} must be one of {', '.join(known)}, not {format_value(kind)}", hint)


def _renamed_error(at: Keys, old: Any, new: str | None, source: Document) -> UserError:
    return source.error(at, f"{dotted_key(at)}: {old} is now called {new}", f"Write {dotted_key(at)}: {new}.")


def _are_streams(tokens: Any) -> bool:
    mapping = isinstance(tokens, dict) and bool(tokens) and "kind" not in tokens
    return mapping and all(isinstance(stream, dict) for stream in tokens.values())


def section_of(source: Document, keys: Keys, classes: Classes, problems: list[UserError]) -> Any:
    """Validate a section; return it, or None after adding its errors to `problems`."""
    values = value_at(source.values, keys)
    values = {} if values is None else values
    found: dict[Keys, UserError] = {}
    section = None
    try:
        section = classes[keys].model_validate(values)
    except ValidationError as error:
        for detail in error.errors(include_url=False)[: document.MAX_PROBLEMS]:
            at = (*keys, *_present_keys(values, detail["loc"], detail["type"] == "missing"))
            found.setdefault(at, _validation_error(at, keys, detail, source, classes))
    for at, value in document.flatten(values, keys):
        wanted = alternatives(annotation_at(classes, at))
        if isinstance(value, bool) and {int, float} & {*wanted} and bool not in wanted:  # pydantic reads true as 1
            found[at] = _type_error(at, value, source, classes)
        if isinstance(value, int) and abs(value) > MAX_INTEGER:
            message = f"{dotted_key(at)} must be between -{MAX_INTEGER} and {MAX_INTEGER}, not {format_value(value)}"
            found[at] = source.error(at, message)
    problems += found.values()
    return section


def _present_keys(values: Any, location: Collection[str | int], missing: bool) -> Keys:
    """Keys from the location in a pydantic error, without type names.

    missing   whether the error is about a missing key, the last part of the location
    """
    keys: Keys = ()
    for number, part in enumerate(location, start=1):
        named = missing and number == len(location) and isinstance(part, str)
        if named or value_at(values, (*keys, part), ABSENT) is not ABSENT:
            keys = (*keys, part)
    return keys


def value_at(values: Any, keys: Keys, default: Any = None) -> Any:
    """Value at nested keys; the default if a key is missing."""
    for key in keys:
        listed = isinstance(values, list) and isinstance(key, int) and key < len(values)
        if not listed and not (isinstance(values, dict) and key in values):
            return default
        values = values[key]
    return values


def _validation_error(at: Keys, section: Keys, detail: Any, source: Document, classes: Classes) -> UserError:
    if detail["type"] == "extra_forbidden":
        return unknown_key_error(at, source, classes)
    if detail["type"] == "missing" and value_at(source.values, at, ABSENT) is ABSENT:
        info = field_at(annotation_at(classes, at[:-1]), at[-1])
        meaning = f": {' '.join(info.description.split())}" if info and info.description else "."
        hint = f"Give {describe_type(annotation_at(classes, at))}{meaning}"
        return source.error(at, f"{dotted_key(at)} is missing", hint)
    if detail["type"] in ("value_error", "assertion_error"):
        return _section_error(at, section, detail["ctx"]["error"], source)
    value = value_at(source.values, at)
    if isinstance(value, str) and (new := new_value(dotted_key(at), value)):
        return _renamed_error(at, value, new, source)
    return _type_error(at, value, source, classes)


def _type_error(at: Keys, value: Any, source: Document, classes: Classes) -> UserError:
    text, hint = describe_mismatch(annotation_at(classes, at), value)
    return source.error(at, f"{dotted_key(at)} {text}", hint)


def _section_error(at: Keys, section: Keys, error: Exception, source: Document) -> UserError:
    """Error from a section, with file and line of the key."""
    if not isinstance(error, UserError):
        return source.error(at, f"{dotted_key(at)}: {error}")
    first, *inner = error.key.split(".") if error.key else ("",)
    keys = (*section, *inner) if first == section[0] else at
    name = "" if error.key and error.key in error.message else f"{dotted_key(keys)}: "
    found = source.error(keys, name + error.message, error.hint)
    return found.with_fields(file=error.file, line=error.line) if error.file else found


def unknown_key_error(at: Keys, source: Document, classes: Classes) -> UserError:
    """Error for an unknown key; the hint gives its section, new name or nearest key."""
    *around, key = at
    owner = annotation_at(classes, tuple(around))
    known = keys_of(owner) if around else [*SECTIONS]
    owners = [dotted_key(keys) for keys, one in classes.items() if key in one.model_fields and keys[:1] != at[:1]]
    new = RENAMED.get(str(around[0]), {}).get(str(key)) if around else None
    if new and (new in known or _names_with(new, around[0], owner)):
        return source.error(at, f"{dotted_key(at)} is now called {new}", f"Write {dotted_key((*around, new))}.")
    hints = [f"`{key}` belongs to {' or '.join(owners)}."] if owners else []
    for choice, others in _names_with(str(key), around[0], owner) if around else ():
        hints.append(f"{dotted_key(at)} belongs to {dotted_key((*around, choice))}: {', '.join(others)}.")
    if (near := difflib.get_close_matches(str(key), known, n=1)) and not owners:
        hints.append(f"Did you mean {dotted_key((*around, near[0]))}?")
    hint = " ".join(hints) or f"The known keys are {', '.join(known)}."
    return UnknownKeyError(**source.error(at, f"{dotted_key(at)} is not a known key", hint).fields)


def _names_with(key: str, section: str | int, owner: Any) -> list[tuple[str, list[str]]]:
    """Names with this key among their options, for each choice (`kind`, `trunk`, ...)."""
    points = {"kind": str(section)} if section in SECTIONS_WITH_KIND and hasattr(owner, "section") else {}
    points |= getattr(owner, "choice_keys", {})
    found = [
        (choice, [name for name in names(point) if key in find(point, name).model_fields])
        for choice, point in points.items()
    ]
    return [(choice, some) for choice, some in found if some]
