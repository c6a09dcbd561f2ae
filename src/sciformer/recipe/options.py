"""Options of a section: types in words, and values from the command line.

An option is a field of a pydantic class; its annotation alone defines the allowed values. This module describes
annotations in words for help and errors, finds the annotation of a key, and parses the text after `--model.depth`.
"""

from __future__ import annotations

import difflib
import enum
import types
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ..errors import UserError
from .yaml import Keys, parse_brackets, parse_scalar

TYPE_WORDS = {
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("a string", "strings"),
    bool: ("true or false", "true or false each"),
    types.NoneType: ("null", "nulls"),
    Any: ("any value", "any values"),
}
BOUND_WORDS = {
    "gt": "above {}",
    "ge": "at least {}",
    "lt": "below {}",
    "le": "at most {}",
    "multiple_of": "a multiple of {}",
    "min_length": "of length {} or more",
    "max_length": "of length {} at most",
    "pattern": "of the form {}",
}


class Option(NamedTuple):
    """Key of a section: type, default (`...` if required) and help."""

    key: str
    type: str
    default: Any
    help: str


def options(section: type[BaseModel], prefix: str = "") -> list[Option]:
    """Keys of a section except its `kind`; keys of nested sections have dotted names."""
    found = []
    for key, info in section.model_fields.items():
        if key == "kind" and not prefix:
            continue
        if is_section(info.annotation):
            found += options(info.annotation, f"{prefix}{key}.")  # type: ignore[arg-type]
            continue
        default = ... if info.is_required() else info.get_default(call_default_factory=True, validated_data={})
        text = " ".join((info.description or "").split())
        found.append(Option(prefix + key, describe_type(_full_annotation(info)), default, text))
    return found


def parse_arguments(line: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Split a command line into arguments of the command and changes of the recipe.

    An option with a dot in its name is a change: `--model.depth 8`, `--train.learning_rate=3e-4`, `--data.files a.txt
    b.txt`. Its values end at the next word that starts with two dashes; `=` takes exactly one value. Several values
    make a list; an option without a value is true. Values stay text until the recipe finds their type. After `--` there
    are no changes.
    """
    rest: list[str] = []
    changes: dict[str, Any] = {}
    queue = list(line)
    while queue:
        word = queue.pop(0)
        name, equals, value = word[2:].partition("=")
        if word == "--":
            return [*rest, word, *queue], changes
        if not word.startswith("--") or "." not in name:
            rest.append(word)
            continue
        values = [value] if equals else []
        while not equals and queue and not queue[0].startswith("--"):
            values.append(queue.pop(0))
        if name in changes:
            message = f"--{name} is set twice on the command line"
            raise UserError(message, hint=f"Write several values after one option: --{name} a b.", key=name)
        changes[name] = True if not values else values[0] if len(values) == 1 else values
    return rest, changes


def parse_typed(value: Any, annotation: Any) -> Any:
    """Parse a value from Python or the command line by its annotation.

    If the annotation allows text, text stays text, so that a name may be `8`. A single value becomes a list if only a
    list is allowed. Unsuitable values stay unchanged; the validation refuses them later.
    """
    leaves = alternatives(annotation)
    lists = any(is_list(leaf) for leaf in leaves)
    text = any(_is_text(leaf) for leaf in leaves)
    other = any(not _is_text(leaf) and not is_list(leaf) and leaf is not types.NoneType for leaf in leaves)
    if isinstance(value, Mapping):
        return {key: parse_typed(inner, annotation_inside(annotation, str(key))) for key, inner in value.items()}
    if isinstance(value, list):
        return [parse_typed(inner, annotation_inside(annotation, number)) for number, inner in enumerate(value)]
    if isinstance(value, str):
        if value == "null" and types.NoneType in leaves:
            return None
        if value[:1] in ("[", "{") and (lists or other) and (tree := parse_brackets(value)) is not None:
            return parse_typed(tree, annotation)
        if text and not other:
            return value
    if lists and not text and not other and value is not None:
        return [parse_typed(value, annotation_inside(annotation, 0))]
    return parse_scalar(value) if isinstance(value, str) else value


def alternatives(annotation: Any) -> list[Any]:
    """Types in a union annotation, without their bounds."""
    if get_origin(annotation) is Annotated:
        return alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [leaf for part in get_args(annotation) for leaf in alternatives(part)]
    return [annotation]


def annotation_inside(annotation: Any, key: str | int) -> Any:
    """Annotation of a key or item inside another annotation; Any if unknown."""
    found: list[Any] = []
    for leaf in alternatives(annotation):
        arguments = get_args(leaf)
        if is_section(leaf) and key in leaf.model_fields:
            found.append(_full_annotation(leaf.model_fields[key]))
        elif is_list(leaf) and arguments and isinstance(key, int):
            fixed = get_origin(leaf) is tuple and arguments[-1] is not ...
            found += arguments[key : key + 1] if fixed else arguments[:1]
        elif _is_mapping(leaf) and len(arguments) == 2:
            found.append(arguments[1])
    return Union[tuple(found)] if found else Any  # noqa: UP007


def field_at(annotation: Any, key: str | int) -> FieldInfo | None:
    """Field of a section for a key; None if the key does not exist."""
    fields = (leaf.model_fields.get(key) for leaf in alternatives(annotation) if is_section(leaf))
    return next((info for info in fields if info), None)


def keys_of(annotation: Any) -> list[str]:
    """All keys of a section."""
    return [key for leaf in alternatives(annotation) if is_section(leaf) for key in leaf.model_fields]


def describe_type(annotation: Any, several: bool = False) -> str:
    """Describe an annotation in words, such as `a whole number, at least 1`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        bounds = [text for item in arguments[1:] for text in _describe_bounds(item)]
        return ", ".join([describe_type(arguments[0], several), *bounds])
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(describe_type(part, several) for part in arguments))
    if annotation in TYPE_WORDS:
        return TYPE_WORDS[annotation][several]
    if origin is Literal:
        names = ", ".join(format_value(part).strip('"') for part in arguments)
        return names if len(arguments) == 1 else f"one of {names}"
    if is_list(annotation):
        fixed = origin is tuple and arguments[-1:] != (...,)
        same = len(set(arguments)) == 1
        if fixed and not same:
            return f"a list of {', '.join(describe_type(part) for part in arguments)}"
        items = describe_type(arguments[0] if arguments else Any, True)
        return f"a list of {f'{len(arguments)} ' if fixed else ''}{items}"
    if _is_mapping(annotation):
        return f"keys with {describe_type(arguments[1], True)}"
    if is_section(annotation):
        return f"the keys {', '.join(annotation.model_fields)}"
    if isinstance(annotation, type) and issubclass(annotation, PurePath):
        return "paths" if several else "a path"
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return f"one of {', '.join(str(member.value) for member in annotation)}"
    return str(getattr(annotation, "__name__", annotation))


def describe_mismatch(annotation: Any, value: Any) -> tuple[str, str]:
    """Describe a type mismatch (`must be a number, not true`), with a hint."""
    leaves = alternatives(annotation)
    verb = "have" if all(is_section(leaf) or _is_mapping(leaf) for leaf in leaves) else "be"
    text = f"must {verb} {describe_type(annotation)}, not {format_value(value)}"
    choices = [str(choice) for leaf in leaves if get_origin(leaf) is Literal for choice in get_args(leaf)]
    if near := difflib.get_close_matches(str(value), choices, n=1):
        return text, f"Did you mean {near[0]}?"
    if str in leaves and isinstance(value, int | float) and not isinstance(value, bool):
        return text, f'Write it in quotes: "{value}"'
    return text, ""


def format_value(value: Any) -> str:
    """Format a value as in YAML, truncated if it is long."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | tuple):
        text = f"[{', '.join(format_value(item) for item in value[:8])}{', ...' if len(value) > 8 else ''}]"
    elif isinstance(value, Mapping):
        text = f"the keys {', '.join(map(str, value))}" if value else "no keys"
    else:
        text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def is_section(annotation: Any) -> bool:
    """Whether an annotation is a class with its own keys."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def annotation_at(classes: Mapping[Keys, type[BaseModel]], keys: Keys) -> Any:
    """Annotation at nested keys of a recipe, for given classes of its sections."""
    for end in range(len(keys), 0, -1):
        if keys[:end] in classes:
            annotation: Any = classes[keys[:end]]
            for key in keys[end:]:
                annotation = annotation_inside(annotation, key)
            return annotation
    return Any


def _full_annotation(info: FieldInfo) -> Any:
    return Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation


def _describe_bounds(item: Any) -> Iterable[str]:
    for part in item.metadata if isinstance(item, FieldInfo) else [item]:
        if getattr(part, "allow_inf_nan", None) is False:
            yield "finite"
        for name, text in BOUND_WORDS.items():
            if (bound := getattr(part, name, None)) is not None:
                yield text.format(bound)


def is_list(leaf: Any) -> bool:
    """Whether an annotation is a list, tuple or set of values."""
    kind = get_origin(leaf) or leaf
    listed = isinstance(kind, type) and issubclass(kind, Sequence | set | frozenset)
    return listed and not issubclass(kind, str | bytes)


def _is_mapping(leaf: Any) -> bool:
    origin = get_origin(leaf)
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _is_text(leaf: Any) -> bool:
    if get_origin(leaf) is Literal:
        return all(isinstance(choice, str) for choice in get_args(leaf))
    return isinstance(leaf, type) and issubclass(leaf, str | PurePath | enum.Enum)
