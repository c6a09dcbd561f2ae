"""From files to batches: sources, splits, datasets, samplers and random numbers.

read_series, write_series   light curves in memory: convert to a table of samples, write to a file
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .readers.series.memory import read_series as read_series
    from .readers.series.memory import write_series as write_series

if not TYPE_CHECKING:  # imported on first use

    def __getattr__(name: str) -> Any:
        if name not in ("read_series", "write_series"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from .readers.series import memory as series_memory

        return getattr(series_memory, name)
