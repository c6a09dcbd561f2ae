"""Shared parts of model families: configuration keys, requirements, weights."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ..errors import UserError
from ..recipe import Recipe
from .config import ABSENT, Config, format_value

TANH_NAMES = ("gelu_new", "gelu_pytorch_tanh", "gelu_fast")
ACTIVATIONS = {"gelu": "gelu", **dict.fromkeys(TANH_NAMES, "gelu_tanh"), "relu": "relu"}
THEIR_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu"}  # inverse, for exports
Needs = Mapping[str, Any]
POSITION_WEIGHT = "trunk.position.table"

# Values of recipe keys that an export requires: a value, a tuple of values, or a function of the recipe.
TRANSFORMER_NEEDS: Needs = {
    "model.trunk": "transformer",
    "model.qk_norm": "none",
    "model.window": None,
    "model.residual": True,
    "model.parallel_residual": False,
    "model.periods": None,
    "model.rotary_share": 1.0,
    "model.rotary_values": False,
    "model.readout_norm": False,
    "model.compress": None,
}
PRE_NORM_NEEDS: Needs = {"model.norm_position": "pre", "model.embedding_norm": False}
PLAIN_NEEDS: Needs = {
    "model.norm": "layer",
    "model.position": ("learned", "auto"),
    "model.activation": tuple(THEIR_ACTIVATIONS),
    "model.kv_heads": lambda recipe: (None, recipe.model.heads),
    "model.head_dim": lambda recipe: (None, recipe.model.dim // recipe.model.heads),
}


@dataclass
class Written:
    """Model in the format of another library: configuration, weights and notes."""

    config: dict[str, Any]
    tensors: dict[str, Tensor]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class SizeKeys:
    """Names and defaults of the size keys in a config.json; None for a missing key."""

    dim: str = "hidden_size"
    depth: str = "num_hidden_layers"
    heads: str = "num_attention_heads"
    hidden: str = "intermediate_size"
    activation: str | None = "hidden_act"
    norm_epsilon: str = "layer_norm_eps"
    dropout: str | None = "hidden_dropout_prob"
    attention_dropout: str = "attention_probs_dropout_prob"
    default_mlp_ratio: int | None = None
    default_activation: str = "gelu"
    default_epsilon: float = 1e-12
    default_dropout: float = 0.1

    def read(self, config: Config) -> dict[str, Any]:
        """Convert size keys of a configuration to keys of the recipe section `model`."""
        dim = config.size(self.dim)
        hidden = config.size(self.hidden, self.default_mlp_ratio * dim if self.default_mlp_ratio else ABSENT)
        found = {
            "dim": dim,
            "depth": config.size(self.depth),
            "heads": config.size(self.heads),
            "mlp_ratio": hidden / dim,
            "norm_epsilon": config.get(self.norm_epsilon, self.default_epsilon, float),
            "attention_dropout": config.get(self.attention_dropout, self.default_dropout, float, int),
        }
        if self.activation:
            found["activation"] = config.choice(self.activation, ACTIVATIONS, self.default_activation)
        if self.dropout:
            found |= {"dropout": config.get(self.dropout, self.default_dropout, float, int), "hidden_dropout": 0.0}
        return found

    def write(self, model: Any) -> dict[str, Any]:
        """Convert a recipe section `model` to the size keys of the family."""
        epsilon = {"layer": 1e-5, "rms": 1e-6}[model.norm] if model.norm_epsilon is None else model.norm_epsilon
        found = {
            self.dim: model.dim,
            self.depth: model.depth,
            self.heads: model.heads,
            self.hidden: round(model.mlp_ratio * model.dim),
            self.norm_epsilon: epsilon,
            self.attention_dropout: model.dropout if model.attention_dropout is None else model.attention_dropout,
        }
        if self.activation:
            found[self.activation] = THEIR_ACTIVATIONS[model.activation]
        return found | ({self.dropout: model.dropout} if self.dropout else {})


def drop_weights(tensors: dict[str, Tensor], pattern: str, notes: list[str] | None = None) -> None:
    """Remove weights by a pattern of their names, and add a note about the removal."""
    names = sorted(name for name in tensors if re.match(pattern, name))
    for name in names:
        del tensors[name]
    if names and notes is not None:
        more = ", ..." if len(names) > 3 else ""
        notes.append(f"left out: layers of other tasks ({', '.join(names[:3])}{more})")


def refuse_recipe(recipe: Recipe, what: str, needs: Needs) -> None:
    """Refuse a recipe with values outside `needs`.

    what    name of the format, for the error
    needs   recipe key -> allowed value, several allowed values, or a function of the recipe

    Keys that the recipe does not have are ignored.
    """
    for key, fit in {**TRANSFORMER_NEEDS, **needs}.items():
        section, _, name = key.partition(".")
        fit = fit(recipe) if callable(fit) else fit
        fits = fit if isinstance(fit, tuple) else (fit,)
        found = getattr(getattr(recipe, section), name, fits[0])
        if found not in fits:
            choice = " or ".join(format_value(one) for one in fits)
            message = f"{what} needs `{key}: {choice}`, but the recipe has `{key}: {format_value(found)}`"
            other = " --format onnx exports encoders." if recipe.model.kind == "encoder" else ""
            raise UserError(message, hint=f"Hugging Face has no class for this option.{other}", key=key)
