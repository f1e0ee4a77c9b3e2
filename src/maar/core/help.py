"""Help texts as wide as the terminal.

tyro fits its boxes to the terminal, but prints a description as it is: the terminal then breaks its
long lines in the middle of words.
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import sys
from collections.abc import Iterator
from typing import TextIO

_COLOUR = re.compile(r"\x1b\[[\d;]*m")


@contextlib.contextmanager
def folded() -> Iterator[None]:
    """Lines printed in the block that are wider than the terminal are broken between words."""
    stdout, said = sys.stdout, _Screen(sys.stdout)
    with contextlib.redirect_stdout(said):
        try:
            yield
        finally:
            stdout.write(fold(said.getvalue(), shutil.get_terminal_size().columns))


def fold(text: str, width: int) -> str:
    """The text with its long lines broken; what fits, such as a box, stays as it is."""
    lines: list[str] = []
    for line in text.split("\n"):
        lines.append("")
        for word in line.split(" ") if _seen(line) > width else [line]:
            if lines[-1] and _seen(lines[-1]) + 1 + _seen(word) > width:
                lines.append("")
            lines[-1] += f" {word}" if lines[-1] else word
    return "\n".join(lines)


def _seen(text: str) -> int:
    """How wide it is on the screen."""
    return len(_COLOUR.sub("", text))


class _Screen(io.StringIO):
    """Kept text that looks like the stream it is for: no box or colour is left out."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self.stream = stream

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.stream.encoding

    def isatty(self) -> bool:
        return self.stream.isatty()
