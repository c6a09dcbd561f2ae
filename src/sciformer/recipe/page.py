"""Recipes written by `sciformer new`: keys, values and reasons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UserError, list_names
from ..files.atomic import atomic_write, check_name, check_new
from . import document, validate
from .given import Given
from .yaml import Keys

SECTIONS = ("base", *validate.SECTIONS)
COMMENT_COLUMN = 34
GUESSES_NOTE = "All values below are guesses from these files, with their reasons; change them as needed."


class Found(NamedTuple):
    """Recipe key (`data.split.valid`), its value, and the reason for the value.

    A key with the value None is not written. If the key is the name of a mapping (`data.split`), its reason becomes the
    comment of the mapping. If a key is found twice, the last value is used.
    """

    key: str
    value: Any = None
    why: str = ""


@dataclass(frozen=True)
class Page:
    """A recipe guessed from files.

    model    description of the model in a few words
    files    the files, or folders
    amount   number of samples in words: "60 texts"
    notes    findings about the files, one line each
    see      shipped recipe that shows all keys; empty if there is none
    found    keys of the recipe, sections in any order
    roles    role -> column of the files
    unused   columns of the files without a role
    """

    model: str
    files: Sequence[Path]
    amount: str
    notes: Sequence[str]
    see: str
    found: Iterable[Found]
    roles: Mapping[str, str] = field(default_factory=dict)
    unused: Sequence[str] = ()

    @property
    def findings(self) -> list[str]:
        """Notes, the role of each column, and the columns without a role."""
        return [*self.notes, *describe_columns(self.roles, self.unused)]

    def write(self, path: Path, kind: str, given: Given) -> None:
        """Write the recipe to a file, with title, notes and reasons as comments."""
        files = list_names([one.name or one.resolve().name for one in self.files], 1)
        title = f"{self.model} on {files}"
        see = [f"All other keys and their meaning: sciformer recipes {self.see}"] if self.see else []
        head = [f"{title}: a recipe written by `sciformer new {kind}`.", *self.findings, "", GUESSES_NOTE, *see]
        about = [Found("about.title", title), Found("about.data", f"{files}, {self.amount}")]
        write_page(path, head, [*about, *self.found], given)


def describe_columns(roles: Mapping[str, str], unused: Sequence[str]) -> list[str]:
    """Lines on the role of each column, and on the columns without a role."""
    listed = ", ".join(f"{role} = {column}" for role, column in roles.items() if column)
    lines = [f"Columns: {listed}."] if listed else []
    return lines + ([f"Columns without a role: {list_names(unused)}."] if unused else [])


def write_page(path: Path, head: Sequence[str], found: Iterable[Found], given: Given | None = None) -> None:
    """Write a recipe: the head as comments, then every key with its reason."""
    given = given if given is not None else Given()
    ordered = list(found)
    whys: dict[Keys, str] = {tuple(one.key.split(".")): _printable(one.why) for one in ordered}
    whys |= {tuple(key.split(".")): "given" for key in given}
    values = dict(sorted(given.complete(ordered).items(), key=lambda one: SECTIONS.index(one[0].partition(".")[0])))
    tree = document.from_mapping(values, str(path)).values
    text = document.write(tree, lambda keys: whys.get(keys, ""), width=COMMENT_COLUMN)
    comment = "".join(f"# {_printable(line)}".rstrip() + "\n" for line in head)
    with atomic_write(path) as partial:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(comment + text, "utf-8")


def check_new_recipe(path: Path, overwrite: bool) -> None:
    """Refuse a file name without .yaml at its end, or an existing file."""
    try:
        check_name(path, (".yaml", ".yml"), "a recipe")
    except UserError as error:
        raise error.with_fields(key="--out") from error
    check_new(path, overwrite)


def _printable(text: str) -> str:
    """Replace control characters, to keep a comment on one line."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
