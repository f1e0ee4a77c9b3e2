"""Stop a trial whose validation score falls far behind: the others' time is better spent."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median, quantiles

Curve = Sequence[tuple[float, float]]
"""(part of the training done, score) of each epoch."""

EARLIEST, OTHERS, BEHIND = 0.2, 4, 0.02
"""Part of the training, number of other trials, and distance to their median, each at least."""


def is_hopeless(mine: Curve, others: Sequence[Curve]) -> bool:
    """Return whether a trial is in the lowest quarter, and well below the median, at this point.

    Lenient on purpose: the score is robustness under an attack, and a network that withstands
    fewer attacks may be the one that is proved more often.
    """
    if not mine or not EARLIEST <= mine[-1][0] < 1:
        return False
    part, score = mine[-1]
    there = [at for curve in others if (at := _at(curve, part)) is not None]
    if len(there) < OTHERS:
        return False
    return score < quantiles(there, n=4)[0] and score < median(there) - BEHIND


def _at(curve: Curve, part: float) -> float | None:
    """Return the score at this point, of the last epoch before it; None if it never got there."""
    if not curve or curve[-1][0] < part:
        return None
    return next((score for at, score in reversed(curve) if at <= part), None)
