"""Denoising steps: closed forms of DDPM and DDIM, and exactness with the right prediction."""

import math

import numpy as np
import pytest
import torch

from sciformer.generation.diffusion import choose_times, denoise_steps, step_down
from sciformer.objectives.diffusion import Diffusion, make_schedule
from tests.errors import refuses


def objective(**keys):
    made = Diffusion(kind="diffusion", **keys)
    made.state.update(column="patch", bound=100.0)
    return made


def test_the_linear_schedule_is_that_of_ddpm():
    beta = np.linspace(1e-4, 0.02, 1000)
    kept = np.cumprod(1 - beta)
    levels = make_schedule("linear", 1000)
    np.testing.assert_allclose(levels.signal[1:] ** 2, kept, rtol=1e-12)
    np.testing.assert_allclose(levels.noise[1:] ** 2, 1 - kept, rtol=1e-9)
    assert (levels.signal[0], levels.noise[0]) == (1, 0)


def test_the_cosine_schedule_is_that_of_improved_ddpm():
    t = np.arange(1001) / 1000
    f = np.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2
    levels = make_schedule("cosine", 1000)
    np.testing.assert_allclose(levels.signal[:990] ** 2, (f / f[0])[:990], rtol=1e-9)
    assert 0 < levels.signal[-1] < 1e-2  # the last beta is cut
    assert (np.diff(levels.signal) < 0).all()


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_step_with_all_fresh_noise_is_the_posterior_of_ddpm(schedule):
    levels, rng = make_schedule(schedule, 200), torch.Generator().manual_seed(0)
    x, e, z = (torch.randn(4, 3, generator=rng, dtype=torch.float64) for _ in range(3))
    for t in (2, 50, 150):
        kept, before = levels.signal[t] ** 2, levels.signal[t - 1] ** 2
        alpha, beta = kept / before, 1 - kept / before
        noisy = math.sqrt(kept) * x + math.sqrt(1 - kept) * e
        mean = math.sqrt(before) * beta / (1 - kept) * x + math.sqrt(alpha) * (1 - before) / (1 - kept) * noisy
        deviation = math.sqrt((1 - before) / (1 - kept) * beta)
        torch.testing.assert_close(step_down(levels, x, e, t, t - 1, 1.0, z), mean + deviation * z)


@pytest.mark.parametrize("target", ["velocity", "noise", "sample"])
@pytest.mark.parametrize("steps", [1, 3, 50])
def test_the_right_prediction_gives_the_sample_in_any_number_of_steps(target, steps):
    chosen = objective(predict_target=target, schedule="linear")
    rng = torch.Generator().manual_seed(0)
    x, e = (torch.randn(2, 5, 3, generator=rng, dtype=torch.float64) for _ in range(2))
    start = chosen.levels.signal[-1] * x + chosen.levels.noise[-1] * e

    def predict(noisy, level):
        a, s = (part[round(level * 1000)] for part in chosen.levels)
        noise = (noisy - a * x) / s
        return {"noise": noise, "sample": x}.get(target, a * noise - s * x)

    found = list(denoise_steps(chosen, predict, start / chosen.levels.noise[-1], steps))
    assert len(found) == steps
    torch.testing.assert_close(found[-1], x, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("target", ["velocity", "noise", "sample"])
def test_values_and_noise_are_split_from_the_prediction(target):
    chosen = objective(predict_target=target)
    x, e = torch.randn(3, 4, 2), torch.randn(3, 4, 2)
    for t in (1, 400, 900):
        a, s = (float(part[t]) for part in chosen.levels)
        noisy, found = a * x + s * e, {"noise": e, "sample": x}.get(target, a * e - s * x)
        one, other = chosen.split(noisy, found, t)
        torch.testing.assert_close(one, x, rtol=1e-2, atol=1e-3)
        torch.testing.assert_close(a * one + s * other, noisy)


def test_values_are_clipped_to_the_range_of_training():
    chosen = objective()
    chosen.state["bound"] = 1.5
    x, e = chosen.split(torch.full((1, 1, 1), 9.0), torch.zeros(1, 1, 1), 100)
    assert float(x) == 1.5
    a, s = (float(part[100]) for part in chosen.levels)
    assert float(a * x + s * e) == pytest.approx(9)


def test_fresh_noise_is_drawn_in_each_step():
    chosen, asked = objective(), []

    def draw(number):
        asked.append(number)
        return torch.ones(1, 2, 1)

    list(denoise_steps(chosen, lambda x, level: x * 0, torch.ones(1, 2, 1), 4, eta=1.0, draw=draw))
    assert asked == [0, 1, 2, 3]


def test_times_go_down_evenly():
    assert choose_times(1000, 4) == [1000, 750, 500, 250, 0]
    assert choose_times(5, 5) == [5, 4, 3, 2, 1, 0]
    for steps in (0, 6):
        with refuses(steps, key="--steps"):
            choose_times(5, steps)
