"""Denoising diffusion: remove noise of a random level from continuous tokens.

    x_t = a_t x + s_t e,   a_t^2 + s_t^2 = 1,   e ~ N(0, 1)        (arXiv 2006.11239)

for t = 1 ... T, from nearly no noise to nearly only noise. The time t and the noise e are pure functions of the seed,
the epoch and the sample.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field
from torch import Tensor, nn

from ..data.batch import Batch, ModelInputs, StreamView
from ..data.columns import Array
from ..data.dataset import Dataset
from ..data.random import SampleRandom, normal_noise
from ..errors import UserError
from ..models.encoder_decoder import SOURCE, TARGET
from ..nn.ragged import Ragged
from ..tokens.base import Tokens
from ..tokens.protocols import Maskable
from .base import Outputs
from .guided import Guided

LEVEL, SIGNAL, AMOUNT = "noise level", "signal", "amount of noise"  # sample columns: t / T, a_t and s_t
NOISE = "noise"  # sample column: 64-bit word of the noise e
COSINE_OFFSET = 0.008  # of the cosine schedule
MAX_BETA = 0.999
MAX_FITTED = 1024  # samples from which the range of the values is learned


class Schedule(NamedTuple):
    """Signal a_t and noise s_t of the times t = 0 ... T; a_0 = 1, s_0 = 0."""

    signal: Array
    noise: Array


@lru_cache(maxsize=16)
def make_schedule(kind: str, steps: int) -> Schedule:
    """Schedule of noise: a_t^2 = prod_{u <= t} (1 - beta_u).

    linear   beta_t from 1e-4 to 0.02, times 1000 / T for T = `steps` (arXiv 2006.11239)
    cosine   a_t^2 = f(t) / f(0), f(t) = cos^2((t / T + 0.008) / 1.008 pi / 2), beta_t at most 0.999 (arXiv 2102.09672)
    """
    if kind == "linear":
        beta = np.clip(np.linspace(1e-4, 0.02, steps) * 1000 / steps, 0, MAX_BETA)
    else:
        f = np.cos((np.arange(steps + 1) / steps + COSINE_OFFSET) / (1 + COSINE_OFFSET) * math.pi / 2) ** 2
        beta = np.clip(1 - f[1:] / f[:-1], 0, MAX_BETA)
    kept = np.concatenate([[1.0], np.cumprod(1 - beta)])
    return Schedule(np.sqrt(kept), np.sqrt(1 - kept))


class Diffusion(Guided):
    """Denoising diffusion: mean of |target - prediction|^2 over the values.

    The target is the noise e, the values x, or the velocity v = a_t e - s_t x (arXiv 2202.00512). With a stream
    `source`, the prediction is made for this condition.
    """

    asks: ClassVar[str] = "denoise"
    reads_out: ClassVar[bool] = True

    time_steps: int = Field(default=1000, ge=2, le=1 << 16)
    """Number T of noise levels (default: 1,000)."""
    schedule: Literal["cosine", "linear"] = "cosine"
    """Schedule of the noise levels (default: cosine)."""
    predict_target: Literal["velocity", "noise", "sample"] = "velocity"
    """Target of the prediction (default: velocity). velocity: a_t e - s_t x. noise: the noise e, as in DDPM. sample:
    the values x without noise. Velocity and noise need a model that is wider than the number of values of a token."""
    sampling_steps: int = Field(default=50, ge=1, le=1 << 16)
    """Number of denoising steps in generation, at most time_steps (default: 50)."""

    @property
    def sends(self) -> tuple[str, ...]:
        return (LEVEL, SIGNAL, AMOUNT, NOISE)

    @property
    def levels(self) -> Schedule:
        """Signal and noise of all times."""
        return make_schedule(self.schedule, self.time_steps)

    def asked_stream(self, streams: Iterable[str]) -> str:
        names = tuple(streams)
        return TARGET if TARGET in names else super().asked_stream(names)

    def heads(self, dim: int, tokens: Tokens) -> dict[str, nn.Module]:
        """Check that the tokens have continuous values; return no heads."""
        who = f"`objective.kind: {self.kind}`"
        if not Maskable.require(tokens, who).continuous:
            message = f"{who} needs tokens with continuous values, not `tokens.kind: {tokens.kind}`"
            raise UserError(message, key="tokens.kind")
        return {}

    def fit(self, train: Dataset) -> None:
        """Store the name of the noisy column, and its largest absolute value."""
        name = self.asked_stream(train.tokens)
        tokens = Maskable.require(train.tokens[name], f"`objective.kind: {self.kind}`")
        self.heads(0, tokens)
        some = train.batch(np.arange(min(MAX_FITTED, len(train)))).streams[name]
        values = tokens.normalise(some).columns[tokens.hides[0]]
        self.state["column"] = tokens.hides[0]
        self.state["bound"] = float(np.abs(values).max(initial=1.0))

    def corrupt(self, batch: Batch, tokens: Mapping[str, Tokens], rng: SampleRandom) -> Batch:
        """Draw the time and the random word of the noise for each sample.

        The noise is added in `step`, to normalised values.
        """
        if self.sampling_steps > self.time_steps:
            message = f"objective.sampling_steps must be at most {self.time_steps}, objective.time_steps"
            raise UserError(f"{message}, not {self.sampling_steps}", key="objective.sampling_steps")
        time = 1 + rng.integers("diffusion time", self.time_steps)
        signal, amount = (part[time].astype(np.float32) for part in self.levels)
        made = {LEVEL: (time / self.time_steps).astype(np.float32), SIGNAL: signal, AMOUNT: amount}
        return batch.with_columns(None, **made, **{NOISE: rng.branch("noise").words.view(np.int64)})

    def step(self, model: Any, inputs: ModelInputs, outputs: bool) -> tuple[Tensor, Outputs]:
        view = inputs.streams[self.asked_stream(inputs.streams)]
        if isinstance(view.valid, Ragged):
            message = "objective.kind: diffusion cannot be used with train.packed: true"
            raise UserError(message, hint="Set train.packed: false.", key="train.packed")
        x = view.columns[self.column]
        noise = normal_noise(inputs.samples[NOISE], math.prod(x.shape[1:])).view(x.shape).to(x.dtype)
        signal, amount = (inputs.samples[one].to(x.dtype).view(-1, *[1] * (x.dim() - 1)) for one in (SIGNAL, AMOUNT))
        noisy = StreamView({**view.columns, self.column: signal * x + amount * noise}, view.valid)
        target = {"noise": noise, "sample": x}.get(self.predict_target, signal * noise - amount * x)
        memory = model.encode(inputs.streams[SOURCE]) if SOURCE in inputs.streams else None
        found = model.readout.predict(model.denoise(noisy, inputs.samples[LEVEL], memory))[self.column]
        error = (found.float() - target.float()).square()
        error = error.flatten(2).mean(-1) if x.dim() > 2 else error
        if view.valid is None:
            loss = error.sum(1) / max(1, error.shape[1])
        else:
            loss = error.masked_fill(~view.valid, 0).sum(1) / view.valid.sum(1).clamp(min=1)
        loss = inputs.counted(loss)
        return loss.sum(), {"loss": loss} if outputs else {}

    @property
    def column(self) -> str:
        """Name of the token column with the values that get noise."""
        return str(self.state["column"])

    def split(self, noisy: Tensor, found: Tensor, time: int) -> tuple[Tensor, Tensor]:
        """Values x and noise e, from noisy values x_t and a prediction.

        noisy   noisy values x_t
        found   prediction of the model
        time    time t

        x is clipped to the range of the training values, because an error at a high noise level is divided by a small
        a_t.
        """
        signal, amount = (float(part[time]) for part in self.levels)
        x = found
        if self.predict_target != "sample":
            plain = self.predict_target == "noise"
            x = (noisy - amount * found) / signal if plain else signal * noisy - amount * found
        x = x.clamp(-self.state["bound"], self.state["bound"])
        return x, (noisy - signal * x) / amount

    @property
    def usage(self) -> str:
        return "sciformer generate RUN --out FOLDER"
