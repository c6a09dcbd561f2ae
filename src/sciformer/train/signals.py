"""Being asked to stop: once, the step ends and is saved; twice, at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

WATCHED = [name for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)]


class Stop:
    """Whether somebody asked to stop, and with which signal. A handler only sets this flag; the loop reads it."""

    def __init__(self) -> None:
        self.signal: int = 0

    def __bool__(self) -> bool:
        return self.signal != 0

    @property
    def name(self) -> str:
        """The name of the signal."""
        return signal.Signals(self.signal).name if self.signal else ""

    def _heard(self, number: int, frame: Any) -> None:
        if self.signal:
            raise KeyboardInterrupt
        self.signal = number

    @contextmanager
    def listening(self) -> Iterator[Stop]:
        """While inside, signals are heard; then things are as before. Outside the main thread nothing is heard."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {name: signal.signal(getattr(signal, name), self._heard) for name in WATCHED}
        try:
            yield self
        finally:
            for name, handler in before.items():
                signal.signal(getattr(signal, name), handler)
