"""Flags by tyro, with each mistake told in one line like every other error of maar.

tyro draws a box around an error and adds help: its first paragraph says what is wrong, a later one
what was probably meant.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Sequence
from typing import Annotated, TypeVar

import tyro

from maar.core.errors import UsageError, nearest
from maar.core.help import folded

T = TypeVar("T")

# What tyro says of a flag whose value may be left away.
NOT_A_NUMBER = re.compile(
    r"error parsing (--\S+): no type matching \{None\}\|(INT|FLOAT)\b.*? from \['(.*?)'\]", re.I
)

# A flag without a value: it is there or not, and --no-FLAG would say nothing more.
Switch = Annotated[bool, tyro.conf.FlagCreatePairsOff, tyro.conf.arg(help_behavior_hint="")]


def parse(form: type[T], prog: str, argv: Sequence[str]) -> T:
    """`tyro.cli(form)`: `--help` prints and leaves, a mistake is a `UsageError`."""
    said = io.StringIO()
    try:
        with folded(), contextlib.redirect_stderr(said):
            return tyro.cli(form, prog=prog, args=list(argv))
    except SystemExit as leave:
        if leave.code in (0, None):
            raise
    raise UsageError(one_line(said.getvalue(), prog))


def one_line(box: str, prog: str) -> str:
    """What tyro's box says: what is wrong, what was probably meant, where to read more."""
    plain = re.sub(r"\x1b\[[\d;]*m", "", box)
    lines = [line.strip(" │") for line in plain.splitlines() if line[:1] not in ("╭", "╰")]
    paragraphs = [part.strip() for part in re.split(r"(?m)^[─-]+$", "\n".join(lines))]
    if "│" not in plain:
        del paragraphs[0]  # where the terminal has no such signs, the title stands above a rule
    what = " ".join(paragraphs[0].split())
    if wrong := NOT_A_NUMBER.match(what):
        flag, kind, value = wrong.groups()
        number = "a whole number" if kind == "INT" else "a number"
        return f"{flag} {value} is not {number} (see {prog} --help)"
    accepted = ""
    for paragraph in paragraphs[1:]:
        head, _, rest = paragraph.partition("\n")
        if head.startswith("Perhaps you meant"):
            what += f"; did you mean {rest.split()[0].strip(',')}?"
        elif head.startswith("Available subcommands:"):
            commands = " ".join(paragraph.split()).partition(": ")[2]
            what += nearest(what.rpartition(": ")[2], commands.split(", "))
            accepted = f"accepted: {commands}; "
    return f"{what[:1].lower()}{what[1:].rstrip('.')} ({accepted}see {prog} --help)"
