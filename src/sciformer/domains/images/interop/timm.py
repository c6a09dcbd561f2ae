"""Vision transformers of timm: names of weights, arguments, LayerScale.

A file of weights tells neither the heads nor how pixels were scaled; a folder with the config.json of timm tells the
scale. Scales of what a block adds (LayerScale) are multiplied into the layers before them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from ....errors import UserError
from ....interop.config import Config
from .vit import MODEL_KEYS, ImageGeometry, WeightNames

TIMM = WeightNames(
    token="cls_token",
    places="pos_embed",
    patches="patch_embed.proj",
    blocks="blocks.{}.",
    block={
        "attention.qkv": ("attn.qkv",),
        "attention.out": ("attn.proj",),
        "attention_norm": ("norm1",),
        "mlp.up": ("mlp.fc1",),
        "mlp.down": ("mlp.fc2",),
        "mlp_norm": ("norm2",),
    },
    norm="norm",
    head="head",
)
HEADS_BY_WIDTH = {192: 3, 384: 6, 768: 12, 1024: 16, 1280: 16}  # of the published sizes, by their width
LAYER_SCALES = {"ls1.gamma": "attn.proj", "ls2.gamma": "mlp.fc2"}
# Parts that no model here has, and what they are.
UNSUPPORTED_PARTS = {
    "reg_token": "register tokens",
    "dist_token": "a second token, for distillation",
    "norm_pre.weight": "a norm before the first block",
    "fc_norm.weight": "the mean of the patches with a norm behind it",
    "attn_pool.latent": "a pooling by attention",
    "pre_logits.fc.weight": "a layer before the head",
}


SIZE_HINT = "Import a folder with its config.json, which says `input_size`."
SCALING_NOTE = (
    "the weights do not tell how pixels were scaled; (x - 127.5) / 127.5 here, as for most of timm. If yours was "
    "trained otherwise, import a folder whose config.json says `pretrained_cfg: {mean: ..., std: ...}`"
)
# Keys of `model_args` that the weights tell as well.
ARGUMENTS_IN_WEIGHTS = {
    "patch_size",
    "embed_dim",
    "depth",
    "mlp_ratio",
    "qkv_bias",
    "init_values",
    "no_embed_class",
    "num_classes",
}


def is_timm(tensors: Mapping[str, Tensor]) -> bool:
    """Whether weights have the names of a vision transformer of timm."""
    return f"{TIMM.patches}.weight" in tensors and any(name.startswith("blocks.0.") for name in tensors)


def fold_layer_scales(tensors: Mapping[str, Tensor], config: Config) -> dict[str, Tensor]:
    """The weights with LayerScale multiplied in; refuse unsupported parts."""
    found = dict(tensors)
    for name, what in UNSUPPORTED_PARTS.items():
        if name in found:
            raise config.error(
                f"the vision transformer of {config.where} must be as published, read from its class token, but has "
                f"{what} (`{name}`)"
            )
    for name in [name for name in found if name.endswith(tuple(LAYER_SCALES))]:
        block, _, scale = name.partition(".ls")
        gamma, layer = found.pop(name), f"{block}.{LAYER_SCALES[f'ls{scale}']}"
        found[f"{layer}.weight"] = found[f"{layer}.weight"] * gamma[:, None]
        found[f"{layer}.bias"] = found[f"{layer}.bias"] * gamma
    return found


def model_arguments(config: Config) -> Config:
    """The `model_args` of a config.json of timm; refuse unpublished networks."""
    name = config.get("architecture", "", str)
    config.only("global_pool", "token")
    for key in ("num_classes", "num_features"):
        config.get(key, 0)
    for key in ("label_names", "label_descriptions", "pretrained_cfg"):
        config.get(key, {}, dict, list)
    made = Config(config.get("model_args", {}, dict), f"`model_args` in {config.where}", config.file)
    made.asked |= ARGUMENTS_IN_WEIGHTS
    made.only("global_pool", "token")
    made.only("class_token", True)
    if "quickgelu" in name:
        raise config.error(f"the network in {config.where} must have plain GELU, not `architecture: {name}`")
    return made


def image_geometry(tensors: Mapping[str, Tensor], size: Sequence[int] | None, config: Config) -> ImageGeometry:
    """Size of the images of a model: as given, or square with a patch for each place."""
    _, channels, *patch = tensors[f"{TIMM.patches}.weight"].shape
    places = tensors[TIMM.places].shape[-2] if TIMM.places in tensors else 0
    if size is None:
        side = math.isqrt(max(0, places - 1))
        side += places == (side + 1) ** 2  # no place for the class token
        if side * side not in (places, places - 1):
            square = f"`{TIMM.places}` of {config.where} must have the places of a square image, not {places}"
            raise config.error(square, SIZE_HINT)
        size = [side * patch[0], side * patch[1]]
    found = ImageGeometry(size[0], size[1], channels, (patch[0], patch[1]))
    found.check(config)
    return found


def model_section(tensors: Mapping[str, Tensor], heads: int | None, notes: list[str]) -> dict[str, Any]:
    """The section `model`, from the shapes of the weights."""
    dim, hidden = tensors[f"{TIMM.patches}.weight"].shape[0], len(tensors["blocks.0.mlp.fc1.weight"])
    depth = len({name.split(".")[1] for name in tensors if name.startswith("blocks.")})
    if heads is None:
        heads = HEADS_BY_WIDTH.get(dim, dim // 64 if dim % 64 == 0 else 0)
        if not heads:
            raise UserError(
                f"the weights do not tell how many heads there are, and heads of 64 do not divide their width {dim}",
                hint="Say how many there are with --model.heads.",
                key="model.heads",
            )
        notes.append(f"the weights do not tell how many heads there are; {heads} here, as published for this width")
    return {
        **MODEL_KEYS,
        "hidden_dropout": 0.0,
        "dim": dim,
        "depth": depth,
        "heads": heads,
        "mlp_ratio": hidden / dim,
        "norm_epsilon": 1e-6,
    }
