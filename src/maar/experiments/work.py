"""Have tasks done: as many at once as there is room for, each by a process of its own.

What a task needs is in the folder of its run: stopped at any moment and called again, this
continues. What it said is kept beside the results (`kept.py`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from maar.experiments.launch import Handle, Launcher
from maar.experiments.measured import (
    State,
    in_folder,
    is_elsewhere,
    keep_all,
    left,
    state_of,
)
from maar.experiments.plan import Run, Task

# Seconds between looks at the processes, and before a run that another process works on is tried.
TICK, ELSEWHERE = 0.2, 30.0
IN_USE = "is in use by another maar process"
ERROR = "maar: error"


@dataclass
class Progress:
    """What is seen of the work; a display reads it."""

    tasks: Sequence[Task]
    waiting: list[Task] = field(default_factory=list)
    running: dict[Task, Handle] = field(default_factory=dict)
    began: dict[Task, float] = field(default_factory=dict)
    failed: dict[Task, str] = field(default_factory=dict)
    elsewhere: dict[Run, float] = field(default_factory=dict)
    """Runs that another process works on -> when to look again."""

    @property
    def done(self) -> int:
        """Tasks that are done."""
        return len(self.tasks) - len(self.waiting) - len(self.running) - len(self.failed)


class Display:
    """Shows nothing."""

    def begin(self, progress: Progress) -> None:
        """Before the first task."""

    def started(self, task: Task) -> None: ...

    def ended(self, task: Task, state: State, seconds: float) -> None: ...

    def failed(self, task: Task, reason: str) -> None: ...

    def tick(self, progress: Progress) -> None:
        """Some time has passed."""

    def close(self) -> None:
        """The work has ended, well or not. May be called twice."""


def work(tasks: Sequence[Task], launcher: Launcher, display: Display) -> dict[Task, str]:
    """Do what is not done yet; returns the tasks that failed, with the reason.

    An interrupt stops the processes, lets them save what they have, and is raised again.
    """
    progress = Progress(tasks, left(tasks))
    keep_all(tasks)
    display.begin(progress)
    try:
        while progress.waiting or progress.running:
            for task, handle in list(progress.running.items()):
                code = handle.poll()
                if code is not None:
                    _end(task, code, progress, display)
            while task := _next(progress, launcher):
                progress.waiting.remove(task)
                progress.began[task] = time.monotonic()
                progress.running[task] = launcher.start(task)
                display.started(task)
            display.tick(progress)
            time.sleep(TICK)
    finally:
        try:
            for handle in progress.running.values():
                handle.stop()
            display.close()
        finally:
            for handle in progress.running.values():
                handle.end()
    return progress.failed


def _next(progress: Progress, launcher: Launcher) -> Task | None:
    """The first task that can begin: its run is trained, and nobody else is at it."""
    now = time.monotonic()
    untrained = {task.run for task in progress.waiting if task.what == "train"}
    untrained |= {task.run for task in progress.running if task.what == "train"}
    for task in list(progress.waiting):
        if not launcher.has_room(task, list(progress.running)):
            continue
        if progress.elsewhere.get(task.run, 0.0) > now:
            continue
        if task.what != "train" and task.run in untrained:
            continue
        if task.run in progress.elsewhere and in_folder(task).result:
            keep_all([task])
            progress.waiting.remove(task)  # done by the other process
            if task.what == "train":
                _ask_again(task.run, progress)
            continue
        if task.what == "train" and is_elsewhere(task.run):
            progress.elsewhere[task.run] = now + ELSEWHERE
            continue
        return task
    return None


def _end(task: Task, code: int, progress: Progress, display: Display) -> None:
    del progress.running[task]
    state = in_folder(task)  # (what was known before is no sign that the command did anything)
    if code == 0 and state.result:
        keep_all([task])
        display.ended(task, state, time.monotonic() - progress.began[task])
        if task.what == "train":
            _ask_again(task.run, progress)
        return
    reason = said(task.log) or f"exit code {code}"
    if IN_USE in reason:
        progress.elsewhere[task.run] = time.monotonic() + ELSEWHERE
        progress.waiting.append(task)
        return
    progress.failed[task] = reason
    display.failed(task, reason)
    if task.what == "train":
        for other in [each for each in progress.waiting if each.run == task.run]:
            progress.waiting.remove(other)
            progress.failed[other] = "it was not trained"


def _ask_again(run: Run, progress: Progress) -> None:
    """What was known of a run that is trained again to other weights is not known any more."""
    busy = {*progress.waiting, *progress.running, *progress.failed}
    progress.waiting += [
        task
        for task in progress.tasks
        if task.run == run and task not in busy and not state_of(task).result
    ]


def said(log: Path) -> str:
    """The error that a command ended with, or else its last words."""
    try:
        lines = log.read_text(errors="replace").rpartition("$ maar ")[2].splitlines()[1:]
    except OSError:
        return ""
    errors = [line for line in lines if line.startswith(ERROR)]
    last = (errors or [line for line in lines if line.strip()] or [""])[-1]
    return last.removeprefix(f"{ERROR}: ").strip()
