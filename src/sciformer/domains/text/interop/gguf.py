"""Import of GGUF files (architecture llama): dequantised weights and tokenizer.

In a GGUF file, the two rows of a rotary pair are neighbours in the query and key matrices. The rows are permuted to the
order of Hugging Face, and the model is imported like a Hugging Face folder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....errors import UserError
from ....files.packages import broken, require
from ....interop.config import Config
from ....interop.weight_map import rope_halves_from_pairs
from ..subwords import tokenizers_package
from .huggingface import ForeignModel

WEIGHT_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
KNOWN_SPLITS = ("gpt-2", "smollm")  # supported pre-tokenizers
CONTROL_TYPE = 3  # token type of special tokens
TOKEN_ROLES = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}


def read_gguf(path: Path) -> ForeignModel:
    """Read a GGUF file and convert it to a Hugging Face model."""
    if not path.is_file():
        raise UserError(f"the file {path} does not exist", file=path)
    reader = _open(path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    kind = fields.get("general.architecture")
    if kind != "llama":
        raise UserError(f"`general.architecture` in {path} must be llama, not {kind!r}", file=path)
    own = {key.removeprefix("llama."): value for key, value in fields.items() if key.startswith("llama.")}
    names = {tensor.name for tensor in reader.tensors}
    config = _config(Config(own, f"`llama.*` of {path.name}", path), tied="output.weight" not in names)
    tensors = _tensors(reader, config["num_attention_heads"], config["num_key_value_heads"])
    config["vocab_size"] = len(tensors["model.embed_tokens.weight"])
    ids = {key: fields.get(f"tokenizer.ggml.{role}_token_id") for role, key in TOKEN_ROLES.items()}
    words = fields.get("tokenizer.ggml.tokens", [])
    special = {key: words[number] for key, number in ids.items() if number is not None and number < len(words)}
    name = str(fields.get("general.name", path.stem))
    notes = [f"weights were stored as {', '.join(sorted({tensor.tensor_type.name for tensor in reader.tensors}))}"]
    tokenizer = _tokenizer(fields, special, path)
    return ForeignModel(name, Config(config, path.name, path), tensors, tokenizer, special, notes=notes)


def _open(path: Path) -> Any:
    """Open a GGUF file; refuse arrays longer than the file.

    The package `gguf` alone would loop over all elements of an array declared longer than the file.
    """
    base: Any = require("gguf", ".gguf files").GGUFReader

    class Reader(base):
        def _get(self, offset: int, dtype: Any, count: int = 1, *order: Any, **named: Any) -> Any:
            if offset + np.dtype(dtype).itemsize * int(count) > len(self.data):
                size = f"{len(self.data):,} bytes"
                raise ValueError(f"the value at byte {offset:,} extends beyond the end of the file ({size})")
            return super()._get(offset, dtype, count, *order, **named)

    try:
        return Reader(path)
    except (ValueError, IndexError, OSError, OverflowError) as error:
        raise broken(path, ".gguf", error) from error


def _config(own: Config, tied: bool) -> dict[str, Any]:
    dim, heads = own.size("embedding_length"), own.size("attention.head_count")
    width = own.size("attention.key_length", dim // heads)
    own.only("attention.value_length", width)
    own.only("rope.dimension_count", width)
    own.only("rope.scaling.type", "none")
    own.only("expert_count", 0)
    own.get("vocab_size", 0)
    made = {
        "model_type": "llama",
        "hidden_size": dim,
        "num_hidden_layers": own.size("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": own.size("attention.head_count_kv", heads),
        "head_dim": width,
        "intermediate_size": own.size("feed_forward_length"),
        "rms_norm_eps": own.get("attention.layer_norm_rms_epsilon", 1e-5, float),
        "max_position_embeddings": own.size("context_length"),
        "rope_theta": own.get("rope.freq_base", 10_000.0, float),
        "tie_word_embeddings": tied,
    }
    own.done()
    return made


def _tensors(reader: Any, heads: int, kv_heads: int) -> dict[str, Tensor]:
    whole, found = require("gguf.quants", ".gguf files").dequantize, {}
    for tensor in reader.tensors:
        *place, part, kind = tensor.name.split(".")
        weight = torch.from_numpy(np.array(whole(tensor.data, tensor.tensor_type), np.float32))
        if part in ("attn_q", "attn_k"):
            weight = rope_halves_from_pairs(weight, heads if part == "attn_q" else kv_heads)
        before = f"model.layers.{place[1]}." if place[:1] == ["blk"] else ".".join([*place, ""]) if place else ""
        found[f"{before}{WEIGHT_NAMES.get(part, part)}.{kind}"] = weight
    return found


def _tokenizer(fields: dict[str, Any], special: dict[str, str], path: Path) -> str:
    for key, known in (("model", ("gpt2",)), ("pre", KNOWN_SPLITS)):
        value = fields.get(f"tokenizer.ggml.{key}")
        if value not in known:
            raise UserError(f"`tokenizer.ggml.{key}` in {path} must be {' or '.join(known)}, not {value!r}", file=path)
    library = tokenizers_package()
    words, kinds = fields["tokenizer.ggml.tokens"], fields.get("tokenizer.ggml.token_type", [])
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    made = library.Tokenizer(library.models.BPE({word: number for number, word in enumerate(words)}, merges))
    bytewise = library.pre_tokenizers.ByteLevel(add_prefix_space=bool(fields.get("tokenizer.ggml.add_space_prefix")))
    digits = library.pre_tokenizers.Digits(individual_digits=True)
    smollm = fields["tokenizer.ggml.pre"] == "smollm"
    made.pre_tokenizer = library.pre_tokenizers.Sequence([digits, bytewise]) if smollm else bytewise
    made.decoder = library.decoders.ByteLevel()
    made.add_special_tokens([word for word, kind in zip(words, kinds) if kind == CONTROL_TYPE])
    first, last = (  # special tokens added to each text
        [special[f"{role}_token"]] if fields.get(f"tokenizer.ggml.add_{role}_token") else [] for role in ("bos", "eos")
    )
    if first or last:
        numbers = [(word, made.token_to_id(word)) for word in {*first, *last}]
        made.post_processor = library.processors.TemplateProcessing(
            single=[*first, "$A", *last], special_tokens=numbers
        )
    return json.dumps(json.loads(made.to_str()), ensure_ascii=False)
