"""What is seen of the work: a live table of the runs in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from datetime import datetime

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from maar.experiments.measured import State, state_of
from maar.experiments.plan import MODEL, Run, Task
from maar.experiments.work import Display, Progress
from maar.terminal.clock import clock
from maar.terminal.tables import table

REFRESH = 1.0
# Drawing reads the runs' files, on the cores that train: it may take so little of the time.
SHARE = 0.02
# Lines of the terminal that are not for runs: the head, the count and a margin.
FRAME = 5
TONES = {"done": "green", "failed": "red", "waits": "dim"}


def make_display() -> Display:
    """For whoever looks: people at a terminal, or a log."""
    console = Console()
    return Board(console) if console.is_terminal else Lines()


class Lines(Display):
    """A line for each event."""

    def begin(self, progress: Progress) -> None:
        self._say(f"{progress.done} of {len(progress.tasks)} tasks are done already")

    def started(self, task: Task) -> None:
        self._say(f"{task.run.name}: {task.label} begins")

    def ended(self, task: Task, state: State, seconds: float) -> None:
        self._say(f"{task.run.name}: {task.label} done in {clock(seconds)}{outcome(state)}")

    def failed(self, task: Task, reason: str) -> None:
        self._say(f"{task.run.name}: {task.label} FAILED: {reason} (log: {task.log})")

    def _say(self, line: str) -> None:
        print(f"{datetime.now():%H:%M:%S} {line}")
        sys.stdout.flush()


class Board(Display):
    """One line for each run: what it is at, and how far."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live = Live(console=console, auto_refresh=False, vertical_overflow="crop")
        self.next = 0.0
        self.known: dict[Run, str] = {}

    def begin(self, progress: Progress) -> None:
        self.progress = progress
        self.live.start()
        self._draw(progress)

    def failed(self, task: Task, reason: str) -> None:
        line = f"{task.run.name}: {task.label} failed: {reason} (log: {task.log})"
        self.live.console.print(Text(line, style="red"))

    def tick(self, progress: Progress) -> None:
        if time.monotonic() >= self.next:
            self._draw(progress)

    def close(self) -> None:
        try:
            if self.live.is_started:
                self._draw(self.progress)
        finally:
            self.live.stop()

    def _draw(self, progress: Progress) -> None:
        began = time.monotonic()
        room = max(3, self.console.height - FRAME)
        self.live.update(board(progress, room, self.known), refresh=True)
        now = time.monotonic()
        self.next = began + max(REFRESH, (now - began) / SHARE)


def board(progress: Progress, room: int, known: dict[Run, str] | None = None) -> Group:
    """The runs; where there are more than lines, those that are at work come first.

    `known` has the numbers of runs that were done the last time, and gets those that are now.
    """
    runs = dict.fromkeys(task.run for task in progress.tasks)
    lines = [_line(run, progress, {} if known is None else known) for run in runs]
    left_out = len(lines) - room
    if left_out > 0:
        ranks = ["failed", "done", "waits"]  # whatever else there is comes before
        lines.sort(key=lambda line: ranks.index(line[1]) + 1 if line[1] in ranks else 0)
        lines = lines[:room]
    counts = (
        f"{progress.done} of {len(progress.tasks)} tasks done, {len(progress.running)} at work, "
        f"{len(progress.waiting)} to do, {len(progress.failed)} failed"
    )
    if left_out > 0:
        counts += f"; {left_out} runs not shown"
    heads = ("run", "state", "progress", "time")
    shown = table(*heads, right=["time"], whole=heads)
    for name, state, how_far, seconds in lines:
        shown.add_row(name, Text(state, style=TONES.get(state, "cyan")), how_far, seconds)
    if progress.waiting or progress.running:
        counts += ". Ctrl-C stops, the same command continues"
    return Group(shown, Text(counts, style="dim"))


def _line(run: Run, progress: Progress, known: dict[Run, str]) -> tuple[str, str, str, str]:
    mine = [task for task in progress.tasks if task.run == run]
    if any(task in progress.running or task in progress.waiting for task in mine):
        known.pop(run, None)
    running = [task for task in mine if task in progress.running]
    if running:
        now = running[0]
        names = ", ".join(task.label for task in running)
        seconds = time.monotonic() - progress.began[now]
        return run.name, names, state_of(now).progress, clock(seconds)
    if any(task in progress.failed for task in mine):
        return run.name, "failed", "", ""
    waiting = [task for task in mine if task in progress.waiting]
    if not waiting:
        if run not in known:
            known[run] = _numbers(mine)
        return run.name, "done", known[run], ""
    if run in progress.elsewhere:
        return run.name, "runs elsewhere", state_of(waiting[0]).progress, ""
    return run.name, "waits", f"{len(mine) - len(waiting)} of {len(mine)} tasks", ""


def _numbers(tasks: list[Task]) -> str:
    """ACC and CR of a run that is done; of several certifications that of its own eps and end."""
    found = []
    for task in tasks:
        result = state_of(task).result
        if task.what == "train" and "accuracy" in result:
            found.append(f"ACC {100 * result['accuracy']:.2f}")
        # (nothing is there if another process has trained the run again meanwhile)
        elif task.what == "certify" and (task.weights, task.eps) == (MODEL, None) and result:
            found.append(f"CR {100 * result['certified']:.2f}")
    return "  ".join(found)


def outcome(state: State) -> str:
    """The number that counts, in words."""
    for name in ("latent_robustness", "certified", "accuracy"):
        if name in state.result:
            return f": {name.replace('_', ' ')} {100 * state.result[name]:.2f} %"
    return ""
