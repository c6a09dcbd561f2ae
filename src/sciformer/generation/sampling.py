"""Sampling of the next token, on the device of the model, for a batch.

The choice is the first token whose cumulative probability exceeds a uniform random number u. All random numbers of a
text are known in advance, as a pure function of its seed. So there is no state of a generator, and a CUDA graph can
sample.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..data.random import Words, key, mix
from ..errors import UserError

VOCABULARY_PART = 1024  # tokens per part of the vocabulary in a top-k search by parts


@dataclass(frozen=True)
class Sampling:
    """Options for the choice of the next token.

    temperature  divides the logits (default: 1); 0 takes the most likely token
    top_k        number of most likely tokens to choose from (default: all)
    top_p        nucleus sampling: choose from the most likely tokens with this total probability (default: all)
    repetition   penalty r of earlier tokens (arXiv 1909.05858): logit l becomes l / r if l > 0, else l r (default: 1)
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    repetition: float = 1.0

    def __post_init__(self) -> None:
        for name, fits, needs, hint in (
            ("temperature", 0 <= self.temperature < math.inf, "0 or more and finite", ""),
            ("top_k", self.top_k is None or self.top_k >= 1, "1 or more", ""),
            ("top_p", self.top_p is None or 0 < self.top_p <= 1, "above 0 and at most 1", ""),
            ("repetition", 0 < self.repetition < math.inf, "positive and finite", "1 means no penalty."),
        ):
            if not fits:
                key = f"--{name.replace('_', '-')}"
                raise UserError(f"{name} must be {needs}, not {getattr(self, name)}", key=key, hint=hint)

    @property
    def remembers(self) -> bool:
        """Whether the choice of a token depends on earlier tokens."""
        return self.repetition != 1

    def choose(self, logits: Tensor, uniform: Tensor, seen: Tensor | None = None) -> Tensor:
        """Choose tokens (B,) from logits (B, V), -inf for forbidden tokens.

        uniform  (B,) random numbers in [0, 1)
        seen     (B, V) mask of earlier tokens
        """
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if self.remembers and seen is not None:
            rarer = torch.where(logits > 0, logits / self.repetition, logits * self.repetition)
            logits = torch.where(seen, rarer, logits)
        if self.temperature == 0:
            return logits.argmax(-1)
        logits, ids = (logits - logits.amax(-1, keepdim=True)) / max(self.temperature, 1e-30), None
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            logits, ids = top_logits(logits, self.top_k)
        weight = logits.exp()
        if self.top_p is not None and self.top_p < 1:
            enough = self.top_p * weight.sum(-1, keepdim=True)
            if ids is None:
                logits, ids = sort_logits(logits, enough)
                weight = logits.exp()
            before = weight.cumsum(-1) - weight  # total weight of the more likely tokens
            weight = weight.masked_fill(before >= enough, 0)
        edges = weight.cumsum(-1, dtype=double_precision(weight.device))
        best = (edges <= uniform.to(edges.dtype)[:, None] * edges[:, -1:]).sum(-1).clamp(max=edges.shape[-1] - 1)
        return best if ids is None else ids.gather(-1, best[:, None])[:, 0]


def double_precision(device: torch.device) -> torch.dtype:
    """Double precision if the device supports it, else single precision."""
    return torch.float32 if device.type == "mps" else torch.float64


def top_logits(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Values and indices of the `count` largest logits (B, V), in descending order.

    On a CUDA device a large vocabulary is searched in parts: one search of the full row takes ten sequential kernels.
    """
    if not logits.is_cuda or logits.shape[-1] < 8 * VOCABULARY_PART or count > VOCABULARY_PART // 4:
        return logits.topk(count)
    return top_logits_in_parts(logits, count)


def top_logits_in_parts(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Values and indices of the `count` largest logits (B, V), searched in two steps.

    The first step finds the largest logits in each part of the vocabulary, the second step the largest of these logits.
    """
    padded = torch.nn.functional.pad(logits, (0, -logits.shape[-1] % VOCABULARY_PART), value=-torch.inf)
    parts = padded.unflatten(-1, (-1, VOCABULARY_PART))
    found, place = parts.topk(count, sorted=False)
    ids = place + torch.arange(parts.shape[1], device=logits.device)[:, None] * VOCABULARY_PART
    best, where = found.flatten(1).topk(count)
    return best, ids.flatten(1).gather(1, where)


def sort_logits(logits: Tensor, enough: Tensor) -> tuple[Tensor, Tensor]:
    """Sort logits (B, V) in descending order, with indices.

    On a CPU only the largest logits are returned if their sum of exp(logit) exceeds `enough` (B, 1).
    """
    if logits.device.type == "cpu" and logits.shape[-1] > 4 * VOCABULARY_PART:
        found = logits.topk(VOCABULARY_PART)
        if bool((found.values.exp().sum(-1, keepdim=True) > enough).all()):
            return found.values, found.indices
    return logits.sort(stable=True, dim=-1, descending=True)


def draw_uniforms(seed: int | None, texts: int, length: int) -> Tensor:
    """Uniform random numbers (length, texts) in [0, 1), one per token.

    Without a seed, the numbers differ in each call. The first text gets the same numbers as a single text with
    this seed. The numbers have 52 bits, so that their product with a sum of probabilities is always below the sum.
    """
    seed = new_seed() if seed is None else seed
    return uniforms_of(mix(key("generate", seed) ^ mix(np.arange(texts))), length)


def new_seed() -> int:
    """Seed that differs in each call."""
    return secrets.randbits(63)


def uniforms_of(words: Words, length: int) -> Tensor:
    """Uniform random numbers (length, n) in [0, 1), from 64-bit words (n,)."""
    found = mix(words[None] + mix(np.arange(length))[:, None]) >> np.uint64(12)
    return torch.from_numpy(found.astype(np.float64) * 2.0**-52)
