"""Sciformer: one transformer, any token."""

from ._version import __version__

__all__ = ["__version__"]
