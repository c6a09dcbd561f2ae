"""BERT and RoBERTa: encoders that were asked for hidden words (arXiv 1810.04805, 1907.11692).

Their embedding adds three vectors, word + position + segment. Texts here are one segment, so the vector of the first
segment is added to the table of positions, once and for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
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
    encoder_keys,
    refuse_recipe,
    remove_prefix,
    tie_embedding,
)
from ....interop.weight_map import WeightMap, to_theirs
from ....recipe import Recipe

WORD_EMBEDDINGS = "embeddings.word_embeddings.weight"
POSITION_EMBEDDINGS = "embeddings.position_embeddings.weight"
SEGMENT_EMBEDDINGS = "embeddings.token_type_embeddings.weight"
HEAD_PREFIXES = ("readout.", "heads.", "pooling.")  # of ours, what comes behind the trunk
OTHER_TASKS = ("pooler.", "cls.seq_relationship.", "classifier.", "qa_outputs.")


@dataclass(frozen=True)
class Bert(Family):
    """The family, as one of its two names has it.

    prefix   of the trunk's weights in models with a head
    dense, norm, decoder, bias    weights of the head for hidden words
    offset   whether places count from behind the padding's number
    """

    name: str
    title: str
    prefix: str
    dense: str
    norm: str
    decoder: str
    bias: str
    offset: bool = False

    def canonical_names(self, tensors: dict[str, Tensor], config: Config, notes: list[str]) -> dict[str, Tensor]:
        """Plain names; positions with the first segment in them."""
        found = remove_prefix(tensors, self.prefix)
        for old, new in ((".gamma", ".weight"), (".beta", ".bias")):  # of checkpoints from TensorFlow
            found = {name.replace(f"LayerNorm{old}", f"LayerNorm{new}"): tensor for name, tensor in found.items()}
        found.pop("embeddings.position_ids", None)
        found.pop("embeddings.token_type_ids", None)
        drop_weights(found, lambda name: name.startswith(OTHER_TASKS), notes, "layers of other tasks")
        if f"{self.dense}.weight" not in found:
            notes.append("there is no head for hidden words: it can embed and be fine-tuned, but names no words yet")
        if f"{self.decoder}.bias" in found:
            found[self.bias] = found.pop(f"{self.decoder}.bias")
        if POSITION_EMBEDDINGS in found and SEGMENT_EMBEDDINGS in found:
            first = config.get("pad_token_id", 1) + 1 if self.offset else 0
            segments = found.pop(SEGMENT_EMBEDDINGS)
            found[POSITION_EMBEDDINGS] = found[POSITION_EMBEDDINGS][first:] + segments[0]
            if len(segments) > 1:
                notes.append("texts are one segment; the vectors of further segments are left out")
        return found

    def sections(self, tensors: dict[str, Tensor], config: Config) -> Sections:
        """An encoder with its norms behind, asked for hidden words."""
        config.only("position_embedding_type", "absolute")
        config.only("is_decoder", False)
        config.only("add_cross_attention", False)
        config.only("directionality", "bidi")
        config.get("type_vocab_size", 2)
        dim = config.size("hidden_size")
        head = f"{self.dense}.weight" in tensors
        tie = tie_embedding(tensors, f"{self.decoder}.weight", WORD_EMBEDDINGS, config, default=True)
        first = config.get("pad_token_id", 1) + 1 if self.offset else 0
        model = {
            "kind": "encoder",
            "dim": dim,
            "depth": config.size("num_hidden_layers"),
            "heads": config.size("num_attention_heads"),
            "mlp_ratio": config.size("intermediate_size") / dim,
            "activation": config.choice("hidden_act", ACTIVATIONS, "gelu"),
            "norm_epsilon": config.get("layer_norm_eps", 1e-12, float),
            "embedding_norm": True,
            "norm_position": "post",
            "position": "learned",
            "readout_layer": head,
            "dropout": config.get("hidden_dropout_prob", 0.1, float, int),
            "attention_dropout": config.get("attention_probs_dropout_prob", 0.1, float, int),
            "hidden_dropout": 0.0,
        }
        tokens = {
            "context": config.size("max_position_embeddings", 512) - first,
            "tie": tie or not head,
            "bias": head,
        }
        objective = {"kind": "masked", "mask_ratio": 0.15, "random": 0.1, "same": 0.1}
        return {"model": model, "tokens": tokens, "objective": objective}

    def links(self, recipe: Recipe) -> list[WeightMap]:
        """Entrance, blocks, and the head where there is one."""
        model, tokens = recipe.model, recipe.tokens
        dim = model.dim
        links = [
            WeightMap(EMBEDDING_WEIGHT, (WORD_EMBEDDINGS,)),
            WeightMap(POSITION_WEIGHT, (POSITION_EMBEDDINGS,)),
            *_norm_links("trunk.embedding_norm", "embeddings.LayerNorm", dim),
        ]
        for i in range(model.depth):
            links += _block_links(f"trunk.blocks.{i}", f"encoder.layer.{i}", dim, round(model.mlp_ratio * dim))
        if model.readout_layer:
            links += _linear_links("readout.layer", (self.dense,), (dim,))
            links += _norm_links("readout.norm", self.norm, dim)
        inner = f"readout.{READOUT_LAYER}" if model.readout_layer else READOUT_LAYER
        if tokens.bias:
            links.append(WeightMap(f"{inner}.bias", (self.bias,)))
        if not tokens.tie:
            links.append(WeightMap(f"{inner}.weight", (f"{self.decoder}.weight",)))
        return links

    def write(self, recipe: Recipe, weights: dict[str, Tensor]) -> Written:
        """An encoder in their words; without their head where ours is another."""
        model, tokens = recipe.model, recipe.tokens
        wanted = {
            "model.trunk": "transformer",
            "model.norm_position": "post",
            "model.embedding_norm": True,
            "model.norm": "layer",
            "model.position": ("learned", "auto"),
            "model.activation": tuple(THEIR_ACTIVATIONS),
            "model.qk_norm": "none",
            "model.kv_heads": (None, model.heads),
            "model.head_dim": (None, model.dim // model.heads),
            "model.window": None,
            "model.pool": ("auto", "mean", "max", "first", "last", "class_attention", "attention"),
            "tokens.scale": False,
        }
        refuse_recipe(recipe, self.title, wanted)
        links, notes = self.links(recipe), []
        whole = model.readout_layer and recipe.objective.kind == "masked"
        if not whole:
            links = [link for link in links if not link.ours.startswith(HEAD_PREFIXES)]
            weights = {name: tensor for name, tensor in weights.items() if not name.startswith(HEAD_PREFIXES)}
            notes = [
                "only the encoder: the head of BERT takes `objective.kind: masked` and `model.readout_layer: true`"
            ]
        named = to_theirs(links, weights)
        named[SEGMENT_EMBEDDINGS] = torch.zeros(1, model.dim)
        if whole:
            named.setdefault(self.bias, torch.zeros(len(weights[EMBEDDING_WEIGHT])))
            named[f"{self.decoder}.bias"] = named[self.bias].clone()  # read where nothing is tied
            head = (self.dense, self.norm, self.decoder, self.bias)
            named = {name if name.startswith(head) else self.prefix + name: named[name] for name in named}
        config = {
            "architectures": [f"{self.title}ForMaskedLM" if whole else f"{self.title}Model"],
            "model_type": self.name,
            "vocab_size": len(weights[EMBEDDING_WEIGHT]),
            **encoder_keys(model),
            "max_position_embeddings": len(weights[POSITION_WEIGHT]),
            "type_vocab_size": 1,
            "position_embedding_type": "absolute",
            "tie_word_embeddings": tokens.tie,
        }
        return Written(config, named, notes)


def _block_links(ours: str, theirs: str, dim: int, hidden: int) -> Iterator[WeightMap]:
    parts = tuple(f"{theirs}.attention.self.{part}" for part in ("query", "key", "value"))
    yield from _linear_links(f"{ours}.attention.qkv", parts, (dim, dim, dim))
    yield from _linear_links(f"{ours}.attention.out", (f"{theirs}.attention.output.dense",), (dim,))
    yield from _norm_links(f"{ours}.attention_norm", f"{theirs}.attention.output.LayerNorm", dim)
    yield from _linear_links(f"{ours}.mlp.up", (f"{theirs}.intermediate.dense",), (hidden,))
    yield from _linear_links(f"{ours}.mlp.down", (f"{theirs}.output.dense",), (dim,))
    yield from _norm_links(f"{ours}.mlp_norm", f"{theirs}.output.LayerNorm", dim)


def _linear_links(ours: str, theirs: tuple[str, ...], rows: tuple[int, ...]) -> Iterator[WeightMap]:
    yield WeightMap(f"{ours}.weight", tuple(f"{name}.weight" for name in theirs), rows)
    yield WeightMap(f"{ours}.bias", tuple(f"{name}.bias" for name in theirs), rows, zeros=True)


def _norm_links(ours: str, theirs: str, dim: int) -> Iterator[WeightMap]:
    yield from _linear_links(ours, (theirs,), (dim,))


BERT = Bert(
    name="bert",
    title="Bert",
    prefix="bert.",
    dense="cls.predictions.transform.dense",
    norm="cls.predictions.transform.LayerNorm",
    decoder="cls.predictions.decoder",
    bias="cls.predictions.bias",
)
ROBERTA = Bert(
    name="roberta",
    title="Roberta",
    prefix="roberta.",
    dense="lm_head.dense",
    norm="lm_head.layer_norm",
    decoder="lm_head.decoder",
    bias="lm_head.bias",
    offset=True,
)
