"""A recipe as a document: a tree of plain values in which every key remembers the place it came from.

Documents are read from YAML, laid over one another (`base:`, then the file, then the command line) and written again.
Nothing here knows a section's class, and nothing in a file can run code. The YAML is that of version 1.2, where
`3e-4` is a number and `no`, `12:30` and `2020-01-01` are text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from importlib.resources.abc import Traversable
from pathlib import Path, PurePath
from typing import Any

import yaml

from .errors import UserError

Keys = tuple[str | int, ...]

BYTES = 1_000_000  # of a file at most
ALIASES = 50  # anchors and aliases in a file at most
DEPTH = 40  # of nesting at most
NODES = 100_000  # in the tree at most, once its aliases are written out
CODE = ("plugin", "import", "_target_", "class_path")  # keys by which other libraries let a file name code

NUMBER = re.compile(r"[-+]?([0-9]+(_[0-9]+)*(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
WHOLE = re.compile(r"[-+]?[0-9]+(_[0-9]+)*|0x[0-9a-fA-F]+|0o[0-7]+")
WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", "+.inf", ".Inf", "+.Inf"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf"), -math.inf),
    **dict.fromkeys((".nan", ".NaN"), math.nan),
}
PLAIN = "plain"  # the tag of a scalar without quotes
TAG = "tag:yaml.org,2002:"


class RecipeError(UserError):
    """All mistakes found in a recipe, one line each."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = list(problems)
        super().__init__("a recipe without mistakes", f"{len(self.problems)}")
        self.args = ("\n".join(self.problems),)


@dataclass(frozen=True)
class Document:
    """A tree of plain values, the place of each key in words ('my.yaml line 7'), and the name of the whole."""

    values: dict[str, Any]
    places: dict[Keys, str]
    label: str

    def where(self, keys: Keys) -> str:
        """The place of a key, or of the nearest key around it."""
        around = (keys[:end] for end in range(len(keys), -1, -1))
        return next((self.places[part] for part in around if part in self.places), self.label)


def dotted(keys: Keys) -> str:
    """Keys as a person writes them: `data.files item 2`."""
    text = ""
    for key in keys:
        text += f" item {key + 1}" if isinstance(key, int) else f".{key}" if text else key
    return text


def of_mapping(mapping: Mapping[str, Any], label: str) -> Document:
    """A document from Python, or the dotted keys of a change: {"model.depth": 8} is {"model": {"depth": 8}}."""
    values: dict[str, Any] = {}
    problems = []
    for name, value in mapping.items():
        *around, last = str(name).split(".")
        if not all((*around, last)):
            problems.append(f"{label}: {name} is not a key; keys are words with dots between, as in model.depth")
        inner = values
        for key in around:
            if not isinstance(inner.get(key), dict):
                inner[key] = {}
            inner = inner[key]
        inner[last] = _merged(inner.get(last), plain(value), (), set())
    document = Document(values, {keys: label for keys, _ in flat(values)}, label)
    if problems := problems + _naming_code(document):
        raise RecipeError(problems)
    return document


def plain(value: Any) -> Any:
    """A copy in dicts, lists, texts and numbers only; other objects stay for the validation to judge."""
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(inner) for inner in (sorted(value) if isinstance(value, set | frozenset) else value)]
    return str(value) if isinstance(value, PurePath) else value.value if isinstance(value, Enum) else value


def flat(values: Any, keys: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """The values at the ends of the tree, each with its keys; a list is one value."""
    if isinstance(values, dict) and (values or not keys):
        for key, value in values.items():
            yield from flat(value, (*keys, key))
    else:
        yield keys, values


def lay_over(base: Document, child: Document) -> Document:
    """The child's values over those of its base: mappings key by key, lists and single values as a whole."""
    replaced: set[Keys] = set()
    values = _merged(base.values, child.values, (), replaced)
    kept = {
        keys: place
        for keys, place in base.places.items()
        if not any(keys[:end] in replaced for end in range(1, len(keys) + 1))
    }
    return Document(values, {**kept, **dict.fromkeys(replaced, child.label), **child.places}, child.label)


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], ignore: Collection[str] = ()
) -> list[tuple[str, Any, Any]]:
    """Where two dumped recipes differ, by dotted key; a key that is absent counts as null.

    ignore    keys that may differ, with all that stands under them
    """
    left, right = ({dotted(keys): value for keys, value in flat(dict(side)) if keys} for side in (old, new))
    found = []
    for key in dict.fromkeys((*left, *right)):
        before, now = left.get(key), right.get(key)
        both_nan = before != before and now != now
        if before != now and not both_nan and not any(f"{key}.".startswith(f"{name}.") for name in ignore):
            found.append((key, before, now))
    return found


def scalar(text: str) -> Any:
    """What a word without quotes means: null, true, false, a number, or the text itself."""
    if text in WORDS:
        return WORDS[text]
    if len(text) > 100:  # Python refuses to read a whole number of thousands of digits
        return text
    if WHOLE.fullmatch(text):
        return int(text.replace("_", ""), 0 if text[1:2] in ("x", "o") else 10)
    return float(text.replace("_", "")) if NUMBER.fullmatch(text) else text


def bracketed(text: str) -> list[Any] | dict[str, Any] | None:
    """The list or mapping written in a word, `[1, 2]` or `{a: 1}`, its ends still text; None if it is neither."""
    tree = _Tree("", str)
    try:
        node = _Loader(text).get_single_node()
        found = tree.build(node, ()) if node else None
    except yaml.YAMLError:
        return None
    return found if isinstance(found, list | dict) and not tree.problems else None


def read(file: Path | Traversable, label: str) -> Document:
    """The document in a YAML file; everything that is wrong with the file as such is refused here."""
    try:
        with file.open("rb") as stream:
            raw = stream.read(BYTES + 1)
    except OSError as error:
        raise RecipeError([f"{label}: cannot be read ({error.strerror})"]) from error
    if len(raw) > BYTES:
        raise RecipeError([f"{label}: larger than 1 MB; a recipe is a short text, data belong in files of their own"])
    try:
        text = raw.decode("utf-8-sig")
        if "\0" in text:
            raise UnicodeError
        node = _Loader(text).get_single_node()
    except UnicodeError as error:
        raise RecipeError([f"{label}: not UTF-8 text; a recipe is a YAML text file"]) from error
    except yaml.YAMLError as error:
        raise RecipeError([f"{label} {_syntax(error, text)}"]) from error
    if node is None:
        raise RecipeError([f"{label}: empty; expected sections such as `model:` or a `base:`"])
    if not isinstance(node, yaml.MappingNode):
        found = text.splitlines()[node.start_mark.line].strip()
        raise RecipeError(
            [f"{label} line {node.start_mark.line + 1}: expected a section such as `model:`; found `{found}`"]
        )
    tree = _Tree(label, scalar)
    try:
        values = tree.build(node, ())
    except yaml.MarkedYAMLError as error:
        raise RecipeError([f"{label} {_syntax(error, text)}"]) from error
    document = Document(values, tree.places, label)
    if problems := tree.problems + _naming_code(document):
        raise RecipeError(problems)
    return document


def write(values: Mapping[str, Any], comment: Callable[[Keys], str], keys: Keys = ()) -> str:
    """The tree as YAML that `read` takes back, one key a line, its comment behind it."""
    lines = []
    for key, value in values.items():
        inside = (*keys, key)
        nested = isinstance(value, Mapping) and bool(value)
        note = f"  # {comment(inside)}" if comment(inside) else ""
        lines.append("  " * len(keys) + f"{_line(str(key))}:{'' if nested else ' ' + _line(value)}{note}\n")
        if nested:
            lines.append(write(value, comment, inside))
    return "".join(lines)


class _Loader(yaml.SafeLoader):
    """The nodes of a YAML text; names and nesting are counted, and words without quotes left as they are."""

    yaml_implicit_resolvers: dict[Any, Any] = {None: [(PLAIN, re.compile(""))]}  # noqa: RUF012
    named, depth = 0, 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        self.named += getattr(event, "anchor", None) is not None
        self.depth += 1
        if self.named > ALIASES:
            raise _refused(f"more than {ALIASES} anchors (&) and aliases (*)", event.start_mark)
        if self.depth > DEPTH:
            raise _refused(f"nested more than {DEPTH} deep", event.start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _Dumper(yaml.SafeDumper):
    """YAML on one line, with quotes around all that either version of YAML would not read as text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> Any:
        return self.represent_scalar(f"{TAG}str", data, style=None if data.isprintable() else '"')


_Dumper.add_implicit_resolver(f"{TAG}float", re.compile(f"({NUMBER.pattern}|{WHOLE.pattern})$"), [*"-+.0123456789"])
_Dumper.add_representer(str, _Dumper.represent_str)


class _Tree:
    """Plain values from YAML nodes, with the place of every key and the problems met on the way."""

    def __init__(self, label: str, meaning: Callable[[str], Any]) -> None:
        self.label, self.meaning = label, meaning
        self.places: dict[Keys, str] = {}
        self.problems: list[str] = []
        self.size = 0

    def build(self, node: yaml.Node, keys: Keys) -> Any:
        self.size += 1 + (len(node.value) // 50 if isinstance(node, yaml.ScalarNode) else 0)
        if self.size > NODES or len(keys) > DEPTH:
            raise _refused("aliases (*) that grow without end", node.start_mark)
        place = self.places.setdefault(keys, f"{self.label} line {node.start_mark.line + 1}") if keys else self.label
        if "python" in node.tag:
            self.problems.append(f"{place}: {node.tag.replace(TAG, '!!')}: a recipe cannot run code")
        elif isinstance(node, yaml.MappingNode) and node.tag == f"{TAG}map":
            return self._mapping(node, keys)
        elif isinstance(node, yaml.SequenceNode) and node.tag == f"{TAG}seq":
            return [self.build(item, (*keys, number)) for number, item in enumerate(node.value)]
        elif isinstance(node, yaml.ScalarNode) and node.tag in (PLAIN, *(TAG + name for name in ("int", "float"))):
            return self.meaning(node.value)
        elif node.tag == f"{TAG}str":
            return node.value
        else:
            self.problems.append(f"{place}: {node.tag.replace(TAG, '!!')}: tags are not known in a recipe")
        return None

    def _mapping(self, node: yaml.MappingNode, keys: Keys) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, value in node.value:
            place = f"{self.label} line {name.start_mark.line + 1}"
            if not isinstance(name, yaml.ScalarNode) or name.tag not in (PLAIN, f"{TAG}str"):
                self.problems.append(f"{place}: a key is a word")
                continue
            inside = (*keys, name.value)
            if name.value in values:
                first = self.places[inside].removeprefix(f"{self.label} ")
                self.problems.append(f"{place}: {dotted(inside)} is given twice (first in {first})")
            self.places.setdefault(inside, place)
            values[name.value] = self.build(value, inside)
        return values


def _merged(base: Any, child: Any, keys: Keys, replaced: set[Keys]) -> Any:
    if child is None and len(keys) == 1 and isinstance(base, dict):
        return base  # a section whose lines are all commented out says nothing
    if not (isinstance(base, dict) and isinstance(child, dict)) or _starts_anew(base, child, keys):
        replaced.add(keys)
        return child
    over = {key: _merged(base.get(key), value, (*keys, key), replaced) for key, value in child.items()}
    return {**base, **over}


def _starts_anew(base: dict[str, Any], child: dict[str, Any], keys: Keys) -> bool:
    """Whether the child means something else, so that the base's keys would be unknown to it or, worse, known.

    A `depth` chosen for a decoder is no choice for an encoder: another `kind` begins with the defaults of its own. And
    a mapping inside a section, written as {}, has nothing of the base left in it.
    """
    if keys == ("tokens",) and child:  # one stream over several, or several over one
        streams = all(isinstance(value, dict) and "kind" in value for value in child.values())
        return ("kind" in child) if "kind" not in base else streams or child.get("kind", base["kind"]) != base["kind"]
    return (not child and len(keys) > 1) or ("kind" in base and child.get("kind", base["kind"]) != base["kind"])


def _naming_code(document: Document) -> list[str]:
    """The keys by which a file would choose what is imported."""

    def search(value: Any, keys: Keys) -> Iterator[Keys]:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if key in CODE:
                yield (*keys, key)
            elif isinstance(inner, dict | list):
                yield from search(inner, (*keys, key))

    advice = "a recipe cannot name code; pass --plugin FILE on the command line"
    return [f"{document.where(keys)}: {dotted(keys)}: {advice}" for keys in search(document.values, ())]


def _refused(problem: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def _syntax(error: yaml.YAMLError, text: str) -> str:
    """A mistake of YAML: the line, what is wrong, and what stands there."""
    if isinstance(error, yaml.reader.ReaderError):
        number = text[: error.position].count("\n")
        return f"line {number + 1}: the character {chr(int(error.character))!r}, which YAML does not allow"
    assert isinstance(error, yaml.MarkedYAMLError)
    mark = error.problem_mark or error.context_mark
    lines = text.splitlines() or [""]
    number = min(mark.line, len(lines) - 1) if mark else 0
    line = lines[number]
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return f"line {number + 1}: indented with a tab; YAML wants spaces: `{line.strip()[:80]}`"
    return f"line {number + 1}: {error.problem or error.context}: `{line.strip()[:80]}`"


def _line(value: Any) -> str:
    written = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=True, width=math.inf, allow_unicode=True, sort_keys=False
    )
    return written.removesuffix("\n").removesuffix("\n...")
