"""GPT-2: a decoder with learned positions, pre-norm, transposed matrices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ....interop.config import Config
from ....interop.family import PLAIN_NEEDS, SizeKeys
from ....recipe import Recipe
from .family import DECODER_NEEDS, Family, Sections


class Gpt2(Family):
    """The family."""

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
