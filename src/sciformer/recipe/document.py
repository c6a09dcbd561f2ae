"""Recipe document: a tree of plain values, with file and line of each key.

Documents are read from YAML, merged (`base:`, then the file, then the command line) and written again. They do not
depend on the classes of the sections. Nothing in a file can run code.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from importlib.resources.abc import Traversable
from itertools import islice
from pathlib import Path, PurePath
from typing import Any

import yaml

from ..errors import UserError
from .yaml import Keys, Loader, Place, Tree, describe_syntax_error, dotted_key, parse_scalar, to_one_line

MAX_FILE_BYTES = 1_000_000
MAX_PROBLEMS = 50  # maximum number of listed errors of a recipe
CODE_KEYS = ("plugin", "import", "_target_", "class_path")  # keys that import code in files of other libraries


class RecipeError(UserError):
    """All errors of a recipe as a single error; at most MAX_PROBLEMS are shown.

    errors      the errors, each with message, hint, key, file and line
    problems    the same errors as texts

    Key, file, line and hint are taken from the first error.
    """

    def __init__(self, problems: Iterable[UserError]) -> None:
        self.errors = list(islice(problems, MAX_PROBLEMS))
        self.problems = [str(error) for error in self.errors]
        first = self.errors[0].fields if self.errors else {}
        super().__init__(**{**first, "message": "\n".join(error.message for error in self.errors)})
        self.args = ("\n".join(self.problems),)


@dataclass(frozen=True)
class Document:
    """Tree of plain values, with the place of each key (`my.yaml line 7`)."""

    values: dict[str, Any]
    places: dict[Keys, Place]
    whole: Place
    layers: dict[Keys, int] = field(default_factory=dict)
    """Key -> number of the document that sets it: 0 for the lowest base, 1 for the document merged over it, ..."""
    replaced: frozenset[Keys] = frozenset()
    """Keys of mappings with the tag !replace; these mappings replace the base instead of being merged."""

    def where(self, keys: Keys) -> Place:
        """Place of a key in its file; for an absent key, the place of its section."""
        around = (keys[:end] for end in range(len(keys), -1, -1))
        return next((self.places[part] for part in around if part in self.places), self.whole)

    def error(self, keys: Keys, message: str, hint: str = "") -> UserError:
        """`UserError` about a key, with file and line of the key."""
        return self.where(keys).error(message, keys, hint)


def from_mapping(mapping: Mapping[str, Any], label: str) -> Document:
    """Build a document from nested or dotted keys: {"model.depth": 8}."""
    values: dict[str, Any] = {}
    problems: list[UserError] = []
    whole = Place(label)
    for name, value in mapping.items():
        *around, last = str(name).split(".")
        if not all((*around, last)):
            hint = "Keys are words separated by dots, as in model.depth."
            problems.append(whole.error(f"{name} is not a valid key", (str(name),), hint))
        inner = values
        for key in around:
            inner[key] = inner[key] if isinstance(inner.get(key), dict) else {}
            inner = inner[key]
        inner[last] = _merge(inner.get(last), to_plain_values(value), (), set())
    document = Document(values, {keys: whole for keys, _ in flatten(values)}, whole)
    if problems := problems + _find_code_keys(document):
        raise RecipeError(problems)
    return document


def to_plain_values(value: Any) -> Any:
    """Copy a tree as dicts, lists, strings and numbers; keep objects of other types."""
    if isinstance(value, Mapping):
        return {str(to_plain_values(key)): to_plain_values(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain_values(inner) for inner in (sorted(value) if isinstance(value, set | frozenset) else value)]
    return str(value) if isinstance(value, PurePath) else value.value if isinstance(value, Enum) else value


def flatten(values: Any, keys: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """Leaf values of the tree with their keys; a list is one value."""
    if isinstance(values, dict) and (values or not keys):
        for key, value in values.items():
            yield from flatten(value, (*keys, key))
    else:
        yield keys, values


def lay_over(base: Document, child: Document) -> Document:
    """Merge a document over its base, key by key.

    Mappings are merged, unless they have the tag !replace. All other values replace the value of the base.
    """
    replaced: set[Keys] = set()
    values = _merge(base.values, child.values, (), replaced, child.replaced)
    kept = {
        keys: place
        for keys, place in base.places.items()
        if not any(keys[:end] in replaced for end in range(1, len(keys) + 1))
    }
    layer = 1 + max(base.layers.values(), default=0)
    layers = {keys: base.layers.get(keys, 0) for keys in kept}
    layers |= {keys: layer + child.layers.get(keys, 0) for keys in child.places}
    places = {**kept, **dict.fromkeys(replaced, child.whole), **child.places}
    return Document(values, places, child.whole, layers, base.replaced | child.replaced)


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], ignore: Collection[str] = ()
) -> list[tuple[str, Any, Any]]:
    """Differences of two recipes: (dotted key, old value, new value).

    A missing key counts as null.

    ignore    keys that may differ, with all keys below them
    """
    left, right = ({dotted_key(keys): value for keys, value in flatten(dict(side)) if keys} for side in (old, new))
    found = []
    for key in dict.fromkeys((*left, *right)):
        before, now = left.get(key), right.get(key)
        both_nan = before != before and now != now
        if before != now and not both_nan and not any(f"{key}.".startswith(f"{name}.") for name in ignore):
            found.append((key, before, now))
    return found


def read(file: Path | Traversable, label: str) -> Document:
    """Read a YAML file; refuse a file that is too large, empty, not text or not YAML."""
    whole = Place(label, str(file))
    try:
        with file.open("rb") as stream:
            raw = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise RecipeError([whole.error(f"the file cannot be read ({error.strerror})")]) from error
    if len(raw) > MAX_FILE_BYTES:
        hint = "A recipe is a short text; put data into files of their own."
        raise RecipeError([whole.error("the file is larger than 1 MB", hint=hint)])
    try:
        text = raw.decode("utf-8-sig")
        if "\0" in text:
            raise UnicodeError
        node = Loader(text).get_single_node()
    except UnicodeError as error:
        hint = "A recipe is a YAML text file."
        raise RecipeError([whole.error("the file is not UTF-8 text", hint=hint)]) from error
    except yaml.YAMLError as error:
        raise RecipeError([describe_syntax_error(error, text, whole)]) from error
    if node is None:
        raise RecipeError([whole.error("the file is empty", hint="Write sections such as `model:`, or a `base:`.")])
    if not isinstance(node, yaml.MappingNode):
        line = node.start_mark.line
        found = text.splitlines()[line].strip()
        message = f"a recipe must consist of sections such as `model:`, but this line is `{found}`"
        raise RecipeError([whole.at(line + 1).error(message)])
    tree = Tree(whole, parse_scalar)
    try:
        values = tree.build(node, ())
    except yaml.MarkedYAMLError as error:
        raise RecipeError([describe_syntax_error(error, text, whole)]) from error
    document = Document(values, tree.places, whole, replaced=frozenset(tree.replaced))
    if problems := tree.problems + _find_code_keys(document):
        raise RecipeError(problems)
    return document


def write(values: Mapping[str, Any], comment: Callable[[Keys], str], keys: Keys = (), width: int = 0) -> str:
    """Write the tree as YAML, one key per line, with comments from column `width` on."""
    lines = []
    for key, value in values.items():
        inside = (*keys, key)
        nested = isinstance(value, Mapping) and bool(value)
        listed = isinstance(value, list) and bool(value) and all(isinstance(one, Mapping) for one in value)
        text = "  " * len(keys) + f"{to_one_line(str(key))}:{'' if nested or listed else ' ' + to_one_line(value)}"
        note = comment(inside)
        lines.append(f"{text:{width}}  # {note}\n" if note else f"{text}\n")
        lines += [f"{'  ' * len(inside)}- {to_one_line(one)}\n" for one in value] if listed else []
        lines += [write(value, comment, inside, width)] if nested else []
    return "".join(lines)


def _merge(base: Any, child: Any, keys: Keys, replaced: set[Keys], anew: Collection[Keys] = ()) -> Any:
    """Merge the values of a child document over the values of its base.

    replaced   receives the keys with a value from the child
    anew       keys of mappings that replace the base instead of being merged
    """
    if child is None and len(keys) == 1 and isinstance(base, dict):
        return base  # an empty section, whose lines are all commented out, changes nothing
    if not (isinstance(base, dict) and isinstance(child, dict)) or keys in anew or _starts_anew(base, child, keys):
        replaced.add(keys)
        return child
    over = {key: _merge(base.get(key), value, (*keys, key), replaced, anew) for key, value in child.items()}
    return {**base, **over}


def _starts_anew(base: dict[str, Any], child: dict[str, Any], keys: Keys) -> bool:
    """Whether a mapping of the child replaces the mapping of the base.

    A new `kind` starts with its own defaults: a `depth` chosen for a decoder may not suit an encoder. A mapping inside
    a section is emptied if it is written as {}.
    """
    if keys == ("tokens",) and child:  # a single stream and named streams replace each other
        streams = all(isinstance(value, dict) and "kind" in value for value in child.values())
        return ("kind" in child) if "kind" not in base else streams or child.get("kind", base["kind"]) != base["kind"]
    return (not child and len(keys) > 1) or ("kind" in base and child.get("kind", base["kind"]) != base["kind"])


def _find_code_keys(document: Document) -> list[UserError]:
    """Errors for keys with code to import. These keys are forbidden in a recipe."""

    def search(value: Any, keys: Keys) -> Iterator[Keys]:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if key in CODE_KEYS:
                yield (*keys, key)
            elif isinstance(inner, dict | list):
                yield from search(inner, (*keys, key))

    hint = "Pass --plugin FILE on the command line."
    return [
        document.error(keys, f"{dotted_key(keys)} is not allowed: a recipe must not name code to import", hint)
        for keys in search(document.values, ())
    ]
