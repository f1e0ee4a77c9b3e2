"""Numbers that change during training, as pure functions of the position in a stage.

Every schedule is called with `t`, the epochs since its stage began, fractions included. The
trainer gets t from the global step alone, so a resumed run sees the same numbers as one that was
never stopped; a schedule must not remember anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

Schedule = Callable[[float], float]


@dataclass(frozen=True)
class Constant:
    """Always the same."""

    value: float

    def __call__(self, t: float) -> float:
        return self.value


@dataclass(frozen=True)
class Ramp:
    """From `start` to `end` in a straight line over `epochs`, counted from epoch `begin`."""

    start: float
    end: float
    epochs: float
    begin: float = 0.0

    def __call__(self, t: float) -> float:
        t -= self.begin
        if t < 0:
            return self.start
        if t >= self.epochs:
            return self.end
        return self.start + (self.end - self.start) * self.risen(t / self.epochs)

    def risen(self, part: float) -> float:
        """How much of the way up, after this part of the way along."""
        return part


@dataclass(frozen=True)
class Smooth(Ramp):
    """Like `Ramp`, but slow at first: along t^4 over a quarter of the way, then a straight line.

    The customary schedule of eps in training by bounds (auto_LiRPA's "smoothed"); the two pieces
    meet with one slope.
    """

    def risen(self, part: float) -> float:
        bend, power = 0.25, 4
        scale = 1 / ((1 - bend) * power * bend ** (power - 1) + bend**power)
        if part < bend:
            return scale * part**power
        height = scale * bend**power
        return height + (part - bend) * (1 - height) / (1 - bend)


@dataclass(frozen=True)
class Steps:
    """`value`, multiplied by `factor` at each of the epochs `at`."""

    value: float
    factor: float
    at: tuple[float, ...]

    def __call__(self, t: float) -> float:
        return self.value * self.factor ** sum(t >= epoch for epoch in self.at)


@dataclass(frozen=True)
class Halving:
    """`value`, multiplied by `factor` every `every` epochs, counted from epoch `begin`.

    The paper's "after the initial 60 epochs we multiply the learning rate by 0.5 every 10 epochs":
    the first fall is at epoch 70, as in COLT's public code.
    """

    value: float
    factor: float
    begin: float
    every: float

    def __call__(self, t: float) -> float:
        return self.value * self.factor ** max(0, math.floor((t - self.begin) / self.every))


@dataclass(frozen=True)
class OneCycle:
    """Up to `peak` over the first three tenths, down to nearly nothing at the end, along cosines.

    Smith and Topin's policy with the customary constants: it starts at peak / 25 and ends at
    peak / 250,000. Trains in few epochs at rates that would diverge at the start.
    """

    peak: float
    epochs: float

    def __call__(self, t: float) -> float:
        rise = 0.3 * self.epochs
        start, end = self.peak / 25, self.peak / 250_000
        if t < rise:
            return _cosine(start, self.peak, t / rise)
        return _cosine(self.peak, end, min(1.0, (t - rise) / (self.epochs - rise)))


def _cosine(start: float, end: float, part: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * part)) / 2
