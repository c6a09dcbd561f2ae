"""Beam search for the most likely output of a decoder.

The score of a finished hypothesis is

    s = ln p(tokens, end) / ((5 + length) / 6)^a                (arXiv 1609.08144; a = 0 is the plain log probability)

The search of a sample ends when `beam` hypotheses are finished, or when no running hypothesis can still exceed the best
finished score. A beam as wide as the number of sequences gives the exact argmax. A beam of 1 is greedy decoding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import UserError


class Hypothesis(NamedTuple):
    """Tokens of a hypothesis, without begin and end token, and its score."""

    ids: list[int]
    score: float


Step = Callable[[Tensor], Tensor]
"""Map the last tokens (R,) of R hypotheses to logits (R, V) of the next token."""
Reorder = Callable[[Tensor], None]
"""Select rows (R',) of the running hypotheses in the cache of the decoder."""


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
    """Finished hypotheses of each of B samples, best first.

    first    (B, V) log probabilities of the first token after the begin token or the prompt; the cache has B rows
    longest  (B,) maximum number of tokens of a hypothesis, without its end token
    allowed  (V,) mask of tokens that may be written (default: all); `end` is always allowed
    """
    samples, size = first.shape
    device = first.device
    only_end = torch.arange(size, device=device) == end
    closed = torch.zeros_like(only_end) if allowed is None else ~(allowed.to(device) | only_end)
    finished: list[list[Hypothesis]] = [[] for _ in range(samples)]
    active = torch.arange(samples, device=device)  # samples whose search is not finished
    limits = longest.to(device)
    exact = torch.promote_types(first.dtype, torch.float32)
    scores = first.new_zeros(samples, 1, dtype=exact)  # (A, K) log probabilities of the hypotheses
    written = torch.zeros(samples, 1, 0, dtype=torch.long, device=device)  # (A, K, length)
    logs = first[:, None]
    while len(active):
        length = written.shape[2]
        full = (limits[active] <= length)[:, None, None]  # only the end token may follow
        logs = logs.to(exact).masked_fill(closed | (full & ~only_end), -torch.inf)
        total = (scores[..., None] + logs).flatten(1)
        count = min(2 * beam, total.shape[1])
        best, place = total.topk(count, 1)
        if best.isnan().any():
            message = "the model predicts NaN as the probability of a token"
            raise UserError(message, hint="The weights are broken. Train the model again.")
        parent, token = place // size, place % size
        ends = (token == end) & torch.isfinite(best)
        row, column = ends[:, :beam].nonzero(as_tuple=True)
        texts = written[row, parent[row, column]].tolist()
        for sample, ids, log in zip(active[row].tolist(), texts, best[row, column].tolist()):
            finished[sample].append(Hypothesis(ids, normalise_score(log, len(ids) + 1, penalty)))
        alive = best.masked_fill(token == end, -torch.inf)
        scores, kept = alive.topk(min(beam, count), 1)
        parent, token = parent.gather(1, kept), token.gather(1, kept)
        goes_on = []
        for sample, alive, limit in zip(active.tolist(), scores.amax(1).tolist(), limits[active].tolist()):
            found = finished[sample]
            # A running hypothesis can only lose probability; the length penalty favours the maximum length.
            hope = normalise_score(alive, limit + 1, penalty) if alive > -torch.inf else -torch.inf
            goes_on.append(len(found) < beam and hope > max((one.score for one in found), default=-torch.inf))
        stay = torch.tensor(goes_on, device=device)
        rows = (torch.arange(len(active), device=device)[:, None] * written.shape[1] + parent)[stay]
        written = torch.cat([written.gather(1, parent[..., None].expand(-1, -1, length)), token[..., None]], 2)[stay]
        active, scores, token = active[stay], scores[stay], token[stay]
        if not len(active):
            break
        reorder(rows.flatten())
        logs = step(token.flatten()).to(exact).log_softmax(-1).view(*token.shape, size)
    return [sorted(found, key=lambda one: -one.score) for found in finished]


def normalise_score(log: float, length: int, penalty: float) -> float:
    """Log probability divided by the length penalty ((5 + length) / 6)^penalty."""
    return log * math.exp(-penalty * math.log((5 + length) / 6))  # a large penalty gives 0 instead of an overflow
