"""Stop signals: the first signal saves and stops, the second stops at once."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

WATCHED_SIGNALS = [name for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)]
# A second signal within this time is an echo of the first: the terminal sends a signal to all processes, and torchrun
# forwards it to them again.
ECHO_SECONDS = 1.0


class Stop:
    """Flag set by a signal handler and read by the training loop."""

    def __init__(self) -> None:
        self.signal: int = 0
        self.when = 0.0

    def __bool__(self) -> bool:
        return self.signal != 0

    def _handle(self, number: int, frame: Any) -> None:
        if not self.signal:
            self.signal, self.when = number, time.monotonic()
        elif time.monotonic() - self.when > ECHO_SECONDS:
            raise KeyboardInterrupt

    @contextmanager
    def listening(self) -> Iterator[Stop]:
        """Context manager: install the signal handlers (only in the main thread)."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {name: signal.signal(getattr(signal, name), self._handle) for name in WATCHED_SIGNALS}
        try:
            yield self
        finally:
            for name, handler in before.items():
                signal.signal(getattr(signal, name), handler)
