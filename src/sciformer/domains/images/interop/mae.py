"""Masked autoencoders of images (arXiv 2111.06377): a vision transformer, and the decoder that finds hidden patches.

Their places are fixed waves, stored as numbers; here they are learned, beginning with these. In the decoder the class
token has a vector of its own, p_class - p_first, for it stands where the first patch does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ....errors import UserError
from ....interop.config import Config
from ....interop.family import POSITION_WEIGHT, Written, refuse_recipe
from ....interop.weight_map import WeightMap, to_theirs
from ....run import Run
from ..tokens import Patches
from . import vit
from .vit import HUGGINGFACE, WeightNames
from .vit_export import image_geometry, pixel_config, required_keys, restore_weights, size_settings, with_position_table

DECODER = "mask_decoder"
POSITION_TABLE = f"{DECODER}.trunk.position.table"
CLASS_TOKEN = f"{DECODER}.first"
READOUT = "readout.linear"
DECODER_NOTE = (
    "the weights do not tell how many heads the decoder has, nor whether it was asked for patches by their own mean "
    "and deviation; 16 and no here. If yours differs: --model.decoder_heads, --tokens.target patch"
)


@dataclass(frozen=True)
class DecoderNames:
    """What others call the weights of the decoder."""

    adapt: str
    hidden: str
    places: str
    blocks: str
    norm: str
    readout: str


HUGGINGFACE_DECODER = DecoderNames(
    adapt="decoder.decoder_embed",
    hidden="decoder.mask_token",
    places="decoder.decoder_pos_embed",
    blocks="decoder.encoder.layer",
    norm="decoder.decoder_norm",
    readout="decoder.decoder_pred",
)
TIMM_DECODER = DecoderNames(
    adapt="decoder_embed",
    hidden="mask_token",
    places="decoder_pos_embed",
    blocks="decoder_blocks",
    norm="decoder_norm",
    readout="decoder_pred",
)


@dataclass(frozen=True)
class DecoderSections:
    """What a decoder adds to the sections of a recipe, and what its weights are called."""

    names: DecoderNames
    sections: dict[str, dict[str, Any]]


WRITTEN_BLOCKS = "decoder.decoder_layers"  # as their first versions have it, which all read


def has_decoder(tensors: Mapping[str, Tensor], names: DecoderNames) -> bool:
    """Whether there is a decoder among the weights."""
    return f"{names.readout}.weight" in tensors


def decoder_from_config(config: Config) -> DecoderSections:
    """What a configuration of Hugging Face says of the decoder."""
    dim, hidden = config.size("decoder_hidden_size", 512), config.size("decoder_intermediate_size", 2048)
    ratio = config.size("intermediate_size", 3072) / config.size("hidden_size", 768)
    if hidden / dim != ratio:
        raise UserError(
            f"inner layers must be as wide over their width in the decoder as in the encoder, but {config.where} has "
            f"{hidden / dim:g} in the decoder and {ratio:g} in the encoder",
            file=config.file,
        )
    depth, heads = config.size("decoder_num_hidden_layers", 8), config.size("decoder_num_attention_heads", 16)
    target = "patch" if config.get("norm_pix_loss", False, bool) else "pixels"
    share = config.get("mask_ratio", 0.75, float)
    return _decoder_sections(HUGGINGFACE_DECODER, dim, depth, heads, target, share)


def decoder_from_weights(tensors: Mapping[str, Tensor], notes: list[str]) -> DecoderSections | None:
    """The same from shapes; None without a decoder."""
    if not has_decoder(tensors, TIMM_DECODER):
        return None
    notes.append(DECODER_NOTE)
    dim = len(tensors[f"{TIMM_DECODER.adapt}.weight"])
    depth = len({name.split(".")[1] for name in tensors if name.startswith(f"{TIMM_DECODER.blocks}.")})
    return _decoder_sections(TIMM_DECODER, dim, depth, 16, "pixels", 0.75)


def _decoder_sections(
    names: DecoderNames, dim: int, depth: int, heads: int, target: str, share: float
) -> DecoderSections:
    model = {"kind": "masked_autoencoder", "decoder_dim": dim, "decoder_depth": depth, "decoder_heads": heads}
    return DecoderSections(
        names, {"model": model, "tokens": {"target": target}, "objective": {"kind": "masked", "mask_ratio": share}}
    )


def convert_decoder(tensors: dict[str, Tensor], names: DecoderNames) -> None:
    """Places, hidden vector and, under a name beside that of the places, the vector of the class token in our form."""
    for name in (names.places, names.hidden):
        if name not in tensors:
            raise UserError(f"the weight {name} of the decoder is missing")
    places = tensors[names.places].flatten(0, -2)
    tensors[names.places], tensors[f"{names.places}.first"] = places[1:], places[0] - places[1]
    tensors[names.hidden] = tensors[names.hidden].flatten()


def decoder_links(form: WeightNames, names: DecoderNames, model: Any) -> list[WeightMap]:
    """Which weights of ours are which of theirs."""
    dim = model.decoder_dim or model.dim
    return [
        WeightMap(f"{DECODER}.hidden", (names.hidden,)),
        WeightMap(CLASS_TOKEN, (f"{names.places}.first",)),
        WeightMap(POSITION_TABLE, (names.places,)),
        *vit.linear_links(f"{DECODER}.adapt", (names.adapt,), (dim,)),
        *vit.block_links(
            form, f"{DECODER}.trunk.blocks", names.blocks, model.decoder_depth, dim, round(model.mlp_ratio * dim)
        ),
        *vit.linear_links(f"{DECODER}.trunk.norm", (names.norm,), (dim,)),
        *vit.linear_links(READOUT, (names.readout,)),
    ]


def write_mae(run: Run, tokens: Patches, weights: dict[str, Tensor]) -> tuple[Written, dict[str, Any]]:
    """A run as a ViTMAEForPreTraining, and their file about pixels."""
    recipe, found, names = run.recipe, image_geometry(tokens), HUGGINGFACE_DECODER
    model, network = recipe.model, run.model
    refuse_recipe(recipe, "ViTMAE", required_keys(recipe) | {"model.readout_layer": False})
    if found.patch[0] != found.patch[1] or found.height != found.width:
        sides = f"{found.height} x {found.width} by {found.patch}"
        raise UserError(f"ViTMAE needs square images and patches, not {sides}")
    weights, notes = with_position_table(weights, POSITION_WEIGHT, network.trunk.position, tokens)  # type: ignore[union-attr]
    weights, _ = with_position_table(weights, POSITION_TABLE, network.mask_decoder.trunk.position, tokens)  # type: ignore[union-attr]
    named = to_theirs(
        [*vit.weight_links(HUGGINGFACE, model, False), *decoder_links(HUGGINGFACE, names, model)], weights
    )
    restore_weights(named, HUGGINGFACE, found)
    table, first = named[names.places], named.pop(f"{names.places}.first")
    named[names.places] = torch.cat([table[:1] + first, table])[None]
    named[names.hidden] = named[names.hidden][None, None]
    whole = {
        name.replace(names.blocks, WRITTEN_BLOCKS) if name.startswith("decoder.") else f"vit.{name}": tensor
        for name, tensor in named.items()
    }
    dim = model.decoder_dim or model.dim
    config = {
        "architectures": ["ViTMAEForPreTraining"],
        "model_type": "vit_mae",
        **size_settings(recipe, found),
        "decoder_hidden_size": dim,
        "decoder_num_hidden_layers": model.decoder_depth,
        "decoder_num_attention_heads": model.decoder_heads or model.heads,
        "decoder_intermediate_size": round(model.mlp_ratio * dim),
        "mask_ratio": recipe.objective.mask_ratio,
        "norm_pix_loss": recipe.tokens.target == "patch",
    }
    return Written(config, whole, notes), pixel_config(tokens, found)
