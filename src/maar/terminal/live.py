"""Progress while it moves: a bar in a terminal, now and then a line elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

EVERY = 10.0
"""Seconds between plain lines."""
SILENCE = 30.0
"""Seconds without a line after which one is said, whether or not anything has happened."""
# Room at the right of a moving line for the `^C` of a terminal, which would begin a line of its own
# there, so that one too few is wiped.
ECHO = 3


def start(console: Console, render: Callable[[], RenderableType]) -> Live:
    """Begin to show what `render` gives, four times a second; it is wiped at the end."""
    live = Live(console=console, get_renderable=render, refresh_per_second=4, transient=True)
    live.start()
    return live


def bar(console: Console, what: str, done: int, total: int, *rest: str) -> Table:
    """Make a bar between what is done and the time that is left."""
    grid = Table.grid(padding=(0, 2), expand=True)
    grid.width = max(1, console.width - ECHO)
    for ratio in (None, 1, *(None for _ in rest)):
        grid.add_column(ratio=ratio, no_wrap=True)
    shown = ProgressBar(total, done, complete_style="cyan")
    grid.add_row(Text(what, "bold"), shown, *(Text(text, "dim") for text in rest))
    return grid


class Lines:
    """Plain lines: one for news, at most every `EVERY` seconds, and one when there are none.

    All workers may sit on hard images for minutes: a log that says nothing looks dead.
    """

    def __init__(self, line: Callable[[], str]) -> None:
        self.line = line
        self.said = time.monotonic()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Begin to listen for silence."""
        self.thread.start()

    def news(self) -> None:
        """Something has happened."""
        if time.monotonic() - self.said >= EVERY:
            self._say()

    def stop(self) -> None:
        """Say nothing any more."""
        self.over.set()
        if self.thread.is_alive():
            self.thread.join()

    def _watch(self) -> None:
        while not self.over.wait(min(1.0, SILENCE / 2)):
            if time.monotonic() - self.said >= SILENCE:
                self._say()

    def _say(self) -> None:
        self.said = time.monotonic()
        print(self.line(), flush=True)
