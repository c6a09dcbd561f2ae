"""Families of language models of Hugging Face, each one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ....interop.config import Config
from ....interop.family import POSITION_WEIGHT, PRE_NORM_NEEDS, SizeKeys, Written, drop_weights, refuse_recipe
from ....interop.weight_map import LAYER, WEIGHT, Suffixes, WeightMap, block_links, layer, to_theirs
from ....recipe import Recipe

Sections = dict[str, dict[str, Any]]
DECODER_NEEDS = {**PRE_NORM_NEEDS, "model.readout_layer": False, "tokens.scale": False, "tokens.bias": False}
EMBEDDING_WEIGHT = "entrance.embedding.table.weight"
READOUT_LAYER = "readout.linear"
HEAD = "lm_head"


@dataclass(frozen=True)
class Family:
    """A kind of language model: names of its weights, keys of its configuration.

    name, architecture   `model_type` and class that are written
    prefix       before the names of the trunk's weights in models with a head
    dropped      pattern of weights of other tasks, and of buffers, which are left out unsaid
    embedding, positions, norm   their layers; no positions where these are not learned
    block        our layers in a block, and theirs, which stand behind `blocks`
    transposed   matrices are stored as (inputs, outputs)
    biased       layers have biases always, not only where ours have some
    fixed        keys of the configuration that must have one of these values
    model        keys of the section `model` that all models of the family have
    context      key and default of the tokens that can be seen at once
    tied         whether the last layer is the embedding where the configuration says nothing
    needs        keys of recipes that have a class there
    """

    name: str
    architecture: str
    prefix: str
    dropped: str
    buffers: str
    embedding: str
    positions: str
    norm: str
    blocks: str
    block: Mapping[str, tuple[str, ...]]
    fixed: Mapping[str, tuple[Any, ...]]
    keys: SizeKeys
    model: Mapping[str, Any]
    context: tuple[str, int]
    needs: Mapping[str, Any]
    norm_suffixes: Suffixes = field(default_factory=lambda: LAYER)
    transposed: bool = False
    biased: bool = True
    tied: bool = True

    def canonical_names(self, tensors: dict[str, Tensor], config: Config, notes: list[str]) -> dict[str, Tensor]:
        """Their weights under plain names, without layers of other tasks."""
        found = {name.removeprefix(self.prefix): tensor for name, tensor in tensors.items()}
        drop_weights(found, self.buffers)
        drop_weights(found, self.dropped, notes)
        return found

    def sections(self, tensors: dict[str, Tensor], config: Config) -> Sections:
        """The sections `model`, `tokens` (without a vocabulary) and `objective`."""
        for key, values in self.fixed.items():
            config.only(key, *values)
        tie = tie_embedding(tensors, f"{HEAD}.weight", f"{self.embedding}.weight", config, self.tied)
        tokens, model = {"context": config.size(*self.context), "tie": tie}, {**self.model, **self.keys.read(config)}
        return {"model": model, "tokens": tokens, "objective": {"kind": "next_token"}}

    def links(self, recipe: Recipe) -> list[WeightMap]:
        """The weight map: trunk, last norm, and the last layer if it is not tied."""
        norm = layer("trunk.norm", self.norm, rows=(recipe.model.dim,), suffixes=self.norm_suffixes)
        head = [] if recipe.tokens.tie else layer(READOUT_LAYER, HEAD, suffixes=WEIGHT)
        return [*self.trunk_links(recipe.model), *norm, *head]

    def trunk_links(self, model: Any) -> list[WeightMap]:
        tables = {EMBEDDING_WEIGHT: self.embedding, **({POSITION_WEIGHT: self.positions} if self.positions else {})}
        suffixes = LAYER if model.bias or self.biased else WEIGHT
        options = {"suffixes": suffixes, "norm_suffixes": self.norm_suffixes, "transposed": self.transposed}
        tables_links = [WeightMap(ours, (f"{theirs}.weight",)) for ours, theirs in tables.items()]
        return [*tables_links, *block_links(self.block, self.blocks, model, **options)]

    def config(self, recipe: Recipe, weights: Mapping[str, Tensor]) -> dict[str, Any]:
        return {
            "architectures": [self.architecture],
            "model_type": self.name,
            "vocab_size": len(weights[EMBEDDING_WEIGHT]),
            **self.keys.write(recipe.model),
            self.context[0]: len(weights[POSITION_WEIGHT]) if self.positions else recipe.tokens.context,
            "tie_word_embeddings": recipe.tokens.tie,
        }

    def write(self, recipe: Recipe, weights: dict[str, Tensor]) -> Written:
        """A run in their words, missing biases as zeros."""
        refuse_recipe(recipe, self.architecture, self.needs)
        named = to_theirs(self.links(recipe), weights)
        whole = {name if name.startswith(HEAD) else self.prefix + name: tensor for name, tensor in named.items()}
        return Written(self.config(recipe, weights), whole)


def tie_embedding(tensors: dict[str, Tensor], head: str, embedding: str, config: Config, default: bool) -> bool:
    """Whether the last layer is the embedding; remove a copy of it."""
    tie = bool(config.get("tie_word_embeddings", default, bool))
    if tie and head in tensors and embedding in tensors:
        if not tensors[head].equal(tensors[embedding]):
            raise config.error(
                f"`{head}` differs from `{embedding}`, though {config.where} has `tie_word_embeddings: true`"
            )
        del tensors[head]
    return tie
