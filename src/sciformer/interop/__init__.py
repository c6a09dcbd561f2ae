"""Exchange with other libraries: import of models as runs, export of runs."""

from .export import export_model, formats
from .importing import import_model

__all__ = ["export_model", "formats", "import_model"]
