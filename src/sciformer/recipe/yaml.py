"""The YAML of recipes, that of version 1.2: `3e-4` is a number; `no`, `12:30` and `2020-01-01` are text.

Nothing in a text can run code, and nothing in it grows without end.
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

MAX_ALIASES = 50  # anchors and aliases in a file at most
MAX_DEPTH = 40  # of nesting at most
MAX_NODES = 100_000  # in the tree at most, once its aliases are written out

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
PLAIN_TAG = "plain"  # the tag of a scalar without quotes
TAG_PREFIX = "tag:yaml.org,2002:"


def dotted_key(keys: Keys) -> str:
    """Keys as a person writes them: `data.files item 2`."""
    text = ""
    for key in keys:
        text += f" item {key + 1}" if isinstance(key, int) else f".{key}" if text else key
    return text


@dataclass(frozen=True)
class Place:
    """Where a key is written: a line of a file, a whole file, or words such as "on the command line".

    name    what the file is called, or the words
    file    the path of the file, if it is one
    """

    name: str
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        return self.name if self.line is None else f"{self.name} line {self.line}"

    def at(self, line: int) -> Place:
        """A line of the same file."""
        return replace(self, line=line)

    def error(self, message: str, keys: Keys = (), hint: str = "") -> UserError:
        """What is wrong here, with the place as fields; the key ends where a list begins."""
        end = next((number for number, key in enumerate(keys) if isinstance(key, int)), len(keys))
        key = dotted_key(keys[:end]) or None
        return UserError(f"{self}: {message}", hint=hint, key=key, file=self.file, line=self.line)


def parse_scalar(text: str) -> Any:
    """What a word without quotes means: null, true, false, a number, or the text itself."""
    if text in WORD_VALUES:
        return WORD_VALUES[text]
    if len(text) > 100:  # Python refuses to read a whole number of thousands of digits
        return text
    if INTEGER_PATTERN.fullmatch(text):
        return int(text.replace("_", ""), 0 if text[1:2] in ("x", "o") else 10)
    return float(text.replace("_", "")) if NUMBER_PATTERN.fullmatch(text) else text


def parse_brackets(text: str) -> list[Any] | dict[str, Any] | None:
    """The list or mapping written in a word, `[1, 2]` or `{a: 1}`, its ends still text; None if it is neither."""
    tree = Tree(Place(""), str)
    try:
        node = Loader(text).get_single_node()
        found = tree.build(node, ()) if node else None
    except yaml.YAMLError:
        return None
    return found if isinstance(found, list | dict) and not tree.problems else None


class Loader(yaml.SafeLoader):
    """The nodes of a YAML text; names and nesting are counted, and words without quotes left as they are."""

    yaml_implicit_resolvers: dict[Any, Any] = {None: [(PLAIN_TAG, re.compile(""))]}  # noqa: RUF012
    named, depth = 0, 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """As ever, but counted."""
        event = self.peek_event()
        self.named += getattr(event, "anchor", None) is not None
        self.depth += 1
        if self.named > MAX_ALIASES:
            raise _refusal(f"more than {MAX_ALIASES} anchors (&) and aliases (*)", event.start_mark)
        if self.depth > MAX_DEPTH:
            raise _refusal(f"nested more than {MAX_DEPTH} deep", event.start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _Dumper(yaml.SafeDumper):
    """YAML on one line, with quotes around all that either version of YAML would not read as text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> Any:
        return self.represent_scalar(f"{TAG_PREFIX}str", data, style=None if data.isprintable() else '"')


_Dumper.add_implicit_resolver(
    f"{TAG_PREFIX}float", re.compile(f"({NUMBER_PATTERN.pattern}|{INTEGER_PATTERN.pattern})$"), [*"-+.0123456789"]
)
_Dumper.add_representer(str, _Dumper.represent_str)


class Tree:
    """Plain values from YAML nodes, with the place of every key and the problems met on the way."""

    def __init__(self, whole: Place, meaning: Callable[[str], Any]) -> None:
        self.whole, self.meaning = whole, meaning
        self.places: dict[Keys, Place] = {}
        self.problems: list[UserError] = []
        self.size = 0

    def build(self, node: yaml.Node, keys: Keys) -> Any:
        """The value of a node, and of all below it."""
        self.size += 1 + (len(node.value) // 50 if isinstance(node, yaml.ScalarNode) else 0)
        if self.size > MAX_NODES or len(keys) > MAX_DEPTH:
            raise _refusal("aliases (*) that grow without end", node.start_mark)
        place = self.places.setdefault(keys, self.whole.at(node.start_mark.line + 1)) if keys else self.whole
        tag = node.tag.replace(TAG_PREFIX, "!!")
        if "python" in node.tag:
            self.problems.append(place.error(f"the tag {tag} names code, which a recipe cannot run", keys))
        elif isinstance(node, yaml.MappingNode) and node.tag == f"{TAG_PREFIX}map":
            return self._mapping(node, keys)
        elif isinstance(node, yaml.SequenceNode) and node.tag == f"{TAG_PREFIX}seq":
            return [self.build(item, (*keys, number)) for number, item in enumerate(node.value)]
        elif isinstance(node, yaml.ScalarNode) and node.tag in (
            PLAIN_TAG,
            *(TAG_PREFIX + name for name in ("int", "float")),
        ):
            return self.meaning(node.value)
        elif node.tag == f"{TAG_PREFIX}str":
            return node.value
        else:
            self.problems.append(place.error(f"the tag {tag} is not known; a recipe has no tags", keys))
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
                self.problems.append(
                    place.error(f"{dotted_key(inside)} is given twice (first in line {first})", inside)
                )
            self.places.setdefault(inside, place)
            values[name.value] = self.build(value, inside)
        return values


def _refusal(problem: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def describe_syntax_error(error: yaml.YAMLError, text: str, whole: Place) -> UserError:
    """A mistake of YAML: the line, what is wrong, and what stands there."""
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
    """A value as YAML."""
    written = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=True, width=math.inf, allow_unicode=True, sort_keys=False
    )
    return written.removesuffix("\n").removesuffix("\n...")
