"""Reading a folder of others: configuration, weights in one file or several, and what they say about pooling."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor

from ..errors import UserError

SAFE, PICKLED = "model.safetensors", "pytorch_model.bin"
POOLS = {"mean": "mean", "cls": "first"}


def read_json(path: Path) -> dict[str, Any]:
    """The keys of a JSON file."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UserError(f"a file {path}", f"{error.strerror}") from error
    except ValueError as error:
        raise UserError(f"plain JSON in {path}", f"{error}") from error
    if not isinstance(found, dict):
        raise UserError(f"keys and values in {path}", f"a {type(found).__name__}")
    return found


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All weights of a folder: safetensors, or (without running anything of it) a file of PyTorch's."""
    for name, read in ((SAFE, read_safe), (PICKLED, read_pickled)):
        if (folder / name).is_file():
            return read(folder / name)
        if (folder / f"{name}.index.json").is_file():
            return _shards(folder, f"{name}.index.json", read)
    names = sorted(path.name for path in folder.iterdir())
    raise UserError(f"{SAFE} (or {PICKLED}) in {folder}", ", ".join(names[:8]) or "nothing")


def _shards(folder: Path, index: str, read: Any) -> dict[str, Tensor]:
    """Weights in several files, as an index names them."""
    places = read_json(folder / index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise UserError(f"`weight_map` in {folder / index}", repr(places))
    found: dict[str, Tensor] = {}
    for name in sorted(set(places.values())):
        if not isinstance(name, str) or Path(name).name != name:
            raise UserError(f"names of files beside it in {folder / index}", repr(name))
        if not (folder / name).is_file():
            raise UserError(f"{name} in {folder}, as its index says", "none", "Was it fetched whole?")
        found |= read(folder / name)
    lost = sorted(places.keys() - found.keys())
    if lost:
        raise UserError(f"the weights of {folder / index} in its files", f"no {', '.join(lost[:4])}")
    return found


def read_weights(path: Path) -> dict[str, Tensor]:
    """The weights of one file."""
    if not path.is_file():
        raise UserError(f"a file of weights at {path}", "a folder" if path.exists() else "nothing")
    return read_safe(path) if path.suffix == ".safetensors" else read_pickled(path)


def read_safe(path: Path) -> dict[str, Tensor]:
    """The weights of a safetensors file."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, no mapping
    except (OSError, safetensors.SafetensorError) as error:
        raise UserError(f"a whole file at {path}", f"{error}", "Was it fetched whole?") from error


def read_pickled(path: Path) -> dict[str, Tensor]:
    """The weights of a file of PyTorch's; nothing of it is run."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, pickle.UnpicklingError) as error:
        reason = str(error).strip().splitlines()[0]
        advice = (
            "Other such files can run code and are not opened; save the weights as safetensors where they were made."
        )
        raise UserError(f"a whole file of nothing but weights at {path}", reason, advice) from error
    for key in ("model", "state_dict"):  # beside counters of a training
        found = found[key] if isinstance(found, dict) and isinstance(found.get(key), dict) else found
    if not isinstance(found, dict) or not all(isinstance(tensor, Tensor) for tensor in found.values()):
        raise UserError(f"weights by name in {path}", f"a {type(found).__name__} of other things")
    return found


def read_pooling(folder: Path, notes: list[str]) -> str:
    """Our name for the pooling that sentence-transformers added to a folder; "" where there is none."""
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
            raise UserError(f"modules Transformer, Pooling and Normalize in {path}", kind)
    return pool


def _modules(path: Path) -> list[tuple[str, str]]:
    """The kind of each module, and the name of its folder."""
    try:
        found = [(str(one["type"]).rpartition(".")[2], Path(one["path"]).name) for one in json.loads(path.read_text())]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"a list of modules, each with `type` and `path`, in {path}", repr(error)) from error
    return found


def _pooling(path: Path) -> str:
    settings = read_json(path)
    modes = [key.removeprefix("pooling_mode_") for key, value in settings.items() if value is True]
    modes = [mode.removesuffix("_token").removesuffix("_tokens") for mode in modes if mode != "include_prompt"]
    if isinstance(settings.get("pooling_mode"), str):
        modes = [settings["pooling_mode"]]
    if len(modes) != 1 or modes[0] not in POOLS:
        raise UserError(f"one pooling of {', '.join(POOLS)} in {path}", ", ".join(modes) or "none")
    return POOLS[modes[0]]
