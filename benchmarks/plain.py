"""GPT and training loop in plain PyTorch, after nanoGPT, as a baseline for the speed."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PlainBlock(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim, bias=False), nn.LayerNorm(dim, bias=False)
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.up, self.down = nn.Linear(dim, 4 * dim, bias=False), nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, n, dim = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(dim, dim=2)
        q, k, v = (part.view(batch, n, self.heads, dim // self.heads).transpose(1, 2) for part in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).contiguous().view(batch, n, dim))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class PlainGPT(nn.Module):
    def __init__(self, vocabulary: int, context: int, dim: int, depth: int, heads: int) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(vocabulary, dim), nn.Embedding(context, dim)
        self.blocks = nn.ModuleList(PlainBlock(dim, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim, bias=False)
        self.head = nn.Linear(dim, vocabulary, bias=False)
        self.head.weight = self.table.weight
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                residual = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * depth) if residual else 0.02)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.table(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def plain_loop(
    model: PlainGPT, ids: Tensor, context: int, batch: int, rate: Callable[[int], float], every: int = 10
) -> Callable[[int], None]:
    """Function that trains for a number of steps.

    A step has random windows, AdamW with two parameter groups, clipping, and a readout of the loss.
    """
    groups = [
        {"params": [weight for weight in model.parameters() if weight.dim() >= 2], "weight_decay": 0.1},
        {"params": [weight for weight in model.parameters() if weight.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), fused=True)
    done = 0

    def train(steps: int) -> None:
        nonlocal done
        for _ in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = rate(done)
            starts = torch.randint(len(ids) - context, (batch,)).tolist()
            x = torch.stack([ids[i : i + context] for i in starts])
            y = torch.stack([ids[i + 1 : i + 1 + context] for i in starts])
            loss = model(x, y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            done += 1
            if done % every == 0:
                assert math.isfinite(loss.item())

    return train
