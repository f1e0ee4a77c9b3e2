"""What is seen of a training run: a live display in a terminal, plain lines elsewhere.

`Display` itself shows nothing, for library use; `make_display` picks one for the command line.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from torch import nn

from maar.config import Config, config_hash
from maar.train.plan import Epoch, Plan

# Shown as parts of a hundred: shares of images.
SHARES = ("accuracy", "error", "robustness")


class Display:
    """Shows nothing. The trainer calls these in the order in which they stand."""

    def warn(self, line: str) -> None:
        """Something the user should know, such as a damaged checkpoint."""

    def begin(self, config: Config, plan: Plan, net: nn.Module, images: int, done: int) -> None:
        """The run is laid out; `done` epochs of it are from an earlier session."""

    def step(
        self, epoch: Epoch, steps: int, loss: dict[str, float], notes: dict[str, float]
    ) -> None:
        """`steps` of an epoch are done, with these means of the loss terms and notes so far."""

    def epoch(self, record: dict[str, Any]) -> None:
        """An epoch is done; `record` is its line in metrics.jsonl."""

    def note(self, what: str) -> None:
        """What is going on now that is no training step."""

    def close(self) -> None:
        """The run has ended, well or not. May be called twice."""


def make_display() -> Display:
    """The live display if stdout is a terminal, else plain lines."""
    console = Console()
    return LiveDisplay(console) if console.is_terminal else PlainDisplay()


class PlainDisplay(Display):
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
        self.pace.step()

    def epoch(self, record: dict[str, Any]) -> None:
        self.pace.epoch()
        print(f"{epoch_line(record, self.plan)}  {self.pace.text()}", flush=True)

    def note(self, what: str) -> None:
        print(what, flush=True)


class LiveDisplay(Display):
    """A row per finished epoch, and below them two lines that move with every step."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live: Live | None = None
        self.columns: list[str] = []
        self.place, self.terms, self.completed = "", "", 0

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
        live = Live(
            console=self.console, get_renderable=self._moving, refresh_per_second=8, transient=True
        )
        live.start()
        self.live = live

    def step(
        self, epoch: Epoch, steps: int, loss: dict[str, float], notes: dict[str, float]
    ) -> None:
        self.pace.step()
        stage = self.plan.stages[epoch.stage]
        self.place = f"epoch {epoch.in_stage + 1}/{stage.epochs}"
        if len(self.plan.stages) > 1:
            self.place = f"stage {epoch.stage + 1}/{len(self.plan.stages)} {self.place}"
        shown = {**terms(loss), **notes}
        self.terms = "  ".join(f"{label(name)} {number(name, x)}" for name, x in shown.items())
        self.completed = epoch.number * self.plan.steps_per_epoch + steps

    def epoch(self, record: dict[str, Any]) -> None:
        self.pace.epoch()
        stage = self.plan.stages[record["stage"] - 1]
        cells = {"epoch": f"{record['epoch']}/{stage.epochs}"}
        if len(self.plan.stages) > 1:
            cells = {"stage": f"{record['stage']}/{len(self.plan.stages)} {stage.name}", **cells}
        for name, value in {**terms(record["loss"]), **record["train"]}.items():
            cells[label(name)] = number(name, value)
        for name, value in record.get("valid", {}).items():
            cells[f"valid {label(name)}"] = number(name, value)
        cells["time"] = clock(record["seconds"])
        if list(cells) != self.columns:  # the first epoch, or a stage with other terms
            self.columns = list(cells)
            self._row({name: name for name in cells}, "dim")
        self._row(cells)

    def note(self, what: str) -> None:
        self.place, self.terms = what, ""

    def close(self) -> None:
        if self.live is not None:
            self.live.stop()
            self.live = None

    def _row(self, cells: Mapping[str, str], style: str = "") -> None:
        """One line of the table. Widths depend on the columns only, so that rows align."""
        longest = max(len(f"{stage.epochs}/{stage.epochs}") for stage in self.plan.stages)
        names = max(len(f"1/{len(self.plan.stages)} {stage.name}") for stage in self.plan.stages)
        widths = {"epoch": max(5, longest), "stage": names}
        row = [f"{text:>{widths.get(name, max(7, len(name)))}}" for name, text in cells.items()]
        self.console.print(Text("  ".join(row), style))

    def _moving(self) -> Group:
        bar = Table.grid(padding=(0, 2), expand=True)
        for ratio in (None, 1, None, None):
            bar.add_column(ratio=ratio, no_wrap=True)
        share = self.completed / self.plan.steps
        bar.add_row(
            Text(self.place, "bold"),
            ProgressBar(self.plan.steps, self.completed, complete_style="cyan"),
            f"{share:4.0%}",
            Text(self.pace.text(), "dim"),
        )
        return Group(bar, Text(self.terms))


class Pace:
    """Images per second and the time left, measured on the last steps and epochs.

    What an epoch costs besides its steps (validation, checkpoint) is counted once it is known. A
    later stage may be slower than the present one: the estimate then grows when it begins.
    """

    WINDOW = 50
    FIRST = 3  # the first steps are slow and say nothing

    def __init__(self, plan: Plan, batch: int, done: int) -> None:
        self.plan, self.batch = plan, batch
        self.steps_done = done * plan.steps_per_epoch
        self.seen = 0
        self.times: deque[float] = deque(maxlen=self.WINDOW)
        self.between = 0.0
        self.last = time.perf_counter()
        self.epoch_ended = False

    def step(self) -> None:
        """A step has ended."""
        now = time.perf_counter()
        self.steps_done += 1
        self.seen += 1
        # The first step of an epoch would count the validation before it.
        if self.seen > 1 and not self.epoch_ended:
            self.times.append(now - self.last)
        self.last, self.epoch_ended = now, False

    def epoch(self) -> None:
        """An epoch has ended, validation and checkpoint included."""
        self.between = time.perf_counter() - self.last
        self.epoch_ended = True

    def text(self) -> str:
        """`3,412 images/s  0:25 left`, or nothing as long as nothing is known."""
        if self.seen < self.FIRST or not self.times:
            return ""
        step = sum(self.times) / len(self.times)
        steps_left = self.plan.steps - self.steps_done
        epochs_left = steps_left / self.plan.steps_per_epoch
        left = step * steps_left + self.between * epochs_left
        return f"{self.batch / step:,.0f} images/s  {clock(left)} left"


def headline(config: Config, net: nn.Module, images: int) -> tuple[str, str]:
    """What is trained on what, and the details of it."""
    weights = sum(parameter.numel() for parameter in net.parameters())
    return f"{config.method.name} on {config.data}, eps {config.eps}", (
        f"{config.network}, {weights:,} weights, {images:,} images, seed {config.seed}, "
        f"{config.threads} thread{'s' * (config.threads != 1)}, hash {config_hash(config)[:8]}"
    )


def epoch_line(record: dict[str, Any], plan: Plan) -> str:
    """An epoch as one line of plain text."""
    stage = plan.stages[record["stage"] - 1]
    shown = {**terms(record["loss"]), **record["train"]}
    numbers = [f"{name} {number(name, value)}" for name, value in shown.items()]
    numbers += [f"valid {k} {number(k, v)}" for k, v in record.get("valid", {}).items()]
    return (
        f"stage {record['stage']}/{len(plan.stages)} epoch {record['epoch']}/{stage.epochs}: "
        f"{', '.join(numbers)}, {record['seconds']:.1f} s"
    )


def terms(loss: Mapping[str, float]) -> dict[str, float]:
    """The parts of a loss to show: the total too, unless there is one term only."""
    return {name: x for name, x in loss.items() if name != "total" or len(loss) > 2}


def label(name: str) -> str:
    """A metric's name for a narrow column."""
    return name.replace("accuracy", "acc").replace("_", " ")


def number(name: str, value: float) -> str:
    """A share as per cent, anything else with four digits."""
    return f"{100 * value:.1f} %" if name.endswith(SHARES) else f"{value:.4f}"


def clock(seconds: float) -> str:
    """m:ss, or h:mm:ss."""
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    rest = f"{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"
    return f"{hours}:{rest}" if hours else rest
