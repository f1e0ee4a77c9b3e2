"""Settle images on the machines of a Ray cluster: one worker of one thread for each CPU.

    with cluster("auto") as team:
        run(plan, "certs/mine", team=team)

A worker that is lost, with its node or alone, costs its image a second attempt on another worker;
lost again, the image is an ERROR. The store is with the caller only: workers write nothing, and
what they send back is entered as it comes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

import torch

import maar
from maar.certification.agenda import Agenda, Done, Job, Piece
from maar.certification.cascade import Settled
from maar.certification.verdict import Status
from maar.certification.workers import Results, Task, Team, cores, hardness
from maar.core.errors import RunError, UsageError
from maar.core.process import prepare

CONNECT = 60.0
"""Seconds for a cluster to answer."""
START = 300.0
"""Seconds to wait for a worker where there is none: a cluster may have to boot a machine."""
ATTEMPTS = 2
"""Per image, and for a worker to start."""
STORE = 256 << 20
"""Bytes of shared memory of a cluster that is started here: room for the network."""

# Unless the user has set them otherwise. Ray's words to the terminal would tear the display; its
# logs have them all the same. The first is a pattern of lines that it never prints, which
# `log_to_driver` alone does not achieve.
ENVIRONMENT = {
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
# Ray waits for minutes where nobody answers, and a library that waits cannot be called off: so
# another process tries first.
PROBE = """
import sys, ray
try:
    ray.init(address=sys.argv[1], log_to_driver=False, logging_level="CRITICAL")
except Exception as error:
    print(str(error).strip().partition("\\n\\n")[0].replace("\\n", " "))
    sys.exit(3 if isinstance(error, ConnectionError) else 4)
"""
NOBODY, DEAD = 3, "Failed to connect to GCS"


@contextlib.contextmanager
def cluster(address: str) -> Iterator[Team]:
    """The cluster at HOST:PORT or ray://HOST:PORT; `auto` is the running one, or else a new one.

    A new one has this machine's CPUs and ends with the block; `local` always starts one. Any other
    is left as it was.
    """
    if find_spec("ray") is None:
        raise UsageError("--ray needs the package ray: pip install 'maar[ray]'")
    with _environment():
        import ray

        if ray.is_initialized():  # by the caller, who will also end it
            yield Team(_size, _settle_all)
            return
        is_there = address != "local" and _answers(address)
        new = {"num_cpus": cores(), "include_dashboard": False, "object_store_memory": STORE}
        try:
            with _signals_kept():
                ray.init(
                    address=address if is_there else "local",
                    log_to_driver=False,
                    logging_level=logging.CRITICAL,
                    **({} if is_there else new),
                )
        except Exception as error:  # Ray raises anything, such as if the machine is too busy
            ray.shutdown()
            why = str(error).strip().partition("\n")[0] or type(error).__name__
            raise RunError(f"--ray {address}: {why}") from None
    try:
        yield Team(_size, _settle_all)
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Keep the handler of SIGTERM, which Ray replaces by one that leaves without a word."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set a handler
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _require_listener(address: str) -> None:
    """Tell at once where the host is unknown or nobody listens."""
    parts = urlsplit(address if "://" in address else f"//{address}")
    try:
        host, port = parts.hostname, parts.port or (10001 if parts.scheme == "ray" else None)
    except ValueError:
        host, port = None, None
    if not host or not port or parts.scheme not in ("", "ray"):
        raise UsageError(f"--ray {address!r} (accepted: auto, HOST:PORT or ray://HOST:PORT)")
    try:
        socket.create_connection((host, port), timeout=CONNECT).close()
    except OSError as error:
        raise RunError(f"--ray {address}: no cluster answers there ({error})") from None


def _answers(address: str) -> bool:
    """Whether there is a cluster to connect to; False if none is needed."""
    if address != "auto":
        _require_listener(address)
    command = [sys.executable, "-c", PROBE, address]
    try:
        probe = subprocess.run(command, capture_output=True, text=True, timeout=CONNECT)
    except subprocess.TimeoutExpired as error:
        # One that was killed leaves its address behind: unlike a wrong RAY_ADDRESS, nobody's fault.
        if address == "auto" and not os.environ.get("RAY_ADDRESS") and DEAD in str(error.stderr):
            return False
        raise RunError(
            f"--ray {address}: no cluster answers within {CONNECT:.0f} s; is that its address? "
            "`ray status` on its head node tells"
        ) from None
    if probe.returncode == 0:
        return True
    if "Unauthenticated" in probe.stderr:
        raise RunError(
            f"--ray {address}: the cluster asks for a token: set RAY_AUTH_MODE=token, and see "
            "Ray's documentation on token authentication"
        )
    if probe.returncode == NOBODY and address == "auto":
        return False
    raise RunError(f"--ray {address}: {probe.stdout.strip() or 'no cluster answers there'}")


def _size(images: int) -> int:
    """One worker per CPU of the cluster, at most one per image."""
    import ray

    return max(1, min(images, int(ray.cluster_resources().get("CPU", 1))))


@dataclass(frozen=True)
class Hello:
    """What a worker says when it is ready."""

    host: str
    pid: int
    maar: str


class Worker:
    """On the cluster: a process with one CPU to itself."""

    def hello(self) -> Hello:
        """Asked first, of whatever version of maar is there."""
        return Hello(socket.gethostname(), os.getpid(), maar.__version__)

    def take(self, payload: bytes) -> None:
        """Take the task, from the process that started this one."""
        prepare()
        torch.set_num_threads(1)
        self.prepared = pickle.loads(payload).prepared()

    def work_on(self, piece: Piece) -> list[Settled]:
        """One answer for each job of the piece."""
        return self.prepared.work_on(piece)


@dataclass(eq=False)
class _Member:
    """A worker, and what it is at."""

    actor: Any
    hello: Hello | None = None
    piece: Piece | None = None


def _settle_all(task: Task, jobs: Sequence[Job], workers: int) -> Results:
    """Each job with its verdict, in the order in which they are done. Closing it ends the work."""
    if not jobs:
        return
    crew, workers = _Crew(task), min(workers, len(jobs))
    try:
        yield from crew.settle(Agenda(jobs, hardness(task, jobs, workers)), workers)
    finally:
        crew.stop()


class _Crew:
    """The workers of one task. `pending` has what is awaited of each."""

    def __init__(self, task: Task) -> None:
        import ray

        self.ray: Any = ray
        # One copy for every machine, as bytes.
        self.payload = self.ray.put(pickle.dumps(task))
        self.pending: dict[Any, _Member] = {}
        self.free: list[_Member] = []
        self.losses: dict[int, int] = {}
        self.failed_starts = 0
        self.heard = time.monotonic()

    def settle(self, agenda: Agenda, workers: int) -> Results:
        for _ in range(workers):
            self.hire()
        while agenda or any(member.piece for member in self.pending.values()):
            for member, answer in self.listen():
                piece, member.piece = member.piece, None
                done: list[Done] = []
                if isinstance(answer, Lost):
                    self.dismiss(member)
                else:
                    self.free.append(member)
                if isinstance(answer, Trouble):
                    if piece is not None and not agenda.give_back(piece):
                        done = self.blame(piece, answer, agenda)
                    if agenda and isinstance(answer, Lost):
                        self.hire()
                elif piece is not None:
                    done = list(agenda.take(piece, answer))
                while agenda and self.free:
                    self.hand(self.free.pop(), agenda.next())
                yield from done

    def blame(self, piece: Piece, why: Trouble, agenda: Agenda) -> list[Done]:
        """One image whose worker was lost, or failed: another worker may do it."""
        (job,) = piece.jobs
        if isinstance(why, Failed):
            return [(job, Settled(status=Status.ERROR, error=why))]
        self.losses[job.index] = self.losses.get(job.index, 0) + 1
        if self.losses[job.index] < ATTEMPTS:
            agenda.again(piece)
            return []
        error = f"{ATTEMPTS} workers were lost on it: {why}"
        return [(job, Settled(status=Status.ERROR, error=error))]

    def hand(self, member: _Member, piece: Piece) -> None:
        member.piece = piece
        self.pending[member.actor.work_on.remote(piece)] = member

    def hire(self) -> None:
        """Ask for a worker; it comes when the cluster has a CPU for it."""
        # No restarts: a worker that comes back by itself would come back without its task.
        remote: Any = self.ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(Worker)
        actor = remote.remote()
        self.pending[actor.hello.remote()] = _Member(actor)

    def listen(self) -> Iterator[tuple[_Member, Any]]:
        """Those that are free, with a verdict, None if they are new, or how they were `Lost`."""
        heard, _ = self.ray.wait(list(self.pending), timeout=1.0)
        if heard or any(member.piece for member in self.pending.values()):
            self.heard = time.monotonic()
        for ref in heard:
            member = self.pending.pop(ref)
            try:
                answer = self.ray.get(ref)
            except self.ray.exceptions.RayActorError as error:
                yield member, self.lost(member, error)
                continue
            except self.ray.exceptions.RayError as error:
                if member.piece is None:
                    raise RunError(f"a worker{_at(member)} cannot start: {_cause(error)}") from None
                yield member, Failed(_cause(error))
                continue
            if isinstance(answer, Hello):
                self.greet(member, answer)
            else:
                self.failed_starts = 0
                yield member, answer
        if time.monotonic() - self.heard > START:
            there = self.ray.cluster_resources().get("CPU", 0)
            free = self.ray.available_resources().get("CPU", 0)
            raise RunError(
                f"no worker has come within {START:.0f} s: of the cluster's {there:g} CPUs "
                f"{free:g} are free"
            )

    def greet(self, member: _Member, hello: Hello) -> None:
        member.hello = hello
        if hello.maar != maar.__version__:
            raise RunError(
                f"node {hello.host} has maar {hello.maar}, this is {maar.__version__}: "
                "install the same on every node"
            )
        self.pending[member.actor.take.remote(self.payload)] = member

    def lost(self, member: _Member, error: Exception) -> Lost:
        """Of a worker that dies before it has begun: some are bad luck, no more."""
        if "No module named" in str(error) or "failed to import" in str(error):
            raise RunError(
                f"a node of the cluster cannot import maar {maar.__version__} ({_cause(error)}): "
                "install the same on every node"
            )
        why = "its node died" if "node has died" in str(error) else "killed, perhaps out of memory"
        if member.piece is None:
            self.failed_starts += 1
            if self.failed_starts >= ATTEMPTS * 2:
                raise RunError(f"workers{_at(member)} die before they begin ({why})")
        return Lost(f"the last{_at(member)} ({why})")

    def dismiss(self, member: _Member) -> None:
        with contextlib.suppress(self.ray.exceptions.RayError, ValueError):
            self.ray.kill(member.actor)

    def stop(self) -> None:
        """Only what was hired here; nothing else on the cluster is touched."""
        if self.ray.is_initialized():  # else Ray would start a cluster, to end a worker of it
            for member in [*self.pending.values(), *self.free]:
                self.dismiss(member)


class Trouble(str):
    """Why a worker has no answer."""


class Lost(Trouble):
    """How a worker was lost."""


class Failed(Trouble):
    """What went wrong in a worker that goes on."""


def _at(member: _Member) -> str:
    return f" on {member.hello.host}" if member.hello else ""


def _cause(error: Exception) -> str:
    """The last line of a traceback from elsewhere: the exception itself."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
