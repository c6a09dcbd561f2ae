"""Symmetric states as one: orbits under translations of the lattice and the flip of all spins."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


class Orbits:
    """Group of the translations of a periodic lattice, and of the flip of all spins, as chosen.

    The smallest integer of an orbit stands for all of its states.
    """

    def __init__(self, shape: tuple[int, int], translation: bool, flip: bool) -> None:
        rows, columns = shape
        self.sites, self.flip = rows * columns, flip
        row, column = np.divmod(np.arange(self.sites), columns)
        steps = [(i, j) for i in range(rows) for j in range(columns)] if translation else [(0, 0)]
        moved = [(row + down) % rows * columns + (column + right) % columns for down, right in steps]
        self.targets = torch.tensor(np.stack(moved))  # (G, N): site to which each site moves

    @property
    def trivial(self) -> bool:
        """Whether every orbit is a single state."""
        return len(self.targets) == 1 and not self.flip

    def translate(self, keys: Tensor) -> Tensor:
        """All translations (n, G) of states (n,)."""
        # Products of bits and powers of two are exact in double precision, up to 2^52.
        bits = ((keys[:, None] >> torch.arange(self.sites, device=keys.device)) & 1).double()
        return (bits @ (2.0 ** self.targets.double()).T.to(keys.device)).long()

    def canonical(self, keys: Tensor) -> Tensor:
        """Smallest state (n,) of the orbit of each state (n,)."""
        if self.trivial:
            return keys
        found = self.translate(keys).amin(1)
        if self.flip:
            found = torch.minimum(found, self.translate(keys ^ ((1 << self.sites) - 1)).amin(1))
        return found
