"""Advection and diffusion of a temperature on a sphere, with a daily cycle.

    dT/dt + (u, v) . grad T = k lap T - (T - T_0(latitude)) / tau + heating(place, hour)

k is the diffusion constant, T_0 the temperature without wind and heating, and tau the relaxation time. The wind (u, v)
to the east and to the north has no divergence: it follows from a stream function psi of jets and moving waves,

    u = -1/a dpsi/dlatitude,   v = 1 / (a cos latitude) dpsi/dlongitude,

where a is the radius of the sphere. The amplitudes of the waves are random processes in time. Advection is
semi-Lagrangian: the new temperature of a cell is the old temperature at the place from which the wind came. The sun
heats the place below it, which moves to the west. A random map of land and sea makes the daily cycle stronger or
weaker.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....data.columns import Array

RADIUS = 6.371e6  # m
HOUR = 3600.0  # s
WARM_UP = 240  # hours before the first map, in which the waves form a pattern
RELAXATION = 120.0  # tau in hours
MEMORY = 96.0  # hours of the amplitudes of the waves
HEATING = 1.0  # K per hour below the sun
EQUATOR, CONTRAST = 300.0, 45.0  # K at the equator, and its difference to the poles in T_0
JET, WAVE = 25.0, 8.0  # m/s of jets and waves
WAVES = ((2, 1), (3, 2), (4, 1), (5, 2), (6, 3), (7, 2))  # zonal and meridional wave numbers


@dataclass(frozen=True)
class Sphere:
    """Grid of H x W cells on a sphere.

    latitude    (H,) centres of the cells in degrees
    longitude   (W,) centres of the cells in degrees
    """

    latitude: Array
    longitude: Array

    @classmethod
    def of(cls, rows: int, columns: int) -> Sphere:
        """Grid without points at the poles."""
        return cls(-90 + (np.arange(rows) + 0.5) * 180 / rows, np.arange(columns) * 360 / columns)

    def interpolate(self, values: Array, latitude: Array, longitude: Array) -> Array:
        """Interpolate values (..., H, W) linearly to places (H, W) in degrees.

        Beyond a pole, the values on the other side of the pole are used.
        """
        beyond = np.abs(latitude) > 90
        latitude = np.where(beyond, np.sign(latitude) * 180 - latitude, latitude)
        longitude = np.where(beyond, longitude + 180, longitude)
        rows, columns = values.shape[-2:]
        # A row beyond each pole: the last row, seen from the other side.
        turned = np.roll(values, columns // 2, -1)
        padded = np.concatenate([turned[..., :1, :], values, turned[..., -1:, :]], -2)
        down = np.clip((latitude + 90) * rows / 180 + 0.5, 0, rows + 1 - 1e-9)
        aside = np.mod(longitude * columns / 360, columns)
        row, column = down.astype(np.int64), np.minimum(aside.astype(np.int64), columns - 1)
        below, right = down - row, aside - column
        after = (column + 1) % columns
        low = padded[..., row, column] * (1 - right) + padded[..., row, after] * right
        high = padded[..., row + 1, column] * (1 - right) + padded[..., row + 1, after] * right
        return np.asarray(low * (1 - below) + high * below)

    def smooth(self, values: Array, strength: float) -> Array:
        """Diffusion over one step: a mean with the neighbours, 0 <= strength <= 0.25."""
        turned = np.roll(values, values.shape[-1] // 2, -1)
        north = np.concatenate([values[1:], turned[-1:]])
        south = np.concatenate([turned[:1], values[:-1]])
        around = north + south + np.roll(values, 1, -1) + np.roll(values, -1, -1)
        return np.asarray((1 - 4 * strength) * values + strength * around)


class Flow:
    """Temperature and wind on a sphere, hour by hour.

    The same arguments give the same maps.

    rows, columns   size of the grid
    seed            seed of the random numbers
    wind            factor of the wind (0: no wind)
    diffusion       strength of `Sphere.smooth` in an hour
    """

    def __init__(self, rows: int, columns: int, seed: int, wind: float = 1.0, diffusion: float = 0.02) -> None:
        self.sphere, self.wind, self.diffusion = Sphere.of(rows, columns), wind, diffusion
        self.rng = np.random.default_rng(seed)
        north = np.deg2rad(self.sphere.latitude)[:, None]
        self.north, self.east = north, np.deg2rad(self.sphere.longitude)[None]
        self.usual = EQUATOR - CONTRAST * np.sin(north) ** 2
        phases = self.rng.uniform(0, 2 * np.pi, (2, len(WAVES)))
        ground = sum(
            np.cos(north) * np.cos(m * self.east + a) * np.cos(n * north + b)
            for (m, n), a, b in zip(WAVES[:4], *phases)
        )
        self.ground = 0.7 + 0.6 * np.tanh(ground)
        """Factor of the daily cycle: small over sea, large over land."""
        self.amplitude = self.rng.normal(size=(2, len(WAVES)))
        self.temperature = self.usual + np.zeros((rows, columns))
        self.hour = -WARM_UP
        for _ in range(WARM_UP):
            self.step()

    def stream_function(self, latitude: Array) -> Array:
        """Stream function (H', W) in m2/s at latitudes (H', 1) in radians."""
        jets = JET * RADIUS * (np.cos(2 * latitude) ** 2 * np.sin(latitude) * -0.5)
        psi = jets + np.zeros_like(self.east)
        for (m, n), (even, odd) in zip(WAVES, self.amplitude.T):
            shape = np.cos(latitude) ** 2 * np.cos(n * latitude)
            wave = even * np.cos(m * self.east) + odd * np.sin(m * self.east)
            psi = psi + WAVE * RADIUS / m * shape * wave
        return np.asarray(self.wind * psi)

    def winds(self) -> tuple[Array, Array]:
        """Wind to the east and to the north, each (H, W) in m/s.

        The wind is computed from differences of the stream function.
        """
        half = np.deg2rad(90 / len(self.sphere.latitude))
        u = -(self.stream_function(self.north + half) - self.stream_function(self.north - half)) / (2 * half * RADIUS)
        psi = self.stream_function(self.north)
        width = 2 * np.pi / len(self.sphere.longitude)
        v = (np.roll(psi, -1, 1) - np.roll(psi, 1, 1)) / (2 * width * RADIUS * np.cos(self.north))
        return u, v

    def heating(self) -> Array:
        """Heating (H, W) in K per hour; its mean over a day is 0."""
        sun = np.deg2rad(15.0 * (self.hour % 24) - 180.0)  # noon at Greenwich at 12
        above = np.maximum(0.0, np.cos(self.north) * np.cos(self.east + sun))
        return np.asarray(HEATING * self.ground * (above - np.cos(self.north) / np.pi))

    def step(self) -> None:
        """Advance by one hour."""
        u, v = self.winds()
        degree = np.rad2deg(HOUR / RADIUS)
        latitude = self.sphere.latitude[:, None] - v * degree
        longitude = self.sphere.longitude[None] - u * degree / np.cos(self.north)
        carried = self.sphere.interpolate(self.temperature, latitude, longitude)
        carried = self.sphere.smooth(carried, self.diffusion)
        self.temperature = carried - (carried - self.usual) / RELAXATION + self.heating()
        kept = np.exp(-1 / MEMORY)
        self.amplitude = kept * self.amplitude + np.sqrt(1 - kept**2) * self.rng.normal(size=self.amplitude.shape)
        self.hour += 1

    def run(self, hours: int) -> dict[str, Array]:
        """Maps (hours, H, W) of the next hours, by name of the field.

        `temperature` is in K, `eastward_wind` and `northward_wind` are in m/s.
        """
        found: dict[str, list[Array]] = {"temperature": [], "eastward_wind": [], "northward_wind": []}
        for _ in range(hours):
            for name, one in zip(found, (self.temperature, *self.winds())):
                found[name].append(one.astype(np.float32))
            self.step()
        return {name: np.stack(maps) for name, maps in found.items()}
