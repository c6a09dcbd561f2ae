"""A recipe as a page: keys, values, and behind each the reason of the guess."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..data.source import Splits
from ..data.split import Split
from ..errors import UserError

YAML_WORDS = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")  # that YAML takes for something else


PART_WORDS = {
    **dict.fromkeys(("train", "training", "trn"), "train"),
    **dict.fromkeys(("valid", "val", "dev", "validation"), "valid"),
    **dict.fromkeys(("test", "tst", "testing", "eval"), "test"),
}
RELATIVE_PATHS_NOTE = "relative to the folder where you train"


@dataclass(frozen=True)
class Guess:
    """How `sciformer new` makes a recipe of files of one kind.

    write       from the names as they were given, and the files that are meant, to the text of a recipe
    find        the files that names mean (default: names, globs)
    recognises  whether a name alone says that it is of this kind, so that the kind may be left out
    tagged      whether a class may stand before a name, CLASS:FILE
    """

    write: Callable[[list[str], list[Path]], str]
    find: Callable[[list[str | Path]], list[Path]] | None = None
    recognises: Callable[[str], bool] = lambda name: False
    tagged: bool = False


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


def line_of(section: Mapping[str, Any], key: str, why: str = "", depth: int = 2) -> list[Line]:
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
    return value if plain and value.lower() not in YAML_WORDS else json.dumps(value, ensure_ascii=False)


def _printable(text: str) -> str:
    """Names of files and columns may hold anything; a comment is one line."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def name_files(paths: list[Path]) -> str:
    """The files in a few words."""
    return paths[0].name if len(paths) == 1 else f"{paths[0].name} and {len(paths) - 1} more"


GUESSES_NOTE = "Every choice below is a guess from that, with its reason; change what you know better."
NO_SPLIT = Split(valid=0, test=0)
SKIP_BAD_FILES = Line("bad_files", "skip", "some cannot be read, see above; `stop` refuses them", 2)


def open_readable(section: Any) -> tuple[Splits, bool]:
    """What the files of a section hold, and whether some of them are left out, for they cannot be read."""
    try:
        return section.open(), False
    except UserError as error:
        if "--data.bad_files" not in error.hint:
            raise
        return section.model_copy(update={"bad_files": "skip"}).open(), True


def file_lines(parts: Mapping[str, list[str]]) -> list[Line]:
    """The keys of the files of each part."""
    more = {part: names for part, names in parts.items() if part not in PART_WORDS.values()}
    return [
        Line("files", parts["train"], RELATIVE_PATHS_NOTE, 2),
        *(Line(part, parts[part], "by its name", 2) for part in ("valid", "test") if part in parts),
        *([Line("extra_parts", more, "judged each by itself", 2)] if more else []),
    ]


def group_by_part(names: Sequence[str]) -> dict[str, list[str]]:
    """Names by what they are for, where theirs say so and some are to train on; a second test is a part of its own.

    Where they lie in several folders (train/pos.txt, test/pos.txt), the names of these tell it too.
    """
    apart = len({Path(name).parent for name in names}) > 1
    own = [_part_in_name(name) for name in names]
    parts = [
        told or (_part_in_name(str(Path(name).parent)) if apart else "") or "train" for told, name in zip(own, names)
    ]
    if len(set(parts)) == 1 or "train" not in parts:
        return {"train": list(names)}
    found: dict[str, list[str]] = {}
    for part, name, told in zip(parts, names, own):
        again = part == told == "test" and part in found
        key = re.sub(r"\W+", "_", Path(name).name.partition(".")[0]) if again else part
        found.setdefault(key, []).append(name)
    return found


def _part_in_name(name: str) -> str:
    """The part that a name tells, or nothing."""
    return next((PART_WORDS[word] for word in re.split(r"[._-]", Path(name).name.lower()) if word in PART_WORDS), "")
