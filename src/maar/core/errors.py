"""The two ways in which maar says no.

The command line turns each into one line on stderr and an exit code; a library
user catches `MaarError`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LONGEST = 900  # characters of a message with words of a file in it


class MaarError(Exception):
    """Base of every error that maar raises on purpose."""

    exit_code = 1


class UsageError(MaarError):
    """The user asked for something that cannot be: a bad argument, key or value (exit code 2)."""

    exit_code = 2


class RunError(MaarError):
    """A well-formed request failed: data absent, file damaged, disk full (exit code 1)."""


def printable(text: str) -> str:
    """Return the text on one line, cut where it is long, with ? for unprintable characters."""
    short = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
    return "".join(c if c.isprintable() else "?" for c in short)


def nearest(word: str, accepted: Iterable[str]) -> str:
    """Return `, did you mean 'x'?` for the closest accepted word, or an empty string."""
    folded = {each.lower(): each for each in accepted}
    close = difflib.get_close_matches(word.lower(), folded, n=1, cutoff=0.5)
    return f"; did you mean {folded[close[0]]!r}?" if close else ""


def unknown(what: str, word: object, accepted: Iterable[str]) -> UsageError:
    """The error for a name that is not in a list: names it, the list, and the nearest match."""
    names = sorted(accepted)
    return UsageError(
        f"unknown {what} {word!r}{nearest(str(word), names)} (accepted: {', '.join(names)})"
    )
