"""Weight map of masked autoencoders (arXiv 2111.06377), encoder and decoder.

The original positions are fixed sinusoids, stored as a table. Here this table is the initial value of learned
positions. In the decoder of Sciformer the class token has the position of the first patch. The imported class
token is therefore p_class - p_first, with the original positions p_class of the class token and p_first of this patch.

Weights have the names in the code of the paper; `vit.canonical_names` renames the weights of Hugging Face.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ....errors import UserError
from ....interop.config import Config
from ....interop.weight_map import WeightMap, block_links, layer
from .vit import WeightNames

DECODER = "mask_decoder"
POSITION_TABLE = f"{DECODER}.trunk.position.table"
HIDDEN, PLACES, READOUT = "mask_token", "decoder_pos_embed", "decoder_pred"
FIRST_PLACE = f"{PLACES}.first"
BLOCKS = "decoder_blocks."
DECODER_NOTE = (
    "the file does not state the number of decoder heads and the target of masked patches: 16 heads and the target "
    "pixels are assumed. If your model differs, set --model.decoder_heads and --tokens.target patch"
)
Sections = dict[str, dict[str, Any]]


def has_decoder(tensors: Mapping[str, Tensor]) -> bool:
    """Whether the weights contain a decoder."""
    return f"{READOUT}.weight" in tensors


def sections_from_config(config: Config) -> Sections:
    """Recipe sections for the decoder, from a Hugging Face configuration."""
    dim, hidden = config.size("decoder_hidden_size", 512), config.size("decoder_intermediate_size", 2048)
    ratio = config.size("intermediate_size", 3072) / config.size("hidden_size", 768)
    if hidden / dim != ratio:
        both = f"{hidden / dim:g} in the decoder and {ratio:g} in the encoder"
        raise config.error(f"encoder and decoder must have the same MLP ratio, but {config.where} has {both}")
    depth, heads = config.size("decoder_num_hidden_layers", 8), config.size("decoder_num_attention_heads", 16)
    target = "patch" if config.get("norm_pix_loss", False, bool) else "pixels"
    return _sections(dim, depth, heads, target, config.get("mask_ratio", 0.75, float))


def sections_from_weights(tensors: Mapping[str, Tensor], notes: list[str]) -> Sections:
    """Recipe sections for the decoder, from the shapes of its weights."""
    notes.append(DECODER_NOTE)
    depth = len({name.split(".")[1] for name in tensors if name.startswith(BLOCKS)})
    return _sections(len(tensors["decoder_embed.weight"]), depth, 16, "pixels", 0.75)


def _sections(dim: int, depth: int, heads: int, target: str, share: float) -> Sections:
    model = {"kind": "masked_autoencoder", "decoder_dim": dim, "decoder_depth": depth, "decoder_heads": heads}
    return {"model": model, "tokens": {"target": target}, "objective": {"kind": "masked", "mask_ratio": share}}


def convert_decoder(tensors: dict[str, Tensor]) -> None:
    """Convert positions, mask token and class token of the decoder for Sciformer."""
    for name in (PLACES, HIDDEN):
        if name not in tensors:
            raise UserError(f"the weight `{name}` of the decoder is missing")
    places = tensors[PLACES].flatten(0, -2)
    tensors[PLACES], tensors[FIRST_PLACE] = places[1:], places[0] - places[1]
    tensors[HIDDEN] = tensors[HIDDEN].flatten()


def restore_decoder(tensors: dict[str, Tensor]) -> None:
    """Undo `convert_decoder`: decoder weights with their original names and shapes."""
    table, first = tensors[PLACES], tensors.pop(FIRST_PLACE)
    tensors[PLACES] = torch.cat([table[:1] + first, table])[None]
    tensors[HIDDEN] = tensors[HIDDEN][None, None]


def decoder_section(model: Any) -> Any:
    """Copy of the section `model` with width, depth and heads of the decoder."""
    size = {"dim": model.decoder_dim or model.dim, "depth": model.decoder_depth}
    return model.model_copy(update={**size, "heads": model.decoder_heads or model.heads})


def decoder_links(names: WeightNames, model: Any) -> list[WeightMap]:
    """Weight map of the decoder: names in Sciformer and in the original."""
    decoder = decoder_section(model)
    return [
        WeightMap(f"{DECODER}.hidden", (HIDDEN,)),
        WeightMap(f"{DECODER}.first", (FIRST_PLACE,)),
        WeightMap(POSITION_TABLE, (PLACES,)),
        *layer(f"{DECODER}.adapt", "decoder_embed", rows=(decoder.dim,)),
        *block_links(names.block, BLOCKS + "{}.", decoder, f"{DECODER}.trunk.blocks.{{}}."),
        *layer(f"{DECODER}.trunk.norm", "decoder_norm", rows=(decoder.dim,)),
        *layer("readout.linear", READOUT),
    ]
