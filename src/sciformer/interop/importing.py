"""Import of models of other libraries as runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from ..assembly import Assembly
from ..errors import UserError, list_names
from ..files.packages import reading
from ..recipe import Recipe
from ..recipe.field import extensions
from ..run import Run
from ..training.folder import Folder
from ..training.provenance import describe_model
from ..training.resume import absolute_paths
from ..training.weights import load_into, save_weights
from .config import Config
from .reading import is_weights_file, read_config, read_weights
from .weight_map import sort_classes

Changes = Mapping[str, Any] | None
FOLDER_HINT = "Name the folder of a Hugging Face model."
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass
class Imported:
    """Converted model, ready to be written as a run.

    state   fitted state of the tokens and of the objective
    config  original configuration
    files   additional files of the folder `model`, by name
    check   function that refuses tokens that do not match the weights
    head    name of the output layer for classes, if there is one
    outputs class names in the order of the original outputs
    """

    name: str
    recipe: Recipe
    weights: dict[str, Tensor]
    state: dict[str, Any]
    config: Mapping[str, Any]
    notes: list[str]
    files: dict[str, str] = field(default_factory=dict)
    check: Callable[[Assembly], None] | None = None
    head: str = ""
    outputs: Sequence[str] = ()


def imported_recipe(name: str, note: str, sections: Mapping[str, Mapping[str, Any]], changes: Changes) -> Recipe:
    """Recipe of an imported model; keys with the value None are left out."""
    given = {key: {name: one for name, one in keys.items() if one is not None} for key, keys in sections.items()}
    given["about"] = {"title": f"{name}, imported", "note": note, **given.get("about", {})}
    return Recipe.from_dict(given, changes, where="in changes of the imported recipe")


@dataclass(frozen=True)
class Importer:
    """Importer of the models of one domain (text, images, ...).

    recognises    test whether a file or folder is a supported model
    read          function (source, folder of the new run, changes of its recipe) -> converted model
    model_types   supported values of `model_type` in a config.json
    """

    recognises: Callable[[Path], bool]
    read: Callable[[Path, Path, Changes], Imported]
    model_types: tuple[str, ...] = ()


def import_model(
    source: str | Path,
    run: str | Path,
    changes: Changes = None,
    log: Callable[[str], object] | None = None,
    classes: Sequence[str] = (),
) -> Run:
    """Import a model as a new run; `source` is a model folder or a file of weights.

    changes    changes of the recipe, such as {"model.heads": 8}
    log        function called with each note about the import
    classes    names of the classes, in the order of the outputs of the model (default: the names in the model, or the
               names in data.classes)
    """
    source, run = Path(source).expanduser(), Path(run).expanduser()
    if run.exists() and (not run.is_dir() or any(run.iterdir())):
        message = f"the folder {run} of the new run exists and is not empty"
        raise UserError(message, hint="Name another folder with --run.", file=run)
    with reading(source, "model"):
        if not source.exists():
            raise _missing(source)
        importer = next((one for one in extensions("importers") if one.recognises(source)), None)
        if importer is None:
            if source.is_dir():
                refuse_type(read_config(source))
            if is_weights_file(source):
                raise _unknown_weights(source)
            raise UserError(f"{source} is a file, not a folder", hint=FOLDER_HINT, file=source)
        made = importer.read(source, run, changes)
    name_classes(made, classes)
    write_run(run, made, source)
    if log is not None:
        for note in made.notes:
            log(note)
    return Run(run)


def name_classes(made: Imported, classes: Sequence[str]) -> None:
    """Rename the classes of an imported model, and sort the head by the new names.

    classes  new names in the order of the outputs; if empty, numbered classes get the names of `data.classes`
    """
    key, outputs = "--classes", list(made.outputs)
    if not classes and all(name.isdecimal() for name in outputs):
        key, classes = "data.classes", list(getattr(made.recipe.data, "classes", {}))
    if not classes:
        return
    if not outputs:
        raise UserError("the model has no classes, so they cannot be named", key=key)
    if len(classes) != len(outputs) or len(set(classes)) != len(outputs):
        needed = f"{len(outputs)} different names, one for each output of the model"
        message = f"{key} must have {needed}, not {', '.join(classes)}"
        raise UserError(message, hint="Write them in the order of the outputs.", key=key)
    state = made.state["objective"]
    renamed = [classes[outputs.index(name)] for name in state["classes"]]
    state["classes"] = sort_classes(made.weights, made.head, renamed)


def _unknown_weights(source: Path) -> UserError:
    names = list_names(sorted(read_weights(source))) or "none"
    hint = "`sciformer import --help` lists the supported models."
    message = f"the weights of {source} do not belong to a supported model; their names are {names}"
    return UserError(message, hint=hint, file=source)


def _missing(source: Path) -> UserError:
    """Error for a missing source, with a download hint for names of models on a hub."""
    name = re.sub(r"https?:/+(www\.)?huggingface\.co/", "", str(source)).removesuffix("/tree/main")
    if not HUB_NAME.fullmatch(name):
        return UserError(f"{source} does not exist", hint=FOLDER_HINT, file=source)
    folder = name.rpartition("/")[2]
    command = f"hf download {name} --local-dir {folder}"
    hint = f"Download the model into a folder first: {command}, then sciformer import {folder}"
    message = f"there is no folder {name}, and models are not downloaded from the Hugging Face hub"
    return UserError(message, hint=hint, file=source)


def refuse_type(config: Config) -> NoReturn:
    """Refuse the `model_type` of a configuration, and list the supported types."""
    kind = config.get("model_type", "", str)
    known = ", ".join(name for one in extensions("importers") for name in one.model_types)
    raise config.error(f"`model_type` in {config.where} is {kind!r}, but must be one of {known}")


def write_run(run: Path, made: Imported, source: Path) -> None:
    """Write an imported model as a run folder, atomically."""
    recipe = absolute_paths(made.recipe)
    has_data = bool(getattr(recipe.data, "files", []))
    assembly = Assembly.open(recipe, made.state) if has_data else Assembly.from_state(recipe, made.state)
    with reading(source, "model"):
        if made.check is not None:
            made.check(assembly)
        with torch.device("meta"):  # shapes only, no memory
            network = assembly.network()
        load_into(network, made.weights, lambda found, own: found.to("meta"), str(source))
    about: dict[str, Any] = {
        **describe_model(assembly, network),
        "seconds": 0.0,
        "recipe": made.name,
        "began": time.strftime("%Y-%m-%d %H:%M"),
        "imported": {"from": made.name, "config": dict(made.config), "notes": made.notes},
    }
    partial = Folder(run.with_name(f".{run.name}.partial-{os.getpid()}"))
    try:
        texts = {f"model/{name}": text for name, text in made.files.items()}
        texts |= {"model/statistics.json": json.dumps(assembly.state()), "recipe.yaml": recipe.to_yaml()}
        partial.seal({**texts, "run.json": json.dumps(about, indent=1)})
        weights = {name: weight.float() for name, weight in made.weights.items()}
        save_weights(partial.model, weights, {"step": 0, "scores": {}})
        partial.path.rename(run)  # may replace an empty folder
    finally:
        shutil.rmtree(partial.path, ignore_errors=True)
