"""Export of image models to Hugging Face folders: ViT and ViTMAE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from ....errors import UserError
from ....interop.config import Config
from ....interop.export import Exporter, has_tokens, to_json, write_model
from ....interop.family import PLAIN_NEEDS, POSITION_WEIGHT, PRE_NORM_NEEDS, Needs, refuse_recipe
from ....interop.weight_map import to_theirs
from ....nn.positions import grid
from ....run import Run
from ....training.folder import Folder
from ....training.weights import load_weights
from ..tokens import Patches
from . import mae, pixels, vit
from .vit import HEAD, HUGGINGFACE, ImageGeometry

HEAD_PREFIXES = ("heads.", "readout.", "entrance.hidden")
ENCODER_NOTE = "only the encoder is written: a ViT head needs `objective.kind: classify` without hidden layers"
POSITION_NOTE = "fixed positions are written as a table, which is trainable in Hugging Face"
SIZE_NOTE = "Hugging Face models have one image size: the largest of the run is written"
WRITTEN_BLOCKS = "decoder_layers."  # name in the first versions of `transformers`, which all versions read
NEEDS: Needs = {
    **PRE_NORM_NEEDS,
    **PLAIN_NEEDS,
    "model.last_norm": True,
    "model.position": ("learned", "auto", "sinusoidal"),
    "model.pool": "class_token",
    "tokens.embed": "linear",
    "tokens.step": lambda recipe: (None, recipe.tokens.patch),
    "tokens.stretch": "none",
    "tokens.scale": ("channel", "none"),
}


def write(run: Run, folder: Folder) -> list[str]:
    """Write the Hugging Face files of a run; return notes for the user."""
    weights, _ = load_weights(run.folder.model)
    (tokens,) = run.assembly.tokens.values()
    assert isinstance(tokens, Patches)
    height, width, channels = tokens.shape
    picture = ImageGeometry(height, width, channels, tokens.sides)
    picture.check(Config({}, "the run"))
    hides = run.recipe.model.kind == "masked_autoencoder" and run.recipe.objective.kind == "masked"
    notes = [SIZE_NOTE] if tokens.varies else []
    config, named = (_autoencoder if hides else _classifier)(run, tokens, picture, weights, notes)
    about = {
        **vit.SIZE_KEYS.write(run.recipe.model),
        "image_size": vit.side_or_sides(height, width),
        "patch_size": vit.side_or_sides(*picture.patch),
        "num_channels": channels,
        "qkv_bias": True,
    }
    write_model(folder, {**config, **about}, named)
    mean, deviation = tokens.state["mean"], tokens.state["deviation"]
    if tokens.scale == "none":
        mean, deviation = [0.0] * channels, [1.0] * channels
    scaled = pixels.preprocessor_config(mean, deviation, height, width)
    folder.write(pixels.PREPROCESSOR_FILE, to_json(scaled))
    return notes


def _classifier(
    run: Run, tokens: Patches, picture: ImageGeometry, weights: dict[str, Tensor], notes: list[str]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    refuse_recipe(run.recipe, "ViT", NEEDS)
    weights = _with_position_table(weights, POSITION_WEIGHT, run.model.trunk, tokens, notes)
    config = {"architectures": ["ViTModel"], "model_type": "vit", "encoder_stride": picture.patch[0]}
    head = f"{HEAD}.weight" in weights
    if not head:
        weights = {name: tensor for name, tensor in weights.items() if not name.startswith(HEAD_PREFIXES)}
        notes.append(ENCODER_NOTE)
    named = to_theirs(vit.weight_links(HUGGINGFACE, run.recipe.model, head), weights)
    vit.restore_weights(named, HUGGINGFACE, picture)
    if not head:
        return config, named
    objective = run.assembly.objective
    cooled = objective.state.get("temperature", 1.0)  # temperature of a calibrated run
    names = {str(i): name for i, name in enumerate(objective.answers)}
    config |= {"architectures": ["ViTForImageClassification"], "id2label": names}
    config["label2id"] = {name: int(i) for i, name in names.items()}
    ends = {name: named.pop(name) / cooled for name in list(named) if name.startswith(HUGGINGFACE.head)}
    return config, {f"vit.{name}": tensor for name, tensor in named.items()} | ends


def _autoencoder(
    run: Run, tokens: Patches, picture: ImageGeometry, weights: dict[str, Tensor], notes: list[str]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    recipe, model = run.recipe, run.recipe.model
    refuse_recipe(recipe, "ViTMAE", {**NEEDS, "model.readout_layer": False})
    if picture.patch[0] != picture.patch[1] or picture.height != picture.width:
        sides = f"images of {picture.height} x {picture.width} and patches of {picture.patch[0]} x {picture.patch[1]}"
        raise UserError(f"ViTMAE needs square images and patches, but this run has {sides}")
    weights = _with_position_table(weights, POSITION_WEIGHT, run.model.trunk, tokens, notes)
    weights = _with_position_table(weights, mae.POSITION_TABLE, run.model.mask_decoder.trunk, tokens, [])  # type: ignore[union-attr]
    links = [*vit.weight_links(HUGGINGFACE, model, False), *mae.decoder_links(HUGGINGFACE, model)]
    named = to_theirs(links, weights)
    vit.restore_weights(named, HUGGINGFACE, picture)
    mae.restore_decoder(named)
    decoded = {name: f"decoder.{name}" for name in named if name.startswith(("decoder_", mae.HIDDEN))}
    written = {name: decoded.get(name, f"vit.{name}").replace(mae.BLOCKS, WRITTEN_BLOCKS) for name in named}
    decoder = mae.decoder_section(model)
    config = {
        "architectures": ["ViTMAEForPreTraining"],
        "model_type": "vit_mae",
        "decoder_hidden_size": decoder.dim,
        "decoder_num_hidden_layers": decoder.depth,
        "decoder_num_attention_heads": decoder.heads,
        "decoder_intermediate_size": round(model.mlp_ratio * decoder.dim),
        "mask_ratio": float(np.mean(recipe.objective.mask_ratio)),
        "norm_pix_loss": recipe.tokens.target == "patch",
    }
    return config, {written[name]: tensor for name, tensor in named.items()}


def _with_position_table(
    weights: Mapping[str, Tensor], name: str, trunk: Any, tokens: Patches, notes: list[str]
) -> dict[str, Tensor]:
    """Add the table of sinusoidal positions if the weights have no learned positions."""
    if name in weights:
        return dict(weights)
    notes.append(POSITION_NOTE)
    return {**weights, name: trunk.position.code(grid(tokens.grid_shape)).float()}


FILES = ("config.json", "model.safetensors", pixels.PREPROCESSOR_FILE)
EXPORTER = Exporter("huggingface", "patches", has_tokens(Patches), FILES, write)
