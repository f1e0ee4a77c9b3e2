"""A last word on time: what does not notice that its time is up is interrupted."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

# More than the kernel's timer takes on some machines, and more than anybody waits for.
LONGEST = 1e8


class TimeUp(BaseException):
    """Time is up in the middle of a step. (Not an Exception: nothing on the way may catch it.)"""


@contextlib.contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Raise `TimeUp` in the block after so many seconds: a single bound may take minutes."""
    if seconds >= LONGEST or threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets signals
        return

    def ring(number: int, frame: object) -> None:
        raise TimeUp

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))  # (0 would mean never)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
