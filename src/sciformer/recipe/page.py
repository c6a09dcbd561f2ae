"""Recipes written by `sciformer new`: keys, values and reasons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UserError
from ..files.atomic import atomic_write, check_name, check_new
from . import document, validate
from .recipe import Recipe
from .yaml import Keys

SECTIONS = ("base", *validate.SECTIONS)
COMMENT_COLUMN = 34
GUESSES_NOTE = "All values below are guesses from these files, with their reasons; change them as needed."


class Found(NamedTuple):
    """Recipe key (`data.split.valid`), its value, and the reason for the value.

    A key without a value (None) is not written; if it is a mapping, its reason becomes the comment of the mapping. If a
    key is found twice, the last one is used.
    """

    key: str
    value: Any = None
    why: str = ""


@dataclass(frozen=True)
class Page:
    """A recipe guessed from files.

    model    the model in a few words
    files    the files, or folders
    amount   number of samples in words: "60 texts"
    notes    findings about the files, one line each
    see      shipped recipe that shows all keys
    found    keys of the recipe, sections in any order
    """

    model: str
    files: Sequence[Path]
    amount: str
    notes: Sequence[str]
    see: str
    found: Iterable[Found]

    def write(self, path: Path, kind: str) -> None:
        """Write the recipe to a file, with title, notes and reasons as comments."""
        first = self.files[0].name or self.files[0].resolve().name
        files = first if len(self.files) == 1 else f"{first} and {len(self.files) - 1} more"
        title = f"{self.model} on {files}"
        see = f"All other keys and their meaning: sciformer recipes {self.see}"
        head = [f"{title}: a recipe written by `sciformer new {kind}`.", *self.notes, "", GUESSES_NOTE, see]
        about = [Found("about.title", title), Found("about.data", f"{files}, {self.amount}")]
        write_page(path, head, [*about, *self.found])


def write_page(path: Path, head: Sequence[str], found: Iterable[Found]) -> None:
    """Write a recipe: the head as comments, then every key with its reason."""
    ordered = sorted(found, key=lambda one: SECTIONS.index(one.key.partition(".")[0]))
    values = {one.key: one.value for one in ordered if one.value is not None}
    Recipe.from_dict(values)
    whys: dict[Keys, str] = {tuple(one.key.split(".")): _printable(one.why) for one in ordered}
    tree = document.from_mapping(values, str(path)).values
    text = document.write(tree, lambda keys: whys.get(keys, ""), width=COMMENT_COLUMN)
    comment = "".join(f"# {_printable(line)}".rstrip() + "\n" for line in head)
    with atomic_write(path) as partial:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(comment + text, "utf-8")


def check_new_recipe(path: Path, overwrite: bool) -> None:
    """Refuse a file name that does not end in .yaml, or an existing file."""
    try:
        check_name(path, (".yaml", ".yml"), "a recipe")
    except UserError as error:
        raise error.with_fields(key="--out") from error
    check_new(path, overwrite)


def _printable(text: str) -> str:
    """Replace control characters, so that a comment stays on one line."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
