"""A time limit for one call: an endless loop is interrupted, and the alarm of others comes back."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class TimeUp(BaseException):
    """Raised in the student's code; no Exception, so that ``except Exception`` lets it pass."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TimeUp after ``seconds``, and again every half second if it is swallowed.

    Only the main thread of a system with alarms can be interrupted; elsewhere there is no limit.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(
        signal, "setitimer"
    ):
        yield
        return

    def ring(*_: object) -> None:
        raise TimeUp

    handler = signal.signal(signal.SIGALRM, ring)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, 0.5)
    began = time.monotonic()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:
            remaining = max(left - (time.monotonic() - began), 1e-3)
            signal.setitimer(signal.ITIMER_REAL, remaining, interval)
