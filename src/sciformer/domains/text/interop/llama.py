"""LLaMA, Mistral, SmolLM2, Qwen2: RMSNorm, rotary positions, SwiGLU.

Their rotary positions couple the two halves of a head, ours its neighbours. The rows of the matrices that make queries
and keys are put into our order; the products of queries and keys stay what they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ....interop.config import Config
from ....interop.family import SizeKeys
from ....interop.weight_map import WEIGHT
from ....recipe import Recipe
from .family import DECODER_NEEDS, Family, Sections


class Llama(Family):
    """The family."""

    def canonical_names(self, tensors: dict[str, Tensor], config: Config, notes: list[str]) -> dict[str, Tensor]:
        """Plain names; zero biases where only some layers have biases."""
        found = super().canonical_names(tensors, config, notes)
        if any(name.endswith("_proj.bias") for name in found):
            lacking = [name for name in found if name.endswith("_proj.weight") and name[:-6] + "bias" not in found]
            found |= {name[:-6] + "bias": torch.zeros(found[name].shape[0]) for name in lacking}
            if lacking:
                notes.append(f"{len(lacking)} layers without bias have one of zeros")
        return found

    def sections(self, tensors: dict[str, Tensor], config: Config) -> Sections:
        made = super().sections(tensors, config)
        model = made["model"]
        heads, dim = model["heads"], model["dim"]
        config.only("layer_types", ["full_attention"] * model["depth"])
        window = config.get("sliding_window", None)  # others than Mistral only read it with `use_sliding_window`
        windowed = window is not None and config.values.get("model_type") == "mistral"
        kv_heads, head_dim = config.size("num_key_value_heads", heads), config.size("head_dim", dim // heads)
        model |= {
            "kv_heads": None if kv_heads == heads else kv_heads,
            "head_dim": None if head_dim * heads == dim else head_dim,
            "bias": any(name.endswith("_proj.bias") for name in tensors),
            "rotary_base": rotary_base(config),
            "window": window - 1 if windowed else None,
        }
        return made

    def config(self, recipe: Recipe, weights: Mapping[str, Tensor]) -> dict[str, Any]:
        model, base = recipe.model, float(recipe.model.rotary_base)
        return super().config(recipe, weights) | {
            "num_key_value_heads": model.kv_heads or model.heads,
            "head_dim": model.head_dim or model.dim // model.heads,
            "hidden_act": "silu",
            "rope_theta": base,
            "rope_parameters": {"rope_theta": base, "rope_type": "default"},
            "attention_bias": model.bias,
            "mlp_bias": model.bias,
        }


def rotary_base(config: Config) -> float:
    """Base of rotary positions, from any version of a configuration."""
    base = config.get("rope_theta", 10_000.0, float, int)
    for key in ("rope_parameters", "rope_scaling"):
        found: dict[str, Any] = dict(config.get(key, {}, dict))
        base = found.pop("rope_theta", base)
        kind = found.pop("rope_type", found.pop("type", "default"))
        if kind != "default" or any(value is not None for value in found.values()):
            raise config.error(
                f"rotary positions cannot be scaled here: `{key}` in {config.where} must be of the type default, not "
                f"{config.values[key]}"
            )
    return float(base)


LLAMA = Llama(
    name="llama",
    architecture="LlamaForCausalLM",
    prefix="model.",
    dropped=r"score\.|classifier\.|qa_outputs\.",
    buffers=r".*rotary_emb\.inv_freq$",
    embedding="embed_tokens",
    positions="",
    norm="norm",
    blocks="layers.{}.",
    block={
        "attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "attention.out": ("self_attn.o_proj",),
        "attention_norm": ("input_layernorm",),
        "mlp.up": ("mlp.gate_proj", "mlp.up_proj"),
        "mlp.down": ("mlp.down_proj",),
        "mlp_norm": ("post_attention_layernorm",),
    },
    fixed={
        "hidden_act": ("silu", "swish"),
        "mlp_bias": (False, True),  # the weights tell
        "attention_bias": (False, True),
        "use_sliding_window": (False,),
        "partial_rotary_factor": (1, 1.0),
        "rope_interleaved": (False,),
    },
    keys=SizeKeys(
        activation=None,
        norm_epsilon="rms_norm_eps",
        dropout=None,
        attention_dropout="attention_dropout",
        default_epsilon=1e-6,
        default_dropout=0.0,
    ),
    model={"kind": "decoder", "activation": "swiglu", "norm": "rms", "position": "rotary"},
    context=("max_position_embeddings", 2048),
    tied=False,
    biased=False,
    norm_suffixes=WEIGHT,
    needs={**DECODER_NEEDS, "model.norm": "rms", "model.position": "rotary", "model.activation": "swiglu"},
)
