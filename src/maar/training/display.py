"""What is seen of a training run: a live display in a terminal, plain lines elsewhere.

`Display` itself shows nothing, for library use; `make_display` picks one for the command line.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text
from torch import nn

from maar.config import Config
from maar.terminal.clock import clock
from maar.terminal.live import bar, start
from maar.training.lines import (
    BY_LAYER,
    LATENT,
    SHARES,
    UNSTABLE,
    epoch_line,
    headline,
    latent,
    number,
    spell,
    terms,
    unstable,
    words,
)
from maar.training.plan import Epoch, Plan

# Names in the heads of narrow columns.
BRIEF = {
    "accuracy": "acc",
    "robust_accuracy": "robust",
    "certified_accuracy": "certified",
    "verified_error": "VE",
}


class Display:
    """Shows nothing. The trainer calls these in the order in which they stand."""

    foresees = False
    """Whether it wants to know what later stages will cost: to find out takes some time."""

    def warn(self, line: str) -> None:
        """Something the user should know, such as a damaged checkpoint."""

    def begin(self, config: Config, plan: Plan, net: nn.Module, images: int, done: int) -> None:
        """The run is laid out; `done` epochs of it are from an earlier session."""

    def step(
        self, epoch: Epoch, steps: int, loss: dict[str, float], notes: dict[str, float]
    ) -> None:
        """`steps` of an epoch are done, with these means of the loss terms and notes so far."""

    def outlook(self, seconds: Mapping[int, float]) -> None:
        """What a step of each stage to come will cost, by the stage's index, as far as is known."""

    def epoch(self, record: dict[str, Any]) -> None:
        """An epoch is done; `record` is its line in metrics.jsonl."""

    def note(self, what: str) -> None:
        """What is going on now that is no training step."""

    def close(self) -> None:
        """The run has ended, well or not. May be called twice."""


class Several(Display):
    """Tells each of several displays."""

    def __init__(self, *displays: Display) -> None:
        self.displays = displays
        self.foresees = any(display.foresees for display in displays)

    def warn(self, line: str) -> None:
        for display in self.displays:
            display.warn(line)

    def begin(self, config: Config, plan: Plan, net: nn.Module, images: int, done: int) -> None:
        for display in self.displays:
            display.begin(config, plan, net, images, done)

    def step(
        self, epoch: Epoch, steps: int, loss: dict[str, float], notes: dict[str, float]
    ) -> None:
        for display in self.displays:
            display.step(epoch, steps, loss, notes)

    def outlook(self, seconds: Mapping[int, float]) -> None:
        for display in self.displays:
            display.outlook(seconds)

    def epoch(self, record: dict[str, Any]) -> None:
        for display in self.displays:
            display.epoch(record)

    def note(self, what: str) -> None:
        for display in self.displays:
            display.note(what)

    def close(self) -> None:
        for display in self.displays:
            display.close()


def make_display() -> Display:
    """The live display if stdout is a terminal, else plain lines."""
    console = Console()
    return LiveDisplay(console) if console.is_terminal else PlainDisplay()


class Paced(Display):
    """A display with a clock."""

    foresees = True
    pace: Pace

    def outlook(self, seconds: Mapping[int, float]) -> None:
        self.pace.outlook(seconds)


class PlainDisplay(Paced):
    """One line per epoch."""

    def warn(self, line: str) -> None:
        print(f"maar: warning: {line}", file=sys.stderr, flush=True)

    def begin(self, config: Config, plan: Plan, net: nn.Module, images: int, done: int) -> None:
        self.plan, self.pace = plan, Pace(plan, config.train.batch, done)
        what, details = headline(config, net, images)
        print(f"{config.name}: {what} ({details})", flush=True)
        if done:
            print(f"resuming after epoch {done} of {plan.epochs}", flush=True)

    def step(
        self, epoch: Epoch, steps: int, loss: dict[str, float], notes: dict[str, float]
    ) -> None:
        self.pace.step(epoch, steps)

    def epoch(self, record: dict[str, Any]) -> None:
        self.pace.epoch()
        print(f"{epoch_line(record, self.plan)}  {self.pace.text()}", flush=True)

    def note(self, what: str) -> None:
        print(what, flush=True)


class LiveDisplay(Paced):
    """A row per finished epoch, and below them a few lines that move with every step."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live: Live | None = None
        self.columns: list[Column] = []
        self.place, self.lines, self.completed = "", [], 0

    def warn(self, line: str) -> None:
        self.console.print(Text(f"warning: {line}", style="yellow"))

    def begin(self, config: Config, plan: Plan, net: nn.Module, images: int, done: int) -> None:
        self.plan, self.pace = plan, Pace(plan, config.train.batch, done)
        self.completed = done * plan.steps_per_epoch
        what, details = headline(config, net, images)
        self.console.print(Text.assemble((f"{config.name}  ", "bold cyan"), (what, "bold")))
        self.console.print(Text(details, "dim"))
        if done:
            self.console.print(f"resuming after epoch {done} of {plan.epochs}")
        self.live = start(self.console, self._moving)

    def step(
        self, epoch: Epoch, steps: int, loss: dict[str, float], notes: dict[str, float]
    ) -> None:
        self.pace.step(epoch, steps)
        stage = self.plan.stages[epoch.stage]
        self.place = f"epoch {epoch.in_stage + 1}/{stage.epochs}"
        if len(self.plan.stages) > 1:
            self.place = (
                f"stage {epoch.stage + 1}/{len(self.plan.stages)} {stage.name}  {self.place}"
            )
        self.lines = [
            "  ".join(f"{words(name)} {number(name, x)}" for name, x in terms(loss).items()),
            "  ".join(f"{name} {text}" for name, text in spell(notes).items()),
        ]
        self.completed = epoch.number * self.plan.steps_per_epoch + steps

    def epoch(self, record: dict[str, Any]) -> None:
        self.pace.epoch()
        columns = columns_of(record, self.plan, self.console.width)
        if [c.name for c in columns] != [c.name for c in self.columns]:
            # The first epoch, a stage with other terms, or another width of the window.
            self.columns = columns
            self.console.print(Text(above(columns), "dim"))
            self._row([column.name for column in columns], "dim")
        self._row([column.text for column in columns])
        if rest := left_out(record, columns):
            self.console.print(Text(f"  {rest}", "dim"), no_wrap=True, crop=True)
        if robust := latent(record.get("valid", {})):  # once in a stage: not worth a column
            self.console.print(f"valid {LATENT} {robust} %", highlight=False)

    def note(self, what: str) -> None:
        self.place, self.lines = what, []

    def close(self) -> None:
        if self.live is not None:
            self.live.stop()
            self.live = None

    def _row(self, cells: Sequence[str], style: str = "") -> None:
        """One line of the table. Widths depend on the columns only, so that rows align."""
        pairs = zip(cells, self.columns, strict=True)
        row = [f"{text:>{column.width}}" for text, column in pairs]
        self.console.print(Text("  ".join(row), style), no_wrap=True, crop=True)

    def _moving(self) -> Group:
        share = f"{self.completed / self.plan.steps:4.0%}"
        steps, rest = self.plan.steps, (share, self.pace.text())
        return Group(
            bar(self.console, self.place, self.completed, steps, *rest),
            *(Text(line) for line in self.lines if line),
        )


@dataclass(frozen=True)
class Column:
    """One cell of an epoch's row and what stands above it."""

    name: str
    text: str
    group: str = ""
    """What several columns have in common, on a line of its own."""
    least: int = 0

    @property
    def width(self) -> int:
        return max(len(self.name), self.least)


def columns_of(record: dict[str, Any], plan: Plan, width: int) -> list[Column]:
    """An epoch's row: of the loss terms those that `width` has room for beside the rest."""
    stage = plan.stages[record["stage"] - 1]
    longest = max(len(f"{stage.epochs}/{stage.epochs}") for stage in plan.stages)
    columns = [Column("epoch", f"{record['epoch']}/{stage.epochs}", least=longest)]
    if len(plan.stages) > 1:
        columns.insert(0, Column("stage", f"{record['stage']}/{len(plan.stages)}"))
    loss = terms(record["loss"])
    total, *parts = (Column(words(k), number(k, x), "loss", 7) for k, x in loss.items())
    rest = [column for group in ("train", "valid") for column in _metrics(record, group)]
    time_taken = Column("time", clock(record["seconds"]), least=5)
    layers = max(1, len(plan.stages) - 1)
    few = Column(UNSTABLE, unstable(record["train"]), least=7 * layers - 2)
    optional = [few, *parts] if few.text else parts
    room = width + 2 - sum(column.width + 2 for column in (*columns, total, *rest, time_taken))
    fits: list[Column] = []
    for column in optional:
        room -= column.width + 2
        if room >= 0:
            fits.append(column)
    parts = [column for column in fits if column is not few]
    return [*columns, total, *parts, *rest, *fits[: few in fits], time_taken]


def left_out(record: dict[str, Any], columns: Sequence[Column]) -> str:
    """The loss terms for which an epoch's row has no room: they stand on a line below it."""
    shown = {column.name for column in columns if column.group == "loss"}
    loss = {words(name): number(name, x) for name, x in terms(record["loss"]).items()}
    return "  ".join(f"{name} {text}" for name, text in loss.items() if name not in shown)


def _metrics(record: dict[str, Any], group: str) -> list[Column]:
    numbers = record.get(group, {})
    named = {name: x for name, x in numbers.items() if not name.startswith(BY_LAYER)}
    head = f"{group} %"
    least = len(head) if len(named) == 1 else 5  # what stands above needs the room
    return [
        Column(BRIEF.get(name, words(name)), f"{100 * x:.1f}", head, least)
        if name.endswith(SHARES)
        else Column(words(name), number(name, x), group, 7)
        for name, x in named.items()
    ]


def above(columns: Sequence[Column]) -> str:
    """The groups, each at the right end of its columns."""
    line, end = "", 0
    for column, after in zip(columns, [*columns[1:], Column("", "")], strict=True):
        end += column.width + 2
        if column.group and column.group != after.group:
            line += column.group.rjust(end - 2 - len(line))
    return line


class Pace:
    """Images per second and the time left for the whole run, measured on the last steps.

    What an epoch costs besides its steps (validation, checkpoint) is counted once it is known.
    Each stage is measured anew. One that has not begun may be slower or faster: it is taken to be
    like a trial of it, or like the present one as long as there was none, and the time has a ~ in
    front. So it has while eps grows, because the cost of a step may grow with it.
    """

    WINDOW = 50
    FIRST = 3  # the first steps are slow and say nothing

    def __init__(self, plan: Plan, batch: int, done: int) -> None:
        self.plan, self.batch = plan, batch
        self.steps_done = done * plan.steps_per_epoch
        self.stage = -1
        self.seen = 0
        self.times: deque[float] = deque(maxlen=self.WINDOW)
        self.each = 0.0
        self.between = 0.0
        self.later: dict[int, float] = {}
        self.last = time.perf_counter()
        self.interrupted = False

    def step(self, epoch: Epoch, steps: int) -> None:
        """`steps` of an epoch are done."""
        now = time.perf_counter()
        if epoch.stage != self.stage:
            self.stage, self.seen = epoch.stage, 0
            self.times.clear()
        self.steps_done = epoch.number * self.plan.steps_per_epoch + steps
        self.seen += 1
        # The first step of an epoch would count the validation before it.
        if self.seen > 1 and not self.interrupted:
            self.times.append(now - self.last)
        if self.seen >= self.FIRST and self.times:
            self.each = sum(self.times) / len(self.times)
        self.last, self.interrupted = now, False

    def outlook(self, seconds: Mapping[int, float]) -> None:
        """Trials of later stages, which took their time, gave these seconds per step."""
        self.later.update(seconds)
        self.interrupted = True

    def epoch(self) -> None:
        """An epoch has ended, validation and checkpoint included."""
        self.between = time.perf_counter() - self.last
        self.interrupted = True

    def text(self) -> str:
        """`3,412 images/s  0:25 left`, or nothing as long as nothing is known."""
        if not self.each:
            return ""
        steps_left = self.plan.steps - self.steps_done
        epochs_left = steps_left / self.plan.steps_per_epoch
        left = self.between * epochs_left
        for later in range(len(self.plan.stages) - 1, self.stage, -1):
            steps = self.plan.stages[later].epochs * self.plan.steps_per_epoch
            left += self.later.get(later, self.each) * steps
            steps_left -= steps
        left += self.each * steps_left
        is_guess = self.stage + 1 < len(self.plan.stages) or self._eps_grows()
        return f"{self.batch / self.each:,.0f} images/s  {'~' * is_guess}{clock(left)} left"

    def _eps_grows(self) -> bool:
        if self.steps_done >= self.plan.steps:
            return False
        stage = self.plan.stages[self.stage]
        return stage.eps(self.plan.since_stage(self.steps_done)) < stage.eps(stage.epochs)
