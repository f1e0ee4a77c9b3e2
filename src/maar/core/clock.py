"""The time that a computation may take, asked for by whatever may take long.

    with until(now() + 5):
        ...                 # raises Late at the first `check` after five seconds

A loop that has something to give catches `Late` and gives it.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from contextvars import ContextVar


class Late(Exception):
    """Time is up in the middle of a computation."""


_end: ContextVar[float] = ContextVar("end", default=math.inf)
_clock = time.monotonic


def now() -> float:
    """Seconds on the clock that all deadlines are read from."""
    return _clock()


def count_cpu() -> None:
    """Let this process count its CPU time instead: for measurements on a busy machine."""
    global _clock
    _clock = time.process_time


def is_cpu_time() -> bool:
    """Whether `now` counts CPU time."""
    return _clock is time.process_time


@contextlib.contextmanager
def until(end: float) -> Iterator[None]:
    """Let `check` raise `Late` in the block once `now()` has reached `end`."""
    token = _end.set(min(end, _end.get()))
    try:
        yield
    finally:
        _end.reset(token)


def check() -> None:
    """Raise `Late` if time is up."""
    if _clock() >= _end.get():
        raise Late


def left() -> float:
    """Seconds until time is up."""
    return _end.get() - _clock()
