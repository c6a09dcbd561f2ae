"""LLaMA and its kin (Mistral, SmolLM2, Qwen2): decoders with RMSNorm, rotary positions, SwiGLU and shared key-values.

Their rotary positions couple the two halves of a head, ours its neighbours. The rows of the matrices that make queries
and keys are put into our order; the products of queries and keys stay what they were.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ....errors import UserError
from ....interop.config import Config
from ....interop.family import (
    EMBEDDING_WEIGHT,
    READOUT_LAYER,
    Family,
    Sections,
    Written,
    drop_weights,
    or_default,
    refuse_recipe,
    remove_prefix,
    tie_embedding,
)
from ....interop.weight_map import WeightMap, to_theirs
from ....recipe import Recipe

OTHER_TASKS = ("score.", "classifier.", "qa_outputs.")


class Llama(Family):
    """The family."""

    def canonical_names(self, tensors: dict[str, Tensor], config: Config, notes: list[str]) -> dict[str, Tensor]:
        """Plain names; where some layers have biases, zeros for those that have none."""
        found = remove_prefix(tensors, "model.")
        found = {name: tensor for name, tensor in found.items() if not name.endswith("rotary_emb.inv_freq")}
        drop_weights(found, lambda name: name.startswith(OTHER_TASKS), notes, "layers of other tasks")
        if any(name.endswith("_proj.bias") for name in found):
            lacking = [name for name in found if name.endswith("_proj.weight") and name[:-6] + "bias" not in found]
            found |= {name[:-6] + "bias": torch.zeros(found[name].shape[0]) for name in lacking}
            if lacking:
                notes.append(f"{len(lacking)} layers without bias have one of zeros")
        return found

    def sections(self, tensors: dict[str, Tensor], config: Config) -> Sections:
        """A decoder, asked for the next token."""
        config.only("hidden_act", "silu", "swish")
        config.only("mlp_bias", False, True)  # the weights tell
        config.only("attention_bias", False, True)
        config.only("use_sliding_window", False)
        config.only("partial_rotary_factor", 1, 1.0)
        config.only("rope_interleaved", False)
        dim, depth, heads = (config.size(key) for key in ("hidden_size", "num_hidden_layers", "num_attention_heads"))
        config.only("layer_types", ["full_attention"] * depth)
        window = config.get("sliding_window", None)
        if config.values.get("model_type") != "mistral":
            window = None  # only read with `use_sliding_window`
        kv_heads, head_dim = config.size("num_key_value_heads", heads), config.size("head_dim", dim // heads)
        model = {
            "kind": "decoder",
            "dim": dim,
            "depth": depth,
            "heads": heads,
            "kv_heads": None if kv_heads == heads else kv_heads,
            "head_dim": None if head_dim * heads == dim else head_dim,
            "mlp_ratio": config.size("intermediate_size") / dim,
            "activation": "swiglu",
            "norm": "rms",
            "norm_epsilon": config.get("rms_norm_eps", 1e-6, float),
            "bias": any(name.endswith("_proj.bias") for name in tensors),
            "position": "rotary",
            "rotary_base": rotary_base(config),
            "window": None if window is None else window - 1,
            "attention_dropout": config.get("attention_dropout", 0.0, float, int),
        }
        tie = tie_embedding(tensors, "lm_head.weight", "embed_tokens.weight", config, default=False)
        tokens = {"context": config.size("max_position_embeddings", 2048), "tie": tie}
        return {"model": model, "tokens": tokens, "objective": {"kind": "next_token"}}

    def links(self, recipe: Recipe) -> list[WeightMap]:
        """Entrance, blocks, last norm, and the last layer where it is not the embedding."""
        model = recipe.model
        links = [WeightMap(EMBEDDING_WEIGHT, ("embed_tokens.weight",))]
        for i in range(model.depth):
            links += _block_links(f"trunk.blocks.{i}", f"layers.{i}", model)
        links.append(WeightMap("trunk.norm.weight", ("norm.weight",), (model.dim,)))
        if not recipe.tokens.tie:
            links.append(WeightMap(f"{READOUT_LAYER}.weight", ("lm_head.weight",)))
        return links

    def write(self, recipe: Recipe, weights: dict[str, Tensor]) -> Written:
        """A decoder in their words."""
        model, tokens = recipe.model, recipe.tokens
        wanted = {
            "model.trunk": "transformer",
            "model.norm_position": "pre",
            "model.embedding_norm": False,
            "model.norm": "rms",
            "model.position": "rotary",
            "model.activation": "swiglu",
            "model.qk_norm": "none",
            "model.window": None,
            "model.readout_layer": False,
            "tokens.scale": False,
            "tokens.bias": False,
        }
        refuse_recipe(recipe, "LlamaForCausalLM", wanted)
        named = to_theirs(self.links(recipe), weights)
        base = float(model.rotary_base)
        config = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": len(weights[EMBEDDING_WEIGHT]),
            "hidden_size": model.dim,
            "num_hidden_layers": model.depth,
            "num_attention_heads": model.heads,
            "num_key_value_heads": model.kv_heads or model.heads,
            "head_dim": model.head_dim or model.dim // model.heads,
            "intermediate_size": round(model.mlp_ratio * model.dim),
            "hidden_act": "silu",
            "rms_norm_eps": or_default(model.norm_epsilon, 1e-6),
            "max_position_embeddings": tokens.context,
            "rope_theta": base,
            "rope_parameters": {"rope_theta": base, "rope_type": "default"},
            "attention_bias": model.bias,
            "mlp_bias": model.bias,
            "attention_dropout": or_default(model.attention_dropout, model.dropout),
            "tie_word_embeddings": tokens.tie,
        }
        whole = {name if name == "lm_head.weight" else f"model.{name}": named[name] for name in named}
        return Written(config, whole)


def rotary_base(config: Config) -> float:
    """The base of rotary positions, wherever this age of configuration keeps it; scaled positions are refused."""
    base = config.get("rope_theta", 10_000.0, float, int)
    for key in ("rope_parameters", "rope_scaling"):
        found: dict[str, Any] = dict(config.get(key, {}, dict))
        base = found.pop("rope_theta", base)
        kind = found.pop("rope_type", found.pop("type", "default"))
        if kind != "default" or any(value is not None for value in found.values()):
            raise UserError(
                f"rotary positions cannot be scaled here: `{key}` in {config.where} must be of the type default, not "
                f"{config.values[key]}",
                file=config.file,
            )
    return float(base)


def _block_links(ours: str, theirs: str, model: Any) -> Iterator[WeightMap]:
    kv_heads, width = model.kv_heads or model.heads, model.head_dim or model.dim // model.heads
    hidden = round(model.mlp_ratio * model.dim)
    rows, rope_halves = (model.heads * width, kv_heads * width, kv_heads * width), (model.heads, kv_heads, 0)
    parts = tuple(f"{theirs}.self_attn.{part}_proj" for part in "qkv")
    for kind in ("weight", "bias") if model.bias else ("weight",):
        yield WeightMap(
            f"{ours}.attention.qkv.{kind}", tuple(f"{part}.{kind}" for part in parts), rows, rope_halves=rope_halves
        )
        yield WeightMap(f"{ours}.attention.out.{kind}", (f"{theirs}.self_attn.o_proj.{kind}",), (model.dim,))
        gate, up = f"{theirs}.mlp.gate_proj.{kind}", f"{theirs}.mlp.up_proj.{kind}"
        yield WeightMap(f"{ours}.mlp.up.{kind}", (gate, up), (hidden, hidden))
        yield WeightMap(f"{ours}.mlp.down.{kind}", (f"{theirs}.mlp.down_proj.{kind}",), (model.dim,))
    yield WeightMap(f"{ours}.attention_norm.weight", (f"{theirs}.input_layernorm.weight",), (model.dim,))
    yield WeightMap(f"{ours}.mlp_norm.weight", (f"{theirs}.post_attention_layernorm.weight",), (model.dim,))


LLAMA = Llama()
