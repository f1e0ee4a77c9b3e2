"""What is seen of a certification: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from maar.certification.inquiry import C, Count, Inquiry
from maar.core.eps import Eps
from maar.records.verdicts import VERDICTS, Record, Tally
from maar.terminal.clock import clock
from maar.terminal.live import Lines, bar, start
from maar.terminal.tables import table

if TYPE_CHECKING:
    from maar.certification.run import Plan

SPLITS = {"test": "test", "valid": "validation"}


class Display(Generic[C]):
    """Shows nothing, for library use. Called in the order in which the methods stand."""

    def begin(self, plan: Plan, tally: C, workers: int, again: int) -> None:
        """Work begins; what `tally` counts is from before, `again` images are tried once more."""

    def add(self, record: Record, tally: C) -> None:
        """An image has its verdict."""

    def end(self, tally: C) -> None:
        """Work has ended: all done, interrupted, or failed."""


def make_display(inquiry: Inquiry[C]) -> Display[C]:
    """The live table if stdout is a terminal, else plain lines."""
    console = Console()
    return LiveDisplay(console, inquiry) if console.is_terminal else PlainDisplay(console, inquiry)


class PlainDisplay(Display[C]):
    """A line every ten seconds, one each half minute if nothing happens, and the table."""

    def __init__(self, console: Console, inquiry: Inquiry[C]) -> None:
        self.console, self.inquiry = console, inquiry

    def begin(self, plan: Plan, tally: C, workers: int, again: int) -> None:
        self.pace, self.tally = Pace(), tally
        self.lines = Lines(self._line)
        details = describe(plan, tally, workers, again, self.inquiry.each)
        print(f"{self.inquiry.subject(plan)} ({details})", flush=True)
        self.lines.start()

    def add(self, record: Record, tally: C) -> None:
        self.pace.add(tally)
        self.lines.news()

    def _line(self) -> str:
        tally = self.tally
        done = f"{tally.done}/{tally.images}"
        return f"{done}: {self.inquiry.counts(tally)}; {self.pace.text(tally)}"

    def end(self, tally: C) -> None:
        self.lines.stop()
        self.console.print(self.inquiry.result(tally))


class LiveDisplay(Display[C]):
    """The table, moving, with a bar below it; at the end the table stays."""

    def __init__(self, console: Console, inquiry: Inquiry[C]) -> None:
        self.console, self.inquiry = console, inquiry

    def begin(self, plan: Plan, tally: C, workers: int, again: int) -> None:
        self.pace, self.tally = Pace(), tally
        self.console.print(Text(self.inquiry.subject(plan), "bold cyan"))
        self.console.print(Text(describe(plan, tally, workers, again, self.inquiry.each), "dim"))
        self.live = start(self.console, self._moving)

    def add(self, record: Record, tally: C) -> None:
        self.pace.add(tally)

    def end(self, tally: C) -> None:
        self.live.stop()
        self.console.print(self.inquiry.result(tally))

    def _moving(self) -> RenderableType:
        done, images = self.tally.done, self.tally.images
        moving = bar(self.console, f"{done}/{images}", done, images, self.pace.text(self.tally))
        return Group(self.inquiry.result(self.tally), moving)


class Pace:
    """Images per second and the time left, measured from the first verdict of this call on.

    Starting the workers says nothing about the images.
    """

    def __init__(self) -> None:
        self.first: tuple[float, int] | None = None

    def add(self, tally: Count) -> None:
        """An image has its verdict."""
        self.first = self.first or (time.monotonic(), tally.done)

    def text(self, tally: Count) -> str:
        """`12.3 images/s  0:25 left`, as soon as something is known."""
        if self.first is None or tally.done == self.first[1]:
            return "starting" if tally.done < tally.images else ""
        start, before = self.first
        each = (time.monotonic() - start) / (tally.done - before)
        return f"{1 / each:.3g} images/s  {clock(each * (tally.images - tally.done))} left"


def describe(plan: Plan, tally: Count, workers: int, again: int, each: str) -> str:
    """How many images, and how they are worked on."""
    part = "" if tally.images == tally.of else f" of {tally.of:,}"
    details = [f"{tally.images:,}{part} {SPLITS[plan.split]} images"]
    if tally.done:
        details.append(f"{tally.done:,} from before")
    if again:
        details.append(f"{again:,} taken again")
    if tally.done < tally.images:
        limit = plan.task.cascade.timeout
        details.append(f"at most {limit:g} s {each}" if math.isfinite(limit) else "no time limit")
        details.append(f"{workers} process{'es' * (workers != 1)}")
    details.append(f"preset {plan.preset}" if plan.preset else "verifiers as listed")
    return ", ".join(details)


def subject(plan: Plan) -> str:
    """What is certified."""
    size = f"eps {plan.eps}" if plan.moves is None else str(plan.moves)
    return f"{plan.name or 'network'} on {plan.data.name}, {size}"


def result(tally: Tally) -> RenderableType:
    """The cascade, verifier by verifier, and what it adds up to."""
    lines = [Text(counts(tally)), Text(shares(tally), "bold"), *interval(tally)]
    if tally.last_error:
        lines.append(Text(tally.last_error, "red"))
    return Group(cascade(tally), "", *lines)


def cascade(tally: Tally) -> Table:
    """What each verifier got, what it settled, what it left to the next, and what that took."""
    columns = ["images", "falsified", "verified", "left", "s/image", "time"]
    if tally.counts["error"]:
        columns.insert(3, "error")
    shown = table("verifier", *columns, right=columns)
    for name, reached in tally.reached.items():
        broken, proved = tally.falsified_by(name), tally.settled[name, "verified"]
        row = {
            "images": f"{reached:,}",
            "falsified": Text(_unless_0(broken), "red"),
            "verified": Text(_unless_0(proved), "green"),
            "error": Text(_unless_0(tally.settled[name, "error"]), "red"),
            "left": f"{reached - broken - proved:,}",
            "s/image": f"{tally.seconds[name] / reached:.3f}" if reached else "",
            "time": clock(tally.seconds[name]),
        }
        # One that no image came to has nothing to say.
        cells = [row[column] for column in columns] if reached else []
        shown.add_row(name, *cells, style="" if reached else "dim")
    return shown


def _unless_0(count: int) -> str:
    return f"{count:,}" if count else ""


def counts(tally: Tally) -> str:
    """`97 verified, 2 falsified, ...`."""
    parts = [f"{tally.counts[verdict]:,} {verdict}" for verdict in VERDICTS]
    if tally.done < tally.images:
        parts.append(f"{tally.images - tally.done:,} to do")
    return ", ".join(parts)


def shares(tally: Tally) -> str:
    """Accuracy, and the certified share with its upper bound."""
    low, high = 100 * tally.certified, 100 * tally.certified_upper
    is_open = tally.counts["verified"] + tally.broken < tally.images
    text = f"certified {low:.2f} %" + (f" (upper bound {high:.2f} %)" if is_open else "")
    if tally.accuracy is not None:
        return f"accuracy {100 * tally.accuracy:.2f} %, {text}"
    if 0 < tally.done < tally.images:
        # Those to do count as open above, which says little in the beginning.
        text += f"; {100 * tally.counts['verified'] / tally.done:.1f} % of those done"
    return text


def interval(tally: Tally) -> list[Text]:
    """What a part of the images says of all, if it is a part."""
    if tally.interval is None:
        return []
    low, high = (100 * end for end in tally.interval)
    what = f"95 % interval for all {tally.of:,} images, if these are typical"
    return [Text(f"{what}: {low:.1f} to {high:.1f} %")]


def comparison(rows: Sequence[tuple[Eps, Tally]]) -> RenderableType:
    """Several radii of one network side by side."""
    heads = ("eps", *VERDICTS, "certified", "upper bound")
    shown = table(*heads, right=heads)
    for eps, tally in rows:
        shown.add_row(
            str(eps),
            *(f"{tally.counts[verdict]:,}" for verdict in VERDICTS),
            Text(f"{100 * tally.certified:.2f} %", "bold"),
            f"{100 * tally.certified_upper:.2f} %",
        )
    return shown
