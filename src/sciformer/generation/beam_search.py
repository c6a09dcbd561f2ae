"""Beam search: the likeliest sequence a decoder would write, or nearly.

Hypotheses of a sample that end are put aside with their score

    s = ln p(tokens, end) / ((5 + length) / 6)^a                (arXiv 1609.08144; a = 0 is the plain log probability)

and its search ends when as many were put aside as the beam is wide, or when none of the others can become better than
the best of them. With a beam as wide as there are sequences that is the exact argmax; a beam of 1 takes the likeliest
token each time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import UserError


class Hypothesis(NamedTuple):
    """Tokens written, without begin and end, and their score."""

    ids: list[int]
    score: float


Step = Callable[[Tensor], Tensor]
"""From the last tokens (R,) of R hypotheses to logits (R, V) of the next."""
Reorder = Callable[[Tensor], None]
"""Go on with these rows (R',) of the hypotheses in flight."""


def beam_search(
    step: Step,
    reorder: Reorder,
    first: Tensor,
    end: int,
    longest: Tensor,
    *,
    beam: int = 1,
    penalty: float = 0.6,
    allowed: Tensor | None = None,
) -> list[list[Hypothesis]]:
    """For each of B samples its hypotheses, best first.

    first    (B, V) log probabilities of the first token: what a decoder says after the begin token or a prompt. The
             state behind it has B rows
    longest  (B,) most tokens of a hypothesis, its end not counted
    allowed  (V,) which tokens may be written; `end` always may
    """
    samples, size = first.shape
    device = first.device
    only_end = torch.arange(size, device=device) == end
    closed = torch.zeros_like(only_end) if allowed is None else ~(allowed.to(device) | only_end)
    put_aside: list[list[Hypothesis]] = [[] for _ in range(samples)]
    active = torch.arange(samples, device=device)  # the samples still in flight
    limits = longest.to(device)
    exact = torch.promote_types(first.dtype, torch.float32)
    scores = first.new_zeros(samples, 1, dtype=exact)  # (A, K) log probabilities of the hypotheses
    written = torch.zeros(samples, 1, 0, dtype=torch.long, device=device)  # (A, K, length)
    logs = first[:, None]
    while len(active):
        length = written.shape[2]
        full = (limits[active] <= length)[:, None, None]  # nothing but the end
        logs = logs.to(exact).masked_fill(closed | (full & ~only_end), -torch.inf)
        total = (scores[..., None] + logs).flatten(1)
        count = min(2 * beam, total.shape[1])
        best, place = total.topk(count, 1)
        if best.isnan().any():
            raise UserError(
                "the model gives NaN for the probabilities of tokens", hint="Its weights are broken; train it again."
            )
        parent, token = place // size, place % size
        ends = (token == end) & torch.isfinite(best)
        _put_aside(put_aside, active, written, parent, best, ends, beam, penalty)
        alive = best.masked_fill(token == end, -torch.inf)
        scores, kept = alive.topk(min(beam, count), 1)
        parent, token = parent.gather(1, kept), token.gather(1, kept)
        done = _is_done(put_aside, active, scores, limits, beam, penalty)
        stay = torch.tensor([not one for one in done], device=device)
        rows = (torch.arange(len(active), device=device)[:, None] * written.shape[1] + parent)[stay]
        written = torch.cat([written.gather(1, parent[..., None].expand(-1, -1, length)), token[..., None]], 2)[stay]
        active, scores, token = active[stay], scores[stay], token[stay]
        if not len(active):
            break
        reorder(rows.flatten())
        logs = step(token.flatten()).to(exact).log_softmax(-1).view(*token.shape, size)
    return [sorted(found, key=lambda one: -one.score) for found in put_aside]


def normalise_score(log: float, length: int, penalty: float) -> float:
    """The score of a hypothesis of so many tokens."""
    return log * math.exp(-penalty * math.log((5 + length) / 6))  # a large penalty leaves 0, and no overflow


def _put_aside(
    aside: list[list[Hypothesis]],
    active: Tensor,
    written: Tensor,
    parent: Tensor,
    best: Tensor,
    ends: Tensor,
    beam: int,
    penalty: float,
) -> None:
    """Keep the hypotheses that end among the best `beam` candidates; those further down had no place in the beam."""
    near = torch.arange(ends.shape[1], device=ends.device) < beam
    row, column = (ends & near).nonzero(as_tuple=True)
    texts = written[row, parent[row, column]].tolist()
    for sample, ids, log in zip(active[row].tolist(), texts, best[row, column].tolist()):
        aside[sample].append(Hypothesis(ids, normalise_score(log, len(ids) + 1, penalty)))


def _is_done(
    aside: list[list[Hypothesis]], active: Tensor, scores: Tensor, limits: Tensor, beam: int, penalty: float
) -> list[bool]:
    """Whether the search of each sample in flight is over."""
    done = []
    for sample, alive, limit in zip(active.tolist(), scores.amax(1).tolist(), limits[active].tolist()):
        found = aside[sample]
        # A live hypothesis only loses probability; with a penalty it would gain most by being as long as may be.
        hope = normalise_score(alive, limit + 1, penalty) if alive > -torch.inf else -torch.inf
        best = max((one.score for one in found), default=-torch.inf)
        done.append(len(found) >= beam or alive == -torch.inf or best >= hope)
    return done
