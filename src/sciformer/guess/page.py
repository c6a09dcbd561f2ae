"""A recipe as a page: keys, values, and behind each the reason of the guess."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

WORDS = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")  # that YAML takes for something else


class Line(NamedTuple):
    """A key of a recipe, its value, and why it has it; a section has no value."""

    key: str
    value: Any = None
    why: str = ""
    depth: int = 1


def write(head: Sequence[str], lines: Sequence[Line]) -> str:
    """The lines of a recipe, each with its reason behind it; the head is a comment above all."""
    done = [f"# {_printable(line)}".rstrip() for line in head]
    for line in lines:
        text = f"{'  ' * (line.depth - 1)}{line.key}:"
        below = _entries(line.value)
        if line.value is not None and not below:
            text = f"{text} {_value(line.value)}"
        done.append(f"{text:34}  # {_printable(line.why)}" if line.why else text)
        done += [f"{'  ' * line.depth}- {entry}" for entry in below]
    return "\n".join(done) + "\n"


def put(section: Mapping[str, Any], key: str, why: str = "", depth: int = 2) -> list[Line]:
    """The line of a key where the section has something there; what is named has a line for each name."""
    value = section.get(key)
    if value in (None, "", [], {}):
        return []
    if not isinstance(value, Mapping):
        return [Line(key, value, why, depth)]
    return [Line(key, None, why, depth), *(Line(_value(str(name)), one, "", depth + 1) for name, one in value.items())]


def _entries(value: Any) -> list[str]:
    """Those of a list of mappings, which have a line each."""
    if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
        return []
    return [
        "{" + ", ".join(f"{_value(str(key))}: {_value(one)}" for key, one in entry.items()) + "}" for entry in value
    ]


def _value(value: Any) -> str:
    plain = isinstance(value, str) and re.fullmatch(r"[A-Za-z][\w./-]*", value, re.ASCII)
    return value if plain and value.lower() not in WORDS else json.dumps(value, ensure_ascii=False)


def _printable(text: str) -> str:
    """Names of files and columns may hold anything; a comment is one line."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def named(paths: list[Path]) -> str:
    """The files in a few words."""
    return paths[0].name if len(paths) == 1 else f"{paths[0].name} and {len(paths) - 1} more"
