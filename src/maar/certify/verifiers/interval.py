"""Interval bounds: milliseconds, and enough for networks trained with them."""

from __future__ import annotations

from dataclasses import dataclass

from maar.bounds.bound import Bound
from maar.bounds.interval import Interval
from maar.certify.verifiers.bound import BoundVerifier

INTERVAL = Interval(rounding=True)


@dataclass(frozen=True)
class IntervalVerifier(BoundVerifier):
    """`maar.bounds.interval`."""

    bound: Bound = INTERVAL
