"""BERT and RoBERTa: encoders for hidden words (arXiv 1810.04805, 1907.11692).

Their embedding adds three vectors, word + position + segment. Texts here are one segment, so the vector of the first
segment is added to the table of positions, once and for all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ....interop.config import Config
from ....interop.family import PLAIN_NEEDS, SizeKeys, Written, refuse_recipe
from ....interop.weight_map import WeightMap, layer, to_theirs
from ....recipe import Recipe
from .family import EMBEDDING_WEIGHT, READOUT_LAYER, Family, Sections, tie_embedding

SEGMENT_EMBEDDINGS = "embeddings.token_type_embeddings.weight"
HEAD_PREFIXES = ("readout.", "heads.", "pooling.")  # of ours, what comes behind the trunk


@dataclass(frozen=True)
class Bert(Family):
    """The family, as one of its two names has it.

    dense, head_norm, decoder, bias    weights of the head for hidden words
    offset   whether places count from behind the padding's number
    """

    dense: str = "cls.predictions.transform.dense"
    head_norm: str = "cls.predictions.transform.LayerNorm"
    decoder: str = "cls.predictions.decoder"
    bias: str = "cls.predictions.bias"
    offset: bool = False

    def canonical_names(self, tensors: dict[str, Tensor], config: Config, notes: list[str]) -> dict[str, Tensor]:
        found = super().canonical_names(tensors, config, notes)
        for old, new in ((".gamma", ".weight"), (".beta", ".bias")):  # of checkpoints from TensorFlow
            found = {name.replace(f"LayerNorm{old}", f"LayerNorm{new}"): tensor for name, tensor in found.items()}
        if f"{self.dense}.weight" not in found:
            notes.append("there is no head for hidden words: it can embed and be fine-tuned, but names no words yet")
        if f"{self.decoder}.bias" in found:
            found[self.bias] = found.pop(f"{self.decoder}.bias")
        positions = f"{self.positions}.weight"
        if positions in found and SEGMENT_EMBEDDINGS in found:
            segments = found.pop(SEGMENT_EMBEDDINGS)
            found[positions] = found[positions][self._first_place(config) :] + segments[0]
            if len(segments) > 1:
                notes.append("texts are one segment; the vectors of further segments are left out")
        return found

    def _first_place(self, config: Config) -> int:
        return int(config.get("pad_token_id", 1)) + 1 if self.offset else 0

    def sections(self, tensors: dict[str, Tensor], config: Config) -> Sections:
        """An encoder with its norms behind, asked for hidden words."""
        head = f"{self.dense}.weight" in tensors
        tie = tie_embedding(tensors, f"{self.decoder}.weight", f"{self.embedding}.weight", config, default=True)
        config.get("type_vocab_size", 2)
        made = super().sections(tensors, config)
        made["model"]["readout_layer"] = head
        context = made["tokens"]["context"] - self._first_place(config)
        made["tokens"] = {"context": context, "tie": tie or not head, "bias": head}
        return made | {"objective": {"kind": "masked", "mask_ratio": 0.15, "random": 0.1, "same": 0.1}}

    def links(self, recipe: Recipe) -> list[WeightMap]:
        model, tokens = recipe.model, recipe.tokens
        links = [*self.trunk_links(model), *layer("trunk.embedding_norm", self.norm, rows=(model.dim,))]
        if model.readout_layer:
            links += layer("readout.layer", self.dense, rows=(model.dim,))
            links += layer("readout.norm", self.head_norm, rows=(model.dim,))
        inner = f"readout.{READOUT_LAYER}" if model.readout_layer else READOUT_LAYER
        if tokens.bias:
            links.append(WeightMap(f"{inner}.bias", (self.bias,)))
        if not tokens.tie:
            links.append(WeightMap(f"{inner}.weight", (f"{self.decoder}.weight",)))
        return links

    def write(self, recipe: Recipe, weights: dict[str, Tensor]) -> Written:
        """An encoder in their words; without their head where ours is another."""
        refuse_recipe(recipe, self.architecture, self.needs)
        links, notes = self.links(recipe), []
        whole = recipe.model.readout_layer and recipe.objective.kind == "masked"
        if not whole:
            links = [link for link in links if not link.ours.startswith(HEAD_PREFIXES)]
            weights = {name: tensor for name, tensor in weights.items() if not name.startswith(HEAD_PREFIXES)}
            notes = ["only the encoder: the head needs `objective.kind: masked` and `model.readout_layer: true`"]
        named = to_theirs(links, weights)
        named[SEGMENT_EMBEDDINGS] = torch.zeros(1, recipe.model.dim)
        config = self.config(recipe, weights) | {"type_vocab_size": 1, "position_embedding_type": "absolute"}
        config["architectures"] = [f"{self.architecture}ForMaskedLM" if whole else f"{self.architecture}Model"]
        if whole:
            named.setdefault(self.bias, torch.zeros(len(weights[EMBEDDING_WEIGHT])))
            named[f"{self.decoder}.bias"] = named[self.bias].clone()  # read where nothing is tied
            head = (self.dense, self.head_norm, self.decoder, self.bias)
            named = {name if name.startswith(head) else self.prefix + name: named[name] for name in named}
        return Written(config, named, notes)


BERT = Bert(
    name="bert",
    architecture="Bert",
    prefix="bert.",
    dropped=r"pooler\.|cls\.seq_relationship\.|classifier\.|qa_outputs\.",
    buffers=r"embeddings\.(position_ids|token_type_ids)$",
    embedding="embeddings.word_embeddings",
    positions="embeddings.position_embeddings",
    norm="embeddings.LayerNorm",
    blocks="encoder.layer.{}.",
    block={
        "attention.qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
        "attention.out": ("attention.output.dense",),
        "attention_norm": ("attention.output.LayerNorm",),
        "mlp.up": ("intermediate.dense",),
        "mlp.down": ("output.dense",),
        "mlp_norm": ("output.LayerNorm",),
    },
    fixed={
        "position_embedding_type": ("absolute",),
        "is_decoder": (False,),
        "add_cross_attention": (False,),
        "directionality": ("bidi",),
    },
    keys=SizeKeys(),
    model={"kind": "encoder", "position": "learned", "norm_position": "post", "embedding_norm": True},
    context=("max_position_embeddings", 512),
    needs={
        **PLAIN_NEEDS,
        "model.norm_position": "post",
        "model.embedding_norm": True,
        "model.pool": ("auto", "mean", "max", "first", "last", "class_attention", "attention"),
        "tokens.scale": False,
    },
)
ROBERTA = replace(
    BERT,
    name="roberta",
    architecture="Roberta",
    prefix="roberta.",
    dense="lm_head.dense",
    head_norm="lm_head.layer_norm",
    decoder="lm_head.decoder",
    bias="lm_head.bias",
    offset=True,
)
