"""A table in pieces, as a source of samples."""

import numpy as np

from sciformer.data.columns import select


class Cut:
    """A table in pieces that records which piece is loaded."""

    def __init__(self, table, sizes):
        self.table, self.sizes, self.loads = table, list(sizes), []

    def load(self, piece):
        self.loads.append(piece)
        start = sum(self.sizes[:piece])
        return select(self.table, np.arange(start, start + self.sizes[piece]))
