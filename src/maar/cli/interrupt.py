"""Ctrl-C while the large libraries load.

Their C code turns a KeyboardInterrupt in the middle of an import into some other error, or swallows
it and leaves half a module behind. Nothing has begun at that time, so leaving at once is safe.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def leave_at_once() -> Iterator[None]:
    """Let Ctrl-C end the program with one line and exit code 130 within the block."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set a handler, and only it is interrupted
        return

    def leave(number: int, frame: object) -> None:
        os.write(2, b"maar: interrupted\n")
        os._exit(130)

    before = signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
