"""From a run over patches to a folder that `transformers` loads: a ViT, with how its pixels are scaled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ....interop.family import POSITION_WEIGHT, THEIR_ACTIVATIONS, Written, encoder_keys, refuse_recipe
from ....interop.weight_map import to_theirs
from ....nn.positions import grid
from ....recipe import Recipe
from ....run import Run
from ..tokens import Patches
from . import pixels, vit
from .vit import HEAD, HUGGINGFACE, ImageGeometry, WeightNames

HEAD_PREFIXES = ("heads.", "readout.", "entrance.hidden")
ENCODER_NOTE = "only the encoder: the head of a ViT takes `objective.kind: classify` without inner layers"
POSITION_NOTE = "positions are written as numbers, which would be learned there"


def write_vit(run: Run, tokens: Patches, weights: dict[str, Tensor]) -> tuple[Written, dict[str, Any]]:
    """A run in their words, and their file about pixels."""
    recipe, found = run.recipe, image_geometry(tokens)
    refuse_recipe(recipe, "ViT", required_keys(recipe))
    weights, notes = with_position_table(weights, POSITION_WEIGHT, run.model.trunk.position, tokens)  # type: ignore[union-attr]
    whole = f"{HEAD}.weight" in weights
    if not whole:
        weights = {name: tensor for name, tensor in weights.items() if not name.startswith(HEAD_PREFIXES)}
        notes.append(ENCODER_NOTE)
    named = to_theirs(vit.weight_links(HUGGINGFACE, recipe.model, whole), weights)
    restore_weights(named, HUGGINGFACE, found)
    if whole:
        named = {name if name.startswith(HUGGINGFACE.head) else f"vit.{name}": named[name] for name in named}
    config = {
        "architectures": ["ViTForImageClassification" if whole else "ViTModel"],
        "model_type": "vit",
        **size_settings(recipe, found),
        "encoder_stride": found.patch[0],
    }
    if whole:
        classes = run.assembly.objective.answers
        cooled = run.assembly.objective.state.get("temperature", 1.0)  # of a calibrated run
        named |= {name: named[name] / cooled for name in named if name.startswith(HUGGINGFACE.head)}
        config["id2label"] = {str(i): name for i, name in enumerate(classes)}
        config["label2id"] = {name: i for i, name in enumerate(classes)}
    return Written(config, named, notes), pixel_config(tokens, found)


def image_geometry(tokens: Patches) -> ImageGeometry:
    """The images of a run."""
    height, width, channels = tokens.shape
    found = ImageGeometry(height, width, channels, tokens.sides)
    found.check("the run")
    return found


def required_keys(recipe: Recipe) -> dict[str, Any]:
    """What the keys of a recipe must be."""
    model, patch = recipe.model, recipe.tokens.patch
    return {
        "model.trunk": "transformer",
        "model.norm_position": "pre",
        "model.embedding_norm": False,
        "model.last_norm": True,
        "model.norm": "layer",
        "model.position": ("learned", "auto", "sinusoidal"),
        "model.pool": "class_token",
        "model.activation": tuple(THEIR_ACTIVATIONS),
        "model.qk_norm": "none",
        "model.kv_heads": (None, model.heads),
        "model.head_dim": (None, model.dim // model.heads),
        "model.window": None,
        "tokens.embed": "linear",
        "tokens.step": (None, patch),
        "tokens.stretch": "none",
        "tokens.scale": ("channel", "none"),
    }


def with_position_table(
    weights: Mapping[str, Tensor], name: str, position: Any, tokens: Patches
) -> tuple[dict[str, Tensor], list[str]]:
    """The weights with a table of places, also where these are waves; and what there is to say."""
    notes = ["images are of one size there, the largest of the run"] if tokens.varies else []
    if name in weights:
        return dict(weights), notes
    return {**weights, name: position.code(grid(tokens.grid_shape)).float()}, [*notes, POSITION_NOTE]


def restore_weights(named: dict[str, Tensor], names: WeightNames, found: ImageGeometry) -> None:
    """The way back from `vit.convert_weights`: the class token has the place of the first patch."""
    weight = named[f"{names.patches}.weight"]
    named[f"{names.patches}.weight"] = unflatten_patch_kernel(weight, found)
    table = named[names.places]
    named[names.places] = torch.cat([table[:1], table])[None]
    named[names.token] = named[names.token][None, None]


def unflatten_patch_kernel(weight: Tensor, found: ImageGeometry) -> Tensor:
    """(D, pixels, channels last) -> (D, channels, height, width)."""
    return weight.unflatten(1, (*found.patch, found.channels)).permute(0, 3, 1, 2).contiguous()


def size_settings(recipe: Recipe, found: ImageGeometry) -> dict[str, Any]:
    """Their keys for the size of model and images."""
    return {
        **encoder_keys(recipe.model),
        "image_size": side_or_sides(found.height, found.width),
        "patch_size": side_or_sides(*found.patch),
        "num_channels": found.channels,
        "qkv_bias": True,
    }


def side_or_sides(height: int, width: int) -> int | list[int]:
    """One number for a square."""
    return height if height == width else [height, width]


def pixel_config(tokens: Patches, found: ImageGeometry) -> dict[str, Any]:
    """Their file: how pixels are scaled."""
    state: Mapping[str, Any] = tokens.state
    mean, deviation = state["mean"], state["deviation"]
    if tokens.scale == "none":
        mean, deviation = [0.0] * found.channels, [1.0] * found.channels
    return pixels.preprocessor_config(mean, deviation, found.height, found.width)
