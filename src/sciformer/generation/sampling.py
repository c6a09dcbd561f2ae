"""How the next token is chosen: on the model's device, for a whole batch.

A token is the first at which the sum of probabilities exceeds a uniform number u. The numbers of a text are known
before it is begun, as a pure function of its seed: there is no state to carry, and a step recorded once can draw.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..data.random import key, mix
from ..errors import UserError

VOCABULARY_PART = 1024  # of a vocabulary, in which the largest are looked for first


@dataclass(frozen=True)
class Sampling:
    """The wishes of a user about the next token.

    temperature  0 takes the likeliest token; below 1 is careful, above 1 bold
    top_k        choose among so many likeliest tokens
    top_p        of these, choose among the likeliest up to the first with which their probability reaches it
    repetition   above 1: tokens that were there are made less likely (arXiv 1909.05858): l / r where l > 0, else l r
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    repetition: float = 1.0

    def __post_init__(self) -> None:
        if not (self.temperature >= 0 and math.isfinite(self.temperature)):
            raise UserError(f"temperature must be 0 or more and finite, not {self.temperature}", key="--temperature")
        if self.top_k is not None and self.top_k < 1:
            raise UserError(f"top_k must be 1 or more, not {self.top_k}", key="--top-k")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UserError(f"top_p must be above 0 and at most 1, not {self.top_p}", key="--top-p")
        if not (self.repetition > 0 and math.isfinite(self.repetition)):
            raise UserError(
                f"repetition must be above 0 (1: no penalty) and finite, not {self.repetition}", key="--repetition"
            )

    @property
    def remembers(self) -> bool:
        """Whether it matters which tokens were there."""
        return self.repetition != 1

    def choose(self, logits: Tensor, uniform: Tensor, seen: Tensor | None = None) -> Tensor:
        """One token (B,) from logits (B, V), -inf where a token may not be written.

        uniform  (B,) in [0, 1)
        seen     (B, V) which tokens were there
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
            before = weight.cumsum(-1) - weight  # of the likelier ones
            weight = weight.masked_fill(before >= enough, 0)
        edges = weight.cumsum(-1, dtype=double_precision(weight.device))
        best = (edges <= uniform.to(edges.dtype)[:, None] * edges[:, -1:]).sum(-1).clamp(max=edges.shape[-1] - 1)
        return best if ids is None else ids.gather(-1, best[:, None])[:, 0]


def double_precision(device: torch.device) -> torch.dtype:
    """Double precision, where the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64


def top_logits(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of (B, V) and where they stand, largest first.

    A CUDA device looks for them in parts of the row at once, then among what was found; in the whole row at once it
    would take ten kernels one after the other.
    """
    if not logits.is_cuda or logits.shape[-1] < 8 * VOCABULARY_PART or count > VOCABULARY_PART // 4:
        return logits.topk(count)
    return top_logits_in_parts(logits, count)


def top_logits_in_parts(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The same, part by part."""
    parts = torch.nn.functional.pad(logits, (0, -logits.shape[-1] % VOCABULARY_PART), value=-torch.inf).unflatten(
        -1, (-1, VOCABULARY_PART)
    )
    found, place = parts.topk(count, sorted=False)
    ids = place + torch.arange(parts.shape[1], device=logits.device)[:, None] * VOCABULARY_PART
    best, where = found.flatten(1).topk(count)
    return best, ids.flatten(1).gather(1, where)


def sort_logits(logits: Tensor, enough: Tensor) -> tuple[Tensor, Tensor]:
    """(B, V) and where they stand, largest first: all, or on a CPU so many that their sum of exp reaches `enough`."""
    if logits.device.type == "cpu" and logits.shape[-1] > 4 * VOCABULARY_PART:
        found = logits.topk(VOCABULARY_PART)
        if bool((found.values.exp().sum(-1, keepdim=True) > enough).all()):
            return found.values, found.indices
    return logits.sort(stable=True, dim=-1, descending=True)


def draw_uniforms(seed: int | None, texts: int, length: int) -> Tensor:
    """Numbers (length, texts) in [0, 1), one for each token of several texts; without a seed others each time.

    The first text has those of a text alone with this seed. 52 bits: no product with a sum of probabilities reaches it.
    """
    seed = secrets.randbits(63) if seed is None else seed
    words = mix(key("generate", seed) ^ mix(np.arange(texts)))
    found = mix(words[None] + mix(np.arange(length))[:, None]) >> np.uint64(12)
    return torch.from_numpy(found.astype(np.float64) * 2.0**-52)
