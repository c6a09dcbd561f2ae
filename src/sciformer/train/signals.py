"""Being asked to stop: once, the step ends and is saved; twice, at once."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

WATCHED_SIGNALS = [name for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)]
# In which a second signal is the first one's echo: torchrun passes on what the terminal sent to all.
ECHO_SECONDS = 1.0


class Stop:
    """Whether somebody asked to stop, and with which signal. A handler only sets this flag; the loop reads it."""

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
        """While inside, signals are heard; then things are as before. Outside the main thread nothing is heard."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {name: signal.signal(getattr(signal, name), self._handle) for name in WATCHED_SIGNALS}
        try:
            yield self
        finally:
            for name, handler in before.items():
                signal.signal(getattr(signal, name), handler)


def signal_name(number: int) -> str:
    """SIGTERM for 15."""
    return signal.Signals(number).name
