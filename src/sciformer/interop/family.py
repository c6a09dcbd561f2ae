"""What a family of models of others answers, so that one of its folders can become a run, and a run such a folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ..errors import UserError
from ..recipe import Recipe
from .config import Config, format_value
from .weight_map import WeightMap

Sections = dict[str, dict[str, Any]]
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}
THEIR_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu"}  # the way back

EMBEDDING_WEIGHT = "entrance.embedding.table.weight"
POSITION_WEIGHT = "trunk.position.table"
READOUT_LAYER = "readout.linear"
UNSUPPORTED_ELSEWHERE = {
    "model.residual": True,
    "model.periods": None,
    "model.rotary_share": 1.0,
    "model.rotary_values": False,
}
UNSUPPORTED_ELSEWHERE |= {"model.readout_norm": False, "model.compress": None}


@dataclass
class Written:
    """A run in the words of others: their configuration, their weights, and what there is to say."""

    config: dict[str, Any]
    tensors: dict[str, Tensor]
    notes: list[str] = field(default_factory=list)


class Family:
    """A kind of model of others. Abstract: see bert.py, gpt2.py and llama.py."""

    def canonical_names(self, tensors: dict[str, Tensor], config: Config, notes: list[str]) -> dict[str, Tensor]:
        """Their weights under plain names; what is known to be of no use here is left out, and said in `notes`."""
        raise NotImplementedError

    def sections(self, tensors: dict[str, Tensor], config: Config) -> Sections:
        """The sections `model`, `tokens` (without its vocabulary) and `objective` of a recipe."""
        raise NotImplementedError

    def links(self, recipe: Recipe) -> list[WeightMap]:
        """Which weights of ours are which of theirs, under plain names."""
        raise NotImplementedError

    def write(self, recipe: Recipe, weights: dict[str, Tensor]) -> Written:
        """A run in their words; refused where they have none for it."""
        raise NotImplementedError


def or_default(value: float | None, default: float) -> float:
    """A value, or what stands for none."""
    return default if value is None else value


def encoder_keys(model: Any) -> dict[str, Any]:
    """Their keys for the size of an encoder, in the words of BERT."""
    return {
        "hidden_size": model.dim,
        "num_hidden_layers": model.depth,
        "num_attention_heads": model.heads,
        "intermediate_size": round(model.mlp_ratio * model.dim),
        "hidden_act": THEIR_ACTIVATIONS[model.activation],
        "hidden_dropout_prob": model.dropout,
        "attention_probs_dropout_prob": or_default(model.attention_dropout, model.dropout),
        "layer_norm_eps": or_default(model.norm_epsilon, 1e-5),
    }


def remove_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The weights with a prefix taken off the names that have it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}


def drop_weights(tensors: dict[str, Tensor], wanted: Any, notes: list[str], what: str) -> None:
    """Leave weights out, and say so."""
    names = sorted(name for name in tensors if wanted(name))
    for name in names:
        del tensors[name]
    if names:
        notes.append(f"left out: {what} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})")


def tie_embedding(tensors: dict[str, Tensor], head: str, embedding: str, config: Config, default: bool) -> bool:
    """Whether the last layer is the embedding itself; a copy of it under the name `head` is removed."""
    tie = bool(config.get("tie_word_embeddings", default, bool))
    if tie and head in tensors and embedding in tensors:
        if not tensors[head].equal(tensors[embedding]):
            raise UserError(
                f"`{head}` differs from `{embedding}`, though {config.where} has `tie_word_embeddings: true`",
                file=config.file,
            )
        del tensors[head]
    return tie


def refuse_recipe(recipe: Recipe, what: str, wanted: dict[str, Any]) -> None:
    """Refuse a recipe whose keys differ from what a class of others needs; a tuple holds several fit values."""
    for key, fit in {**wanted, **UNSUPPORTED_ELSEWHERE}.items():
        section, _, name = key.partition(".")
        fits = fit if isinstance(fit, tuple) else (fit,)
        found = getattr(getattr(recipe, section), name, fits[0])  # keys of another trunk or position are not there
        if found not in fits:
            choice = " or ".join(format_value(one) for one in fits)
            raise UserError(
                f"{what} needs `{key}: {choice}`, not `{key}: {format_value(found)}`",
                hint="Hugging Face has no class for that.",
                key=key,
            )
