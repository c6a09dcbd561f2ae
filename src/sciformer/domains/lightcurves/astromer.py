"""Import of the published weights of ASTROMER 1 (arXiv 2205.01677).

The published checkpoints are in TensorFlow's format. The importer reads an .npz file with one array per variable. The
name of an array is its path in the checkpoint (`layer_with_weights-0/enc_layers/0/mha/wq/kernel`); matrices have the
shape (inputs, outputs). Leave out optimizer states and counters when you write this file.

One difference is intended. In the published code, the magnitudes of masked points stay in the input, and the scores of
masked and padded keys are increased by 1 instead of minus infinity. Here masked points are hidden, and no token attends
to padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import UserError, list_names
from ...files.formats.npz import read_arrays
from ...interop.config import Config
from ...interop.importing import Imported, Importer, imported_recipe
from ...interop.weight_map import Suffixes, WeightMap, block_links, from_theirs, layer
from ...recipe import Recipe

ENCODER_PREFIX, HEAD_PREFIX = "layer_with_weights-0", "layer_with_weights-1"
PUBLISHED_HEADS = 4  # of the published weights; the file does not contain the number
NOTES = (
    "masked points are hidden here; the published code left their magnitudes in the input, so its loss differs",
    f"the weights do not contain the number of heads; the published model has {PUBLISHED_HEADS}. For another number, "
    "use --model.heads",
)


def import_astromer(path: Path, changes: Mapping[str, Any] | None = None) -> Imported:
    """Import the weights in an .npz file as a run for light curves in one band."""
    tensors = read_tensors(path)
    sections: dict[str, dict[str, Any]] = {"about": {"paper": "arXiv 2205.01677 (Donoso-Oliva et al.)"}}
    sections |= {"data": {"kind": "series"}, **_sections(tensors, str(path))}
    recipe = imported_recipe(path.stem, "Weights of ASTROMER 1.", sections, changes)
    weights = from_theirs(_weight_links(recipe.model), tensors, Config({}, str(path), path))
    weights["entrance.hidden"] = weights["entrance.embedding.linear.bias"].clone()  # like a point at the mean
    state: dict[str, Any] = {"tokens": {"tokens": {}}, "objective": {}}
    return Imported(path.stem, recipe, weights, state, {"model_type": "astromer"}, list(NOTES))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read the tensors of an .npz file, without unpickling."""
    return {name: torch.from_numpy(array) for name, array in read_arrays(path).items()}


def _sections(tensors: Mapping[str, Tensor], where: str) -> dict[str, dict[str, Any]]:
    first = f"{ENCODER_PREFIX}/inp_transform/kernel"
    inner = f"{ENCODER_PREFIX}/enc_layers/0/ffn/layer_with_weights-0/kernel"
    if first not in tensors or inner not in tensors or tensors[inner].dim() != 2:
        there = list_names(sorted(tensors)) or "no weights"
        raise UserError(f"{where} does not have the weights of ASTROMER 1, such as {first}; it has {there}", file=where)
    if (size := tensors[first].shape[0]) != 1:
        raise UserError(f"`{first}` must have 1 input, the magnitude of a point, but has {size}", file=where)
    dim, hidden = tensors[inner].shape
    blocks = {name.split("/")[2] for name in tensors if name.startswith(f"{ENCODER_PREFIX}/enc_layers/")}
    published = Recipe.load("lightcurves/astromer1").to_dict()
    sizes = {"dim": dim, "depth": len(blocks), "heads": PUBLISHED_HEADS, "mlp_ratio": hidden / dim}
    model = published["model"] | sizes
    return {"tokens": published["tokens"], "model": model, "objective": published["objective"]}


DENSE: Suffixes = {".weight": "/kernel", ".bias": "/bias"}
NORM: Suffixes = {".weight": "/gamma", ".bias": "/beta"}
BLOCK = {
    "attention.qkv": ("mha/wq", "mha/wk", "mha/wv"),
    "attention.out": ("mha/dense",),
    "attention_norm": ("layernorm1",),
    "mlp.up": ("ffn/layer_with_weights-0",),
    "mlp.down": ("ffn/layer_with_weights-1",),
    "mlp_norm": ("layernorm2",),
}


def _weight_links(model: Any) -> list[WeightMap]:
    names: Any = {"suffixes": DENSE, "transposed": True}
    return [
        *layer("entrance.embedding.linear", f"{ENCODER_PREFIX}/inp_transform", **names),
        *block_links(BLOCK, f"{ENCODER_PREFIX}/enc_layers/{{}}/", model, norm_suffixes=NORM, **names),
        *layer("readout.norm", f"{HEAD_PREFIX}/bn_0", suffixes=NORM),
        *layer("readout.readout.mean", f"{HEAD_PREFIX}/reg_layer", **names),
    ]


IMPORTER = Importer(
    recognises=lambda source: source.suffix == ".npz",
    read=lambda source, run, changes: import_astromer(source, changes),
)
