"""Types and constants of the simulated images."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]
TWO_PI = 2 * np.pi
