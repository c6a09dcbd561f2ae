"""The data file of weaver (jet-universe, hqucms/weaver-core) as a recipe of ours.

    made = import_data("JetClass_full.yaml")        writes JetClass_full-recipe.yaml
    made.notes                                      what has no equal here, one by one

Formulas are read as trees and written in our words; nothing is evaluated.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ....errors import UserError
from ....recipe import Recipe
from ....recipe.page import Line, line_of, write
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

    out        a .yaml file; unless given, named after the source, in this folder
    changes    keys of `data` that the file cannot know: {"data.files": [...], "data.valid": [...], "data.test": [...]}
    """
    source = Path(source).expanduser()
    path = Path(out).expanduser() if out is not None else Path(f"{source.stem}-recipe.yaml")
    if path.suffix not in (".yaml", ".yml"):
        raise UserError(
            f"a recipe must be named .yaml, not {path}",
            hint=f"Call it {path.with_suffix('.yaml')}",
            key="--out",
            file=path,
        )
    if path.exists() and not overwrite:
        raise UserError(
            f"{path} exists already",
            hint="Name another file with --out, or replace it with --overwrite.",
            file=path,
        )
    options = read_data_config(source)
    try:
        made = translate_options(options)
    except UserError as error:
        raise error.with_fields(file=source) from error
    page = recipe_page(made, source.name, _files(changes or {}))
    beside = path.with_name(f".{path.stem}.{os.getpid()}.yaml")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(page, "utf-8")
        Recipe.load(beside)
        beside.replace(path)
    except OSError as error:
        raise UserError(
            f"the recipe {path} cannot be written: {error.strerror}", hint="Name another place with --out.", file=path
        ) from error
    finally:
        beside.unlink(missing_ok=True)
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


def recipe_page(made: Translation, name: str, files: Mapping[str, list[str]]) -> str:
    """The page of the recipe: every key with where it came from, and above all what has no equal."""
    head = [
        f"The data of {name}, a file of weaver, written by `sciformer import`.",
        *(["", "Without an equal here:", *(f"  {note}" for note in made.notes)] if made.notes else []),
        "",
        *made.asides,
    ]
    data, tokens = made.data, made.tokens
    background = next((name for name in data.get("classes", {}) if name.lower() == "qcd"), "")
    lines = [
        Line("base", "jets/part", "model and training come from there; jets/particlenet, jets/pfn and others fit too"),
        Line("about"),
        Line("title", f"Particle Transformer on the data of {name}", "", 2),
        Line("data"),
        Line("kind", "events", "", 2),
        Line("files", files.get("files", []), "names or globs, with a tag for a class where no column has it", 2),
        *(Line(part, files[part], "", 2) for part in ("valid", "test") if part in files),
        *line_of(data, "tree", "treename"),
        *line_of(data, "select", "selection"),
        *line_of(data, "select_new", "test_time_selection, of files that answers are asked for"),
        *line_of(data, "new", "new_variables that are needed"),
        *line_of(data, "classes", "labels: a column, or formula, that is 1 where the jet is of the class"),
        *line_of(data, "label", "labels"),
        *line_of(data, "observers", "columns that are kept beside the answers"),
        *line_of(data, "weight", "weights"),
        *line_of(data, "reweight", "weights"),
        Line("tokens"),
        Line("kind", "particles", "", 2),
        *line_of(tokens, "vector", "the four-vector of a particle"),
        *line_of(tokens, "features", "what a particle enters with"),
        *line_of(tokens, "max_tokens", "particles of a jet, the hardest ones"),
        Line("objective"),
        Line("kind", "discriminate", "", 2),
        Line("background", background, "the class to reject, if there is one", 2),
        Line("efficiencies", {}, "shares of a class that are kept, {NAME: 0.99}; half of it unless given", 2),
        *line_of(made.objective, "weight", "of each jet in the loss"),
        *line_of(made.objective, "balance", "classes count alike, as in weaver where it reweights"),
    ]
    return write(head, lines)
