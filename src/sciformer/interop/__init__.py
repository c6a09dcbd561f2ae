"""Weights and models of others: what comes in, and what goes out."""

from .export import FORMATS, export_model
from .huggingface import FAMILIES, import_model

__all__ = ["FAMILIES", "FORMATS", "export_model", "import_model"]
