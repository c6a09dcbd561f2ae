"""A recipe as a page: found keys, values, and reasons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UserError
from ..files.atomic import atomic_write, check_name
from . import document
from .recipe import Recipe
from .yaml import Keys

SECTIONS = ("base", "about", "data", "tokens", "model", "objective", "train")
COMMENT_COLUMN = 34
GUESSES_NOTE = "Every choice below is a guess from that, with its reason; change what you know better."


class Found(NamedTuple):
    """A key of a recipe (`data.split.valid`), its value, and why it has that value.

    A key without a value (None) has no line, but its reason stands behind the heading of the keys below it. Of a key
    that was found twice the last counts.
    """

    key: str
    value: Any = None
    why: str = ""


@dataclass(frozen=True)
class Page:
    """A recipe guessed from files.

    model    the model in a few words
    files    the files, or folders
    amount   the samples in them: "60 texts"
    notes    what was found in the files, a line each
    see      the shipped recipe that shows all keys
    found    the keys, sections in any order
    """

    model: str
    files: Sequence[Path]
    amount: str
    notes: Sequence[str]
    see: str
    found: Iterable[Found]

    def write(self, path: Path, kind: str) -> None:
        """Write the recipe of `sciformer new KIND`."""
        first = self.files[0].name or self.files[0].resolve().name
        files = first if len(self.files) == 1 else f"{first} and {len(self.files) - 1} more"
        title = f"{self.model} on {files}"
        see = f"All other keys and their meaning: sciformer recipes {self.see}"
        head = [f"{title}: a recipe written by `sciformer new {kind}`.", *self.notes, "", GUESSES_NOTE, see]
        about = [Found("about.title", title), Found("about.data", f"{files}, {self.amount}")]
        write_page(path, head, [*about, *self.found])


def write_page(path: Path, head: Sequence[str], found: Iterable[Found]) -> None:
    """Write a recipe: the head as a comment, then every key with its reason behind it."""
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
    """Refuse a name that is not that of a recipe, or that of a recipe that is there."""
    try:
        check_name(path, (".yaml", ".yml"), "a recipe")
    except UserError as error:
        raise error.with_fields(key="--out") from error
    if path.exists() and not overwrite:
        hint = "Name another file with --out, or replace it with --overwrite."
        raise UserError(f"{path} exists already", hint=hint, file=path)


def _printable(text: str) -> str:
    """Names of files and columns may hold anything; a comment is one line."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
