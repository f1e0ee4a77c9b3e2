"""Signals that ask the program to end: Ctrl-C, a scheduler's SIGTERM, a terminal that closes.

Each is raised in the main thread, like Ctrl-C in any Python program: workers are stopped, files are
left whole, and the command says how to go on. The exit code is 128 plus the signal's number.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import NoReturn

from maar.core.process import is_importing

WORDS = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "stopped, as the terminal was closed",
}
KEPT = "what was finished is kept"
# Seconds for the main thread to notice: it cannot while it sits in a library's call.
GRACE = 5.0
# Seconds within which the same signal is the same request: `timeout` sends it twice.
ECHO = 1.0


_received = signal.SIGINT
"""The signal of the KeyboardInterrupt: libraries such as Ray raise their own for it."""


def word() -> str:
    """Return what happened, in a word or two."""
    return WORDS[_received]


def exit_code() -> int:
    """Return 128 plus the signal's number, as a shell would."""
    return 128 + _received


def farewell(way_on: str = "") -> int:
    """Say in one line what happened and how to go on; returns the exit code."""
    line = f"maar: {word()}" + (f"; {way_on}" if way_on else "")
    with contextlib.suppress(OSError):  # the terminal may be closed
        print(line, file=sys.stderr)
    return exit_code()


def catch_signals() -> None:
    """Raise KeyboardInterrupt for the signals that are not ignored; for the program only."""
    answered, last = threading.Event(), -ECHO

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal last
        global _received
        answered.set()
        if is_importing(frame):
            # C code turns an exception in the middle of an import into another error, or swallows
            # it and leaves half a module behind.
            _leave(number)
        is_echo = number != signal.SIGINT and time.monotonic() - last < ECHO
        if not is_echo:
            last, _received = time.monotonic(), signal.Signals(number)
            raise KeyboardInterrupt

    for number in WORDS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` and a shell's `&` leave it
            signal.signal(number, stop)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_insist, args=(reading, answered), daemon=True).start()


def _insist(signals: int, answered: threading.Event) -> None:
    """Leave for a main thread that does not come back from a library's call."""
    while byte := os.read(signals, 1):
        if byte[0] in {*WORDS} and not answered.wait(GRACE):
            _leave(byte[0], KEPT)


def _leave(number: int, way_on: str = "") -> NoReturn:
    global _received
    _received = signal.Signals(number)
    os._exit(farewell(way_on))
