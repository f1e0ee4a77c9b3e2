"""Where a task's process runs: on this machine, or on a Ray cluster with a shared folder."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from maar.core.lifeline import STARTER

# One thread each: several runs side by side are faster than one run with several threads.
ENVIRONMENT = {"OMP_NUM_THREADS": "1"}
# Seconds for a process to save what it has after it was asked to stop, and after it was told.
PATIENCE, AT_LAST = 20.0, 5.0
TICK = 0.5


class Handle(Protocol):
    """A process that does a task."""

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        ...

    def stop(self) -> None:
        """Ask it to end, as Ctrl-C would."""
        ...

    def end(self) -> None:
        """Wait until it has ended, and see to it that it does."""
        ...


class Job(Protocol):
    """A command to be run; `Task` is one."""

    @property
    def words(self) -> list[str]:
        """The command, without `maar`."""
        ...

    @property
    def log(self) -> Path:
        """What the command said."""
        ...


class Launcher(Protocol):
    """Starts processes."""

    slots: int
    """How many at once."""

    def has_room(self, job: Job, running: Sequence[Job]) -> bool:
        """Return whether the job can begin beside those that run."""
        ...

    def start(self, task: Job) -> Handle: ...


def argv(job: Job) -> list[str]:
    """Return the command with this very Python."""
    return [sys.executable, "-m", "maar", *job.words]


@contextlib.contextmanager
def logging_to(path: Path, words: list[str]) -> Iterator[Any]:
    """The log of a command, begun with it; what earlier attempts said is kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as file:
        file.write(f"$ maar {shlex.join(words)}\n".encode())
        file.flush()
        yield file


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """A process that is started in the block can be interrupted, even if this one cannot.

    Ray blocks the signal in its workers, a shell has it ignored by what it starts with `&`, and
    children inherit both.
    """
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if is_ignored:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        if is_ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class Process:
    """A process here. In a session of its own: Ctrl-C reaches it once, by `stop`."""

    def __init__(self, command: list[str], log: Any, folder: Path | None = None) -> None:
        with _interruptible():
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=folder,
                env={**os.environ, **ENVIRONMENT, STARTER: str(os.getpid())},
            )

    def poll(self) -> int | None:
        return self.process.poll()

    def stop(self) -> None:
        self._signal(signal.SIGINT)

    def end(self) -> None:
        for number, seconds in ((signal.SIGTERM, PATIENCE), (signal.SIGKILL, AT_LAST)):
            try:
                self.process.wait(seconds)
                return
            except subprocess.TimeoutExpired:
                self._signal(number)
        self.process.wait()

    def _signal(self, number: int) -> None:
        # The whole group: `maar certify` has processes of its own.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


class Local:
    """This machine: `slots` jobs on its CPUs, or a training on each of some `devices`."""

    def __init__(self, slots: int, devices: Sequence[str] = ()) -> None:
        self.slots = slots
        self.devices = tuple(devices)
        self.taken: dict[str, Handle] = {}

    def has_room(self, job: Job, running: Sequence[Job]) -> bool:
        if self.devices and needs_device(job):
            return bool(self._free())
        beside = [each for each in running if not (self.devices and needs_device(each))]
        return len(beside) < self.slots

    def start(self, task: Job) -> Handle:
        if not (self.devices and needs_device(task)):
            with logging_to(task.log, task.words) as log:
                return Process(argv(task), log)
        device = self._free()[0]
        with logging_to(task.log, with_device(task.words, device)) as log:
            process = self.taken[device] = Process(with_device(argv(task), device), log)
        return process

    def _free(self) -> list[str]:
        ended = [name for name, process in self.taken.items() if process.poll() is not None]
        for name in ended:
            del self.taken[name]
        return [name for name in self.devices if name not in self.taken]


def needs_device(job: Job) -> bool:
    """Return whether a job computes on a GPU where there is one: a training does."""
    return job.words[0] == "train"


def with_device(words: Sequence[str], device: str) -> list[str]:
    """Return the words of a command with this device in place of another."""
    found = list(words)
    if "--device" in found:
        found[found.index("--device") + 1] = device
        return found
    return [*found, "--device", device]


class OnRay:
    """A cluster that `maar.certification.ray_workers.cluster` has connected to.

    A task is one CPU there; all nodes must see the folder of the runs under the same path.
    """

    def __init__(self, slots: int | None) -> None:
        import ray

        self.ray: Any = ray
        self.slots = slots or max(1, int(ray.cluster_resources().get("CPU", 1)))
        self.remote = ray.remote(num_cpus=1, max_retries=0)(run_there)

    def has_room(self, job: Job, running: Sequence[Job]) -> bool:
        return len(running) < self.slots

    def start(self, task: Job) -> Handle:
        ref = self.remote.remote(task.words, str(task.log.absolute()), str(Path.cwd()))
        return Ticket(self.ray, ref, task.log)


class Ticket:
    """A task on the cluster."""

    def __init__(self, ray: Any, ref: Any, log: Path) -> None:
        self.ray = ray
        self.ref = ref
        self.log = log

    def poll(self) -> int | None:
        ready, _ = self.ray.wait([self.ref], timeout=0)
        if not ready:
            return None
        try:
            return self.ray.get(self.ref)
        except self.ray.exceptions.RayError as error:  # such as lost with its node
            last = str(error).strip().splitlines()[-1:] or [type(error).__name__]
            with open(self.log, "a") as file:
                file.write(f"maar: error: on the cluster: {last[0].strip()}\n")
            return 1

    def stop(self) -> None:
        self.ray.cancel(self.ref)

    def end(self) -> None:
        with contextlib.suppress(self.ray.exceptions.RayError):
            self.ray.get(self.ref, timeout=PATIENCE + AT_LAST)


def run_there(words: list[str], log: str, folder: str) -> int:
    """On a node: the command in a process, its words into the log; called off, it is stopped."""
    with logging_to(Path(log), words) as file:
        process = Process([sys.executable, "-m", "maar", *words], file, Path(folder))
        try:
            # Not one long wait: Ray's interrupt is noticed between two Python instructions.
            while (code := process.poll()) is None:
                time.sleep(TICK)
            return code
        except BaseException:
            process.stop()
            process.end()
            raise
