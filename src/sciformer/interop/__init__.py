"""Weights and models of others: import them as runs, export runs for them."""

from .export import export_model, formats
from .importing import import_model

__all__ = ["export_model", "formats", "import_model"]
