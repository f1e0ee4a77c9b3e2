"""The images in several processes of one thread each; the order of the answers is any."""

from __future__ import annotations

import contextlib
import pickle
import time
from collections import deque
from collections.abc import Generator, Sequence
from multiprocessing.connection import Connection, wait

import torch

from maar.certification.audit.proofs import Checker, Job, Seen, Task
from maar.certification.fork_server import ECHO, start
from maar.certification.workers import one_thread
from maar.core.errors import RunError

Results = Generator[list[Seen], None, None]


def check_all(task: Task, jobs: Sequence[Job], workers: int) -> Results:
    """Yield the findings on each job's images. Closing the iterator ends the work."""
    if workers > 1 and len(jobs) > 1:
        yield from _in_processes(task, jobs, min(workers, len(jobs)))
        return
    with one_thread():
        checker = Checker(task)
        for job in jobs:
            yield checker.check(job)


def _in_processes(task: Task, jobs: Sequence[Job], workers: int) -> Results:
    # As bytes: torch would put the tensors into shared memory, which is small in containers.
    payload, waiting = pickle.dumps(task), deque(jobs)
    crew: dict[Connection, int] = {}
    with contextlib.ExitStack() as stack:
        for _ in range(workers):
            process, mine = start(_work, payload)
            stack.callback(process.join)
            stack.callback(process.kill)
            mine.send(waiting.popleft())
            crew[mine] = 1
        while crew:
            for pipe in wait(list(crew)):
                assert isinstance(pipe, Connection)
                try:
                    seen = pipe.recv()
                    if waiting:
                        pipe.send(waiting.popleft())
                    else:
                        del crew[pipe]
                except (EOFError, OSError):
                    time.sleep(ECHO)
                    raise RunError(
                        "a process of the audit died, perhaps for want of memory; try --workers 1"
                    ) from None
                yield seen


def _work(pipe: Connection, payload: bytes) -> None:
    torch.set_num_threads(1)
    checker = Checker(pickle.loads(payload))
    with contextlib.suppress(EOFError, OSError):
        while True:
            pipe.send(checker.check(pipe.recv()))
