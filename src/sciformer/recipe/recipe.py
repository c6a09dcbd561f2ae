"""Recipe: data, tokens, model, objective and training in a validated document.

    recipe = Recipe.load("text/gpt-char", {"model.depth": 8})

The `kind` of a section selects a class, and the keys of the section are the fields of this class. A class is imported
when a recipe uses it, so that reading `about:` is fast.
"""

from __future__ import annotations

import difflib
import importlib.resources
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..files.seal import run_files
from . import document
from .document import Document, RecipeError
from .field import fields, package_of
from .options import annotation_at, field_at, format_value, parse_typed
from .validate import SECTIONS, About, classes_of, section_of, unknown_key_error, value_at, without_replaced_keys
from .yaml import Keys, Place

if TYPE_CHECKING:
    from ..files.in_memory import MemoryFile

MEASURED_KEYS = ("command", "hardware", "time", "score")
MAX_BASES = 8  # maximum length of a chain of `base:`


@dataclass(frozen=True)
class Recipe:
    """Validated sections of a recipe; with several streams, `tokens` is a dict.

    name      name of a shipped recipe, path of a file, or `in Python` for a recipe from a dict
    source    values from files and changes; defaults are left out, because they may depend on other values
    """

    name: str = field(compare=False)
    about: About
    data: Any
    tokens: Any
    model: Any
    objective: Any
    train: Any
    source: Document = field(compare=False, repr=False)
    tables: Mapping[str, MemoryFile] = field(default_factory=dict, compare=False, repr=False)
    """Tables in memory that replace the files of `data`, by part. They are not written into files."""

    @classmethod
    def load(cls, name: str | Path, changes: Mapping[str, Any] | None = None, where: str = "in changes") -> Recipe:
        """Load a shipped recipe by name, a .yaml file, or the recipe of a run folder.

        changes   values by dotted key
        where     origin of the changes in error messages
        """
        return _validate(_with_bases(name), changes, where)

    @classmethod
    def from_dict(
        cls,
        mapping: Mapping[str, Any],
        changes: Mapping[str, Any] | None = None,
        where: str = "in changes",
        name: str = "in Python",
    ) -> Recipe:
        """Build a recipe from nested mappings."""
        return _validate(_over_base(document.from_mapping(mapping, name), Path(), ()), changes, where)

    def change(self, changes: Mapping[str, Any] | None = None, /, where: str = "in changes", **more: Any) -> Recipe:
        """Return a recipe with changed values: `recipe.change({"model.depth": 8})`.

        A new `kind` resets its section to defaults.
        """
        return replace(_validate(self.source, {**(changes or {}), **more}, where), tables=self.tables)

    def inherit_from(self, below: Mapping[str, Any], label: str) -> Recipe:
        """Copy of the recipe; keys not set in the recipe take their values from `below`.

        label   origin of the values in error messages
        """
        made = _validate(document.lay_over(document.from_mapping(below, label), self.source), None, label)
        return replace(made, tables=self.tables)

    def with_tables(self, data: Any, valid: Any = None, test: Any = None, parts: str = "") -> Recipe:
        """Return a recipe with tables in memory in place of data files.

        data    training samples: a data frame, a mapping of names to columns, an array or a list
        valid   validation samples (default: a share of `data`, by `data.split`)
        test    test samples (default: a share of `data`, by `data.split`)
        parts   column of `data` with the part of each row: train, valid or test (default: none)

        In a recipe with simulated data, the reader of files replaces the simulation.
        """
        reader = self.data.table_reader()
        known = {} if reader is self.data else {"data": _dump_section(reader)}
        made = self.change({**known, **{f"data.{key}": value for key, value in reader.without_files().items()}})
        from ..files.in_memory import memory_files  # imports NumPy, which the help of the command line does not need

        return replace(made, tables=memory_files(data, valid, test, parts))

    @property
    def streams(self) -> dict[str, Any]:
        """Sections of tokens, by stream; a single stream has the name `tokens`."""
        return self.tokens if isinstance(self.tokens, dict) else {"tokens": self.tokens}

    def to_dict(self) -> dict[str, Any]:
        """All values, including defaults, as nested mappings."""
        return {section: _dump_section(getattr(self, section)) for section in SECTIONS}

    def _repr_html_(self) -> str:
        from ..interface.notebook import recipe_as_html

        return recipe_as_html(self)

    def to_yaml(self) -> str:
        """All values, with defaults, as YAML; the help of each key is a comment."""
        classes, _ = classes_of(self.source)

        def help_of(keys: Keys) -> str:
            info = field_at(annotation_at(classes, keys[:-1]), keys[-1]) if keys[-1] != "kind" else None
            return " ".join(((info and info.description) or "").split())

        return document.write({key: value for key, value in self.to_dict().items() if value}, help_of)


def _shipped_files() -> dict[str, Traversable]:
    """Recipe files of all fields, by recipe name."""
    return dict(sorted((name, file) for field in fields() for name, file in _recipes_of(field, package_of(field))))


@cache
def _recipes_of(field: str, package: str) -> list[tuple[str, Traversable]]:
    """Names and files of the recipes of a field.

    FIELD/recipes/NAME.yaml is FIELD/NAME; FIELD/recipes/GROUP/NAME.yaml is GROUP/NAME.
    """
    folder = importlib.resources.files(package) / "recipes"
    entries = list(folder.iterdir()) if folder.is_dir() else []
    groups = [(entry.name, list(entry.iterdir())) for entry in entries if entry.is_dir()] + [(field, entries)]
    found = [(group, file) for group, files in groups for file in files if file.name.endswith(".yaml")]
    return [(f"{group}/{file.name.removesuffix('.yaml')}", file) for group, file in found]


def recipes() -> list[str]:
    """Names of the shipped recipes."""
    return list(_shipped_files())


def describe(name: str | Path) -> About:
    """Section `about:` of a recipe; the other sections are not validated."""
    source = _with_bases(name)
    problems: list[UserError] = []
    about = section_of(source, ("about",), {("about",): About}, problems)
    if problems:
        raise RecipeError(problems)
    return about


# Files and their bases


def _with_bases(
    name: str | Path, folder: Path = Path(), place: Place | None = None, chain: tuple[str, ...] = ()
) -> Document:
    """Document of a recipe, given by name or path, merged with its bases."""
    try:
        file, label = _find_file(name, folder, place)
    except OSError as error:
        raise _not_found_error(place, f"{str(name)[:80]} cannot be read ({error.strerror})", file=name) from error
    identity = str(file.resolve()) if isinstance(file, Path) else label
    if identity in chain:
        raise _not_found_error(place, f"{name} is its own base")
    if len(chain) == MAX_BASES:
        message = f"{name} is recipe file number {MAX_BASES + 1} in a chain of bases; at most {MAX_BASES} are allowed"
        raise _not_found_error(place, message, "Merge some of these files.")
    return _over_base(document.read(file, label), file.parent if isinstance(file, Path) else Path(), (*chain, identity))


def _over_base(child: Document, folder: Path, chain: tuple[str, ...]) -> Document:
    values = dict(child.values)
    base = values.pop("base", None)
    child = replace(child, values=values)
    if base is None:
        return child
    place = child.where(("base",))
    if not isinstance(base, str):
        raise RecipeError([place.error(f"base must be a recipe name or a path, not {format_value(base)}", ("base",))])
    below = _with_bases(base, folder, place, chain)
    # A measured score belongs to the recipe that was run, not to recipes derived from it.
    about = {key: value for key, value in (below.values.get("about") or {}).items() if key not in MEASURED_KEYS}
    return document.lay_over(replace(below, values={**below.values, "about": about}), child)


def _not_found_error(place: Place | None, message: str, hint: str = "", file: str | Path | None = None) -> RecipeError:
    """Error for a missing recipe; if it is a base, with the line of the `base:` key."""
    if place is not None:
        return RecipeError([place.error(f"base: {message}", ("base",), hint)])
    return RecipeError([UserError(message, hint=hint, file=file)])


def _find_file(name: str | Path, folder: Path, place: Place | None) -> tuple[Path | Traversable, str]:
    """File of a recipe given by name or path, and the name for messages."""
    shipped = _shipped_files()
    if isinstance(name, str) and name in shipped:
        return shipped[name], name
    path = folder / Path(name).expanduser()
    if path.is_dir():
        files = run_files(path)
        if not (path / "recipe.yaml").is_file() and not files.sealed:
            raise _not_found_error(place, f"{path} is not a run folder: it has no recipe.yaml", file=path)
        files.read("recipe.yaml")  # refuses a damaged or lost file
        return path / "recipe.yaml", str(path / "recipe.yaml")
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            why = "is not a file" if path.exists() else "does not exist"
            raise _not_found_error(place, f"{path} {why}", file=path)
        return path, str(path)
    if path.is_file():
        raise _not_found_error(place, f"{path} is not a recipe: its name must end in .yaml", file=path)
    families = {key: shipped_name for shipped_name in shipped for key in (shipped_name.partition("/")[2], shipped_name)}
    near = dict.fromkeys(families[key] for key in difflib.get_close_matches(str(name), families, n=5, cutoff=0.5))
    every = "`sciformer recipes` lists all recipes; the name of a file must end in .yaml."
    hint = f"Did you mean {', '.join(near)}?" if near else every
    raise _not_found_error(place, f"{name} is not a shipped recipe", hint)


# From a document to sections


def _validate(source: Document, changes: Mapping[str, Any] | None, where: str) -> Recipe:
    if changes:
        wanted = document.from_mapping(changes, where)
        source = without_replaced_keys(replace(document.lay_over(source, wanted), whole=source.whole))
        classes, _ = classes_of(source)
        for keys, value in document.flatten(wanted.values):
            inner = value_at(source.values, keys[:-1])
            if inner.get(keys[-1]) is value:  # an empty section changes nothing
                inner[keys[-1]] = parse_typed(value, annotation_at(classes, keys))
    source = without_replaced_keys(source)
    classes, problems = classes_of(source)
    unknown = [key for key in source.values if key not in SECTIONS]
    problems += [unknown_key_error((key,), source, classes) for key in unknown[: document.MAX_PROBLEMS]]
    found: dict[str, Any] = {}
    for keys in classes:
        section = section_of(source, keys, classes, problems)
        if len(keys) == 1:
            found[str(keys[0])] = section
        else:
            found.setdefault("tokens", {})[keys[1]] = section
    if problems:
        raise RecipeError({str(problem): problem for problem in problems}.values())
    return Recipe(name=source.whole.name, source=source, **found)


def _dump_section(section: Any) -> dict[str, Any]:
    if isinstance(section, dict):
        return {name: _dump_section(stream) for name, stream in section.items()}
    # Not pydantic's mode="json", which makes null of infinity.
    values: dict[str, Any] = document.to_plain_values(section.model_dump(exclude_none=isinstance(section, About)))
    return {key: value for key, value in values.items() if key != "kind" or value}  # the kind of `train` has no name
