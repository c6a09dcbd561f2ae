"""Components of galaxies: bulges, disks, arms, bars, clumps, dust, tidal tails.

Lengths are in units of 1/64 of the field side (`optics.FIELD_SIDE`); fluxes are shares of the total galaxy light.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from ....data.columns import Array
from ....data.readers.sequence import log_uniform
from .optics import FIELD_SIDE, TWO_PI, per_image, render_blobs, rotated_coordinates
from .sersic import CUSP_SOFTENING, profile

Pair = tuple[float, float]
DrawProfile = Callable[..., Array]  # renders Sersic profiles, like `sersic.sersic`
OLD_STAR_COLOURS = (0.9, 1.5)  # magnitude differences between the bluest and the reddest band
YOUNG_STAR_COLOURS = (0.1, 0.8)
ARM_WAVES, ARM_SHARPNESS = 2, (1.0, 3.5)  # sinusoids that deform the arms; range of the sharpness of arms
MAX_CLUMPS, TAIL_BLOBS = 12, 14  # most clumps of an irregular galaxy; blobs of a tidal tail


@dataclass
class LightMaps:
    """Light of n galaxies in components, with dust and the true parameters.

    maps    pairs of light (n, H, W) and colour index (n,) of each component
    """

    radius: Array
    ratio: Array
    angle: Array
    maps: list[tuple[Array, Array]] = field(default_factory=list)
    dust: Array | None = None

    def add(self, map: Array, share: Array, colour: Array) -> None:
        self.maps.append((map * per_image(share), np.asarray(colour)))


def draw_centres(rng: np.random.Generator, n: int, deviation: float = 1.0) -> Array:
    """Draw positions (n, 2) from a normal distribution around the field centre."""
    return rng.normal(0, deviation, (n, 2))


def smooth(n: int, size: int, rng: np.random.Generator, draw: DrawProfile, ratio: Pair, index: Pair) -> LightMaps:
    """Smooth galaxies: a single Sersic profile each.

    ratio   mean and standard deviation of the axis ratio
    index   range of the Sersic index
    """
    q, angle = np.clip(rng.normal(*ratio, n), 0.2, 1.0), rng.uniform(0, TWO_PI, n)
    made = LightMaps(log_uniform(rng, 3.5, 9.0, n), q, angle)
    light = draw(size, rng.uniform(*index, n), made.radius * np.sqrt(q), q, angle, draw_centres(rng, n))
    made.add(light, np.ones(n), rng.uniform(0.7, OLD_STAR_COLOURS[1], n))
    return made


def edge_on(n: int, size: int, rng: np.random.Generator, draw: DrawProfile) -> LightMaps:
    """Edge-on galaxies: a disk (sech^2 in height), a bulge, and often a dust lane."""
    angle, centre = rng.uniform(0, TWO_PI, n), draw_centres(rng, n)
    length = log_uniform(rng, 3.5, 7.5, n)  # scale length of the exponential disk
    height = np.maximum(length * rng.uniform(0.07, 0.22, n), 0.4)
    along, across = rotated_coordinates(size, centre, angle)
    across = across - per_image(0.002 * rng.normal(0, 1, n)) * along * np.abs(along)  # a warp
    far = np.sqrt(along**2 + per_image((0.5 * length) ** 2)) / per_image(length)
    disk = np.exp(-far) / np.cosh(np.clip(across / per_image(height), -30, 30)) ** 2
    disk /= disk.sum((1, 2), keepdims=True)
    made = LightMaps(1.68 * length, np.clip(1.3 * height / length, 0.05, 1.0), angle)
    share = rng.uniform(0.02, 0.4, n)
    made.add(disk, 1 - share, rng.uniform(0.4, 1.3, n))
    ratio = rng.uniform(0.5, 0.9, n)
    bulge = draw(size, rng.uniform(1.5, 4, n), length * rng.uniform(0.25, 0.6, n), ratio, angle, centre)
    made.add(bulge, share, rng.uniform(*OLD_STAR_COLOURS, n))
    depth = np.where(rng.random(n) < 0.6, rng.uniform(0.7, 3.0, n), 0)
    lane = (across - per_image(height * rng.normal(0, 0.3, n))) / per_image(0.45 * height)
    made.dust = per_image(depth) * np.exp(-0.5 * lane**2 - 0.6 * far)
    return made


def spiral(n: int, size: int, rng: np.random.Generator, draw: DrawProfile, barred: bool) -> LightMaps:
    """Spiral galaxies: a disk with logarithmic arms, a bulge, and optionally a bar.

        I ~ exp(-r / h) (1 + s (a - <a>)),     a = exp(k cos(m (theta - ln(r / r0) / tan p)) - k)

    with scale length h of the disk, strength s and sharpness k of the arms, number of arms m, pitch angle p, and radius
    r0 of the bar ends, where the arms start.
    """
    angle, centre = rng.uniform(0, TWO_PI, n), draw_centres(rng, n)
    radius, tilt = log_uniform(rng, 6.0, 12.0, n), np.sqrt(rng.uniform(0.14, 1, n))  # the cosine of the inclination
    along, across = rotated_coordinates(size, centre, angle)
    across /= per_image(tilt)
    squared = along**2 + across**2 + np.float32((CUSP_SOFTENING * FIELD_SIDE / size) ** 2)
    theta, log_radius = np.arctan2(across, along), 0.5 * np.log(squared)
    start, turn = radius * rng.uniform(0.45, 0.85, n), rng.uniform(0, TWO_PI, n)  # start of the arms; angle of the bar
    made = LightMaps(radius, tilt, angle)
    arms = _arms(theta - per_image(turn), log_radius - per_image(np.log(start)), n, barred, rng)
    disk = profile(squared, np.ones(n), radius)
    disk *= arms
    disk /= disk.sum((1, 2), keepdims=True)
    share = rng.uniform(0.03, 0.35, n)
    bar = rng.uniform(0.08, 0.35, n) if barred else 0.3 * share * (rng.random(n) < 0.3)
    share = share * (0.4 if barred else 1)
    made.add(disk, 1 - share - bar, rng.uniform(*YOUNG_STAR_COLOURS, n))
    old = rng.uniform(*OLD_STAR_COLOURS, n)
    bulge = draw(size, rng.uniform(1, 3.5, n), radius * rng.uniform(0.12, 0.25, n), np.sqrt(tilt), angle, centre)
    made.add(bulge, share, old)
    c, s = per_image(np.cos(turn)), per_image(np.sin(turn))
    thin = rng.uniform(0.18, 0.36, n) if barred else rng.uniform(0.5, 0.8, n)
    long, short = c * along + s * across, (c * across - s * along) / per_image(thin)
    oval = profile(long**2 + short**2 + np.float32(0.05), np.full(n, 0.6), 0.6 * start)
    oval /= oval.sum((1, 2), keepdims=True)
    made.add(oval, bar, old)
    return made


def _arms(theta: Array, log_radius: Array, n: int, barred: bool, rng: np.random.Generator) -> Array:
    """Factor (n, H, W) of spiral arms on the light of a disk, with mean about 1.

    theta        (n, H, W) azimuth
    log_radius   (n, H, W) ln(r / r0), with the radius r0 of the bar ends
    """
    count = per_image(np.full(n, 2) if barred else rng.choice([2, 2, 2, 3, 4], n))
    way, pitch = np.where(rng.random(n) < 0.5, 1, -1), np.radians(rng.uniform(10, 32, n))
    wound = theta - per_image(way / np.tan(pitch)) * log_radius
    bend = sum(
        per_image(rng.uniform(0, 0.35, n))
        * np.sin(per_image(rng.uniform(2, 6, n)) * log_radius + k * theta + per_image(rng.uniform(0, TWO_PI, n)))
        for k in range(1, ARM_WAVES + 1)
    )
    narrow = per_image(rng.uniform(*ARM_SHARPNESS, n))
    pattern = np.exp(narrow * (np.cos(count * wound + bend) - 1))
    grown = 1 / (1 + np.exp(-(log_radius + np.float32(0.1)) / np.float32(0.12)))  # no arms inside the bar
    strength = per_image(log_uniform(rng, 0.35, 2.6, n))
    inner = pattern.mean((1, 2), keepdims=True)
    return np.asarray(np.maximum(1 + grown * strength * (pattern - inner) / inner, 0.03))


def irregular(n: int, size: int, rng: np.random.Generator, draw: DrawProfile) -> LightMaps:
    """Irregular galaxies: a faint off-centre disk and random clumps of young stars."""
    angle, q = rng.uniform(0, TWO_PI, n), rng.uniform(0.35, 1, n)
    radius, centre = log_uniform(rng, 5.0, 11.0, n), draw_centres(rng, n)
    made = LightMaps(radius, q, angle)
    share = rng.uniform(0.2, 0.75, n)
    aside = centre + draw_centres(rng, n, 0.35) * radius[:, None]
    disk = draw(size, rng.uniform(0.5, 1.2, n), radius * np.sqrt(q), q, angle, aside)
    made.add(disk, 1 - share, rng.uniform(*YOUNG_STAR_COLOURS, n))
    place = rng.normal(0, 0.75, (2, n, MAX_CLUMPS)) * radius[:, None]
    place[1] *= q[:, None]
    c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
    x, y = c * place[0] - s * place[1] + centre[:, :1], s * place[0] + c * place[1] + centre[:, 1:]
    flux = rng.exponential(1, (n, MAX_CLUMPS)) * (np.arange(MAX_CLUMPS) < rng.integers(3, MAX_CLUMPS + 1, (n, 1)))
    width = radius[:, None] * rng.uniform(0.08, 0.3, (n, MAX_CLUMPS))
    made.add(render_blobs(size, x, y, width, flux / flux.sum(1, keepdims=True)), share, rng.uniform(-0.2, 0.6, n))
    return made


def merger(n: int, size: int, rng: np.random.Generator, draw: DrawProfile) -> LightMaps:
    """Mergers: two close galaxies with tidal tails."""
    angle = rng.uniform(0, TWO_PI, n)
    radius, second = log_uniform(rng, 3.5, 8.0, n), log_uniform(rng, 2.5, 6.0, n)
    apart = (radius + second) * rng.uniform(0.5, 1.7, n)
    way = np.stack([np.cos(angle), np.sin(angle)], 1)
    middle = draw_centres(rng, n)
    share = rng.uniform(0.15, 0.5, n)  # flux of the smaller galaxy
    made = LightMaps(radius, rng.uniform(0.4, 1, n), rng.uniform(0, TWO_PI, n))
    tails = np.where(rng.random(n) < 0.75, rng.uniform(0.06, 0.4, n), 0)
    for sign, own, part in ((-0.5, radius, 1 - share), (0.5, second, share)):
        place = middle + sign * apart[:, None] * way
        q = made.ratio if sign < 0 else rng.uniform(0.4, 1, n)
        turn = made.angle if sign < 0 else rng.uniform(0, TWO_PI, n)
        body = draw(size, rng.uniform(0.8, 3.5, n), own * np.sqrt(q), q, turn, place)
        made.add(body, part * (1 - tails), rng.uniform(YOUNG_STAR_COLOURS[0], OLD_STAR_COLOURS[1], n))
        x, y, width = _tail(n, place, own, angle + (np.pi if sign < 0 else 0), rng)
        fade = np.exp(-np.linspace(0, 2, TAIL_BLOBS))
        tail = render_blobs(size, x, y, width, np.tile(fade / fade.sum(), (n, 1)))
        made.add(tail, part * tails, rng.uniform(*YOUNG_STAR_COLOURS, n))
    return made


def _tail(n: int, place: Array, radius: Array, angle: Array, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Positions x, y and widths of blobs (n, TAIL_BLOBS) along a curved tidal tail."""
    step = np.linspace(0, 1, TAIL_BLOBS)
    length = radius * rng.uniform(2, 5, n)
    bend = rng.uniform(0.8, 2.6, n) * np.where(rng.random(n) < 0.5, 1, -1)
    heading = angle[:, None] + rng.normal(0, 0.7, n)[:, None] + bend[:, None] * step
    pace = length[:, None] / TAIL_BLOBS
    x = place[:, :1] + np.cumsum(np.cos(heading) * pace, 1)
    y = place[:, 1:] + np.cumsum(np.sin(heading) * pace, 1)
    return x, y, radius[:, None] * (0.15 + 0.2 * step)


MAKERS: dict[str, Callable[[int, int, np.random.Generator, DrawProfile], LightMaps]] = {
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
