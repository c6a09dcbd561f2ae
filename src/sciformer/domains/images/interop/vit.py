"""Weight map of vision transformers (arXiv 2010.11929) of Hugging Face and timm.

Both packages embed patches by a convolution. Sciformer uses the equivalent linear layer over the pixels of a patch,
channels last. In both packages, the class token has its own position p_class. In Sciformer the class token has the
position p_first of the first patch, so the imported class token is cls + p_class - p_first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ....interop.config import Config
from ....interop.family import POSITION_WEIGHT, SizeKeys, drop_weights
from ....interop.weight_map import WeightMap, block_links, layer

EMBEDDING = "entrance.embedding.linear"
CLASS_TOKEN = "pooling.token"
HEAD = "heads.class.layer.1"


@dataclass(frozen=True)
class WeightNames:
    """Weight names of a vision transformer.

    blocks   prefix of the names in a transformer block
    block    names inside a block: Sciformer -> original
    """

    token: str
    places: str
    patches: str
    blocks: str
    block: Mapping[str, tuple[str, ...]]
    norm: str
    head: str


HUGGINGFACE = WeightNames(
    token="embeddings.cls_token",
    places="embeddings.position_embeddings",
    patches="embeddings.patch_embeddings.projection",
    blocks="encoder.layer.{}.",
    block={
        "attention.qkv": ("attention.attention.query", "attention.attention.key", "attention.attention.value"),
        "attention.out": ("attention.output.dense",),
        "attention_norm": ("layernorm_before",),
        "mlp.up": ("intermediate.dense",),
        "mlp.down": ("output.dense",),
        "mlp_norm": ("layernorm_after",),
    },
    norm="layernorm",
    head="classifier",
)
# Names of later versions of `transformers`, and the decoder of a masked autoencoder as in the paper's code.
RENAMED_WEIGHTS = {
    r"^vit\.": "",
    r"^decoder\.(?:decoder_)?(?:encoder\.layer|layers)\.": "decoder_blocks.",
    r"^decoder\.": "",
    r"^layers\.": "encoder.layer.",
    **{rf"\.attention\.{name[0]}_proj\.": f".attention.attention.{name}." for name in ("query", "key", "value")},
    r"\.attention\.o_proj\.": ".attention.output.dense.",
    r"\.mlp\.fc1\.": ".intermediate.dense.",
    r"\.mlp\.fc2\.": ".output.dense.",
}


@dataclass(frozen=True)
class ImageGeometry:
    """Image size, channels and patch size of a model."""

    height: int
    width: int
    channels: int
    patch: tuple[int, int]

    @property
    def places(self) -> tuple[int, int]:
        return self.height // self.patch[0], self.width // self.patch[1]

    @property
    def shape(self) -> list[int]:
        return [self.height, self.width, self.channels]

    def tokens(self) -> dict[str, Any]:
        return {"kind": "patches", "patch": side_or_sides(*self.patch)}

    def check(self, config: Config) -> None:
        if self.height % self.patch[0] or self.width % self.patch[1]:
            sides, patch = f"{self.height} x {self.width}", f"{self.patch[0]} x {self.patch[1]}"
            raise config.error(f"the image size {sides} in {config.where} is not a multiple of the patch size {patch}")


def side_or_sides(height: int, width: int) -> int | list[int]:
    """Side of a square, or [height, width] if height and width differ."""
    return height if height == width else [height, width]


def canonical_names(tensors: dict[str, Tensor], notes: list[str]) -> dict[str, Tensor]:
    """Rename Hugging Face weights of later versions as in the first version."""
    found = tensors
    for pattern, name in RENAMED_WEIGHTS.items():
        found = {re.sub(pattern, name, old): tensor for old, tensor in found.items()}
    drop_weights(found, r"pooler\.", notes)
    return found


def image_geometry(config: Config) -> ImageGeometry:
    """Image and patch size in a Hugging Face configuration."""
    height, width = _pair(config, "image_size", 224)
    found = ImageGeometry(height, width, config.size("num_channels", 3), _pair(config, "patch_size", 16))
    found.check(config)
    return found


def model_section(config: Config) -> dict[str, Any]:
    """Keys of the section `model` from a Hugging Face configuration."""
    config.get("qkv_bias", True, bool)  # follows from the weights
    for key, kind in (("encoder_stride", int), ("pooler_output_size", int), ("pooler_act", str)):
        config.get(key, kind(), kind)  # these keys belong to heads that are dropped or refused
    model = {**MODEL_KEYS, **SIZE_KEYS.read(config)}
    config.only("head_dim", model["dim"] // model["heads"])
    return model


MODEL_KEYS = {"kind": "encoder", "position": "learned", "pool": "class_token"}
SIZE_KEYS = SizeKeys(default_dropout=0.0)


def convert_weights(tensors: dict[str, Tensor], names: WeightNames, found: ImageGeometry, config: Config) -> None:
    """Convert weights of Hugging Face or timm for Sciformer; add missing biases."""
    for name in (names.token, names.places, f"{names.patches}.weight"):
        if name not in tensors:
            there = f"The weights are {', '.join(sorted(tensors)[:6])}."
            raise config.error(f"the weight `{name}` of a vision transformer is missing in {config.where}", there)
    kernel, expected = tensors[f"{names.patches}.weight"], (found.channels, *found.patch)
    if tuple(kernel.shape[1:]) != expected:
        shapes = f"{tuple(kernel.shape[1:])} in the weights, but {expected} in {config.where}"
        raise config.error(f"patches have different shapes (channels, height, width): {shapes}")
    tensors[f"{names.patches}.weight"] = kernel.permute(0, 2, 3, 1).flatten(1)  # (D, pixels, channels last)
    places, token = tensors[names.places].flatten(0, -2), tensors[names.token].flatten()
    count = found.places[0] * found.places[1]
    if len(places) not in (count, count + 1):
        fits = f"but the image size in {config.where} needs {count} or {count + 1} positions"
        raise config.error(f"the weight `{names.places}` has {len(places)} positions, {fits}")
    own = places[0] if len(places) > count else torch.zeros_like(token)  # no position for the class token
    tensors[names.places] = places[-count:]
    tensors[names.token] = token + (own - places[-count])
    parts = tuple(f".{part}.weight" for part in names.block["attention.qkv"])
    for name in [name for name in tensors if name.endswith(parts)]:
        tensors.setdefault(name.removesuffix("weight") + "bias", torch.zeros(len(tensors[name])))


def restore_weights(tensors: dict[str, Tensor], names: WeightNames, found: ImageGeometry) -> None:
    """Undo `convert_weights`.

    The class token gets the position of the first patch.
    """
    kernel, table = tensors[f"{names.patches}.weight"], tensors[names.places]
    pixels = kernel.unflatten(1, (*found.patch, found.channels))
    tensors[f"{names.patches}.weight"] = pixels.permute(0, 3, 1, 2).contiguous()
    tensors[names.places] = torch.cat([table[:1], table])[None]
    tensors[names.token] = tensors[names.token][None, None]


def weight_links(names: WeightNames, model: Any, head: bool) -> list[WeightMap]:
    """Weight map of the encoder: names in Sciformer and in the original."""
    return [
        WeightMap(CLASS_TOKEN, (names.token,)),
        WeightMap(POSITION_WEIGHT, (names.places,)),
        *layer(EMBEDDING, names.patches, rows=(model.dim,)),
        *block_links(names.block, names.blocks, model),
        *layer("trunk.norm", names.norm, rows=(model.dim,)),
        *(layer(HEAD, names.head) if head else []),
    ]


def _pair(config: Config, key: str, default: int) -> tuple[int, int]:
    value = config.get(key, default, int, list)
    pair = value if isinstance(value, list) else [value, value]
    if len(pair) != 2 or not all(isinstance(one, int) and one > 0 for one in pair):
        raise config.error(f"`{key}` in {config.where} must be one or two positive integers, not {value}")
    return pair[0], pair[1]
