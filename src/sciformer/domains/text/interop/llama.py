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
from ....interop.family import EMBEDDING, READOUT, Family, Sections, Written, drop, given, refuse, tied, without
from ....interop.weight_map import WeightMap, to_theirs
from ....recipe import Recipe

OTHER_TASKS = ("score.", "classifier.", "qa_outputs.")


class Llama(Family):
    """The family."""

    def plain(self, tensors: dict[str, Tensor], config: Config, notes: list[str]) -> dict[str, Tensor]:
        """Plain names; where some layers have biases, zeros for those that have none."""
        found = without(tensors, "model.")
        found = {name: tensor for name, tensor in found.items() if not name.endswith("rotary_emb.inv_freq")}
        drop(found, lambda name: name.startswith(OTHER_TASKS), notes, "layers of other tasks")
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
        groups, head_dim = config.size("num_key_value_heads", heads), config.size("head_dim", dim // heads)
        model = {
            "kind": "decoder",
            "dim": dim,
            "depth": depth,
            "heads": heads,
            "groups": None if groups == heads else groups,
            "head_dim": None if head_dim * heads == dim else head_dim,
            "ratio": config.size("intermediate_size") / dim,
            "activation": "swiglu",
            "norm": "rms",
            "norm_epsilon": config.get("rms_norm_eps", 1e-6, float),
            "bias": any(name.endswith("_proj.bias") for name in tensors),
            "position": "rotary",
            "rotary_base": rotary_base(config),
            "reach": None if window is None else window - 1,
            "attention_dropout": config.get("attention_dropout", 0.0, float, int),
        }
        tie = tied(tensors, "lm_head.weight", "embed_tokens.weight", config, default=False)
        tokens = {"context": config.size("max_position_embeddings", 2048), "tie": tie}
        return {"model": model, "tokens": tokens, "objective": {"kind": "next_token"}}

    def links(self, recipe: Recipe) -> list[WeightMap]:
        """Entrance, blocks, last norm, and the last layer where it is not the embedding."""
        model = recipe.model
        links = [WeightMap(EMBEDDING, ("embed_tokens.weight",))]
        for i in range(model.depth):
            links += _block(f"trunk.blocks.{i}", f"layers.{i}", model)
        links.append(WeightMap("trunk.norm.weight", ("norm.weight",), (model.dim,)))
        if not recipe.tokens.tie:
            links.append(WeightMap(f"{READOUT}.weight", ("lm_head.weight",)))
        return links

    def write(self, recipe: Recipe, weights: dict[str, Tensor]) -> Written:
        """A decoder in their words."""
        model, tokens = recipe.model, recipe.tokens
        wanted = {
            "model.trunk": "transformer",
            "model.order": "pre",
            "model.embedding_norm": False,
            "model.norm": "rms",
            "model.position": "rotary",
            "model.activation": "swiglu",
            "model.qk_norm": "none",
            "model.reach": None,
            "model.readout_layer": False,
            "tokens.scale": False,
            "tokens.bias": False,
        }
        refuse(recipe, "LlamaForCausalLM", wanted)
        named = to_theirs(self.links(recipe), weights)
        base = float(model.rotary_base)
        config = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": len(weights[EMBEDDING]),
            "hidden_size": model.dim,
            "num_hidden_layers": model.depth,
            "num_attention_heads": model.heads,
            "num_key_value_heads": model.groups or model.heads,
            "head_dim": model.head_dim or model.dim // model.heads,
            "intermediate_size": round(model.ratio * model.dim),
            "hidden_act": "silu",
            "rms_norm_eps": given(model.norm_epsilon, 1e-6),
            "max_position_embeddings": tokens.context,
            "rope_theta": base,
            "rope_parameters": {"rope_theta": base, "rope_type": "default"},
            "attention_bias": model.bias,
            "mlp_bias": model.bias,
            "attention_dropout": given(model.attention_dropout, model.dropout),
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


def _block(ours: str, theirs: str, model: Any) -> Iterator[WeightMap]:
    groups, width = model.groups or model.heads, model.head_dim or model.dim // model.heads
    hidden = round(model.ratio * model.dim)
    rows, halves = (model.heads * width, groups * width, groups * width), (model.heads, groups, 0)
    parts = tuple(f"{theirs}.self_attn.{part}_proj" for part in "qkv")
    for kind in ("weight", "bias") if model.bias else ("weight",):
        yield WeightMap(f"{ours}.attention.qkv.{kind}", tuple(f"{part}.{kind}" for part in parts), rows, halves=halves)
        yield WeightMap(f"{ours}.attention.out.{kind}", (f"{theirs}.self_attn.o_proj.{kind}",), (model.dim,))
        gate, up = f"{theirs}.mlp.gate_proj.{kind}", f"{theirs}.mlp.up_proj.{kind}"
        yield WeightMap(f"{ours}.mlp.up.{kind}", (gate, up), (hidden, hidden))
        yield WeightMap(f"{ours}.mlp.down.{kind}", (f"{theirs}.mlp.down_proj.{kind}",), (model.dim,))
    yield WeightMap(f"{ours}.attention_norm.weight", (f"{theirs}.input_layernorm.weight",), (model.dim,))
    yield WeightMap(f"{ours}.mlp_norm.weight", (f"{theirs}.post_attention_layernorm.weight",), (model.dim,))


LLAMA = Llama()
