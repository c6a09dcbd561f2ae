"""Model families of Hugging Face as tables of names: BERT, GPT-2, Llama, GPT-NeoX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ....interop.config import Config
from ....interop.family import (
    PLAIN_NEEDS,
    POSITION_WEIGHT,
    PRE_NORM_NEEDS,
    SizeKeys,
    Written,
    drop_weights,
    refuse_recipe,
)
from ....interop.weight_map import LAYER, WEIGHT, Suffixes, WeightMap, block_links, layer, to_theirs
from ....recipe import Recipe

Sections = dict[str, dict[str, Any]]
DECODER_NEEDS = {**PRE_NORM_NEEDS, "model.readout_layer": False, "tokens.scale": False, "tokens.bias": False}
EMBEDDING_WEIGHT = "entrance.embedding.table.weight"
READOUT_LAYER = "readout.linear"
HEAD = "lm_head"
SEGMENT_EMBEDDINGS = "embeddings.token_type_embeddings.weight"
HEAD_PREFIXES = ("readout.", "heads.", "pooling.")  # our layers after the trunk


@dataclass(frozen=True)
class Family:
    """Family of language models: names of weights, keys of the configuration.

    name, architecture   `model_type` and model class of exported runs
    prefix       prefix of the trunk's weight names in models with a head
    dropped      pattern of weights of other tasks, left out with a note
    buffers      pattern of buffers, left out without a note
    embedding, positions, norm   names of these layers; positions is "" if not learned
    blocks       prefix of a block, with {} for its index
    block        our layers of a block -> layers of the family, after the prefix `blocks`
    fixed        keys of the configuration and their supported values
    keys         keys of the configuration for the size of the model
    model        keys of our section `model` common to the family
    context      key and default of the context length
    needs        recipe keys with the values required for an export
    norm_suffixes   weights of a norm: weight and bias, or weight only
    transposed   whether matrices are stored as (inputs, outputs)
    biased       whether layers of the family always have biases; exports add zeros if needed
    tied         default of `tie_word_embeddings`
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
        """Remove the prefix of weight names; drop buffers and layers of other tasks."""
        found = {name.removeprefix(self.prefix): tensor for name, tensor in tensors.items()}
        drop_weights(found, self.buffers)
        drop_weights(found, self.dropped, notes)
        return found

    def sections(self, tensors: dict[str, Tensor], config: Config) -> Sections:
        """Recipe sections `model`, `tokens` (without the vocabulary) and `objective`."""
        for key, values in self.fixed.items():
            config.only(key, *values)
        tie = tie_embedding(tensors, f"{HEAD}.weight", f"{self.embedding}.weight", config, self.tied)
        tokens, model = {"context": config.size(*self.context), "tie": tie}, {**self.model, **self.keys.read(config)}
        return {"model": model, "tokens": tokens, "objective": {"kind": "next_token"}}

    def links(self, recipe: Recipe) -> list[WeightMap]:
        """Weight maps of embedding, trunk and norm, and of the last layer if not tied."""
        norm = layer("trunk.norm", self.norm, rows=(recipe.model.dim,), suffixes=self.norm_suffixes)
        head = [] if recipe.tokens.tie else layer(READOUT_LAYER, HEAD, suffixes=WEIGHT)
        return [*self.trunk_links(recipe.model), *norm, *head]

    def trunk_links(self, model: Any) -> list[WeightMap]:
        tables = {EMBEDDING_WEIGHT: self.embedding, **({POSITION_WEIGHT: self.positions} if self.positions else {})}
        suffixes = LAYER if model.bias or self.biased else WEIGHT
        ends: dict[str, Any] = {"suffixes": suffixes, "norm_suffixes": self.norm_suffixes}
        embeddings = [WeightMap(ours, (f"{theirs}.weight",)) for ours, theirs in tables.items()]
        return [*embeddings, *block_links(self.block, self.blocks, model, transposed=self.transposed, **ends)]

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
        refuse_recipe(recipe, self.architecture, self.needs)
        named = to_theirs(self.links(recipe), weights)
        whole = {name if name.startswith(HEAD) else self.prefix + name: tensor for name, tensor in named.items()}
        return Written(self.config(recipe, weights), self.file_names(whole, recipe.model))

    def file_names(self, tensors: dict[str, Tensor], model: Any) -> dict[str, Tensor]:
        """Convert weights to the names and shapes in files of this family.

        The default leaves the weights unchanged.
        """
        return tensors


def tie_embedding(tensors: dict[str, Tensor], head: str, embedding: str, config: Config, default: bool) -> bool:
    """Whether the last layer shares the weights of the embedding; removes the copy."""
    tie = bool(config.get("tie_word_embeddings", default, bool))
    if tie and head in tensors and embedding in tensors:
        if not tensors[head].equal(tensors[embedding]):
            message = (
                f"{config.where} has `tie_word_embeddings: true`, but the weights `{head}` and `{embedding}` differ"
            )
            raise config.error(message)
        del tensors[head]
    return tie


@dataclass(frozen=True)
class Bert(Family):
    """BERT (arXiv 1810.04805) and RoBERTa (1907.11692): masked language models.

    In these models, the embedding is word + position + segment. Texts here have one segment, so the vector of the first
    segment is added to the position table at import.

    dense, head_norm, decoder, bias    weights of the masked language modelling head
    offset   whether positions start after the id of the padding token
    """

    dense: str = "cls.predictions.transform.dense"
    head_norm: str = "cls.predictions.transform.LayerNorm"
    decoder: str = "cls.predictions.decoder"
    bias: str = "cls.predictions.bias"
    offset: bool = False

    def canonical_names(self, tensors: dict[str, Tensor], config: Config, notes: list[str]) -> dict[str, Tensor]:
        found = super().canonical_names(tensors, config, notes)
        for old, new in ((".gamma", ".weight"), (".beta", ".bias")):  # names in checkpoints from TensorFlow
            found = {name.replace(f"LayerNorm{old}", f"LayerNorm{new}"): tensor for name, tensor in found.items()}
        if f"{self.dense}.weight" not in found:
            what = "the run can embed texts and be fine-tuned only"
            notes.append(f"the weights have no masked language modelling head: {what}")
        if f"{self.decoder}.bias" in found:
            found[self.bias] = found.pop(f"{self.decoder}.bias")
        positions = f"{self.positions}.weight"
        if positions in found and SEGMENT_EMBEDDINGS in found:
            segments = found.pop(SEGMENT_EMBEDDINGS)
            found[positions] = found[positions][self._first_place(config) :] + segments[0]
            if len(segments) > 1:
                notes.append("texts have one segment: the embeddings of further segments are left out")
        return found

    def _first_place(self, config: Config) -> int:
        return int(config.get("pad_token_id", 1)) + 1 if self.offset else 0

    def sections(self, tensors: dict[str, Tensor], config: Config) -> Sections:
        """Recipe sections of a post-norm encoder for masked language modelling."""
        head = f"{self.dense}.weight" in tensors
        tie = tie_embedding(tensors, f"{self.decoder}.weight", f"{self.embedding}.weight", config, default=True)
        config.get("type_vocab_size", 2)
        made = super().sections(tensors, config)
        made["model"]["readout_layer"] = head
        made["tokens"]["context"] -= self._first_place(config)
        made["tokens"] |= {"tie": tie or not head, "bias": head}
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
        """Convert an encoder to a BERT model with a masked language modelling head."""
        refuse_recipe(recipe, self.architecture, self.needs)
        links, notes = self.links(recipe), []
        whole = recipe.model.readout_layer and recipe.objective.kind == "masked"
        if not whole:
            links = [link for link in links if not link.ours.startswith(HEAD_PREFIXES)]
            weights = {name: tensor for name, tensor in weights.items() if not name.startswith(HEAD_PREFIXES)}
            needs = "`objective.kind: masked` and `model.readout_layer: true`"
            notes = [f"only the encoder is written: a head needs {needs}"]
        named = to_theirs(links, weights)
        named[SEGMENT_EMBEDDINGS] = torch.zeros(1, recipe.model.dim)
        config = self.config(recipe, weights) | {"type_vocab_size": 1, "position_embedding_type": "absolute"}
        config["architectures"] = [f"{self.architecture}ForMaskedLM" if whole else f"{self.architecture}Model"]
        if whole:
            named.setdefault(self.bias, torch.zeros(len(weights[EMBEDDING_WEIGHT])))
            named[f"{self.decoder}.bias"] = named[self.bias].clone()  # read if the weights are not tied
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


class Gpt2(Family):
    """GPT-2: a pre-norm decoder with learned positions and transposed matrices."""

    def sections(self, tensors: dict[str, Tensor], config: Config) -> Sections:
        config.only("n_ctx", config.size(*self.context))
        config.get("embd_pdrop", 0.1, float, int)
        return super().sections(tensors, config)

    def config(self, recipe: Recipe, weights: Mapping[str, Tensor]) -> dict[str, Any]:
        return super().config(recipe, weights) | {"embd_pdrop": recipe.model.dropout}


GPT2 = Gpt2(
    name="gpt2",
    architecture="GPT2LMHeadModel",
    prefix="transformer.",
    dropped=r"score\.|multiple_choice_head\.|classifier\.",
    buffers=r"h\.\d+\.attn\.(bias|masked_bias)$",
    embedding="wte",
    positions="wpe",
    norm="ln_f",
    blocks="h.{}.",
    block={
        "attention.qkv": ("attn.c_attn",),
        "attention.out": ("attn.c_proj",),
        "attention_norm": ("ln_1",),
        "mlp.up": ("mlp.c_fc",),
        "mlp.down": ("mlp.c_proj",),
        "mlp_norm": ("ln_2",),
    },
    transposed=True,
    fixed={"scale_attn_weights": (True,), "scale_attn_by_inverse_layer_idx": (False,), "add_cross_attention": (False,)},
    keys=SizeKeys(
        *("n_embd", "n_layer", "n_head", "n_inner", "activation_function", "layer_norm_epsilon", "resid_pdrop"),
        attention_dropout="attn_pdrop",
        default_mlp_ratio=4,
        default_activation="gelu_new",
        default_epsilon=1e-5,
    ),
    model={"kind": "decoder", "position": "learned"},
    context=("n_positions", 1024),
    needs={**DECODER_NEEDS, **PLAIN_NEEDS},
)


class Llama(Family):
    """LLaMA, Mistral, SmolLM2, Qwen2: RMSNorm, rotary positions, SwiGLU.

    Rotary positions of these models pair the components i and i + d/2 of a head; Sciformer pairs the neighbours 2i and
    2i + 1. The rows of the query and key matrices are permuted accordingly, which leaves all products q k unchanged.
    """

    def canonical_names(self, tensors: dict[str, Tensor], config: Config, notes: list[str]) -> dict[str, Tensor]:
        """Convert weight names; add missing biases as zeros if other layers have biases."""
        found = super().canonical_names(tensors, config, notes)
        if any(name.endswith("_proj.bias") for name in found):
            lacking = [name for name in found if name.endswith("_proj.weight") and name[:-6] + "bias" not in found]
            found |= {name[:-6] + "bias": torch.zeros(found[name].shape[0]) for name in lacking}
            if lacking:
                notes.append(f"{len(lacking)} layers without bias get a bias of zeros")
        return found

    def sections(self, tensors: dict[str, Tensor], config: Config) -> Sections:
        made = super().sections(tensors, config)
        model = made["model"]
        heads, dim = model["heads"], model["dim"]
        config.only("layer_types", ["full_attention"] * model["depth"])
        window = config.get("sliding_window", None)  # models besides Mistral use it only with `use_sliding_window`
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


def rotary_base(config: Config, name: str = "rope_theta", apart: str = "") -> float:
    """Base of the rotary positions, from old and new configuration formats.

    name    key of the base in old configurations
    apart   key that is ignored here, because the caller reads it (default: "", no key)
    """
    base = config.get(name, 10_000.0, float, int)
    for key in ("rope_parameters", "rope_scaling"):
        found: dict[str, Any] = dict(config.get(key, {}, dict))
        base = found.pop("rope_theta", base)
        found.pop(apart, None)
        kind = found.pop("rope_type", found.pop("type", "default"))
        if kind != "default" or any(value is not None for value in found.values()):
            kinds = f"`{key}` in {config.where} must be of type default, but is {config.values[key]}"
            raise config.error(f"scaled rotary positions are not supported: {kinds}")
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
        "mlp_bias": (False, True),  # read from the weights
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


class GptNeoX(Family):
    """GPT-NeoX (arXiv 2204.06745), Pythia: parallel blocks, rotary positions, biases.

    Queries, keys and values of a head are neighbours in one matrix (head, 3, width). Rotary positions act on the first
    components of a head only.
    """

    def canonical_names(self, tensors: dict[str, Tensor], config: Config, notes: list[str]) -> dict[str, Tensor]:
        """Separate the matrices of queries, keys and values; add missing biases as zeros."""
        found = {f"{HEAD}.weight" if name == NEOX_HEAD else name: tensor for name, tensor in tensors.items()}
        found = super().canonical_names(found, config, notes)
        heads = config.size("num_attention_heads")
        for name in [name for name in found if name.rpartition(".")[0].endswith(NEOX_QKV)]:
            before, kind = name.removesuffix("." + name.rpartition(".")[2])[: -len(NEOX_QKV)], name.rpartition(".")[2]
            whole = found.pop(name)
            if whole.shape[0] % (3 * heads):
                raise config.error(f"`{name}` has {whole.shape[0]} rows, not a multiple of 3 x {heads} heads")
            parts = whole.unflatten(0, (heads, 3, -1)).unbind(1)
            found |= {f"{before}{part}.{kind}": rows.flatten(0, 1) for part, rows in zip(NEOX_PARTS, parts)}
        lacking = [name for name in found if name.endswith(".weight") and "attention." in name]
        lacking = [name for name in lacking if name[:-6] + "bias" not in found]
        found |= {name[:-6] + "bias": torch.zeros(found[name].shape[0]) for name in lacking}
        if lacking:
            notes.append(f"{len(lacking)} layers without bias get a bias of zeros")
        return found

    def file_names(self, tensors: dict[str, Tensor], model: Any) -> dict[str, Tensor]:
        """Join queries, keys and values of each head in one matrix."""
        made = {NEOX_HEAD if name == f"{HEAD}.weight" else name: tensor for name, tensor in tensors.items()}
        for name in [name for name in made if f".{NEOX_PARTS[0]}." in name]:
            names = [name.replace(f".{NEOX_PARTS[0]}.", f".{part}.") for part in NEOX_PARTS]
            parts = [made.pop(one).unflatten(0, (model.heads, -1)) for one in names]
            made[name.replace(NEOX_PARTS[0], NEOX_QKV)] = torch.stack(parts, 1).flatten(0, 2).contiguous()
        return made

    def sections(self, tensors: dict[str, Tensor], config: Config) -> Sections:
        made = super().sections(tensors, config)
        model = made["model"]
        base = rotary_base(config, "rotary_emb_base", apart="partial_rotary_factor")
        share = config.get("rotary_pct", 0.25, float, int)
        share = dict(config.get("rope_parameters", {}, dict)).get("partial_rotary_factor", share)
        width = model["dim"] // model["heads"]
        rotated = int(width * share)
        if rotated < 2 or rotated % 2:
            must = "must rotate an even number of components of a head"
            raise config.error(f"`rotary_pct` in {config.where} {must}, not {rotated}")
        parallel = config.get("use_parallel_residual", True, bool)
        model |= {"rotary_base": base, "rotary_share": rotated / width, "parallel_residual": parallel}
        return made

    def config(self, recipe: Recipe, weights: Mapping[str, Tensor]) -> dict[str, Any]:
        model = recipe.model
        base, share = float(model.rotary_base), float(model.rotary_share)
        return super().config(recipe, weights) | {
            "use_parallel_residual": model.parallel_residual,
            "attention_bias": True,
            "rotary_emb_base": base,
            "rotary_pct": share,
            "rope_parameters": {"rope_theta": base, "rope_type": "default", "partial_rotary_factor": share},
        }


NEOX_HEAD, NEOX_QKV = "embed_out.weight", "attention.query_key_value"
NEOX_PARTS = ("attention.query", "attention.key", "attention.value")
GPT_NEOX = GptNeoX(
    name="gpt_neox",
    architecture="GPTNeoXForCausalLM",
    prefix="gpt_neox.",
    dropped=r"score\.|classifier\.|qa_outputs\.",
    buffers=r"(layers\.\d+\.attention\.)?(bias|masked_bias|rotary_emb\.inv_freq)$",
    embedding="embed_in",
    positions="",
    norm="final_layer_norm",
    blocks="layers.{}.",
    block={
        "attention.qkv": NEOX_PARTS,
        "attention.out": ("attention.dense",),
        "attention_norm": ("input_layernorm",),
        "mlp.up": ("mlp.dense_h_to_4h",),
        "mlp.down": ("mlp.dense_4h_to_h",),
        "mlp_norm": ("post_attention_layernorm",),
    },
    fixed={"attention_bias": (False, True)},  # read from the weights
    keys=SizeKeys(
        dropout="hidden_dropout",
        attention_dropout="attention_dropout",
        default_epsilon=1e-5,
        default_dropout=0.0,
    ),
    model={"kind": "decoder", "position": "rotary"},
    context=("max_position_embeddings", 2048),
    tied=False,
    needs={
        **DECODER_NEEDS,
        **PLAIN_NEEDS,
        "model.position": "rotary",
        "model.parallel_residual": (True, False),
        "model.rotary_share": lambda recipe: getattr(recipe.model, "rotary_share", 1.0),
    },
)
