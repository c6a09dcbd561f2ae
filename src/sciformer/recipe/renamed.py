"""Renamed recipe keys and values, with their new names for errors."""

from __future__ import annotations

from .field import fields

KEYS = {
    "train": {
        "rate": "learning_rate",
        "decay": "weight_decay",
        "clip": "clip_norm",
        "floor": "min_lr_ratio",
        "average": "ema",
        "micro": "micro_batch",
        "multiple": "pad_to_multiple",
        "graphs": "cuda_graphs",
        "bad_steps": "max_skipped",
        "start": "init_from",
        "start_hash": "init_from_hash",
        "layer_rate": "layer_decay",
        "head_rate": "head_lr_scale",
    },
    "model": {
        "groups": "kv_heads",
        "ratio": "mlp_ratio",
        "reach": "window",
        "weights": "init",
        "remember": "forget_bias",
        "growth": "dilation_growth",
        "order": "norm_position",
    },
    "tokens": {
        "vary": "augment",
        "soft": "softening",
        "most": "max_tokens",
        "thin": "drop_points",
        "grain": "noise_std",
        "normal": "unicode_form",
    },
    "data": {"least": "min_points", "piece": "chunk_size", "labels": "labels_per_class", "more": "extra_parts"},
    "objective": {"along": "plot_against", "share": "mask_ratio", "whole": "whole_words"},
}
"""Section -> {old key: new key}."""

VALUES = {
    "model.trunk": {"sets": "deep_sets", "edges": "edge_conv", "points": "point_cloud_transformer"},
    "data.kind": {"curves": "series"},
    "objective.kind": {"recover": "denoise", "continue": "prompted_translation"},
}
"""Key -> {old value: new value}; fields list theirs in their manifests."""


def new_value(key: str, value: object) -> str | None:
    """New name of an old value of `model.trunk`, `data.kind`, ...; None if unchanged."""
    tables = [VALUES, *(field.renamed for field in fields().values())]
    return next((table[key][str(value)] for table in tables if str(value) in table.get(key, {})), None)
