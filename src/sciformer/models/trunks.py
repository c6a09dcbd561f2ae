"""The trunks and positions by name: which there are, and which options of a model do nothing with each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from torch import nn

from ..errors import UserError
from ..nn import (
    DeepSets,
    EdgeConvNet,
    Fourier,
    Learned,
    Modulation,
    PointCloudTransformer,
    Position,
    RelativeBias,
    ResNet,
    ResNet2d,
    Rotary,
    Sinusoidal,
    UnpairedSinusoidal,
)
from ..recipe.field import load, places
from ..tokens.protocols import Gridded

if TYPE_CHECKING:
    from ..tokens.base import Tokens
    from .base import Model

TRUNKS = (
    "transformer",
    "conformer",
    "rnn",
    "gru",
    "lstm",
    "convolution",
    "deep_sets",
    "resnet",
    "resnet2d",
    "edge_conv",
    "point_cloud_transformer",
)
DOMAIN_TRUNKS = tuple(places("trunk"))  # each a function (model section, width of the tokens) -> module
if TYPE_CHECKING:
    Trunk = str
else:
    Trunk = Literal[*TRUNKS, *DOMAIN_TRUNKS]
RECURRENT_TRUNKS = ("rnn", "gru", "lstm")
ATTENTION_TRUNKS = ("transformer", "conformer")
# Trunks of tokens that may enter as they are, in any width.
CLOUD_TRUNKS = ("deep_sets", "resnet", "edge_conv", "point_cloud_transformer", *DOMAIN_TRUNKS)
RASTER_TRUNKS = ("resnet2d",)  # of tokens that enter as they are, and are put together on their grid
ATTENTION_KEYS = (
    *("heads", "kv_heads", "head_dim", "mlp_ratio", "activation", "norm", "norm_position", "drop_path", "qk_norm"),
    *("bias", "window", "attention_dropout", "hidden_dropout", "init", "norm_epsilon", "embedding_norm", "rotary_base"),
    *("extras", "last_norm", "residual", "rotary_share", "rotary_values", "compress"),
)
WAVE_POSITIONS = ("sinusoidal", "rotary", "fourier", "modulation")  # positions whose periods can be given
RASTER_KEYS = ("stages", "bottleneck")
CLOUD_KEYS = ("widths", "neighbours", *RASTER_KEYS)
KEYS_OF_OTHERS = (*ATTENTION_KEYS, "position", "periods", "kernel", "dilation_growth", "bidirectional", "forget_bias")
UNUSED_KEYS = {
    "transformer": ("kernel", "dilation_growth", "bidirectional", "forget_bias", *CLOUD_KEYS),
    "conformer": (
        *("mlp_ratio", "activation", "extras", "residual", "drop_path", "hidden_dropout"),
        *("dilation_growth", "bidirectional", "forget_bias", "compress", *CLOUD_KEYS),
    ),
    "convolution": (*ATTENTION_KEYS, "bidirectional", "forget_bias", *CLOUD_KEYS),
    **dict.fromkeys(RECURRENT_TRUNKS, (*ATTENTION_KEYS, "kernel", "dilation_growth", *CLOUD_KEYS)),
    "rnn": (*ATTENTION_KEYS, "kernel", "dilation_growth", "forget_bias", *CLOUD_KEYS),
    "deep_sets": (*KEYS_OF_OTHERS, "neighbours", *RASTER_KEYS),
    "resnet": (*KEYS_OF_OTHERS, "neighbours", *RASTER_KEYS),
    "edge_conv": (*KEYS_OF_OTHERS, *RASTER_KEYS),
    "point_cloud_transformer": (*KEYS_OF_OTHERS, *RASTER_KEYS),
    **dict.fromkeys(DOMAIN_TRUNKS, (*KEYS_OF_OTHERS, *CLOUD_KEYS)),
    "resnet2d": (*KEYS_OF_OTHERS, "depth", "dropout", "neighbours"),
}


def make_cloud(model: Model, inputs: int) -> nn.Module:
    """One of CLOUD_TRUNKS, for tokens of so many inputs."""
    widths = model.widths or [model.dim] * max(1, model.depth)
    if model.trunk == "deep_sets":
        return DeepSets(inputs, widths)
    if model.trunk == "resnet":
        return ResNet(inputs, widths)
    if model.trunk == "edge_conv":
        return EdgeConvNet(inputs, widths, model.neighbours)
    if model.trunk == "point_cloud_transformer":
        return PointCloudTransformer(
            inputs, model.dim, model.depth, model.widths or [-(-model.dim // 2)] * 2, model.neighbours
        )
    made: nn.Module = load(places("trunk")[model.trunk])(model, inputs)
    return made


def make_raster(model: Model, tokens: Tokens) -> nn.Module:
    """A trunk that puts tokens together as an image."""
    raster, grid = tokens.raster if isinstance(tokens, Gridded) else (), tokens.grid_shape
    if len(raster) != 3 or not isinstance(grid, tuple) or len(grid) != 2:
        raise UserError(
            f"`model.trunk: {model.trunk}` needs tokens that are parts of an image, not `tokens.kind: {tokens.kind}`",
            key="model.trunk",
        )
    if (wide := tokens.width(model.dim)) != raster[0] * raster[1] * raster[2]:
        raise UserError(
            f"`model.trunk: {model.trunk}` needs the pixels as they are, not vectors of width {wide} made from them",
            hint="Set tokens.embed: none.",
            key="tokens.embed",
        )
    widths = model.widths or [model.dim << i for i in range(len(model.stages))]
    return ResNet2d(raster, grid, model.stages, widths, model.bottleneck)


def compression(model: Model, tokens: Tokens) -> dict[str, Any]:
    """The options of attention for `model.compress`; a class token stands beside the places of tokens."""
    if tokens.grid_shape is None:
        raise UserError(
            f"model.compress needs tokens with counted places, which `tokens.kind: {tokens.kind}` does not have",
            key="model.compress",
        )
    lead = int(getattr(model, "pool", "") == "class_token")
    return {"compress": model.compress, "places": tokens.grid_shape, "lead": lead}


def make_position(model: Model, tokens: Tokens) -> Position | None:
    """The position code of this name, fitted to the tokens' coordinates."""
    name, axes, places, periods = model.position, tokens.axes, tokens.grid_shape, model.periods
    if name == "auto":
        if model.trunk not in ATTENTION_TRUNKS:
            return None
        name = "sinusoidal" if places is None else "learned"
    if periods is not None and name not in WAVE_POSITIONS:
        raise UserError(
            f"model.periods needs model.position to be one of {', '.join(WAVE_POSITIONS)}, not {name}",
            key="model.position",
        )
    if model.position_scale is not None and name != "learned":
        raise UserError(f"model.position_scale needs `model.position: learned`, not {name}", key="model.position")
    if model.rotary_values and name != "rotary" and model.trunk in ATTENTION_TRUNKS:
        raise UserError(f"model.rotary_values needs `model.position: rotary`, not {name}", key="model.position")
    if name == "none":
        return None
    if name == "learned":
        if places is None:
            raise UserError(
                f"`model.position: learned` needs tokens with counted places, which `tokens.kind: {tokens.kind}` "
                "does not have",
                key="model.position",
            )
        return Learned(model.dim, places, model.position_scale or tokens.initial_std)
    if name == "sinusoidal":
        return Sinusoidal(model.dim, axes, periods=periods)
    if name == "unpaired":
        return UnpairedSinusoidal(model.dim, axes)
    if name == "rotary":
        width = model.head_dim or model.dim // model.heads
        apart = model.heads if model.kv_heads in (None, model.heads) else None  # heads that share keys share periods
        return Rotary(width, axes, model.rotary_base, periods=periods, heads=apart, share=model.rotary_share)
    if name == "fourier":
        return Fourier(model.dim, axes, periods=periods)
    if name == "modulation":
        if periods is None:
            return Modulation(model.dim, axes)
        return Modulation(model.dim, axes, periods[1], round(periods[1] / periods[0]))
    longest = places if isinstance(places, int) else max(places or (64,))
    return RelativeBias(model.heads, longest, axes)
