"""A last word on time: what does not notice that its time is up is interrupted."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

# Seconds until it rings again, if it rang at a bad moment.
LATER = 0.1
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

    def ring(number: int, frame: FrameType | None) -> None:
        if _is_importing(frame):
            signal.setitimer(signal.ITIMER_REAL, LATER)
        else:
            raise TimeUp

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))  # (0 would mean never)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported: cut short, it would stay behind half made."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
