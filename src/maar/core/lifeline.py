"""End a process with the one that started it, however that one ends.

On Linux the kernel sends the signal: it reaches a process that sits in a library's call, and one
whose parent was killed. Elsewhere a thread looks every half second.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

STARTER = "MAAR_STARTER"
"""Variable of the environment: the process that this command is to end with."""
_PR_SET_PDEATHSIG = 1
_LOOK = 0.5


def follow_parent(number: int = signal.SIGKILL, parent: int | None = None) -> None:
    """Have this process sent a signal when its parent ends; at once if that has ended already."""
    parent = os.getppid() if parent is None else parent
    if not _kernel_sends(number):
        threading.Thread(target=_watch, args=(parent, number), daemon=True).start()
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def follow_starter() -> None:
    """Follow the process that asked for it, by `STARTER`; it may let this one save what it has."""
    starter = os.environ.pop(STARTER, "")
    if starter.isdigit():
        follow_parent(signal.SIGTERM, int(starter))


def _kernel_sends(number: int) -> bool:
    if sys.platform != "linux":
        return False
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    return prctl is not None and prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0) == 0


def _watch(parent: int, number: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os.kill(os.getpid(), number)
