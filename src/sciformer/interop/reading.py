"""Reading of model folders of other libraries: configuration, weights and pooling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor

from ..errors import UserError
from ..files.packages import reading
from .config import Config

SAFETENSORS_FILE, PICKLED_FILE = "model.safetensors", "pytorch_model.bin"
WEIGHT_SUFFIXES = (".safetensors", ".pt", ".pth")
POOL_NAMES = {"mean": "mean", "cls": "first"}


def read_json(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UserError(f"reading {path} failed: {error.strerror}", file=path) from error
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON: {error}", file=path, line=getattr(error, "lineno", None)) from error
    if not isinstance(found, dict):
        raise UserError(f"{path} must hold a JSON object, but holds a {type(found).__name__}", file=path)
    return found


def read_config(folder: Path) -> Config:
    """Read config.json of a model folder."""
    file = folder / "config.json"
    return Config(read_json(file), file.name, file)


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Read all weights of a folder: safetensors, or .bin with weights_only=True."""
    for name, read in ((SAFETENSORS_FILE, read_safe), (PICKLED_FILE, read_pickled)):
        if (folder / name).is_file():
            return read(folder / name)
        if (index := folder / f"{name}.index.json").is_file():
            return _read_shards(index, read)
    names = ", ".join(sorted(path.name for path in folder.iterdir())[:8])
    there = f"only {names}" if names else "the folder is empty"
    raise UserError(f"{folder} has no {SAFETENSORS_FILE} (or {PICKLED_FILE}): {there}", file=folder)


def _read_shards(index: Path, read: Any) -> dict[str, Tensor]:
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise UserError(f"`weight_map` in {index} must map each weight to its file, but is {places!r}", file=index)
    found: dict[str, Tensor] = {}
    for name in sorted(set(places.values())):
        if not isinstance(name, str) or Path(name).name != name:
            raise UserError(f"{index} may only name files in its own folder, but names {name!r}", file=index)
        file = index.parent / name
        if not file.is_file():
            message = f"{index.parent} has no file {name}, but {index.name} lists it"
            raise UserError(message, hint="Download the model again.", file=file)
        found |= read(file)
    if lost := sorted(places.keys() - found.keys()):
        raise UserError(f"the files of {index} lack the weights {', '.join(lost[:4])}", file=index)
    return found


def is_weights_file(path: Path) -> bool:
    """Whether a file has a suffix of weights (.safetensors, .bin, ...)."""
    return path.suffix in WEIGHT_SUFFIXES and not path.is_dir()


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read the weights in a file; the suffix selects the format."""
    if not path.is_file():
        found = "is a folder, not a file of weights" if path.exists() else "does not exist"
        raise UserError(f"{path} {found}", file=path)
    return read_safe(path) if path.suffix == ".safetensors" else read_pickled(path)


def read_safe(path: Path) -> dict[str, Tensor]:
    """Read the weights of a safetensors file."""
    with reading(path, "safetensors"), safetensors.safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, no mapping


def read_pickled(path: Path) -> dict[str, Tensor]:
    """Read the weights in a PyTorch file, without running code from the file."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle can raise any exception
        raise UserError(
            f"{path} is incomplete, or contains more than weights",
            hint="Copy it again. Pickled objects could run code and are not opened: save the weights as safetensors.",
            file=path,
        ) from error
    for key in ("model", "state_dict"):  # weights that are stored with the state of a training
        found = found[key] if isinstance(found, dict) and isinstance(found.get(key), dict) else found
    named = isinstance(found, dict) and all(isinstance(name, str) for name in found)
    if not named or not all(isinstance(tensor, Tensor) for tensor in found.values()):
        raise UserError(
            f"{path} must hold named tensors, but holds a {type(found).__name__} of other objects", file=path
        )
    return found


def read_pooling(folder: Path, notes: list[str]) -> str:
    """Value of `model.pool` for a sentence-transformers folder, or ""."""
    path = folder / "modules.json"
    if not path.is_file():
        return ""
    try:
        modules = [
            (str(one["type"]).rpartition(".")[2], Path(one["path"]).name) for one in json.loads(path.read_text())
        ]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} must be a list of modules with `type` and `path`: {error!r}", file=path) from error
    pool = ""
    for kind, place in modules:
        if kind == "Pooling":
            pool = _pooling(folder / place / "config.json")
        elif kind == "Normalize":
            notes.append("compare the vectors by cosine similarity (modules.json normalises them)")
        elif kind != "Transformer":
            raise UserError(f"{path} has the module {kind}; supported: Transformer, Pooling, Normalize", file=path)
    return pool


def _pooling(path: Path) -> str:
    settings = read_json(path)
    modes = [key.removeprefix("pooling_mode_") for key, value in settings.items() if value is True]
    modes = [mode.removesuffix("_token").removesuffix("_tokens") for mode in modes if mode != "include_prompt"]
    if isinstance(settings.get("pooling_mode"), str):
        modes = [settings["pooling_mode"]]
    if len(modes) != 1 or modes[0] not in POOL_NAMES:
        raise UserError(
            f"{path} must have exactly one pooling, {' or '.join(POOL_NAMES)}, not {' and '.join(modes) or 'none'}",
            file=path,
        )
    return POOL_NAMES[modes[0]]
