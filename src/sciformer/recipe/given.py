"""Recipe keys from the user of `sciformer new`; all other keys are guessed.

given = Given({"data.time": "HJD", "objective.kind": "regress"}, "on the command line")
given.get("data.time")                                            # "HJD"
given.section(SeriesFiles, {"kind": "series"}, files=["a.csv"])   # SeriesFiles with time="HJD"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.fileset import key_of, split_tag
from ..data.readers.part_names import group_by_part, part_of
from ..data.source import STANDARD_PARTS
from ..errors import UserError
from . import document
from .document import RecipeError
from .options import annotation_at, parse_typed
from .recipe import Recipe
from .registry import find, names
from .validate import ABSENT, section_of, value_at
from .yaml import Keys

if TYPE_CHECKING:
    from .page import Found


class Given(Mapping[str, Any]):
    """Recipe values from the user, by dotted key. Values of the command line are text."""

    def __init__(self, changes: Mapping[str, Any] | None = None, where: str = "in changes") -> None:
        self.changes, self.where = dict(changes or {}), where
        self.source = document.from_mapping(self.changes, where)

    def __getitem__(self, key: str) -> Any:
        value = value_at(self.source.values, tuple(key.split(".")), ABSENT)
        if value is ABSENT:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)

    def listed(self, key: str) -> list[str]:
        """Value of a key as a list of strings; empty if the key is not given."""
        value = self.get(key, [])
        return [str(one) for one in value] if isinstance(value, list) else [str(value)]

    # Files

    def files(self) -> dict[str, list[str]]:
        """Files of each part in data.files, data.valid, data.test and data.extra_parts."""
        parts = [*STANDARD_PARTS, *(self.get("data.extra_parts") or {})]
        return {part: found for part in parts if (found := self.listed(f"data.{key_of(part)}"))}

    def parts(self, file_names: Sequence[str]) -> dict[str, list[str]]:
        """Files of each part, from the keys of the user and from `file_names`."""
        own = self.files()
        told = set(chain(*own.values()))
        rest = {split_tag(name)[1]: name for name in file_names if name not in told}
        if "train" not in own:
            tags = [split_tag(name)[0] for name in rest.values()]
            found = {part: [rest[name] for name in some] for part, some in group_by_part([*rest], tags).items()}
            return {**found, **own}
        found = {}
        for name, whole in rest.items():
            part = part_of(Path(name).name)
            if part in ("", "train"):
                message = f"{whole} is not one of the training files in data.files"
                raise UserError(message, hint="Add it to data.files, or leave out data.files.", key="data.files")
            found.setdefault(part, []).append(whole)
        return {**found, **own}

    # Sections

    def section(self, cls: Any, guessed: Mapping[str, Any], **fixed: Any) -> Any:
        """Build a section; precedence: fixed values, values of the user, guesses."""
        name = cls.section
        given = {key: value for key, value in self.source.values.get(name, {}).items() if key not in fixed}
        self.check_kind(name, guessed["kind"])
        base = document.from_mapping({name: dict(guessed)}, "guessed")
        source = document.lay_over(base, document.from_mapping({name: given}, self.where))
        cls = cls.with_choices(source.values[name])
        for keys, _ in list(document.flatten(given)):
            inner = value_at(source.values[name], keys[:-1])
            inner[keys[-1]] = parse_typed(inner[keys[-1]], annotation_at({(name,): cls}, (name, *keys)))
        problems: list[UserError] = []
        found = section_of(source, (name,), {(name,): cls}, problems)
        if problems:
            raise RecipeError(problems)
        return found.model_copy(update=fixed)

    def check_kind(self, section: str, kind: str) -> None:
        """Refuse the user's `kind` of a section if the files need another kind."""
        key = f"{section}.kind"
        if (given := self.get(key, kind)) not in names(section):
            find(section, given)  # refuses an unknown kind
        if given != kind:
            hint = f"Leave out --{key}, or write the recipe by hand."
            raise UserError(f"{key} cannot be {given}: a recipe for these files has {key} {kind}", hint=hint, key=key)

    # Recipe

    def complete(self, found: Sequence[Found]) -> dict[str, Any]:
        """Values by dotted key: values of the user, and guesses consistent with them."""
        values = {one.key: one.value for one in self._compatible(found) if one.value is not None}
        if not self.changes:
            Recipe.from_dict(values)
            return values
        if kind := values.get("data.kind"):
            self.check_kind("data", kind)
        made = Recipe.from_dict(values, self.changes, self.where).source.values
        keys: dict[str, Keys] = {key: tuple(key.split(".")) for key in (*values, *self.changes)}
        over = {key: value_at(made, keys[key]) for key in self.changes}
        below = [key for key in values if any(f"{key}.".startswith(f"{one}.") for one in over)]
        gone = [key for key in values if key != "base" and value_at(made, keys[key], ABSENT) is ABSENT]
        return {key: value for key, value in values.items() if key not in {*below, *gone}} | over

    def _compatible(self, found: Sequence[Found]) -> list[Found]:
        """Guesses consistent with the kinds given by the user.

        Keys that do not exist for these kinds are left out.
        """
        kinds = {one.key.partition(".")[0]: one.value for one in found if one.key.endswith(".kind")}
        kept = list(found)
        for section, kind in kinds.items():
            given = self.get(f"{section}.kind", kind)
            if given == kind or given not in names(section) or section == "data":
                continue
            known = find(section, given).with_choices(self.source.values[section]).model_fields
            unknown = {
                one.key for one in kept if one.key.startswith(f"{section}.") and one.key.split(".")[1] not in known
            }
            unknown |= {"train.best"} if section == "objective" else set()  # a score of the guessed objective
            kept = [one for one in kept if one.key not in unknown]
            kept = [one._replace(value=given) if one.key == f"{section}.kind" else one for one in kept]
        return kept
