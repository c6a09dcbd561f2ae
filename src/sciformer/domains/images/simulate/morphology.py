"""What galaxies are made of: bulges, disks, arms that wind as logarithmic spirals, bars, clumps, dust, tidal tails.

Lengths are in units of the field's side over 64 (`optics.FIELD`), flux in shares of the galaxy's light.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from ....data.columns import Array
from ....data.readers.sequence import sizes
from .arrays import TURN, Floats
from .optics import FIELD, blobs, column, turned
from .sersic import SOFT, profile

SampleRandom = np.random.Generator
Draw = Callable[..., Floats]  # of Sersic profiles, as `sersic.sersic`
RED, BLUE = (0.9, 1.5), (0.1, 0.8)  # magnitudes between the bluest and the reddest band, of old and of young stars
WIGGLES, SHARP = 2, (1.0, 3.5)  # of arms: waves that break them, and how narrow they are
CLUMPS, BEADS = 12, 14  # the most of an irregular galaxy; blobs in a tidal tail


@dataclass
class Light:
    """Maps of light (n, H, W) with their colours (n,), dust before them, and what is known of the galaxies."""

    radius: Floats
    ratio: Floats
    angle: Floats
    maps: list[tuple[Floats, Floats]] = field(default_factory=list)
    dust: Floats | None = None

    def add(self, map: Floats, share: Array, colour: Array) -> None:
        """More light, of this share."""
        self.maps.append((map * column(share), np.asarray(colour)))


def around(rng: SampleRandom, n: int, mean: float, deviation: float, low: float, high: float) -> Floats:
    """Normal numbers, kept between two."""
    return np.clip(rng.normal(mean, deviation, n), low, high)


def centres(rng: SampleRandom, n: int, deviation: float = 1.0) -> Floats:
    """(n, 2) near the middle."""
    return rng.normal(0, deviation, (n, 2))


def smooth(
    n: int, size: int, rng: SampleRandom, draw: Draw, ratio: tuple[float, float], index: tuple[float, float]
) -> Light:
    """One profile and nothing else; `ratio` is the mean of the axes' ratios and their deviation."""
    q, angle = around(rng, n, *ratio, 0.2, 1.0), rng.uniform(0, TURN, n)
    made = Light(sizes(rng, n, 3.5, 9.0), q, angle)
    light = draw(size, rng.uniform(*index, n), made.radius * np.sqrt(q), q, angle, centres(rng, n))
    made.add(light, np.ones(n), rng.uniform(0.7, RED[1], n))
    return made


def edge_on(n: int, size: int, rng: SampleRandom, draw: Draw) -> Light:
    """A thin disk seen from its side, sech^2 across; a bulge; and often a lane of dust."""
    angle, centre = rng.uniform(0, TURN, n), centres(rng, n)
    length = sizes(rng, n, 3.5, 7.5)  # of the exponential
    height = np.maximum(length * rng.uniform(0.07, 0.22, n), 0.4)
    along, across = turned(size, centre, angle)
    across = across - column(0.002 * rng.normal(0, 1, n)) * along * np.abs(along)  # a warp
    far = np.sqrt(along**2 + column((0.5 * length) ** 2)) / column(length)
    disk = np.exp(-far) / np.cosh(np.clip(across / column(height), -30, 30)) ** 2
    disk /= disk.sum((1, 2), keepdims=True)
    made = Light(1.68 * length, np.clip(1.3 * height / length, 0.05, 1.0), angle)
    share = rng.uniform(0.02, 0.4, n)
    made.add(disk, 1 - share, rng.uniform(0.4, 1.3, n))
    ratio = rng.uniform(0.5, 0.9, n)
    bulge = draw(size, rng.uniform(1.5, 4, n), length * rng.uniform(0.25, 0.6, n), ratio, angle, centre)
    made.add(bulge, share, rng.uniform(*RED, n))
    depth = np.where(rng.random(n) < 0.6, rng.uniform(0.7, 3.0, n), 0)
    lane = (across - column(height * rng.normal(0, 0.3, n))) / column(0.45 * height)
    made.dust = column(depth) * np.exp(-0.5 * lane**2 - 0.6 * far)
    return made


def spiral(n: int, size: int, rng: SampleRandom, draw: Draw, barred: bool) -> Light:
    """A disk with arms, I ~ exp(-r / h) (1 + s (a - <a>)), a = exp(k cos(m (theta - ln(r / r0) / tan p)) - k); a bulge;
    perhaps a bar, from whose ends the arms begin."""
    angle, centre = rng.uniform(0, TURN, n), centres(rng, n)
    radius, tilt = sizes(rng, n, 6.0, 12.0), np.sqrt(rng.uniform(0.14, 1, n))  # the cosine of the inclination
    along, across = turned(size, centre, angle)
    across /= column(tilt)
    squared = along**2 + across**2 + np.float32((SOFT * FIELD / size) ** 2)
    theta, far = np.arctan2(across, along), 0.5 * np.log(squared)
    start, turn = radius * rng.uniform(0.45, 0.85, n), rng.uniform(0, TURN, n)  # where arms begin, and the bar is
    made = Light(radius, tilt, angle)
    arms = _arms(theta - column(turn), far - column(np.log(start)), n, barred, rng)
    disk = profile(squared, np.ones(n), radius)
    disk *= arms
    disk /= disk.sum((1, 2), keepdims=True)
    share = rng.uniform(0.03, 0.35, n)
    bar = rng.uniform(0.08, 0.35, n) if barred else 0.3 * share * (rng.random(n) < 0.3)
    share = share * (0.4 if barred else 1)
    made.add(disk, 1 - share - bar, rng.uniform(*BLUE, n))
    old = rng.uniform(*RED, n)
    bulge = draw(size, rng.uniform(1, 3.5, n), radius * rng.uniform(0.12, 0.25, n), np.sqrt(tilt), angle, centre)
    made.add(bulge, share, old)
    c, s = column(np.cos(turn)), column(np.sin(turn))
    thin = rng.uniform(0.18, 0.36, n) if barred else rng.uniform(0.5, 0.8, n)
    long, short = c * along + s * across, (c * across - s * along) / column(thin)
    oval = profile(long**2 + short**2 + np.float32(0.05), np.full(n, 0.6), 0.6 * start)
    oval /= oval.sum((1, 2), keepdims=True)
    made.add(oval, bar, old)
    return made


def _arms(theta: Floats, far: Floats, n: int, barred: bool, rng: SampleRandom) -> Floats:
    """The pattern of arms (n, H, W), about 1 on average, at angles from the bar and logarithms of r over its end."""
    count = column(np.full(n, 2) if barred else rng.choice([2, 2, 2, 3, 4], n))
    way, pitch = np.where(rng.random(n) < 0.5, 1, -1), np.radians(rng.uniform(10, 32, n))
    wound = theta - column(way / np.tan(pitch)) * far
    bend = sum(
        column(rng.uniform(0, 0.35, n))
        * np.sin(column(rng.uniform(2, 6, n)) * far + k * theta + column(rng.uniform(0, TURN, n)))
        for k in range(1, WIGGLES + 1)
    )
    narrow = column(rng.uniform(*SHARP, n))
    pattern = np.exp(narrow * (np.cos(count * wound + bend) - 1))
    grown = 1 / (1 + np.exp(-(far + np.float32(0.1)) / np.float32(0.12)))  # none within the bar's end
    strength = column(sizes(rng, n, 0.35, 2.6))
    inner = pattern.mean((1, 2), keepdims=True)
    made: Floats = np.maximum(1 + grown * strength * (pattern - inner) / inner, 0.03)
    return made


def irregular(n: int, size: int, rng: SampleRandom, draw: Draw) -> Light:
    """A faint disk off centre, and clumps of young stars without order."""
    angle, q = rng.uniform(0, TURN, n), rng.uniform(0.35, 1, n)
    radius, centre = sizes(rng, n, 5.0, 11.0), centres(rng, n)
    made = Light(radius, q, angle)
    share = rng.uniform(0.2, 0.75, n)
    aside = centre + centres(rng, n, 0.35) * radius[:, None]
    made.add(
        draw(size, rng.uniform(0.5, 1.2, n), radius * np.sqrt(q), q, angle, aside),
        1 - share,
        rng.uniform(*BLUE, n),
    )
    place = rng.normal(0, 0.75, (2, n, CLUMPS)) * radius[:, None]
    place[1] *= q[:, None]
    c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
    x, y = c * place[0] - s * place[1] + centre[:, :1], s * place[0] + c * place[1] + centre[:, 1:]
    flux = rng.exponential(1, (n, CLUMPS)) * (np.arange(CLUMPS) < rng.integers(3, CLUMPS + 1, (n, 1)))
    width = radius[:, None] * rng.uniform(0.08, 0.3, (n, CLUMPS))
    made.add(blobs(size, x, y, width, flux / flux.sum(1, keepdims=True)), share, rng.uniform(-0.2, 0.6, n))
    return made


def merger(n: int, size: int, rng: SampleRandom, draw: Draw) -> Light:
    """Two galaxies close to each other, with tails of light drawn out of them."""
    angle = rng.uniform(0, TURN, n)
    radius, second = sizes(rng, n, 3.5, 8.0), sizes(rng, n, 2.5, 6.0)
    apart = (radius + second) * rng.uniform(0.5, 1.7, n)
    way = np.stack([np.cos(angle), np.sin(angle)], 1)
    middle = centres(rng, n)
    share = rng.uniform(0.15, 0.5, n)  # of the smaller one
    made = Light(radius, rng.uniform(0.4, 1, n), rng.uniform(0, TURN, n))
    tails = np.where(rng.random(n) < 0.75, rng.uniform(0.06, 0.4, n), 0)
    for sign, own, part in ((-0.5, radius, 1 - share), (0.5, second, share)):
        place = middle + sign * apart[:, None] * way
        q = made.ratio if sign < 0 else rng.uniform(0.4, 1, n)
        turn = made.angle if sign < 0 else rng.uniform(0, TURN, n)
        body = draw(size, rng.uniform(0.8, 3.5, n), own * np.sqrt(q), q, turn, place)
        made.add(body, part * (1 - tails), rng.uniform(BLUE[0], RED[1], n))
        x, y, width = _tail(n, place, own, angle + (np.pi if sign < 0 else 0), rng)
        fade = np.exp(-np.linspace(0, 2, BEADS))
        made.add(blobs(size, x, y, width, np.tile(fade / fade.sum(), (n, 1))), part * tails, rng.uniform(*BLUE, n))
    return made


def _tail(n: int, place: Floats, radius: Floats, angle: Floats, rng: SampleRandom) -> tuple[Floats, Floats, Floats]:
    """Blobs (n, BEADS) along a curve that leaves a galaxy and bends away; their places and widths."""
    step = np.linspace(0, 1, BEADS)
    length = radius * rng.uniform(2, 5, n)
    bend = rng.uniform(0.8, 2.6, n) * np.where(rng.random(n) < 0.5, 1, -1)
    heading = angle[:, None] + rng.normal(0, 0.7, n)[:, None] + bend[:, None] * step
    pace = length[:, None] / BEADS
    x = place[:, :1] + np.cumsum(np.cos(heading) * pace, 1)
    y = place[:, 1:] + np.cumsum(np.sin(heading) * pace, 1)
    return x, y, radius[:, None] * (0.15 + 0.2 * step)


MAKERS: dict[str, Callable[[int, int, SampleRandom, Draw], Light]] = {
    "round": partial(smooth, ratio=(0.9, 0.06), index=(1.5, 5.0)),
    "between": partial(smooth, ratio=(0.64, 0.08), index=(1.2, 4.5)),
    "cigar": partial(smooth, ratio=(0.36, 0.07), index=(0.8, 3.0)),
    "edge_on": edge_on,
    "barred": partial(spiral, barred=True),
    "unbarred": partial(spiral, barred=False),
    "irregular": irregular,
    "merger": merger,
}
CLASSES = tuple(MAKERS)
