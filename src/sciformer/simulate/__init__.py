"""Simulators: data that need no download, with exact answers to check them against."""

from . import lattices
from .lattices import ising

__all__ = ["ising", "lattices"]
