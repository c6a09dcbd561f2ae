"""States of spins to test with."""

import numpy as np


def start(chains, height, width, seed=0):
    return np.random.default_rng(seed).choice(np.array((-1, 1), np.int8), (chains, height, width))


def stagger(height, width):
    return (1 - 2 * (np.add.outer(np.arange(height), np.arange(width)) % 2)).astype(np.int8)
