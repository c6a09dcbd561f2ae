"""Export of runs, in a format of their domain or as ONNX graphs."""

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
from ..training.folder import Folder
from .onnx import export as onnx_export
from .onnx.inputs import run_of_stream

ONNX_FORMAT = "onnx"


@dataclass(frozen=True)
class Exporter:
    """Exporter of the runs of one domain (text, images, ...).

    format    name on the command line; several domains may share a format
    tokens    kind of tokens that it supports, for error messages
    accepts   function that tests whether a run has these tokens; `write` checks all other requirements
    files     names of the files that it may write
    write     write a run into an empty folder, and return notes
    """

    format: str
    tokens: str
    accepts: Callable[[Run], bool]
    files: tuple[str, ...]
    write: Callable[[Run, Folder], list[str]]


def has_tokens(kind: type[Tokens]) -> Callable[[Run], bool]:
    """Make a function for `Exporter.accepts`.

    It tests whether a run has a single stream, with tokens of the class `kind`.
    """
    return lambda run: [isinstance(tokens, kind) for tokens in run.assembly.tokens.values()] == [True]


def formats() -> tuple[str, ...]:
    """Names of all export formats."""
    return (*dict.fromkeys(one.format for one in extensions("exporters")), ONNX_FORMAT)


def export_model(
    run: Run, out: str | Path, format: str = "", overwrite: bool = False, stream: str = "", raw: bool = False
) -> list[str]:
    """Export the best model of a run to a folder, and return notes.

    format       one of `formats()` (default: the first format that supports the tokens of the run)
    overwrite    replace files of an earlier export in the folder
    stream       stream whose encoder is written, for models with an encoder for each stream; only for onnx (default:
                 the stream of the objective)
    raw          put the preprocessing into the graph, which then takes raw samples; only for onnx
    """
    if raw and format != ONNX_FORMAT:
        raise UserError("--raw needs --format onnx", key="--raw")
    if format == ONNX_FORMAT:
        run = run_of_stream(run, stream)
    elif stream:
        raise UserError("--stream needs --format onnx", key="--stream")
    exporters: list[Exporter] = list(extensions("exporters"))
    if format:
        one_of("the format", format, formats(), key="--format")
        exporters = [one for one in exporters if one.format == format]
    exporter = next((one for one in exporters if one.accepts(run)), None)
    if exporter is not None:
        exporters = [one for one in exporters if one.format == exporter.format]
    out = Path(out).expanduser()
    own = {name for one in exporters for name in one.files}
    _check(out, overwrite, lambda: onnx_export.files(run) if format == ONNX_FORMAT else own)
    partial = Folder(out.with_name(f".{out.name}.partial-{os.getpid()}"))
    try:
        if format == ONNX_FORMAT:
            notes = onnx_export.write_onnx(run, partial, raw)
        elif exporter is not None:
            notes = exporter.write(run, partial)
        else:
            _refuse(run, exporters)
        _move_into_place(partial.path, out)
    except (OSError, UserError) as error:
        # `Folder` wraps an OSError in a UserError about runs.
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError):
            raise
        message = f"writing the model to {out} failed: {cause.strerror or cause}"
        raise UserError(message, hint="Free some disk space, or name another folder with --out.", file=out) from error
    finally:
        shutil.rmtree(partial.path, ignore_errors=True)
    return notes


def write_model(folder: Folder, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write config.json and model.safetensors (in float32)."""
    folder.write("config.json", to_json({**config, "dtype": "float32"}))
    plain = {name: tensor.to(torch.float32).contiguous() for name, tensor in tensors.items()}
    (folder.path / "model.safetensors").write_bytes(save(plain, metadata={"format": "pt"}))


def to_json(values: dict[str, Any]) -> str:
    """Format values as indented JSON."""
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


def _refuse(run: Run, exporters: list[Exporter]) -> NoReturn:
    there = ", ".join(stream.kind for stream in run.assembly.tokens.values())
    names = " or ".join(dict.fromkeys(one.format for one in exporters))
    kinds = " or ".join(dict.fromkeys(one.tokens for one in exporters))
    raise UserError(
        f"the format {names} needs a single token stream of the kind {kinds}, but the run has {there}"
        if exporters
        else f"tokens of the kind {there} can only be exported as {ONNX_FORMAT}",
        hint=f"--format {ONNX_FORMAT} exports encoders of any tokens.",
        key="tokens.kind",
    )


def _check(out: Path, overwrite: bool, files: Callable[[], Collection[str]]) -> None:
    """Refuse a target `out` that is a file or a non-empty folder.

    With `overwrite`, the folder may contain files of an earlier export, but no other files.
    """
    if not out.exists():
        return
    if not out.is_dir():
        raise UserError(f"{out} is a file, not a folder", hint="Name a folder with --out.", file=out)
    there = sorted(path.name for path in out.iterdir())
    if there and not overwrite:
        raise UserError(
            f"the folder {out} is not empty: it contains {', '.join(there[:4])}",
            hint="Name another folder with --out, or replace the files with --overwrite.",
            file=out,
        )
    known = files() if there else ()
    if others := [name for name in there if name not in known]:
        raise UserError(
            f"{out} contains files that no export wrote: {', '.join(others[:4])}",
            hint="Name another folder with --out; --overwrite replaces only files of an export.",
            file=out,
        )


def _move_into_place(made: Path, out: Path) -> None:
    """Replace a folder by the finished folder; restore the old folder after an error."""
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
