"""Vision transformers (arXiv 2010.11929) of Hugging Face and timm: patches in, the class token out.

Their convolution over patches is our linear layer over the pixels of a patch, channels last. They have a vector for the
place of the class token; ours stands where the first patch does, so that its own vector is cls + p_class - p_first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ....errors import UserError
from ....interop.config import Config
from ....interop.family import ACTIVATIONS, POSITION_WEIGHT, drop_weights, remove_prefix
from ....interop.weight_map import WeightMap

EMBEDDING = "entrance.embedding.linear"
CLASS_TOKEN = "pooling.token"
HEAD = "heads.class.layer.1"
OTHER_TASKS = ("pooler.",)


@dataclass(frozen=True)
class WeightNames:
    """What others call the weights of a vision transformer, those of a block after its number."""

    token: str
    places: str
    patches: str
    blocks: str
    attention: tuple[str, ...]
    out: str
    attention_norm: str
    mlp_norm: str
    up: str
    down: str
    norm: str
    head: str


HUGGINGFACE = WeightNames(
    token="embeddings.cls_token",
    places="embeddings.position_embeddings",
    patches="embeddings.patch_embeddings.projection",
    blocks="encoder.layer",
    attention=tuple(f"attention.attention.{part}" for part in ("query", "key", "value")),
    out="attention.output.dense",
    attention_norm="layernorm_before",
    mlp_norm="layernorm_after",
    up="intermediate.dense",
    down="output.dense",
    norm="layernorm",
    head="classifier",
)
# Names of later versions of `transformers`, which still write the old ones.
RENAMED_WEIGHTS = {
    r"\bdecoder_encoder\.layer\.": "encoder.layer.",
    r"(^|\.)(?:decoder_)?layers\.(\d+)\.": r"\1encoder.layer.\2.",
    r"\.attention\.q_proj\.": ".attention.attention.query.",
    r"\.attention\.k_proj\.": ".attention.attention.key.",
    r"\.attention\.v_proj\.": ".attention.attention.value.",
    r"\.attention\.o_proj\.": ".attention.output.dense.",
    r"\.mlp\.fc1\.": ".intermediate.dense.",
    r"\.mlp\.fc2\.": ".output.dense.",
}


@dataclass(frozen=True)
class ImageGeometry:
    """The images that a model was made for, and how they are cut."""

    height: int
    width: int
    channels: int
    patch: tuple[int, int]

    @property
    def places(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return self.height // self.patch[0], self.width // self.patch[1]

    @property
    def shape(self) -> list[int]:
        """Height, width and channels."""
        return [self.height, self.width, self.channels]

    def tokens(self) -> dict[str, Any]:
        """The section `tokens`."""
        rows, columns = self.patch
        return {"kind": "patches", "patch": rows if rows == columns else [rows, columns]}

    def check(self, where: str, file: Path | None = None) -> None:
        """Refuse images that patches do not fill."""
        if self.height % self.patch[0] or self.width % self.patch[1]:
            sides, patch = f"{self.height} x {self.width}", f"{self.patch[0]} x {self.patch[1]}"
            raise UserError(f"images of {sides} in {where} are not filled by patches of {patch}", file=file)


def canonical_names(tensors: dict[str, Tensor], notes: list[str]) -> dict[str, Tensor]:
    """The weights of Hugging Face under the names of HUGGINGFACE."""
    found = remove_prefix(tensors, "vit.")
    for pattern, name in RENAMED_WEIGHTS.items():
        found = {re.sub(pattern, name, old): tensor for old, tensor in found.items()}
    drop_weights(found, lambda name: name.startswith(OTHER_TASKS), notes, "layers of other tasks")
    return found


def image_geometry(config: Config) -> ImageGeometry:
    """The images of a configuration of Hugging Face."""
    height, width = _pair(config, "image_size", 224)
    found = ImageGeometry(height, width, config.size("num_channels", 3), _pair(config, "patch_size", 16))
    found.check(config.where, config.file)
    return found


def model_section(config: Config) -> dict[str, Any]:
    """The section `model` of a configuration of Hugging Face."""
    config.get("qkv_bias", True, bool)  # the weights tell
    for key, kind in (("encoder_stride", int), ("pooler_output_size", int), ("pooler_act", str)):
        config.get(key, kind(), kind)  # of heads that are left out or refused
    dim, heads = config.size("hidden_size"), config.size("num_attention_heads")
    config.only("head_dim", dim // heads)
    return {
        **MODEL_DEFAULTS,
        "dim": dim,
        "depth": config.size("num_hidden_layers"),
        "heads": heads,
        "mlp_ratio": config.size("intermediate_size") / dim,
        "activation": config.choice("hidden_act", ACTIVATIONS, "gelu"),
        "norm_epsilon": config.get("layer_norm_eps", 1e-12, float),
        "dropout": config.get("hidden_dropout_prob", 0.0, float, int),
        "attention_dropout": config.get("attention_probs_dropout_prob", 0.0, float, int),
    }


MODEL_DEFAULTS = {"kind": "encoder", "position": "learned", "pool": "class_token", "hidden_dropout": 0.0}


def convert_weights(
    tensors: dict[str, Tensor], names: WeightNames, found: ImageGeometry, where: str, file: Path | None = None
) -> None:
    """Class token, places and patches in our form; biases of queries, keys and values where there are none."""
    for name in (names.token, names.places, f"{names.patches}.weight"):
        if name not in tensors:
            raise UserError(
                f"the weight {name} of a vision transformer is missing in {where}",
                hint=f"There are {', '.join(sorted(tensors)[:6])}.",
                file=file,
            )
    tensors[f"{names.patches}.weight"] = flatten_patch_kernel(tensors[f"{names.patches}.weight"], found, where, file)
    places, token = tensors[names.places].flatten(0, -2), tensors[names.token].flatten()
    count = found.places[0] * found.places[1]
    if len(places) not in (count, count + 1):
        raise UserError(
            f"`{names.places}` must have {count} or {count + 1} places, as {where} says, not {len(places)}", file=file
        )
    own = places[0] if len(places) > count else torch.zeros_like(token)  # without a place of its own
    tensors[names.places] = places[-count:]
    tensors[names.token] = token + (own - places[-count])
    parts = tuple(f".{part}.weight" for part in names.attention)
    for name in [name for name in tensors if name.endswith(parts)]:
        tensors.setdefault(name.removesuffix("weight") + "bias", torch.zeros(len(tensors[name])))


def flatten_patch_kernel(weight: Tensor, found: ImageGeometry, where: str, file: Path | None = None) -> Tensor:
    """(D, channels, height, width) -> (D, pixels, channels last)."""
    expected = (found.channels, *found.patch)
    if tuple(weight.shape[1:]) != expected:
        raise UserError(
            f"patches must be of (channels, height, width) {expected}, as {where} says, not {tuple(weight.shape[1:])}",
            file=file,
        )
    return weight.permute(0, 2, 3, 1).flatten(1)


def weight_links(names: WeightNames, model: Any, head: bool) -> list[WeightMap]:
    """Which weights of ours are which of theirs, once they went through `convert_weights`."""
    found = [
        WeightMap(CLASS_TOKEN, (names.token,)),
        WeightMap(POSITION_WEIGHT, (names.places,)),
        *linear_links(EMBEDDING, (names.patches,), (model.dim,)),
        *block_links(names, "trunk.blocks", names.blocks, model.depth, model.dim, round(model.mlp_ratio * model.dim)),
        *linear_links("trunk.norm", (names.norm,), (model.dim,)),
    ]
    return found + (list(linear_links(HEAD, (names.head,))) if head else [])


def block_links(names: WeightNames, ours: str, theirs: str, depth: int, dim: int, hidden: int) -> Iterator[WeightMap]:
    """The blocks of a stack."""
    rows = (dim,) * 3 if len(names.attention) > 1 else (3 * dim,)
    for i in range(depth):
        own, other = f"{ours}.{i}", f"{theirs}.{i}"
        parts = tuple(f"{other}.{part}" for part in names.attention)
        yield from linear_links(f"{own}.attention.qkv", parts, rows)
        yield from linear_links(f"{own}.attention.out", (f"{other}.{names.out}",), (dim,))
        yield from linear_links(f"{own}.attention_norm", (f"{other}.{names.attention_norm}",), (dim,))
        yield from linear_links(f"{own}.mlp.up", (f"{other}.{names.up}",), (hidden,))
        yield from linear_links(f"{own}.mlp.down", (f"{other}.{names.down}",), (dim,))
        yield from linear_links(f"{own}.mlp_norm", (f"{other}.{names.mlp_norm}",), (dim,))


def linear_links(ours: str, theirs: tuple[str, ...], rows: tuple[int, ...] = ()) -> Iterator[WeightMap]:
    """A layer or a norm."""
    yield WeightMap(f"{ours}.weight", tuple(f"{name}.weight" for name in theirs), rows)
    yield WeightMap(f"{ours}.bias", tuple(f"{name}.bias" for name in theirs), rows, zeros=bool(rows))


def _pair(config: Config, key: str, default: int) -> tuple[int, int]:
    """Height and width, given as one number or as two."""
    value = config.get(key, default, int, list)
    pair = value if isinstance(value, list) else [value, value]
    if len(pair) != 2 or not all(isinstance(one, int) and one > 0 for one in pair):
        raise UserError(
            f"`{key}` in {config.where} must be a number or two, each 1 or more, not {value}", file=config.file
        )
    return pair[0], pair[1]
