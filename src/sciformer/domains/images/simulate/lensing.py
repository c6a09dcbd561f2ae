"""How mass bends light: the elliptical power law of Tessore and Metcalf (arXiv 1507.01819), and a shear from outside.

    kappa(R) = (3 - slope) / 2 (b / R)^(slope - 1),     R^2 = q^2 x^2 + y^2,     b = sqrt(q) theta_E

The deflection is exact, as a series that falls as f^k with f = (1 - q) / (1 + q). A slope of 2 is the singular
isothermal ellipsoid (SIE). Signs and names are those of lenstronomy: e1 and e2 are f times the cosine and sine of twice
the angle of the mass's long axis, from x to y.
"""

from __future__ import annotations

import numpy as np

from ....data.columns import Array
from .optics import per_image

SERIES_TOLERANCE = 1e-5  # where the series of a deflection ends, over its first term


def axis_ratio_and_angle(e1: Array, e2: Array) -> tuple[Array, Array]:
    """Axis ratio and angle of the long axis."""
    f = np.hypot(e1, e2)
    return (1 - f) / (1 + f), 0.5 * np.arctan2(e2, e1)


def deflection(x: Array, y: Array, radius: Array, slope: Array, e1: Array, e2: Array) -> tuple[Array, Array]:
    """The angle (n, H, W) by which light that is seen at x, y from the centre was bent; arguments (n,)."""
    q, angle = axis_ratio_and_angle(e1, e2)
    f, t = np.hypot(e1, e2), np.asarray(slope) - 1
    c, s = per_image(np.cos(angle)), per_image(np.sin(angle))
    along, across = c * x + s * y, c * y - s * x
    inner = along * per_image(q) + 1j * across
    far = np.maximum(np.abs(inner), np.float32(1e-9))
    turn = inner / far
    double, found = turn * turn, np.ones_like(turn)
    steepest = max(float(f.max(initial=0)), 1e-9)
    for k in range(1 + int(np.log(SERIES_TOLERANCE) / np.log(steepest)), 0, -1):  # the innermost bracket first
        found *= double
        found *= per_image(-f * (2 * k - (2 - t)) / (2 * k + (2 - t)))
        found += 1
    b = np.asarray(radius) * np.sqrt(q)
    size = per_image(2 * b / (1 + q)) * (per_image(b) / far) ** per_image(t - 1)
    turned = found * turn * (size * (c + 1j * s))
    return turned.real, turned.imag


def source_plane(
    x: Array,
    y: Array,
    radius: Array,
    slope: Array,
    e1: Array,
    e2: Array,
    centre: Array,
    shear: Array,
) -> tuple[Array, Array]:
    """Where light that is seen at x, y came from: theta - alpha(theta) - shear theta; centre and shear (n, 2)."""
    bent = deflection(x - per_image(centre[:, 0]), y - per_image(centre[:, 1]), radius, slope, e1, e2)
    g1, g2 = per_image(shear[:, 0]), per_image(shear[:, 1])
    return x - bent[0] - g1 * x - g2 * y, y - bent[1] - g2 * x + g1 * y
