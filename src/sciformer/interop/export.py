"""From a run to a folder for others: of Hugging Face, which `transformers` loads, or an ONNX graph."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from ..errors import UserError, one_of
from ..run import Run
from ..tokens.patches import Patches
from ..tokens.text import Text
from ..tokens.tokenizer import package
from ..train.folder import Folder
from ..train.weights import load_weights
from . import mae, onnx, pixels, vit_export
from .bert import BERT
from .family import Family, Written
from .gpt2 import GPT2
from .llama import LLAMA
from .spelling import FILE

FORMATS = ("huggingface", "onnx")
FILES = ("config.json", "model.safetensors", FILE, "tokenizer_config.json", pixels.FILE)
SHARED = {"padding": "pad", "unknown": "unk", "mask": "mask"}  # their names for special tokens, by our roles
OF_ENCODERS = {**SHARED, "begin": "cls", "end": "sep"}
OF_DECODERS = {**SHARED, "begin": "bos", "end": "eos", "separator": "sep"}


def export_model(run: Run, out: str | Path, format: str = "huggingface", overwrite: bool = False) -> list[str]:
    """Write the best model of a run for others, and return what there is to say about it.

    overwrite    replace what an earlier export left in that folder
    """
    one_of("the format", format, FORMATS, key="--format")
    out = Path(out).expanduser()
    _check(out, overwrite, FILES if format == "huggingface" else onnx.FILES)
    partial = Folder(out.with_name(f".{out.name}.partial-{os.getpid()}"))
    try:
        notes = onnx.write_onnx(run, partial) if format == "onnx" else _write_family(run, partial)
        _put(partial.path, out)
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


def _write_family(run: Run, folder: Folder) -> list[str]:
    """The files of Hugging Face, and what there is to say."""
    weights, _ = load_weights(run.folder.model)
    only = next(iter(run.assembly.tokens.values()))
    if isinstance(only, Patches):
        hides = run.recipe.model.kind == "masked_autoencoder" and run.recipe.objective.kind == "masked"
        written, scaled = (mae if hides else vit_export).write(run, only, weights)
        _write_model(folder, written.config, written.tensors)
        folder.write(pixels.FILE, _json(scaled))
        return written.notes
    tokens = _text(run)
    written = family(run).write(run.recipe, weights)
    _write(folder, written, tokens, OF_ENCODERS if run.recipe.model.kind == "encoder" else OF_DECODERS)
    return written.notes


def family(run: Run) -> Family:
    """The family that is nearest: its own check then names what stands in the way."""
    model = run.recipe.model
    if model.kind == "encoder":
        return BERT
    if model.kind != "decoder":
        raise UserError(
            f"Hugging Face needs `model.kind: encoder` or `decoder`, not `model.kind: {model.kind}`", key="model.kind"
        )
    likeness = (model.norm == "rms") + (model.position == "rotary") + (model.activation == "swiglu")
    return LLAMA if likeness >= 2 else GPT2


def _text(run: Run) -> Text:
    """The only stream of tokens, with its vocabulary."""
    tokens = list(run.assembly.tokens.values())
    if len(tokens) != 1 or not isinstance(tokens[0], Text):
        kinds = ", ".join(stream.kind for stream in tokens)
        raise UserError(
            f"Hugging Face needs a single stream of tokens of the kind text or patches, not {kinds}", key="tokens.kind"
        )
    return tokens[0]


def _check(out: Path, overwrite: bool, files: tuple[str, ...]) -> None:
    """Refuse a place where something else lies."""
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
    others = [name for name in there if name not in files]
    if others:
        raise UserError(
            f"{out} has files that are not of an earlier export: {', '.join(others[:4])}",
            hint="Only what an export wrote is replaced; name another folder with --out.",
            file=out,
        )


def _write(folder: Folder, written: Written, tokens: Text, names: dict[str, str]) -> None:
    """Model and tokenizer."""
    ids = {f"{theirs}_token_id": tokens.specials.get(role) for role, theirs in names.items()}
    kept = ("pad_token_id", "bos_token_id", "eos_token_id")
    _write_model(folder, written.config | {key: ids.get(key) for key in kept}, written.tensors)
    tokens.save(folder.path / FILE)
    find = package().Tokenizer.from_file(str(folder.path / FILE)).id_to_token
    special = {
        f"{theirs}_token": find(tokens.specials[role]) for role, theirs in names.items() if role in tokens.specials
    }
    beside = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": tokens.context, **special}
    folder.write("tokenizer_config.json", _json(beside))


def _write_model(folder: Folder, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Configuration and weights."""
    folder.write("config.json", _json({**config, "dtype": "float32"}))
    plain = {name: tensor.to(torch.float32).contiguous() for name, tensor in tensors.items()}
    (folder.path / "model.safetensors").write_bytes(save(plain, metadata={"format": "pt"}))


def _put(made: Path, out: Path) -> None:
    """Put a finished folder in its place; what is there goes only when the new one stands."""
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


def _json(values: dict[str, Any]) -> str:
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"
