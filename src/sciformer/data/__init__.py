"""From files to batches: sources, splits, tokenised samples, their order and their randomness.

curves, write_curves   light curves in memory, as a table of samples and as a file
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .readers.series.memory import curves as curves
    from .readers.series.memory import write_curves as write_curves

if not TYPE_CHECKING:  # imported when they are asked for

    def __getattr__(name: str) -> Any:
        if name not in ("curves", "write_curves"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from .readers.series import memory as curve_memory

        return getattr(curve_memory, name)
