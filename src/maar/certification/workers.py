"""Settle many images: in this process, or in several with one thread each.

Images are begun in blocks, by the verifiers that are quicker that way, and finished one at a time,
which on a CPU beats batches for everything dearer. Two processes of one thread beat one of two. A
worker that dies (killed, or out of memory) costs its image only, as an ERROR; a block that it was
at is begun again, image by image.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait

import numpy as np
import torch
from torch import nn

from maar.attacks import margin
from maar.certificates.notes import Notes
from maar.certificates.proof import Subject
from maar.certification.agenda import LAST, Agenda, Job, Piece
from maar.certification.cascade import Cascade, Settled
from maar.certification.fork_server import ECHO, start
from maar.certification.network import PRECISIONS, Network
from maar.certification.proving import certificate
from maar.certification.query import Query
from maar.certification.verdict import Status
from maar.core.errors import RunError
from maar.core.process import prepare
from maar.regions.perturbation import Perturbation

# A worker's start costs about as much as so many easy images.
WORTH_A_WORKER = 20
# So many may die before they are ready; one more, and it is no accident.
STILLBORN = 3


@dataclass(frozen=True, eq=False)
class Task:
    """What is the same for all images."""

    net: nn.Sequential
    shape: tuple[int, ...]
    eps: float
    cascade: Cascade
    moves: Perturbation | None = None
    subject: Subject | None = None
    """What certificates are about; None where none are asked for."""

    def prepared(self) -> Prepared:
        """Compile the network now, so that the first image's time is its own."""
        network = Network(self.net, self.shape)
        for dtype in PRECISIONS:
            network.graph(dtype)
        return Prepared(self, network)

    def begin(self, network: Network, jobs: Sequence[Job]) -> list[Settled]:
        """Find out what is found out quickly about the images of one block."""
        queries = [self._query(network, job) for job in jobs]
        begun = self.cascade.begin(queries)
        for query, settled in zip(queries, begun, strict=True):
            self._certify(query, settled)
        return begun

    def settle(self, network: Network, job: Job, begun: Settled) -> Settled:
        """Settle one image; its random seed is its index, whoever works on it."""
        query = self._query(network, job)
        settled = self.cascade.settle(query, begun)
        self._certify(query, settled)
        return settled

    def _query(self, network: Network, job: Job) -> Query:
        notes = None if self.subject is None else Notes()
        x = torch.from_numpy(job.x)[None]
        return Query.of(network, x, job.y, self.eps, job.index, self.moves, notes)

    def _certify(self, query: Query, settled: Settled) -> None:
        """Write the certificate of an image that is settled, if one is asked for."""
        if self.subject is not None and settled.is_final:
            settled.proof = certificate(query, settled, self.subject, self.cascade.timeout)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A task with its network compiled."""

    task: Task
    network: Network

    def work_on(self, piece: Piece) -> list[Settled]:
        """Return one answer for each job of the piece."""
        if piece.begun is None:
            return self.task.begin(self.network, piece.jobs)
        return [self.task.settle(self.network, job, piece.begun) for job in piece.jobs]


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
        prepared, agenda = task.prepared(), Agenda(jobs, {})
        while agenda:
            piece = agenda.next()
            yield from agenda.take(piece, prepared.work_on(piece))


LOCAL = Team(default_workers, settle_all)


@torch.no_grad()
def hardness(task: Task, jobs: Sequence[Job], workers: int) -> dict[int, float]:
    """Of the last images: index -> z_y - max z_k, which is small where proofs take long.

    A hard image begun last would keep all but one worker waiting: with 8 workers on the first 1,000
    images of the COLT network, for a quarter of the time. Only the last, as the time left is
    told by the images before.
    """
    last = jobs[max(0, len(jobs) - LAST * workers) :]
    found: dict[int, float] = {}
    with one_thread():
        for start in range(0, len(last), LAST):
            part = last[start : start + LAST]
            z = task.net(torch.from_numpy(np.stack([job.x for job in part])))
            ahead = margin(z, torch.tensor([job.y for job in part]))
            found.update(zip((job.index for job in part), (-ahead).tolist(), strict=True))
    return found


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
        agenda = Agenda(jobs, hardness(task, jobs, workers))  # while they prepare themselves
        while agenda or any(worker.piece for worker in crew):
            heard = wait([worker.pipe for worker in crew])
            for worker in [worker for worker in crew if worker.pipe in heard]:
                piece, found = worker.receive()
                done = list(agenda.take(piece, found)) if piece and found else []
                if worker.lost:
                    time.sleep(ECHO)
                    stillborn += not worker.ready
                    if stillborn > STILLBORN:
                        raise RunError("worker processes cannot start; try --workers 1")
                    if piece and not agenda.give_back(piece):
                        done = [(piece.jobs[0], Settled(status=Status.ERROR, error=worker.lost))]
                    worker.stop()
                    crew.remove(worker)
                    if agenda:
                        crew.append(_Worker(payload))
                # Before what is done is entered: nobody waits for a disk.
                for free in crew:
                    if agenda and free.is_free:
                        free.send(agenda.next())
                yield from done
    finally:
        for worker in crew:
            worker.kill()
        for worker in crew:
            worker.stop()


class _Worker:
    """A process, and this side of the pipe to it."""

    def __init__(self, payload: bytes) -> None:
        self.process, self.pipe = start(_work, payload)
        self.piece: Piece | None = None
        self.ready = False
        self.lost = ""
        """Why, if it is."""

    @property
    def is_free(self) -> bool:
        return self.ready and self.piece is None

    def send(self, piece: Piece) -> None:
        self.piece = piece
        # If it has died meanwhile, `receive` finds out.
        with contextlib.suppress(OSError):
            self.pipe.send(piece)

    def receive(self) -> tuple[Piece | None, list[Settled] | None]:
        """The piece that it was at, if any, and what came of it, unless it died."""
        piece, self.piece = self.piece, None
        try:
            found: list[Settled] | None = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            self.lost = f"the worker process died ({_reason(self.process.exitcode)})"
            return piece, None
        self.ready = True
        return piece, found

    def kill(self) -> None:
        """End it at once: it has nothing to save, and may sit in a library's call."""
        self.process.kill()

    def stop(self) -> None:
        self.kill()
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
            pipe.send(prepared.work_on(pipe.recv()))
