"""Auto-PGD (Croce & Hein 2020, Algorithm 1): PGD with momentum that finds its own step size.

Each image starts with steps of twice the radius. At checkpoints that come ever
closer, an image whose loss has stopped growing halves its step and goes back to
its best point.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from maar.attacks.attack import Attack, Rows
from maar.attacks.losses import LossName
from maar.regions import Errors
from maar.regions.region import take

MOMENTUM = 0.75  # alpha in the paper
GROWING = 0.75  # rho: the share of steps that must increase the loss


@dataclass(frozen=True, kw_only=True)
class APGD(Attack):
    """Auto-PGD, made for evaluation: returns the point with the largest margin."""

    steps: int = 100
    loss: LossName = "margin"
    early_exit: bool = True

    def run(self, rows: Rows, e: Errors) -> Errors:
        if self.steps == 0:
            rows.finish(e)
            return e
        loss, gradient = rows.climb(e)
        at = _State.start(e, loss, gradient)
        checkpoints = _checkpoints(self.steps)
        last_checkpoint = 0
        for step in range(1, self.steps + 1):
            is_open = rows.still_open()
            if is_open is not None:
                rows, at = rows.select(is_open), at.select(is_open)
                if not len(rows):
                    break
            moved = at.moved(momentum=0.0 if step == 1 else 1 - MOMENTUM)
            if step == self.steps:
                rows.finish(moved)
                return moved
            at.arrive(moved, *rows.climb(moved))
            if step in checkpoints:
                at.halve_where_stuck(period=step - last_checkpoint)
                last_checkpoint = step
        return at.e


@dataclass
class _State:
    """Where each row stands. All tensors have the rows first."""

    e: Errors
    before: Errors
    loss: Tensor
    gradient: Errors
    best_e: Errors
    best_loss: Tensor
    best_gradient: Errors
    size: Tensor
    increases: Tensor
    was_halved: Tensor
    checkpoint_loss: Tensor

    @classmethod
    def start(cls, e: Errors, loss: Tensor, gradient: Errors) -> _State:
        return cls(
            e=e,
            before=e,
            loss=loss,
            gradient=gradient,
            best_e=e,
            best_loss=loss,
            best_gradient=gradient,
            size=torch.full_like(loss, 2.0),
            increases=torch.zeros_like(loss),
            was_halved=torch.ones_like(loss, dtype=torch.bool),
            checkpoint_loss=loss,
        )

    def select(self, index: Tensor) -> _State:
        parts = {}
        for item in fields(self):
            value = getattr(self, item.name)
            parts[item.name] = take(value, index) if isinstance(value, tuple) else value[index]
        return _State(**parts)

    def moved(self, momentum: float) -> Errors:
        """The next iterate: a projected sign step, mixed with the last movement."""
        steps = []
        for e, before, slope in zip(self.e, self.before, self.gradient, strict=True):
            ahead = (e + _rows_first(self.size, e) * slope.sign()).clamp_(-1, 1)
            mixed = e + (1 - momentum) * (ahead - e) + momentum * (e - before)
            steps.append(mixed.clamp_(-1, 1))
        return tuple(steps)

    def arrive(self, e: Errors, loss: Tensor, gradient: Errors) -> None:
        self.before, self.e = self.e, e
        self.increases = self.increases + (loss > self.loss)
        self.loss, self.gradient = loss, gradient
        better = loss > self.best_loss
        self.best_loss = torch.where(better, loss, self.best_loss)
        self.best_e = _where(better, e, self.best_e)
        self.best_gradient = _where(better, gradient, self.best_gradient)

    def halve_where_stuck(self, period: int) -> None:
        """Conditions 1 and 2 of the paper, row by row."""
        few_increases = self.increases < GROWING * period
        no_gain = ~self.was_halved & (self.best_loss <= self.checkpoint_loss)
        stuck = few_increases | no_gain
        self.size = torch.where(stuck, self.size / 2, self.size)
        # `before` as well: a movement that ended in a jump back is no momentum.
        self.before = _where(stuck, self.best_e, self.before)
        self.e = _where(stuck, self.best_e, self.e)
        self.loss = torch.where(stuck, self.best_loss, self.loss)
        self.gradient = _where(stuck, self.best_gradient, self.gradient)
        self.was_halved = stuck
        self.checkpoint_loss = self.best_loss
        self.increases = torch.zeros_like(self.increases)


def _checkpoints(steps: int) -> set[int]:
    """Steps ceil(p_j * steps) with p_0 = 0, p_1 = 22 %, and gaps that shrink by 3 % down to 6 %."""
    before, now = 0, 22
    found = set()
    while now <= 100:
        found.add(-(-now * steps // 100))
        before, now = now, now + max(now - before - 3, 6)
    return found


def _rows_first(vector: Tensor, like: Tensor) -> Tensor:
    return vector.view(-1, *([1] * (like.dim() - 1)))


def _where(rows: Tensor, yes: Errors, no: Errors) -> Errors:
    return tuple(torch.where(_rows_first(rows, a), a, b) for a, b in zip(yes, no, strict=True))
