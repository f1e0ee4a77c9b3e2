"""Why a file, a network or a claim is not accepted."""

from __future__ import annotations


class Refused(Exception):
    """The claim does not hold, or cannot be read; the text says why in one line."""


def require(condition: object, why: str) -> None:
    """Refuse unless the condition is true."""
    if not condition:
        raise Refused(why)
