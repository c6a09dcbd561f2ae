"""Markov chains of states with probability |psi|^2: Metropolis exchanges of two spins, or flips of one spin."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Moved(NamedTuple):
    """States (C,) after the moves, and the numbers of accepted and proposed moves."""

    keys: Tensor
    accepted: Tensor
    proposed: int


def metropolis(
    log_amplitude: Callable[[Tensor], Tensor],
    keys: Tensor,
    sites: int,
    sweeps: int,
    conserves: bool,
    generator: torch.Generator | None = None,
) -> Moved:
    """Sweeps of N proposed moves of each chain, accepted with probability min(1, |psi(s') / psi(s)|^2).

    log_amplitude   function from states (C,) to ln |psi| (C,)
    conserves       whether to exchange a spin up and a spin down, drawn at random, so that the sum of S^z stays;
                    otherwise one spin is flipped
    generator       source of the random numbers (default: the global generator)
    """
    place = torch.arange(sites, device=keys.device)
    accepted, now = torch.zeros((), dtype=torch.long, device=keys.device), log_amplitude(keys)
    for _ in range(sweeps * sites):
        noise = torch.rand(len(keys), sites, device=keys.device, generator=generator)
        if conserves:
            up = (keys[:, None] >> place) & 1
            first = (noise * up + up).argmax(1)
            second = (noise * (1 - up) + 1 - up).argmax(1)
            proposed = keys ^ (1 << first) ^ (1 << second)
        else:
            proposed = keys ^ (1 << noise.argmax(1))
        then = log_amplitude(proposed)
        chance = torch.rand(len(keys), device=keys.device, generator=generator, dtype=now.dtype)
        taken = chance.log() < 2 * (then - now)
        keys, now = torch.where(taken, proposed, keys), torch.where(taken, then, now)
        accepted = accepted + taken.sum()
    return Moved(keys, accepted, sweeps * sites * len(keys))
