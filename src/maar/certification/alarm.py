"""A last word on time: what does not notice that its time is up is interrupted.

Python code is interrupted by a signal. A library that does not come back, such as a solver past its
time-out, can only be ended with its process: in a worker, whose image is then an ERROR.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from maar.core.process import is_importing

# Seconds for a library to come back, beyond those of the block.
HANG = 30.0
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
        if is_importing(frame):
            signal.setitimer(signal.ITIMER_REAL, LATER)
        else:
            raise TimeUp

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))  # (0 would mean never)
    try:
        with _worker_ended_after(seconds + HANG):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _worker_ended_after(seconds: float) -> Iterator[None]:
    """End this process after so many seconds in the block, if it is a worker."""
    if multiprocessing.parent_process() is None:
        yield
        return
    # Its thread is not Python's, so that it also works where a library holds the interpreter.
    with open(os.devnull, "w") as nowhere:
        faulthandler.dump_traceback_later(max(seconds, 1.0), exit=True, file=nowhere)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
