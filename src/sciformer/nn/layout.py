"""Conversion between padded or packed tokens and flat tokens."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .ragged import Ragged, zero_padding
from .transformer import Valid
from .watch import Watch


class Layout:
    """Conversion of padded (B, N, ...) or packed tokens to flat (T, ...), and back.

    real    (T,) mask of the real flat tokens; None means that all are real
    valid   (B, N) mask of the padded tensor from `pad`, with real tokens first; None means that all are real
    rows    (B, N) index of the flat token at each position of this padded tensor; T at padding
    ragged  packed layout of the caller, or None

    On a CPU the flat tokens have no padding. On other devices shapes must not depend on values, so padding stays among
    the flat tokens, and `real` is False there. Padding also stays if no token is real: the blocks must run in this case
    too, because ranks wait for each other.
    """

    def __init__(self, x: Tensor, valid: Valid) -> None:
        self.given = x.shape[:1] if isinstance(valid, Ragged) else x.shape[:2]
        self.kept: Tensor | None = None
        self.ragged = valid if isinstance(valid, Ragged) else None
        self.real: Tensor | None = None
        self.valid: Tensor | None = None
        if valid is None:
            batch, n = self.given
            self.total = batch * n
            self.slots = torch.arange(self.total, device=x.device)
            self.rows = self.slots.view(batch, n)
            return
        traced = torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined]
        plain = x.device.type == "cpu" and type(x) is Tensor and not traced
        if not isinstance(valid, Ragged) and plain:
            kept = valid.flatten().nonzero().flatten()
            if len(kept):
                self.kept, valid = kept, Ragged(valid.sum(1), total=len(kept))
        if isinstance(valid, Ragged):
            self.total, self.valid = valid.total, valid.valid
            if not plain or int(valid.lengths.sum()) < valid.total:
                self.real = valid.inside
            self.slots = torch.where(valid.inside, valid.sample * valid.longest + valid.position, 0)
            first, place = valid.ends - valid.lengths, torch.arange(valid.longest, device=x.device)
            self.rows = torch.where(self.valid, first[:, None] + place, self.total)
            return
        batch, n = self.given
        self.total, self.real = batch * n, valid.flatten()
        place = torch.arange(n, device=x.device)
        start = n * torch.arange(batch, device=x.device)[:, None]
        self.valid = place < valid.sum(1, keepdim=True)
        self.slots = (start + (valid.long().cumsum(1) - 1).clamp(min=0)).flatten()
        order = torch.argsort(torch.where(valid, place, place + n), dim=1)  # keys are distinct, so the sort is stable
        self.rows = torch.where(self.valid, start + order, self.total)

    def flat(self, x: Tensor) -> Tensor:
        """Convert from the layout of the caller to flat tokens (T, ...), 0 at padding."""
        if len(self.given) == 2:
            x = x.flatten(0, 1)
        if self.kept is not None:
            return x[self.kept]
        return zero_padding(x, self.real)

    def back(self, run: Tensor) -> Tensor:
        """Convert flat tokens back to the layout of the caller (inverse of `flat`)."""
        if self.kept is not None:
            run = run.new_zeros(self.given.numel(), *run.shape[1:]).index_copy(0, self.kept, run)
        return zero_padding(run, self.real).view(*self.given, *run.shape[1:])

    def pad(self, run: Tensor) -> Tensor:
        """Padded tensor (B, N, ...) of flat tokens, 0 at padding."""
        if self.valid is None:
            return run.view(*self.rows.shape, *run.shape[1:])
        return take(run, self.rows)

    def unpad(self, square: Tensor) -> Tensor:
        """Flat tokens of a padded tensor (inverse of `pad`); arbitrary values at padding."""
        return square.flatten(0, 1)[self.slots]

    def show(self, run: Tensor, name: str, watch: Watch | None) -> None:
        """Store flat tokens in `watch` as a hidden state, in the layout of the caller."""
        if watch is not None:
            watch.saw_hidden(self.back(run), name)


def coordinates(at: Tensor, x: Tensor, layout: Layout) -> Tensor:
    """Flat coordinates (T, A) from (N,), (N, A), (B, N), (B, N, A), (T,) or (T, A)."""
    lead = x.shape[:-1]
    if (at.dim() == len(lead) and at.shape == lead) or at.dim() == 1:
        at = at[..., None]
    at = at.expand(*lead, at.shape[-1])
    return layout.flat(at if at.is_floating_point() else at.to(x.dtype))


def take(run: Tensor, rows: Tensor) -> Tensor:
    """Select rows of flat tokens (T, ...); index T selects zeros.

    The gradients are deterministic.
    """
    wide = torch.cat([run, run.new_zeros(1, *run.shape[1:])])
    if wide.dim() == 2 and wide.is_floating_point():
        return F.embedding(rows, wide)
    return wide[rows]
