"""Vision transformers of timm: weight names, arguments, LayerScale.

A weight file contains neither the number of heads nor the normalisation of pixels; a folder with the config.json of
timm contains the normalisation. LayerScale factors are multiplied into the preceding linear layers.
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
HEADS_BY_WIDTH = {192: 3, 384: 6, 768: 12, 1024: 16, 1280: 16}  # heads of the published models, by width
LAYER_SCALES = {"ls1.gamma": "attn.proj", "ls2.gamma": "mlp.fc2"}
# Weights of parts that are not supported, with a description.
UNSUPPORTED_PARTS = {
    "reg_token": "register tokens",
    "dist_token": "a distillation token",
    "norm_pre.weight": "a norm before the first block",
    "fc_norm.weight": "mean pooling of the patches",
    "attn_pool.latent": "attention pooling",
    "pre_logits.fc.weight": "a hidden layer before the head",
}

SIZE_HINT = "Import a folder whose config.json has `input_size`."
SCALING_NOTE = (
    "the file does not state the normalisation of pixels: (x - 127.5) / 127.5 is assumed, as for most timm models. If "
    "yours differs, import a folder whose config.json has `pretrained_cfg: {mean: ..., std: ...}`"
)
# Keys of `model_args` that follow from the weights.
ARGUMENTS_IN_WEIGHTS = {"patch_size", "embed_dim", "depth", "mlp_ratio", "num_classes"}
ARGUMENTS_IN_WEIGHTS |= {"qkv_bias", "init_values", "no_embed_class"}


def is_timm(tensors: Mapping[str, Tensor]) -> bool:
    """Whether the weights have the names of a timm vision transformer."""
    return f"{TIMM.patches}.weight" in tensors and any(name.startswith("blocks.0.") for name in tensors)


def fold_layer_scales(tensors: Mapping[str, Tensor], config: Config) -> dict[str, Tensor]:
    """Multiply the factors of LayerScale into the weights; refuse unsupported parts."""
    found = dict(tensors)
    for name, what in UNSUPPORTED_PARTS.items():
        if name in found:
            raise config.error(f"the model of {config.where} has {what} (`{name}`), which is not supported")
    for name in [name for name in found if name.endswith(tuple(LAYER_SCALES))]:
        block, _, scale = name.partition(".ls")
        gamma, layer = found.pop(name), f"{block}.{LAYER_SCALES[f'ls{scale}']}"
        found[f"{layer}.weight"] = found[f"{layer}.weight"] * gamma[:, None]
        found[f"{layer}.bias"] = found[f"{layer}.bias"] * gamma
    return found


def model_arguments(config: Config) -> Config:
    """Read `model_args` from a config.json of timm; refuse unsupported models."""
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
        raise config.error(f"`architecture: {name}` in {config.where} has QuickGELU, which is not supported")
    return made


def image_geometry(tensors: Mapping[str, Tensor], size: Sequence[int] | None, config: Config) -> ImageGeometry:
    """Image and patch size of a model, from the shapes of its weights.

    size   height and width of the image (default: a square, from the number of positions)
    """
    _, channels, *patch = tensors[f"{TIMM.patches}.weight"].shape
    places = tensors[TIMM.places].shape[-2] if TIMM.places in tensors else 0
    if size is None:
        side = math.isqrt(max(0, places - 1))
        side += places == (side + 1) ** 2  # no place for the class token
        if side * side not in (places, places - 1):
            square = f"`{TIMM.places}` of {config.where} has {places} positions, which do not fit a square image"
            raise config.error(square, SIZE_HINT)
        size = [side * patch[0], side * patch[1]]
    found = ImageGeometry(size[0], size[1], channels, (patch[0], patch[1]))
    found.check(config)
    return found


def model_section(tensors: Mapping[str, Tensor], heads: int | None, notes: list[str]) -> dict[str, Any]:
    """Keys of the section `model`, from the shapes of the weights."""
    dim, hidden = tensors[f"{TIMM.patches}.weight"].shape[0], len(tensors["blocks.0.mlp.fc1.weight"])
    depth = len({name.split(".")[1] for name in tensors if name.startswith("blocks.")})
    if heads is None:
        heads = HEADS_BY_WIDTH.get(dim, dim // 64 if dim % 64 == 0 else 0)
        unknown = "the file does not state the number of heads"
        if not heads:
            message = f"{unknown}, and the width {dim} is not a multiple of 64"
            raise UserError(message, hint="Set the number of heads with --model.heads.", key="model.heads")
        notes.append(f"{unknown}: {heads} are assumed, the usual number for this width")
    sizes = {"dim": dim, "depth": depth, "heads": heads, "mlp_ratio": hidden / dim}
    return {**MODEL_KEYS, **sizes, "hidden_dropout": 0.0, "norm_epsilon": 1e-6}
