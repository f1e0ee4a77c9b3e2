"""Have commands done, as many at once as there is room for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from maar.experiments.launch import Handle, Job, Launcher

TICK = 0.2
Ended = Callable[[int, int], None]
"""Told the number of a job that has ended, from 0, and its exit code."""


def work_off(jobs: Sequence[Job], launcher: Launcher, ended: Ended) -> None:
    """Run every job once. An interrupt stops those that run, and is raised again."""
    waiting = list(range(len(jobs)))
    running: dict[int, Handle] = {}
    try:
        while waiting or running:
            for number, handle in list(running.items()):
                code = handle.poll()
                if code is not None:
                    del running[number]
                    ended(number, code)
            while waiting and launcher.has_room(jobs[waiting[0]], [jobs[n] for n in running]):
                number = waiting.pop(0)
                running[number] = launcher.start(jobs[number])
            time.sleep(TICK)
    finally:
        for handle in running.values():
            handle.stop()
        for handle in running.values():
            handle.end()
