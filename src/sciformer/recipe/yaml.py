"""YAML 1.2 of recipes: `3e-4` is a number; `no`, `12:30`, `2020-01-01` are text.

A file cannot run code, and aliases cannot grow without limit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import yaml

from ..errors import UserError

Keys = tuple[str | int, ...]

MAX_ALIASES = 50  # maximum number of anchors and aliases per file
MAX_DEPTH = 40  # maximum nesting
MAX_NODES = 100_000  # maximum number of nodes, after expanding aliases

NUMBER_PATTERN = re.compile(r"[-+]?([0-9]+(_[0-9]+)*(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
INTEGER_PATTERN = re.compile(r"[-+]?[0-9]+(_[0-9]+)*|0x[0-9a-fA-F]+|0o[0-7]+")
WORD_VALUES = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", "+.inf", ".Inf", "+.Inf"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf"), -math.inf),
    **dict.fromkeys((".nan", ".NaN"), math.nan),
}
REPLACE_TAG = "!replace"  # before a mapping that replaces the mapping of the base instead of merging with it
PLAIN_TAG = "plain"  # tag of a scalar without quotes
TAG_PREFIX = "tag:yaml.org,2002:"
VALUE_TAGS = (PLAIN_TAG, f"{TAG_PREFIX}int", f"{TAG_PREFIX}float")


def dotted_key(keys: Keys) -> str:
    """Write nested keys in dotted form: `data.files item 2`."""
    text = ""
    for key in keys:
        text += f" item {key + 1}" if isinstance(key, int) else f".{key}" if text else key
    return text


@dataclass(frozen=True)
class Place:
    """Origin of a key: a file and line, or words such as "on the command line".

    name    name of the file, or words for the origin
    file    path of the file, if any
    """

    name: str
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        return self.name if self.line is None else f"{self.name} line {self.line}"

    def at(self, line: int) -> Place:
        return replace(self, line=line)

    def error(self, message: str, keys: Keys = (), hint: str = "") -> UserError:
        """`UserError` at this place, with file, line and key (without list indices)."""
        end = next((number for number, key in enumerate(keys) if isinstance(key, int)), len(keys))
        key = dotted_key(keys[:end]) or None
        return UserError(f"{self}: {message}", hint=hint, key=key, file=self.file, line=self.line)


def parse_scalar(text: str) -> Any:
    """Value of an unquoted word: null, true, false, a number, or the text itself."""
    if text in WORD_VALUES:
        return WORD_VALUES[text]
    if len(text) > 100:  # Python refuses integers of thousands of digits
        return text
    if INTEGER_PATTERN.fullmatch(text):
        return int(text.replace("_", ""), 0 if text[1:2] in ("x", "o") else 10)
    return float(text.replace("_", "")) if NUMBER_PATTERN.fullmatch(text) else text


def parse_brackets(text: str) -> list[Any] | dict[str, Any] | None:
    """Parse `[1, 2]` or `{a: 1}` with items as text; None for any other text."""
    tree = Tree(Place(""), str)
    try:
        node = Loader(text).get_single_node()
        found = tree.build(node, ()) if node else None
    except yaml.YAMLError:
        return None
    return found if isinstance(found, list | dict) and not tree.problems else None


# Text is split into events in C where PyYAML was built with it, ten times as fast; nodes are composed in Python.
_BASES: tuple[Any, ...] = (yaml.SafeLoader,)
if yaml.__with_libyaml__:
    _BASES = (yaml.composer.Composer, yaml.CSafeLoader)


class Loader(*_BASES):  # type: ignore[misc]
    """YAML loader with limits on anchors, nesting and size; unquoted words stay text."""

    yaml_implicit_resolvers: dict[Any, Any] = {None: [(PLAIN_TAG, re.compile(""))]}  # noqa: RUF012
    named, depth, count = 0, 0, 0

    def __init__(self, text: str) -> None:
        yaml.composer.Composer.__init__(self)
        _BASES[-1].__init__(self, text)

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose a node; refuse too many anchors and too deep nesting."""
        event = self.peek_event()
        self.named += getattr(event, "anchor", None) is not None
        self.depth += 1
        self.count += 1
        if self.count > MAX_NODES:
            raise _refusal(f"more than {MAX_NODES:,} values", event.start_mark)
        if self.named > MAX_ALIASES:
            raise _refusal(f"more than {MAX_ALIASES} anchors (&) and aliases (*)", event.start_mark)
        if self.depth > MAX_DEPTH:
            raise _refusal(f"nested more than {MAX_DEPTH} deep", event.start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _Dumper(yaml.SafeDumper):
    """One-line YAML writer, with quotes where YAML 1.1 or 1.2 would misread a text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> Any:
        return self.represent_scalar(f"{TAG_PREFIX}str", data, style=None if data.isprintable() else '"')


_Dumper.add_implicit_resolver(
    f"{TAG_PREFIX}float", re.compile(f"({NUMBER_PATTERN.pattern}|{INTEGER_PATTERN.pattern})$"), [*"-+.0123456789"]
)
_Dumper.add_representer(str, _Dumper.represent_str)


class Tree:
    """Plain values of YAML nodes, the line of every key, and the errors found."""

    def __init__(self, whole: Place, meaning: Callable[[str], Any]) -> None:
        self.whole, self.meaning = whole, meaning
        self.places: dict[Keys, Place] = {}
        self.problems: list[UserError] = []
        self.replaced: set[Keys] = set()  # mappings with the tag !replace
        self.size = 0

    def build(self, node: yaml.Node, keys: Keys) -> Any:
        """Convert a node and its children to a value."""
        self.size += 1 + (len(node.value) // 50 if isinstance(node, yaml.ScalarNode) else 0)
        if self.size > MAX_NODES or len(keys) > MAX_DEPTH:
            raise _refusal("the aliases (*) expand to too many values", node.start_mark)
        place = self.places.setdefault(keys, self.whole.at(node.start_mark.line + 1)) if keys else self.whole
        tag = node.tag.replace(TAG_PREFIX, "!!")
        if "python" in node.tag:
            self.problems.append(place.error(f"the tag {tag} names code, which is not allowed in a recipe", keys))
        elif isinstance(node, yaml.MappingNode) and node.tag in (f"{TAG_PREFIX}map", REPLACE_TAG):
            if node.tag == REPLACE_TAG:
                self.replaced.add(keys)
            return self._mapping(node, keys)
        elif isinstance(node, yaml.SequenceNode) and node.tag == f"{TAG_PREFIX}seq":
            return [self.build(item, (*keys, number)) for number, item in enumerate(node.value)]
        elif isinstance(node, yaml.ScalarNode) and node.tag in VALUE_TAGS:
            return self.meaning(node.value)
        elif node.tag == f"{TAG_PREFIX}str":
            return node.value
        else:
            self.problems.append(
                place.error(f"the tag {tag} is not allowed; the only tag is {REPLACE_TAG}, before a mapping", keys)
            )
        return None

    def _mapping(self, node: yaml.MappingNode, keys: Keys) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, value in node.value:
            place = self.whole.at(name.start_mark.line + 1)
            if not isinstance(name, yaml.ScalarNode) or name.tag not in (PLAIN_TAG, f"{TAG_PREFIX}str"):
                self.problems.append(place.error("a key must be a single word", keys))
                continue
            inside = (*keys, name.value)
            if name.value in values:
                first = self.places[inside].line
                self.problems.append(place.error(f"{dotted_key(inside)} is set twice (first in line {first})", inside))
            self.places.setdefault(inside, place)
            values[name.value] = self.build(value, inside)
        return values


def _refusal(problem: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def describe_syntax_error(error: yaml.YAMLError, text: str, whole: Place) -> UserError:
    """Error for invalid YAML: the line, the reason and the text of the line."""
    if isinstance(error, yaml.reader.ReaderError):
        number = text[: error.position].count("\n")
        return whole.at(number + 1).error(f"YAML does not allow the character {chr(int(error.character))!r}")
    assert isinstance(error, yaml.MarkedYAMLError)
    mark = error.problem_mark or error.context_mark
    lines = text.splitlines() or [""]
    number = min(mark.line, len(lines) - 1) if mark else 0
    line = lines[number]
    if "\t" in line[: len(line) - len(line.lstrip())]:
        message, hint = f"`{line.strip()[:80]}` is indented with a tab", "Indent with spaces: YAML allows no tabs."
        return whole.at(number + 1).error(message, hint=hint)
    return whole.at(number + 1).error(f"{error.problem or error.context}: `{line.strip()[:80]}`")


def to_one_line(value: Any) -> str:
    """Format a value as YAML on one line."""
    form: dict[str, Any] = {"default_flow_style": True, "width": math.inf, "allow_unicode": True, "sort_keys": False}
    written: str = yaml.dump(value, Dumper=_Dumper, **form)
    return written.removesuffix("\n").removesuffix("\n...")
