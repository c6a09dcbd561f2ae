"""Configuration files (config.json) of other libraries, with all keys checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import UserError

ABSENT = object()

# Keys for bookkeeping, training, generation and heads of other tasks: they do not change the output of the trunk.
HARMLESS_KEYS = """
    _name_or_path _commit_hash _attn_implementation architectures model_type name_or_path transformers_version
    torch_dtype dtype tokenizer_class prefix torchscript use_bfloat16 use_cache return_dict output_attentions
    output_hidden_states output_past output_scores chunk_size_feed_forward gradient_checkpointing initializer_range
    classifier_dropout num_labels id2label label2id problem_type finetuning_task task_specific_params pretraining_tp
    bos_token_id eos_token_id pad_token_id sep_token_id cls_token_id mask_token_id unk_token_id decoder_start_token_id
    max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p
    typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids
    num_return_sequences forced_bos_token_id forced_eos_token_id remove_invalid_values
    exponential_decay_length_penalty suppress_tokens begin_suppress_tokens return_dict_in_generate
    pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type
    summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout
    reorder_and_upcast_attn is_llama_config transformers.js_config unsloth_fixed unsloth_version max_window_layers
"""


class Config:
    """Values of a config.json; `done` refuses unread keys.

    where    name of the configuration in errors
    file     path of the file, if any
    """

    def __init__(self, values: Mapping[str, Any], where: str, file: Path | None = None) -> None:
        self.values, self.where, self.file, self.asked = dict(values), where, file, set(HARMLESS_KEYS.split())

    def error(self, message: str, hint: str = "") -> UserError:
        """A `UserError` with the path of the configuration file."""
        return UserError(message, hint=hint, file=self.file)

    def get(self, key: str, default: Any = ABSENT, *kinds: type) -> Any:
        """Value of a key, checked to have a type in `kinds` (default: int).

        A key with the value null counts as absent. An absent key without `default` is an error.
        """
        self.asked.add(key)
        value = self.values.get(key)
        if value is None:
            if default is ABSENT:
                raise self.error(f"{self.where} has no key `{key}`")
            return default
        kinds = kinds or (int,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            names = " or ".join(kind.__name__ for kind in kinds)
            raise self.error(f"`{key}` in {self.where} must have the type {names}, but is {value!r}")
        return value

    def size(self, key: str, default: Any = ABSENT) -> int:
        """Value of a key, checked to be an integer of at least 1."""
        value: int = self.get(key, default)
        if value < 1:
            raise self.error(f"`{key}` in {self.where} must be at least 1, but is {value}")
        return value

    def only(self, key: str, *allowed: Any) -> None:
        """Refuse a value of `key` outside `allowed`; an absent key and null are accepted."""
        self.asked.add(key)
        value = self.values.get(key)
        if value is not None and value not in allowed:
            fits = " or ".join(format_value(one) for one in allowed)
            raise self.error(f"`{key}` in {self.where} must be {fits}, but is {format_value(value)}")

    def choice(self, key: str, names: Mapping[str, str], default: str) -> str:
        """Translate the value of a key to a name in recipes, by the table `names`."""
        value = self.get(key, default, str)
        self.only(key, *names)
        return names[value]

    def done(self) -> None:
        """Refuse unread keys, unless the value is null, false or empty."""
        for key, value in self.values.items():
            off = value is None or value is False or value in ({}, [], "")
            if key not in self.asked and not off:
                message = f"{self.where} has an unknown key: `{key}: {format_value(value)}`"
                raise self.error(message, "If it does not change the output of the model, remove it from the file.")


def format_value(value: Any) -> str:
    """Format a value as JSON, shortened to 80 characters."""
    text = json.dumps(value) if not isinstance(value, str) else value
    return text if len(text) < 80 else text[:77] + "..."
