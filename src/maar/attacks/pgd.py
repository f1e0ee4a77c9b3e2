"""Projected gradient descent by the gradient's sign (Madry et al. 2018), over any region.

    e <- clip(e + step_size * sign(grad_e loss), -1, 1)

One step is one forward and one backward pass through the region's `point` and the
layers behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from maar.attacks.attack import Attack, Rows
from maar.core.errors import UsageError, unknown
from maar.regions import Errors
from maar.regions.region import take


@dataclass(frozen=True, kw_only=True)
class PGD(Attack):
    """Sign-gradient PGD. The defaults are those of training; to evaluate, keep the best point."""

    step_size: float = 0.25
    """In e: a part of the region's radius."""
    keep: Literal["last", "best"] = "last"
    """Which point of a run counts: the last iterate, as Madry and COLT train with (it costs no
    further pass), or the one with the largest margin (one more forward pass). Between restarts
    and targets, and for an image that leaves by early_exit, the largest margin always counts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.step_size < float("inf"):
            raise UsageError(f"step_size = {self.step_size!r} (accepted: a number > 0)")
        if self.keep not in ("last", "best"):
            raise unknown("keep", self.keep, ("last", "best"))

    @property
    def keeps_every_step(self) -> bool:
        return self.keep == "best"

    def run(self, rows: Rows, e: Errors) -> Errors:
        if rows.best is None and rows.climber is not None:
            return rows.climber.sign_steps(e, self.steps, self.step_size)
        for _ in range(self.steps):
            _, gradient = rows.climb(e)
            is_open = rows.still_open()
            if is_open is not None:
                rows, e, gradient = rows.select(is_open), take(e, is_open), take(gradient, is_open)
                if not len(rows):
                    return e
            for group, slope in zip(e, gradient, strict=True):
                rows.region.ascend(group, slope, self.step_size)
        if rows.best is not None:
            rows.finish(e)
        return e
