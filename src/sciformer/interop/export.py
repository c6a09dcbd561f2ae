"""Runs as folders for others: in a format of their field, or as ONNX graphs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors.torch import save
from torch import Tensor

from ..errors import UserError, one_of
from ..recipe.field import extensions
from ..run import Run
from ..tokens.base import Tokens
from ..train.folder import Folder
from .onnx import export as onnx_export

ONNX_FORMAT = "onnx"


@dataclass(frozen=True)
class Exporter:
    """A writer of the runs of one field.

    format    its name on the command line; several fields may write the same format
    tokens    the kind of tokens that it writes, for messages
    accepts   whether a run has such tokens; what else stands in the way, `write` says
    files     names of the files that it may write
    write     write a run into an empty folder, and return what there is to say about it
    """

    format: str
    tokens: str
    accepts: Callable[[Run], bool]
    files: tuple[str, ...]
    write: Callable[[Run, Folder], list[str]]


def has_tokens(kind: type[Tokens]) -> Callable[[Run], bool]:
    """Whether the only tokens of a run are of a kind, for `Exporter.accepts`."""
    return lambda run: [isinstance(tokens, kind) for tokens in run.assembly.tokens.values()] == [True]


def formats() -> tuple[str, ...]:
    """The names of all formats."""
    return (*dict.fromkeys(one.format for one in extensions("exporters")), ONNX_FORMAT)


def export_model(run: Run, out: str | Path, format: str = "", overwrite: bool = False) -> list[str]:
    """Write the best model of a run for others, and return notes about it.

    format       one of `formats()` (default: the first that has a place for tokens of this kind)
    overwrite    replace what an earlier export left in that folder
    """
    exporters: list[Exporter] = list(extensions("exporters"))
    if format:
        one_of("the format", format, formats(), key="--format")
        exporters = [one for one in exporters if one.format == format]
    exporter = next((one for one in exporters if one.accepts(run)), None)
    if exporter is not None:
        exporters = [one for one in exporters if one.format == exporter.format]
    out = Path(out).expanduser()
    if format == ONNX_FORMAT:
        _check(out, overwrite, lambda: onnx_export.files(run))
    else:
        _check(out, overwrite, lambda: {name for one in exporters for name in one.files})
    partial = Folder(out.with_name(f".{out.name}.partial-{os.getpid()}"))
    try:
        if format == ONNX_FORMAT:
            notes = onnx_export.write_onnx(run, partial)
        elif exporter is not None:
            notes = exporter.write(run, partial)
        else:
            _refuse(run, exporters)
        _move_into_place(partial.path, out)
    except (OSError, UserError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__  # a folder speaks of a run
        if not isinstance(cause, OSError):
            raise
        raise UserError(
            f"the model cannot be written to {out}: {cause.strerror or cause}",
            hint="Make room on that disk, or name another folder with --out.",
            file=out,
        ) from error
    finally:
        shutil.rmtree(partial.path, ignore_errors=True)
    return notes


def write_model(folder: Folder, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write configuration and weights: config.json and model.safetensors."""
    folder.write("config.json", to_json({**config, "dtype": "float32"}))
    plain = {name: tensor.to(torch.float32).contiguous() for name, tensor in tensors.items()}
    (folder.path / "model.safetensors").write_bytes(save(plain, metadata={"format": "pt"}))


def to_json(values: dict[str, Any]) -> str:
    """The text of a JSON file for people and programs."""
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


def _refuse(run: Run, exporters: list[Exporter]) -> NoReturn:
    """Refuse a run with tokens that no exporter of a format accepts."""
    there = ", ".join(stream.kind for stream in run.assembly.tokens.values())
    names = " or ".join(dict.fromkeys(one.format for one in exporters))
    kinds = " or ".join(dict.fromkeys(one.tokens for one in exporters))
    raise UserError(
        f"the format {names} needs a single stream of tokens of the kind {kinds}, not {there}"
        if exporters
        else f"there is no format but {ONNX_FORMAT} for tokens of the kind {there}",
        hint=f"--format {ONNX_FORMAT} writes encoders of any tokens that answer in one pass.",
        key="tokens.kind",
    )


def _check(out: Path, overwrite: bool, files: Callable[[], Collection[str]]) -> None:
    """Refuse a folder with files that are not from an export."""
    if not out.exists():
        return
    if not out.is_dir():
        raise UserError(f"{out} is a file, not a folder", hint="Name a folder with --out.", file=out)
    there = sorted(path.name for path in out.iterdir())
    if there and not overwrite:
        raise UserError(
            f"{out} is not empty: there are {', '.join(there[:4])}",
            hint="Name another folder with --out, or replace them with --overwrite.",
            file=out,
        )
    known = files() if there else ()
    others = [name for name in there if name not in known]
    if others:
        raise UserError(
            f"{out} has files that are not of an earlier export: {', '.join(others[:4])}",
            hint="Only what an export wrote is replaced; name another folder with --out.",
            file=out,
        )


def _move_into_place(made: Path, out: Path) -> None:
    """Replace a folder by a finished one, or leave it as it was."""
    old = out.with_name(f".{out.name}.replaced-{os.getpid()}")
    if out.exists():
        out.rename(old)
    try:
        made.rename(out)
    except OSError:
        if old.exists():
            old.rename(out)
        raise
    shutil.rmtree(old, ignore_errors=True)
