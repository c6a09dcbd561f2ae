"""The trunks by name: which there are, and which options of a model do nothing with each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from ..nn import DeepSet, EdgeNet, LorentzNet, PointNet, ResNet

if TYPE_CHECKING:
    from .base import Model

RECURRENT = ("rnn", "gru", "lstm")
CLOUDS = ("sets", "resnet", "edges", "points", "lorentz")  # of tokens that may enter as they are, in any width
OF_ATTENTION = (
    *("heads", "groups", "head_dim", "ratio", "activation", "norm", "order", "drop_path", "qk_norm", "bias", "reach"),
    *("attention_dropout", "hidden_dropout", "weights", "norm_epsilon", "embedding_norm", "rotary_base"),
    *("extras", "last_norm"),
)
OF_CLOUDS = ("widths", "neighbours")
OF_OTHERS = (*OF_ATTENTION, "position", "kernel", "growth", "bidirectional", "remember")
UNUSED = {
    "transformer": ("kernel", "growth", "bidirectional", "remember", *OF_CLOUDS),
    "convolution": (*OF_ATTENTION, "bidirectional", "remember", *OF_CLOUDS),
    **dict.fromkeys(RECURRENT, (*OF_ATTENTION, "kernel", "growth", *OF_CLOUDS)),
    "rnn": (*OF_ATTENTION, "kernel", "growth", "remember", *OF_CLOUDS),
    "sets": (*OF_OTHERS, "neighbours"),
    "resnet": (*OF_OTHERS, "neighbours"),
    "edges": OF_OTHERS,
    "points": OF_OTHERS,
    "lorentz": (*OF_OTHERS, *OF_CLOUDS),
}


def make_cloud(model: Model, inputs: int) -> nn.Module:
    """One of CLOUDS, for tokens of so many inputs."""
    widths = model.widths or [model.dim] * max(1, model.depth)
    if model.trunk == "sets":
        return DeepSet(inputs, widths)
    if model.trunk == "resnet":
        return ResNet(inputs, widths)
    if model.trunk == "edges":
        return EdgeNet(inputs, widths, model.neighbours)
    if model.trunk == "points":
        return PointNet(inputs, model.dim, model.depth, model.widths or [-(-model.dim // 2)] * 2, model.neighbours)
    return LorentzNet(inputs, model.dim, model.depth)
