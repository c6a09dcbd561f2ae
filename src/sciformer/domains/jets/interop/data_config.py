"""The data file of weaver (jet-universe, hqucms/weaver-core) as a recipe of ours.

    made = import_data("JetClass_full.yaml")        writes JetClass_full-recipe.yaml
    made.notes                                      what has no equal here, one by one

Formulas are read as trees and written in our words; nothing is evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ....errors import UserError
from ....recipe.page import Found, check_new_recipe, write_page
from .inputs import ModelInputs
from .options import OptionReader, Translation

MAX_BYTES = 1 << 20  # bytes of a data file


@dataclass(frozen=True)
class ImportedData:
    """The recipe that was written, and what of the file has no equal in it."""

    path: Path
    notes: list[str]


def import_data(
    source: str | Path,
    out: str | Path | None = None,
    changes: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> ImportedData:
    """Write a recipe with the `data:` and `tokens:` of a data file of weaver.

    out        a .yaml file (default: named after the source, in this folder)
    changes    keys of `data` that the file cannot know: {"data.files": [...], "data.valid": [...], "data.test": [...]}
    """
    source = Path(source).expanduser()
    path = Path(out).expanduser() if out is not None else Path(f"{source.stem}-recipe.yaml")
    check_new_recipe(path, overwrite)
    options = read_data_config(source)
    try:
        made = translate_options(options)
    except UserError as error:
        raise error.with_fields(file=source) from error
    write_page(path, *recipe_page(made, source.name, _files(changes or {})))
    return ImportedData(path, made.notes)


def read_data_config(path: Path) -> dict[str, Any]:
    """The options of a data file."""
    if not path.is_file():
        found = f"{path} is a folder, not a data file" if path.is_dir() else f"there is no data file {path}"
        raise UserError(f"{found} of weaver", file=path)
    if path.stat().st_size > MAX_BYTES:
        raise UserError(
            f"{path} is too large for a data file of weaver: {path.stat().st_size:,} bytes, at most {MAX_BYTES:,}",
            file=path,
        )
    try:
        options = yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        raise UserError(
            f"{path} is not plain YAML: {' '.join(str(error).split())[:200]}",
            file=path,
            line=mark.line + 1 if mark else None,
        ) from error
    if not isinstance(options, dict) or not {"inputs", "labels"} <= set(options):
        ours = isinstance(options, dict) and "tokens" in options
        found = "a recipe of Sciformer" if ours else "without them"
        raise UserError(f"data files of weaver have `inputs` and `labels`, but {path} is {found}", file=path)
    return {str(key): value for key, value in options.items() if value is not None}


def translate_options(options: Mapping[str, Any]) -> Translation:
    """The sections of a recipe."""
    reading = OptionReader(options)
    ModelInputs(reading).translate()
    return reading.translate()


def _files(changes: Mapping[str, Any]) -> dict[str, list[str]]:
    found = {}
    for key, value in changes.items():
        if key not in ("data.files", "data.valid", "data.test"):
            raise UserError(
                f"--{key} cannot be given here, only --data.files, --data.valid and --data.test",
                hint="Change it in the recipe.",
                key=key,
            )
        found[key.removeprefix("data.")] = [str(one) for one in (value if isinstance(value, list) else [value])]
    return found


DATA_REASONS = {
    "tree": "treename",
    "select": "selection",
    "select_new": "test_time_selection, of files that answers are asked for",
    "new": "new_variables that are needed",
    "classes": "labels: a column, or formula, that is 1 where the jet is of the class",
    "label": "labels",
    "observers": "columns that are kept beside the answers",
    "weight": "weights",
    "reweight": "weights",
}
TOKEN_REASONS = {
    "vector": "the four-vector of a particle",
    "features": "what a particle enters with",
    "max_tokens": "particles of a jet, the hardest ones",
}
OBJECTIVE_REASONS = {
    "weight": "of each jet in the loss",
    "balance": "classes count alike, as in weaver where it reweights",
}


def recipe_page(made: Translation, name: str, files: Mapping[str, list[str]]) -> tuple[list[str], list[Found]]:
    """The head of the recipe, with what has no equal here, and its keys, each with where it came from."""
    head = [
        f"The data of {name}, a file of weaver, written by `sciformer import`.",
        *(["", "Without an equal here:", *(f"  {note}" for note in made.notes)] if made.notes else []),
        "",
        *made.asides,
    ]
    background = next((name for name in made.data.get("classes", {}) if name.lower() == "qcd"), "")

    def given(section: str, values: Mapping[str, Any], reasons: Mapping[str, str]) -> list[Found]:
        return [Found(f"{section}.{key}", values.get(key) or None, why) for key, why in reasons.items()]

    found = [
        Found("base", "jets/part", "model and training come from there; jets/particlenet, jets/pfn and others fit too"),
        Found("about.title", f"Particle Transformer on the data of {name}"),
        Found("data.kind", "events"),
        Found("data.files", files.get("files", []), "names or globs, with a tag for a class where no column has it"),
        *(Found(f"data.{part}", files.get(part)) for part in ("valid", "test")),
        *given("data", made.data, DATA_REASONS),
        Found("tokens.kind", "particles"),
        *given("tokens", made.tokens, TOKEN_REASONS),
        Found("objective.kind", "discriminate"),
        Found("objective.background", background, "the class to reject, if there is one"),
        Found("objective.efficiencies", {}, "shares of a class that are kept, {NAME: 0.99} (default: half of it)"),
        *given("objective", made.objective, OBJECTIVE_REASONS),
    ]
    return head, found
