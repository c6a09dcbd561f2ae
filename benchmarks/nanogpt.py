"""nanoGPT's model and training step (karpathy/nanoGPT at 3adf61e), as a baseline for the speed.

Settings are those of that project: no biases, a vocabulary padded to a multiple of 64, the embedding tied to the last
layer, fused attention; on a GPU `torch.compile`, bfloat16 autocast over float32 weights, fused AdamW, gradients clipped
at 1.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LayerNorm(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, None, 1e-5)


class SelfAttention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.c_attn = nn.Linear(dim, 3 * dim, bias=False)
        self.c_proj = nn.Linear(dim, dim, bias=False)
        self.heads, self.dim = heads, dim

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.size()
        q, k, v = self.c_attn(x).split(self.dim, dim=2)
        k = k.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        q = q.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        v = v.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=0, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))


class MLP(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.c_fc = nn.Linear(dim, 4 * dim, bias=False)
        self.gelu = nn.GELU()
        self.c_proj = nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(self.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.ln_1, self.attn = LayerNorm(dim), SelfAttention(dim, heads)
        self.ln_2, self.mlp = LayerNorm(dim), MLP(dim)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary: int, context: int, dim: int, depth: int, heads: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, dim), nn.Embedding(context, dim)
        self.h = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.ln_f = LayerNorm(dim)
        self.lm_head = nn.Linear(dim, vocabulary, bias=False)
        self.wte.weight = self.lm_head.weight
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                std = 0.02 / math.sqrt(2 * depth) if name.endswith("c_proj.weight") else 0.02
                nn.init.normal_(weight, mean=0.0, std=std)

    def forward(self, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        place = torch.arange(0, ids.size(1), dtype=torch.long, device=ids.device)
        x = self.wte(ids) + self.wpe(place)
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
        return logits, loss


def batches(ids: Any, context: int, batch: int, device: str) -> Callable[[], tuple[Tensor, Tensor]]:
    """Random windows of a sequence of uint16 ids, as in nanoGPT's get_batch."""

    def get_batch() -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(ids) - context, (batch,))
        x = torch.stack([torch.from_numpy(ids[i : i + context].astype(np.int64)) for i in starts])
        y = torch.stack([torch.from_numpy(ids[i + 1 : i + 1 + context].astype(np.int64)) for i in starts])
        if device == "cuda":
            return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)
        return x.to(device), y.to(device)

    return get_batch


def trainer(
    model: nn.Module,
    loss_of: Callable[[Any, Tensor, Tensor], Tensor],
    get_batch: Callable[[], tuple[Tensor, Tensor]],
    device: str,
    *,
    compiled: bool,
    rate: float = 6e-4,
) -> Callable[[int], None]:
    """Function that trains for a number of steps, as in nanoGPT's train.py.

    loss_of   calls the model: loss_of(model, x, y)
    """
    decayed = [weight for weight in model.parameters() if weight.dim() >= 2]
    others = [weight for weight in model.parameters() if weight.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    more = {"fused": True} if device == "cuda" else {}
    optimizer = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), **more)
    context: Any = torch.autocast("cuda", torch.bfloat16) if device == "cuda" else contextlib.nullcontext()
    call = torch.compile(model) if compiled else model
    x, y = get_batch()

    def train(steps: int) -> None:
        nonlocal x, y
        for _ in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = rate
            with context:
                loss = loss_of(call, x, y)
            x, y = get_batch()  # the next one, while the device is busy with this
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        assert math.isfinite(loss.item())

    return train
