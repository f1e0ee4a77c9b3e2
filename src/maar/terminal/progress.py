"""A bar with the time left, for commands that do one thing many times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from maar.terminal.clock import clock

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def show_progress(console: Console, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar with the time left in a terminal, else a line now and then."""
    from maar.terminal.live import Lines, bar, start

    done, began = 0, time.monotonic()

    def left() -> str:
        return clock((time.monotonic() - began) * (total - done) / done) if done else "-:--"

    def add(tried: int) -> None:
        nonlocal done
        done += tried
        if not live:
            lines.news()

    lines = Lines(lambda: f"{done / total:.0%}, {left()} left")
    # The estimate is over the whole time: what is done in turn takes different times.
    moving = lambda: bar(console, what, done, total, f"{done / total:.0%}", f"{left()} left")  # noqa: E731
    live = start(console, moving) if console.is_terminal else None
    try:
        if live is None:
            lines.start()
        yield add
    finally:
        lines.stop()
        if live is not None:
            live.stop()
