"""Folders of others: configuration, weights in one file or several, pooling."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor

from ..errors import UserError
from .config import Config

SAFETENSORS_FILE, PICKLED_FILE = "model.safetensors", "pytorch_model.bin"
POOL_NAMES = {"mean": "mean", "cls": "first"}


def read_json(path: Path) -> dict[str, Any]:
    """The keys of a JSON file."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}", file=path) from error
    except ValueError as error:
        raise UserError(f"{path} is not plain JSON: {error}", file=path, line=getattr(error, "lineno", None)) from error
    if not isinstance(found, dict):
        raise UserError(f"{path} must hold keys and values, not a {type(found).__name__}", file=path)
    return found


def read_config(folder: Path) -> Config:
    """The configuration of a folder."""
    file = folder / "config.json"
    return Config(read_json(file), file.name, file)


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All weights of a folder: safetensors, or a .bin file opened as weights only."""
    for name, read in ((SAFETENSORS_FILE, read_safe), (PICKLED_FILE, read_pickled)):
        if (folder / name).is_file():
            return read(folder / name)
        if (folder / f"{name}.index.json").is_file():
            return _shards(folder, f"{name}.index.json", read)
    names = ", ".join(sorted(path.name for path in folder.iterdir())[:8])
    raise UserError(
        f"{folder} has no {SAFETENSORS_FILE} (or {PICKLED_FILE})" + (f", only {names}" if names else ": it is empty"),
        file=folder,
    )


def _shards(folder: Path, index: str, read: Any) -> dict[str, Tensor]:
    """Weights in several files, as an index names them."""
    places = read_json(folder / index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise UserError(
            f"`weight_map` in {folder / index} must name the file of each weight, not {places!r}", file=folder / index
        )
    found: dict[str, Tensor] = {}
    for name in sorted(set(places.values())):
        if not isinstance(name, str) or Path(name).name != name:
            raise UserError(f"{folder / index} must name files beside it, not {name!r}", file=folder / index)
        if not (folder / name).is_file():
            raise UserError(
                f"{folder} has no {name}, which its index names", hint="Was it fetched whole?", file=folder / name
            )
        found |= read(folder / name)
    lost = sorted(places.keys() - found.keys())
    if lost:
        raise UserError(
            f"weights that {folder / index} names are missing in its files: {', '.join(lost[:4])}", file=folder / index
        )
    return found


def read_weights(path: Path) -> dict[str, Tensor]:
    """The weights of one file."""
    if not path.is_file():
        found = f"{path} is a folder, not a file" if path.exists() else f"there is no file {path}"
        raise UserError(f"{found} of weights", file=path)
    return read_safe(path) if path.suffix == ".safetensors" else read_pickled(path)


def read_safe(path: Path) -> dict[str, Tensor]:
    """The weights of a safetensors file."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, no mapping
    except (OSError, safetensors.SafetensorError) as error:
        raise UserError(f"{path} is not a whole file: {error}", hint="Was it fetched whole?", file=path) from error


def read_pickled(path: Path) -> dict[str, Tensor]:
    """The weights of a file of PyTorch's; nothing of it is run."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, pickle.UnpicklingError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"{path} is not a whole file of nothing but weights: {reason}",
            hint="Files of other things can run code and are not opened; save the weights as safetensors where they "
            "were made.",
            file=path,
        ) from error
    for key in ("model", "state_dict"):  # beside counters of a training
        found = found[key] if isinstance(found, dict) and isinstance(found.get(key), dict) else found
    if not isinstance(found, dict) or not all(isinstance(tensor, Tensor) for tensor in found.values()):
        raise UserError(f"{path} must hold weights by name, not a {type(found).__name__} of other things", file=path)
    return found


def read_pooling(folder: Path, notes: list[str]) -> str:
    """Our name for the pooling of sentence-transformers in a folder, else ""."""
    path = folder / "modules.json"
    if not path.is_file():
        return ""
    pool = ""
    for kind, place in _modules(path):
        if kind == "Pooling":
            pool = _pooling(folder / place / "config.json")
        elif kind == "Normalize":
            notes.append("vectors are meant to be compared by their cosine (modules.json normalises them)")
        elif kind != "Transformer":
            raise UserError(f"modules in {path} must be Transformer, Pooling or Normalize, not {kind}", file=path)
    return pool


def _modules(path: Path) -> list[tuple[str, str]]:
    """The kind of each module, and the name of its folder."""
    try:
        found = [(str(one["type"]).rpartition(".")[2], Path(one["path"]).name) for one in json.loads(path.read_text())]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(
            f"{path} must be a list of modules, each with `type` and `path`: {error!r}", file=path
        ) from error
    return found


def _pooling(path: Path) -> str:
    settings = read_json(path)
    modes = [key.removeprefix("pooling_mode_") for key, value in settings.items() if value is True]
    modes = [mode.removesuffix("_token").removesuffix("_tokens") for mode in modes if mode != "include_prompt"]
    if isinstance(settings.get("pooling_mode"), str):
        modes = [settings["pooling_mode"]]
    if len(modes) != 1 or modes[0] not in POOL_NAMES:
        raise UserError(
            f"{path} must have a single pooling, {' or '.join(POOL_NAMES)}, not {', '.join(modes) or 'no pooling'}",
            file=path,
        )
    return POOL_NAMES[modes[0]]
