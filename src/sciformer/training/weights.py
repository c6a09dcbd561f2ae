"""Weights of a trained model: a safetensors file, with its hash in the manifest."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import save
from torch import Tensor, nn

from ..errors import UserError, list_names
from ..files.seal import Damaged, Unsound, run_files
from . import checkpoint
from .distributed import Ranks, full_tensor

FORMAT = 2
WEIGHTS = "weights.safetensors"


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers of a model by name; tied tensors appear once."""
    lasting = model.state_dict()
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in lasting}
    return {**dict(model.named_parameters()), **buffers}


def load_into(
    model: nn.Module,
    weights: Mapping[str, Tensor],
    place: Callable[[Tensor, Tensor], Tensor],
    what: str,
    file: Path | None = None,
) -> None:
    """Copy weights into a model.

    place   function (tensor, parameter) that moves a tensor to the device and sharding of the parameter
    what    origin of the weights, for errors
    file    file of the weights, for errors
    """
    own = named_tensors(model)
    for problem, names in (
        ("missing in the weights", own.keys() - weights.keys()),
        ("not in the model", weights.keys() - own.keys()),
        ("of another shape", {name for name in own if name in weights and own[name].shape != weights[name].shape}),
    ):
        if names:
            found = f"{list_names(sorted(names), 4)} {'is' if len(names) == 1 else 'are'} {problem}"
            raise UserError(f"the weights of {what} do not fit the model of the recipe: {found}", file=file)
    with torch.no_grad():
        for name, weight in own.items():
            weight.copy_(place(weights[name], weight))


def save_weights(folder: Path, weights: dict[str, Tensor] | Path, about: dict[str, Any]) -> None:
    """Write weights and metadata to weights.safetensors, and its hash to the manifest.

    weights   tensors by name, or a complete file from `stream_weights`
    """
    try:
        if isinstance(weights, Path):
            data: bytes | Path = weights
        else:
            plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in weights.items()}
            data = save(plain, metadata=_metadata(about))
        run_files(folder.parent).write({f"{folder.name}/{WEIGHTS}": data})
    except OSError as error:
        raise _write_error(folder, error) from error


def stream_weights(folder: Path, weights: Mapping[str, Tensor], about: dict[str, Any], ranks: Ranks) -> Path:
    """Gather sharded weights one by one and write them to a temporary file.

    All ranks must call this function; the first rank writes. No rank holds more than one complete tensor.
    """
    partial, layout, end = folder / f".{WEIGHTS}.sharded", {}, 0
    for name, weight in weights.items():
        begin, end = end, end + weight.numel() * weight.element_size()
        layout[name] = {"dtype": _dtype_name(weight.dtype), "shape": list(weight.shape), "data_offsets": [begin, end]}
    header = json.dumps({"__metadata__": _metadata(about), **layout}).encode()
    header += b" " * (-len(header) % 8)
    fault: OSError | None = None
    with contextlib.ExitStack() as opened:
        if ranks.first:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                file = opened.enter_context(open(partial, "wb"))
                file.write(len(header).to_bytes(8, "little") + header)
            except OSError as error:
                fault = error
        for weight in weights.values():  # to the end, because the other ranks wait in `full_tensor`
            whole = full_tensor(weight)
            if ranks.first and fault is None:
                try:
                    file.write(whole.cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
                except OSError as error:
                    fault = error

    def check() -> None:
        if fault is not None:
            partial.unlink(missing_ok=True)
            raise _write_error(folder, fault) from fault

    ranks.lead(check)
    return partial


def _metadata(about: dict[str, Any]) -> dict[str, str]:
    return {"format": str(FORMAT), "about": json.dumps(about)}


def _dtype_name(dtype: torch.dtype) -> str:
    """Name of a dtype in safetensors files, such as `F32` or `BF16`."""
    data = save({"x": torch.empty(0, dtype=dtype)})
    return str(json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["x"]["dtype"])


def _write_error(folder: Path, error: OSError) -> UserError:
    message = f"the model cannot be written to {folder}: {error}"
    return UserError(message, hint="Free disk space; the old model is intact.", file=folder)


def load_weights(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Load weights and metadata from `folder`, the `model` folder of a run.

    A file whose hash is not the hash in the manifest is refused.
    """
    path, files = folder / WEIGHTS, run_files(folder.parent)
    others = [other.name for other in folder.glob("*") if other.suffix in (".pt", ".pth", ".ckpt", ".bin", ".pkl")]
    advice = f"{others[0]} is not opened: files of this type can run code. " if others else ""
    if not files.has(f"{folder.name}/{WEIGHTS}"):
        raise Damaged(f"{folder} has no {WEIGHTS}", hint=advice.strip() or "Train the run first.", file=folder)
    try:
        data = files.read(f"{folder.name}/{WEIGHTS}")
    except Damaged as error:
        if checkpoint.steps(folder.parent / "checkpoints"):
            advice += f"Rebuild it from a checkpoint: sciformer train {folder.parent}"
        raise Damaged(error.message, hint=advice or error.hint, file=path) from None
    try:
        weights = checkpoint.parse_tensors(path, data)
        header = _header(path, data)
        form, about = int(header["format"]), json.loads(header["about"])
    except (Unsound, KeyError, ValueError) as error:
        raise Damaged(f"{path} cannot be read: {error}", hint="Restore it from a copy.", file=path) from error
    if form > FORMAT:
        message = f"the model has format {form}, but this Sciformer reads formats up to {FORMAT}"
        raise UserError(message, hint="Update Sciformer.", file=path)
    # Format 1 has a hash of the tensors in the header, because the runs of that time had no manifest.
    if (not files.sealed and form > 1) or (form == 1 and header.get("sha256") != digest(weights)):
        raise Damaged(f"{path} is damaged: the hash of its weights is wrong", hint="Copy it again.", file=path)
    return weights, about


def _header(path: Path, data: bytes) -> dict[str, str]:
    if data:
        return dict(json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")]).get("__metadata__", {}))
    with safetensors.safe_open(path, framework="pt") as file:
        return file.metadata() or {}


def mean_weights(folder: Path, count: int, log: Any) -> tuple[dict[str, Tensor], list[int]]:
    """Mean weights of the last `count` checkpoints, and their steps.

    With moving averages (`train.ema`), the mean is over the averaged weights.
    """
    used: list[int] = []
    total: dict[str, Tensor] = {}
    kinds: dict[str, torch.dtype] = {}
    for step in checkpoint.steps(folder)[-count:]:
        try:
            saved = checkpoint.load(folder, log=log, step=step)
        except UserError:
            continue  # reported through `log`; average the other checkpoints
        assert saved is not None
        for name, tensor in {**saved.tensors["weights"], **saved.tensors["average"]}.items():
            total[name] = total.get(name, torch.zeros((), dtype=torch.float64)) + tensor.double()
            kinds[name] = tensor.dtype
        used.append(step)
    if not used:
        raise UserError(f"{folder} has no intact checkpoint to average", file=folder)
    return {name: (tensor / len(used)).to(kinds[name]) for name, tensor in total.items()}, used


def digest(weights: Mapping[str, Tensor]) -> str:
    """SHA-256 hash of weights: of their names, dtypes, shapes and values."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
