"""The process that the workers are forks of: it has imported torch, and has never used it.

Importing torch takes two seconds of a core. With a fork server it happens once instead of in every
worker, and while the program itself is still loading. A fork of the program instead would not do:
of a process that has run torch, or a display's thread, it may hang.

Importing this module costs no torch.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess

WORKER = "maar.certify.workers"
# Whatever computes with several threads has read one of these by the time that it is loaded.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def context() -> ForkServerContext | SpawnContext:
    """Where worker processes and their pipes come from."""
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")  # macOS' libraries do not survive a fork
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload([WORKER])
    return found


def warm_up() -> None:
    """Start the fork server and return at once; the earlier in a program, the better."""
    if isinstance(context(), ForkServerContext):
        from multiprocessing import forkserver

        with _quietly():
            forkserver.ensure_running()


def start(process: BaseProcess) -> None:
    """Start a process of `context`: one thread, and deaf to Ctrl-C, as its parent will end it."""
    warm_up()
    # What a fork server's child is like was settled when that started. It is not waited for under
    # `_quietly`: the first child comes when torch is imported, and Ctrl-C must work until then.
    with _quietly() if isinstance(context(), SpawnContext) else contextlib.nullcontext():
        process.start()


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """A process started here has one thread and ignores Ctrl-C."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    try:
        with _interrupts_ignored():
            yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may touch signals, and only it is interrupted
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
