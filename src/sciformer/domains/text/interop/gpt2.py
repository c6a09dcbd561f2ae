"""GPT-2: a decoder with learned positions and its norms in front; its matrices are stored as (inputs, outputs)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torch import Tensor

from ....interop.config import Config
from ....interop.family import (
    ACTIVATIONS,
    EMBEDDING_WEIGHT,
    POSITION_WEIGHT,
    READOUT_LAYER,
    THEIR_ACTIVATIONS,
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

MASK_BUFFERS = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")  # buffers, not weights
OTHER_TASKS = ("score.", "multiple_choice_head.", "classifier.")


class Gpt2(Family):
    """The family."""

    def canonical_names(self, tensors: dict[str, Tensor], config: Config, notes: list[str]) -> dict[str, Tensor]:
        """Plain names, without the stored masks."""
        found = remove_prefix(tensors, "transformer.")
        found = {name: tensor for name, tensor in found.items() if not MASK_BUFFERS.fullmatch(name)}
        drop_weights(found, lambda name: name.startswith(OTHER_TASKS), notes, "layers of other tasks")
        return found

    def sections(self, tensors: dict[str, Tensor], config: Config) -> Sections:
        """A decoder, asked for the next token."""
        config.only("scale_attn_weights", True)
        config.only("scale_attn_by_inverse_layer_idx", False)
        config.only("add_cross_attention", False)
        config.only("n_ctx", config.size("n_positions", 1024))
        config.get("embd_pdrop", 0.1, float, int)
        dim = config.size("n_embd")
        model = {
            "kind": "decoder",
            "dim": dim,
            "depth": config.size("n_layer"),
            "heads": config.size("n_head"),
            "mlp_ratio": config.size("n_inner", 4 * dim) / dim,
            "activation": config.choice("activation_function", ACTIVATIONS, "gelu_new"),
            "norm_epsilon": config.get("layer_norm_epsilon", 1e-5, float),
            "position": "learned",
            "dropout": config.get("resid_pdrop", 0.1, float, int),
            "attention_dropout": config.get("attn_pdrop", 0.1, float, int),
            "hidden_dropout": 0.0,
        }
        tie = tie_embedding(tensors, "lm_head.weight", "wte.weight", config, default=True)
        tokens = {"context": config.size("n_positions", 1024), "tie": tie}
        return {"model": model, "tokens": tokens, "objective": {"kind": "next_token"}}

    def links(self, recipe: Recipe) -> list[WeightMap]:
        """Entrance, blocks, last norm, and the last layer where it is not the embedding."""
        model = recipe.model
        links = [WeightMap(EMBEDDING_WEIGHT, ("wte.weight",)), WeightMap(POSITION_WEIGHT, ("wpe.weight",))]
        for i in range(model.depth):
            links += _block_links(f"trunk.blocks.{i}", f"h.{i}", model.dim, round(model.mlp_ratio * model.dim))
        links += _norm_links("trunk.norm", "ln_f", model.dim)
        if not recipe.tokens.tie:
            links.append(WeightMap(f"{READOUT_LAYER}.weight", ("lm_head.weight",)))
        return links

    def write(self, recipe: Recipe, weights: dict[str, Tensor]) -> Written:
        """A decoder in their words; biases it lacks are zeros."""
        model, tokens = recipe.model, recipe.tokens
        wanted = {
            "model.trunk": "transformer",
            "model.norm_position": "pre",
            "model.embedding_norm": False,
            "model.norm": "layer",
            "model.position": ("learned", "auto"),
            "model.activation": tuple(THEIR_ACTIVATIONS),
            "model.qk_norm": "none",
            "model.kv_heads": (None, model.heads),
            "model.head_dim": (None, model.dim // model.heads),
            "model.window": None,
            "model.readout_layer": False,
            "tokens.scale": False,
            "tokens.bias": False,
        }
        refuse_recipe(recipe, "GPT2LMHeadModel", wanted)
        named = to_theirs(self.links(recipe), weights)
        config = {
            "architectures": ["GPT2LMHeadModel"],
            "model_type": "gpt2",
            "vocab_size": len(weights[EMBEDDING_WEIGHT]),
            "n_embd": model.dim,
            "n_layer": model.depth,
            "n_head": model.heads,
            "n_inner": round(model.mlp_ratio * model.dim),
            "n_positions": len(weights[POSITION_WEIGHT]),
            "activation_function": THEIR_ACTIVATIONS[model.activation],
            "layer_norm_epsilon": or_default(model.norm_epsilon, 1e-5),
            "resid_pdrop": model.dropout,
            "embd_pdrop": model.dropout,
            "attn_pdrop": or_default(model.attention_dropout, model.dropout),
            "tie_word_embeddings": tokens.tie,
        }
        whole = {name if name == "lm_head.weight" else f"transformer.{name}": named[name] for name in named}
        return Written(config, whole)


def _block_links(ours: str, theirs: str, dim: int, hidden: int) -> Iterator[WeightMap]:
    yield from _linear_links(f"{ours}.attention.qkv", f"{theirs}.attn.c_attn", 3 * dim)
    yield from _linear_links(f"{ours}.attention.out", f"{theirs}.attn.c_proj", dim)
    yield from _norm_links(f"{ours}.attention_norm", f"{theirs}.ln_1", dim)
    yield from _linear_links(f"{ours}.mlp.up", f"{theirs}.mlp.c_fc", hidden)
    yield from _linear_links(f"{ours}.mlp.down", f"{theirs}.mlp.c_proj", dim)
    yield from _norm_links(f"{ours}.mlp_norm", f"{theirs}.ln_2", dim)


def _linear_links(ours: str, theirs: str, rows: int) -> Iterator[WeightMap]:
    yield WeightMap(f"{ours}.weight", (f"{theirs}.weight",), (rows,), transposed=True)
    yield WeightMap(f"{ours}.bias", (f"{theirs}.bias",), (rows,), zeros=True)


def _norm_links(ours: str, theirs: str, rows: int) -> Iterator[WeightMap]:
    yield WeightMap(f"{ours}.weight", (f"{theirs}.weight",), (rows,))
    yield WeightMap(f"{ours}.bias", (f"{theirs}.bias",), (rows,), zeros=True)


GPT2 = Gpt2()
