"""Scores of predicted fields by lead time and level, as in WeatherBench 2.

    rmse          sqrt(mean over maps of <(m - y)^2>)
    bias          mean over maps of <m - y>
    acc           mean over maps of <m' y'> / sqrt(<m'^2> <y'^2>), with anomalies m', y' from the climatology
    crps          mean over maps of the fair CRPS of the members, or of the CRPS of the normal distribution
    spread_skill  sqrt((M + 1) / M <s^2>) / rmse: 1 for members that are drawn like the truth
    climatology   rmse of the climatology

<.> is the mean over the known cells of a map, weighted by their area: sin(north edge) - sin(south edge) of the cell.
The edges of a cell are half a row from its centre, also at the border of a region, but never beyond a pole. M is the
number of members, m their mean, s^2 their variance, and y the truth.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import pi, sqrt
from typing import Any

import numpy as np
import torch

from ...data.batch import Stream
from ...data.columns import Array
from ...tokens.protocols import HiddenScores

SUMS = ("squares", "bias", "acc", "crps", "variance", "climatology", "maps")
NO_LEAD = ("downscale", "inpaint", "bias")  # masks at all hours


def area_weights(latitude: Array, spacing: Array | float) -> Array:
    """Area of grid cells, up to a factor: sin(north edge) - sin(south edge).

    latitude  centres of the cells in degrees
    spacing   height of the cells in degrees
    """
    half = np.asarray(spacing) / 2
    edges = (np.deg2rad(np.clip(latitude + side * half, -90, 90)) for side in (1, -1))
    north, south = (np.sin(edge) for edge in edges)
    return np.asarray(north - south)


def gaussian_crps(mean: Array, std: Array, truth: Array) -> Array:
    """CRPS of a normal distribution with mean m and standard deviation s.

        s (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi)),   z = (y - m) / s

    y is the truth. Phi is the distribution function of the standard normal distribution, phi its density.
    """
    z = (truth - mean) / std
    phi = np.exp(-0.5 * z**2) / sqrt(2 * pi)
    twice = torch.erf(torch.from_numpy(np.ascontiguousarray(z / sqrt(2)))).numpy()  # 2 Phi(z) - 1
    return np.asarray(std * (z * twice + 2 * phi - 1 / sqrt(pi)))


def fair_crps(members: Array, truth: Array) -> Array:
    """Fair CRPS (..., P) of M members (..., M, P) for true values (..., P).

    See `nn.losses.fair_crps` for the equation.
    """
    count = members.shape[-2]
    weight = 2.0 * np.arange(count) - (count - 1)
    half = (np.sort(members, axis=-2) * weight[:, None]).sum(-2)
    return np.asarray(np.abs(members - truth[..., None, :]).mean(-2) - half / (count * (count - 1)))


class FieldScores(HiddenScores):
    """Scores of a field, collected from its cubes.

    A map is one level of a neighbourhood at one time. The lead time of a map is the time since the last known step.

    cube   time steps, rows and columns of a cube
    mask   name of the mask
    """

    def __init__(self, field: str, cube: tuple[int, int, int], mask: str) -> None:
        self.field, self.cube, self.leads = field, cube, mask not in NO_LEAD
        self.sums: dict[tuple[float, float], dict[str, float]] = {}
        self.members = 0

    def add(self, stream: Stream, restored: Mapping[str, Array]) -> None:
        asked = stream.columns["asked"].astype(bool)
        if not asked.any():
            return
        chosen = stream.keep(asked)
        columns, (duration, height, width) = chosen.columns, self.cube
        shape = (len(columns["at"]), duration, height, width)
        truth, usual, mean = (
            np.asarray(one, np.float64).reshape(shape)
            for one in (columns["target value"], columns["climate"], restored["value"])
        )
        north = columns["north"].astype(np.float64)
        weight = np.broadcast_to(area_weights(north, columns["spacing"][:, None])[:, None, :, None], shape)
        known = np.isfinite(truth)
        weight = np.where(known, weight, 0.0)
        level, lead = columns["level"], self._lead(stream, asked, chosen)
        parts = {"weight": weight, "squares": (mean - truth) ** 2, "bias": mean - truth}
        parts |= {"mo": (mean - usual) * (truth - usual), "mm": (mean - usual) ** 2, "oo": (truth - usual) ** 2}
        if "members" in restored:
            members = restored["members"].astype(np.float64)
            self.members = members.shape[1]
            parts["crps"] = fair_crps(members, truth.reshape(len(truth), -1)).reshape(shape)
            parts["variance"] = members.var(1, ddof=1).reshape(shape)
        elif "std" in restored:
            std = restored["std"].astype(np.float64).reshape(shape)
            parts |= {"crps": gaussian_crps(mean, std, truth), "variance": std**2}
        # The sums over each map: a sample, a level and a time.
        keys = np.stack(
            [
                np.repeat(chosen.sample, duration).astype(np.float64),
                np.repeat(level, duration),
                np.repeat(columns["at"][:, 1], duration) * duration + np.tile(np.arange(duration), shape[0]),
            ],
            1,
        )
        _, first, which = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        totals = {
            name: np.bincount(
                which,
                (weight * (1.0 if name == "weight" else np.where(known, one, 0.0))).sum((2, 3)).ravel(),
                len(first),
            )
            for name, one in parts.items()
        }
        with np.errstate(invalid="ignore", divide="ignore"):
            means = {name: total / totals["weight"] for name, total in totals.items() if name != "weight"}
            acc = means["mo"] / np.sqrt(means["mm"] * means["oo"])
        maps = {
            "squares": means["squares"],
            "bias": means["bias"],
            "acc": np.nan_to_num(acc),
            "climatology": means["oo"],
            "crps": means.get("crps", np.full(len(first), np.nan)),
            "variance": means.get("variance", np.full(len(first), np.nan)),
            "maps": np.ones(len(first)),
        }
        levels, leads = np.repeat(level, duration)[first], lead.ravel()[first]
        for key in sorted({*zip(levels.tolist(), leads.tolist())}):
            here = (levels == key[0]) & (leads == key[1]) & (totals["weight"] > 0)
            own = self.sums.setdefault(key, dict.fromkeys(SUMS, 0.0))
            for name in SUMS:
                own[name] += float(maps[name][here].sum())

    def _lead(self, stream: Stream, asked: Array, chosen: Stream) -> Array:
        """Lead times (A, steps of a cube) of the A predicted cubes, in hours.

        The lead time is the time since the last known step of the sample. It is 0 for masks at all hours.

        asked   mask (T,) of the predicted cubes
        chosen  stream of the predicted cubes
        """
        duration = self.cube[0]
        columns = chosen.columns
        if not self.leads:
            return np.zeros((len(columns["at"]), duration))
        hours = columns["time"][:, :1] + columns["step"][:, None] * np.arange(duration)
        lead = np.empty_like(hours)
        ends, sample = stream.columns["time"][:, 1], stream.sample
        hidden = {*zip(sample[asked].tolist(), stream.columns["at"][asked, 1].tolist())}
        row = stream.columns["at"][:, 1]
        for number in np.unique(chosen.sample):
            own = np.flatnonzero(sample == number)
            known = sorted({float(ends[token]) for token in own if (int(number), int(row[token])) not in hidden})
            here = chosen.sample == number
            before = np.searchsorted(known, hours[here] - 1e-6)
            last = np.array([-np.inf, *known])[before]
            lead[here] = np.round(hours[here] - last, 6)
        return np.where(np.isfinite(lead), lead, 0.0)

    def rows(self) -> list[dict[str, Any]]:
        made = []
        for (level, lead), sums in sorted(self.sums.items()):
            if not sums["maps"]:
                continue
            means = {name: sums[name] / sums["maps"] for name in SUMS}
            row: dict[str, Any] = {"field": self.field, "level": level or "", "lead": f"{lead:g} h"}
            rmse = sqrt(means["squares"])
            row |= {"rmse": rmse, "bias": means["bias"], "acc": means["acc"], "climatology": sqrt(means["climatology"])}
            if np.isfinite(means["crps"]):
                factor = (self.members + 1) / self.members if self.members else 1.0
                row |= {"crps": means["crps"], "spread_skill": sqrt(factor * means["variance"]) / max(rmse, 1e-12)}
            made.append({**row, "maps": int(sums["maps"])})
        if not self.leads:
            made = [{name: value for name, value in row.items() if name != "lead"} for row in made]
        return made
