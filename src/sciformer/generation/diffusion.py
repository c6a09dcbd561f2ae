"""Sampling of a denoising diffusion model with few steps (DDIM, arXiv 2010.02502).

    x_u = a_u x + sqrt(s_u^2 - r^2) e + r z,   r = eta (s_u / s_t) sqrt(1 - a_t^2 / a_u^2)

is a step from time t to the next lower time u, with the predicted values x, the predicted noise e and fresh noise z.
a and s are the signal and the noise of a `Schedule`. With eta = 0 the result is a function of the first noise. With
eta = 1 and all time steps, this is the sampler of DDPM.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np
from torch import Tensor

from ..errors import UserError
from ..objectives.diffusion import Diffusion, Schedule

Predict = Callable[[Tensor, float], Tensor]
"""Map noisy values (R, ...) and the noise level t / T to the prediction of the model."""


def choose_times(total: int, steps: int) -> list[int]:
    """Evenly spaced times from `total` down to 0: `steps` + 1 numbers."""
    if not 1 <= steps <= total:
        message = f"the number of denoising steps must be from 1 to {total}, the noise levels in training, not {steps}"
        raise UserError(message, key="--steps")
    times: list[int] = np.rint(np.linspace(total, 0, steps + 1)).astype(int).tolist()
    return times


def step_down(levels: Schedule, x: Tensor, noise: Tensor, before: int, after: int, eta: float, fresh: Tensor) -> Tensor:
    """Noisy values at time `after`, from the predictions at time `before`.

    x, noise     predicted values and predicted noise
    eta, fresh   amount of fresh noise, and fresh noise
    """
    a, s = (float(part[before]) for part in levels)
    a_next, s_next = (float(part[after]) for part in levels)
    random = eta * (s_next / s) * math.sqrt(max(0.0, 1 - (a / a_next) ** 2))
    mean = a_next * x + math.sqrt(max(0.0, s_next**2 - random**2)) * noise
    return mean + random * fresh if random else mean


def denoise_steps(
    objective: Diffusion,
    predict: Predict,
    noise: Tensor,
    steps: int,
    eta: float = 0.0,
    draw: Callable[[int], Tensor] | None = None,
) -> Iterator[Tensor]:
    """Remove noise from values (R, ...); yield the predicted values after each step.

    noise  (R, ...) first values, all noise
    steps  number of steps
    eta    0: the result is a function of the first noise; 1: as much fresh noise as DDPM
    draw   function from the number of a step to fresh noise; needed if eta is above 0
    """
    times = choose_times(objective.time_steps, steps)
    x_t = noise * float(objective.levels.noise[times[0]])
    for number, (before, after) in enumerate(itertools.pairwise(times)):
        x, found = objective.split(x_t, predict(x_t, before / objective.time_steps), before)
        fresh = draw(number) if eta and draw is not None else found
        x_t = step_down(objective.levels, x, found, before, after, eta, fresh)
        yield x
