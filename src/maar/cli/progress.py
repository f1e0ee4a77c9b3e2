"""A bar with the time left, for commands that do one thing many times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

# Seconds between plain lines.
EVERY = 10.0


@contextmanager
def show_progress(console: Console, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar with the time left in a terminal, else a line now and then."""
    if not console.is_terminal:
        done, began, said = 0, time.monotonic(), time.monotonic()

        def tell(tried: int) -> None:
            nonlocal done, said
            done, now = done + tried, time.monotonic()
            if now - said >= EVERY:
                said = now
                left = timedelta(seconds=round((now - began) * (total - done) / done))
                print(f"{done / total:.0%}, {left} left", flush=True)

        yield tell
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
    from rich.progress import TimeRemainingColumn as Left

    bar = (BarColumn(40), TaskProgressColumn(), Left())
    columns = (TextColumn(what), *bar, TextColumn("left"))
    # Not as wide as the terminal: its `^C` would go to the next line, and the bar would stay.
    # The estimate is over the whole time: what is done in turn takes different times.
    with Progress(*columns, console=console, transient=True, speed_estimate_period=1e9) as shown:
        task = shown.add_task("", total=total)
        yield lambda tried: shown.advance(task, tried)
