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
from collections.abc import Callable, Iterator
from importlib import import_module
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any

from maar.core.lifeline import follow_parent

PRELOAD = "maar.certification.fork_server_modules"
# Seconds for a signal to arrive here too, if it was sent to the workers and to this process.
ECHO = 0.2
# Whatever computes with several threads has read one of these by the time that it is loaded.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def context() -> ForkServerContext | SpawnContext:
    """Where worker processes and their pipes come from."""
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")  # macOS' libraries do not survive a fork
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload([PRELOAD])
    return found


def warm_up() -> None:
    """Start the fork server and return at once; the earlier in a program, the better."""
    if isinstance(context(), ForkServerContext):
        from multiprocessing import forkserver

        with _quietly(), _without_main():
            forkserver.ensure_running()


def start(target: Callable[..., object], *args: object) -> tuple[BaseProcess, Connection]:
    """Start `target(pipe, *args)` in a worker; returns it, and the other end of the pipe.

    A worker has one thread, is deaf to Ctrl-C, as its parent will end it, and ends with its parent.
    """
    warm_up()
    mine, theirs = context().Pipe()
    # By name: what a worker imports before it has begun to follow its parent would outlive that.
    name = (target.__module__, target.__qualname__)
    process = context().Process(target=_enter, args=(*name, theirs, *args), daemon=True)
    # What a fork server's child is like was settled when that started. It is not waited for under
    # `_quietly`: the first child comes when torch is imported, and Ctrl-C must work until then.
    quietly = _quietly() if isinstance(context(), SpawnContext) else contextlib.nullcontext()
    with quietly, _without_main():
        process.start()
    theirs.close()  # so that the pipe ends when the process does
    return process, mine


def _enter(module: str, name: str, pipe: Connection, *args: object) -> None:
    """The first steps of a worker."""
    _end_with_program()
    getattr(import_module(module), name)(pipe, *args)


def _end_with_program() -> None:
    """End at once when the program ends, even in the middle of a library's call."""
    from multiprocessing import forkserver

    # The fork server ends when the program's end of this pipe is closed. Every worker inherits it,
    # and would keep the server alive, which would keep the worker alive.
    server: Any = forkserver._forkserver  # pyright: ignore[reportAttributeAccessIssue]
    if server._forkserver_alive_fd is not None:
        os.close(server._forkserver_alive_fd)
        server._forkserver_alive_fd = None
    follow_parent()


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Keep a new process from running the caller's script again, which workers do not need.

    So a plain script, stdin and a notebook cell may start workers without a `__main__` guard.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


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
