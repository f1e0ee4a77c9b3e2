"""Settle many images: in this process, or in several with one thread each.

One image at a time beats batches on a CPU, and two processes of one thread beat one of two. A
worker that dies (killed, or out of memory) costs its image only, as an ERROR.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait

import numpy as np
import torch
from torch import nn

from maar.certify.cascade import Cascade, Settled
from maar.certify.fork_server import context, start
from maar.certify.network import PRECISIONS, Network
from maar.certify.query import Query
from maar.certify.verdict import Status
from maar.errors import RunError
from maar.process import prepare

# A worker's start costs about as much as so many easy images.
WORTH_A_WORKER = 20
# So many may die before they are ready; one more, and it is no accident.
STILLBORN = 3
# So many of the last images per worker are put in order.
LAST = 100


@dataclass(frozen=True, eq=False)
class Job:
    """One image: its index in the test split, its pixels [*shape] in [0, 1], its label."""

    index: int
    x: np.ndarray
    y: int


@dataclass(frozen=True, eq=False)
class Task:
    """What is the same for all images."""

    net: nn.Sequential
    shape: tuple[int, ...]
    eps: float
    cascade: Cascade

    def prepared(self) -> Prepared:
        """Compile the network now, so that the first image's time is its own."""
        network = Network(self.net, self.shape)
        for dtype in PRECISIONS:
            network.graph(dtype)
        return Prepared(network, self.eps, self.cascade)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A task with its network compiled."""

    network: Network
    eps: float
    cascade: Cascade

    def settle(self, job: Job) -> Settled:
        """The verdict on one image; its chance is its index, whoever works on it."""
        x = torch.from_numpy(job.x)[None]
        return self.cascade.settle(Query.of(self.network, x, job.y, self.eps, job.index))


def cores() -> int:
    """How many CPUs this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def default_workers(images: int) -> int:
    """One per core, as far as there is work that is worth starting a process for."""
    return max(1, min(cores(), images // WORTH_A_WORKER))


Results = Generator[tuple[Job, Settled], None, None]


@dataclass(frozen=True)
class Team:
    """Who does the work: processes here, or workers on other machines (`ray_workers`)."""

    size: Callable[[int], int]
    """Images -> how many workers are worth having for them."""
    settle_all: Callable[[Task, Sequence[Job], int], Results]
    """(task, jobs, workers) -> each job with its verdict, in the order in which they are done."""


def settle_all(task: Task, jobs: Sequence[Job], workers: int) -> Results:
    """Each job with its verdict, in the order in which they are done. Closing it ends the work."""
    if workers > 1 and len(jobs) > 1:
        yield from _in_processes(task, jobs, min(workers, len(jobs)))
        return
    with one_thread():
        prepared = task.prepared()
        for job in jobs:
            yield job, prepared.settle(job)


LOCAL = Team(default_workers, settle_all)


@torch.no_grad()
def hardest_first(task: Task, jobs: Sequence[Job], workers: int) -> list[Job]:
    """The jobs, the last of them in order of z_y - max z_k, which is small where proofs take long.

    A hard image begun last would keep all but one worker waiting: with 8 workers on the first 1,000
    images of the COLT network, for a quarter of the time. Only the last, as the time left is
    told by the images before.
    """

    def margin(job: Job) -> float:
        z = task.net(torch.from_numpy(job.x)[None])[0]
        others = torch.cat([z[: job.y], z[job.y + 1 :]])
        return float(z[job.y] - others.max())

    cut = max(0, len(jobs) - LAST * workers)
    with one_thread():
        return [*jobs[:cut], *sorted(jobs[cut:], key=margin)]


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """torch on one thread, as in a worker: the same sums, the same verdicts."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _in_processes(task: Task, jobs: Sequence[Job], workers: int) -> Results:
    # As bytes, and images as numpy arrays: torch would put tensors into shared memory, which is
    # small in containers and costs a file descriptor each.
    payload = pickle.dumps(task)
    stillborn = 0
    crew: list[_Worker] = []
    try:
        for _ in range(workers):
            crew.append(_Worker(payload))
        waiting = deque(hardest_first(task, jobs, workers))  # while they prepare themselves
        while crew:
            heard = wait([worker.pipe for worker in crew])
            for worker in [worker for worker in crew if worker.pipe in heard]:
                job, settled = worker.receive()
                if job is not None and settled is not None:
                    yield job, settled
                stillborn += not worker.ready
                if stillborn > STILLBORN:
                    raise RunError("worker processes cannot start; try --workers 1")
                if waiting and not worker.lost:
                    worker.send(waiting.popleft())
                    continue
                worker.stop()
                crew.remove(worker)
                if waiting:
                    crew.append(_Worker(payload))
    finally:
        for worker in crew:
            worker.stop()


class _Worker:
    """A process, and this side of the pipe to it."""

    def __init__(self, payload: bytes) -> None:
        there = context()
        self.pipe, theirs = there.Pipe()
        self.process = there.Process(target=_work, args=(theirs, payload), daemon=True)
        start(self.process)
        theirs.close()  # so that the pipe ends when the process does
        self.job: Job | None = None
        self.ready = False
        self.lost = False

    def send(self, job: Job) -> None:
        self.job = job
        # If it has died meanwhile, `receive` finds out.
        with contextlib.suppress(OSError):
            self.pipe.send(job)

    def receive(self) -> tuple[Job | None, Settled | None]:
        """The job done and its verdict; no job if it has become ready, or died before that."""
        try:
            settled: Settled | None = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            self.lost = True
            why = f"the worker process died ({_reason(self.process.exitcode)})"
            return self.job, Settled(status=Status.ERROR, error=why)
        self.ready = True
        return self.job, settled

    def stop(self) -> None:
        self.process.terminate()
        self.process.join()
        self.pipe.close()


def _reason(code: int | None) -> str:
    if code == -signal.SIGKILL:
        return "killed, perhaps for want of memory"
    if code is not None and code < 0:
        return signal.Signals(-code).name
    return f"exit code {code}"


def _work(pipe: Connection, payload: bytes) -> None:
    """The life of a worker: it ends with its pipe, that is with the process that started it."""
    prepare()
    torch.set_num_threads(1)
    prepared = pickle.loads(payload).prepared()
    with contextlib.suppress(EOFError, OSError):
        pipe.send(None)
        while True:
            pipe.send(prepared.settle(pipe.recv()))
