"""Zonotopes with learned slopes: COLT's linear relaxation, before any solver (Balunovic 2020).

Every slope in [0, 1] of a ReLU's band [s v, s v + t] is sound, so the lower bounds are maximised
over them by Adam, starting from DeepZ's. A zonotope has one slope per ReLU, which serves the bounds
of the ReLUs above it and those of all classes alike: the slopes are learned for all open classes
together first, then for each that stays open by itself. On one image's reduced network an iteration
is a few small matrix products.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from maar.core.errors import UsageError
from maar.domains.alpha_crown import never_below
from maar.domains.bound import Bound, Enclosure, Problem
from maar.domains.reduced.linear import Affine
from maar.domains.reduced.network import Layer, Reduced, reduce
from maar.domains.relax import upper_line


@dataclass(frozen=True)
class LearnedZonotope(Bound):
    """Zonotopes, one image at a time, `iterations` for all rows and again for each row alone.

    Without iterations it is the zonotope with DeepZ's slopes. `budget`: see `reduce`. `seconds`:
    when they are over, the best bounds so far are the result.
    """

    name: ClassVar[str] = "learned_zonotope"
    iterations: int = 100
    lr: float = 0.1
    rounding: bool = False
    budget: int = 4 << 30
    period: int = 0
    """iterations after which the learning rate falls to a tenth, again and again; 0: never"""
    seconds: float = field(default=math.inf, repr=False)

    def __post_init__(self) -> None:
        if self.iterations < 0:
            raise UsageError(f"iterations = {self.iterations} (accepted: 0 or more)")
        if not 0 < self.lr < math.inf:
            raise UsageError(f"lr = {self.lr} (accepted: a number > 0)")
        if self.period < 0:
            raise UsageError(f"period = {self.period} (accepted: 0 or more)")

    def enclose(self, problem: Problem) -> Enclosure:
        """Upper bounds are those of DeepZ's slopes: robustness asks for the lower ones."""
        return Enclosure.stack([self._one(part) for part in problem.images()])

    def _one(self, problem: Problem) -> Enclosure:
        with torch.no_grad():
            reduced, rows = reduce(problem, self.rounding, parallel=True, budget=self.budget)
            start = reduced.bounds(rows)
        better = self.learn(reduced, rows, start[0][0])
        return Enclosure(better[None], start[1], reduced.boxes.pre())

    def learn(self, reduced: Reduced, rows: Affine, start: Tensor) -> Tensor:
        """Raise the lower bounds `start` of the rows until all are > 0 or the iterations end."""
        best = start.clone()
        if not reduced.columns or not self.iterations:
            return best
        end = time.monotonic() + self.seconds
        open_ = (best <= 0).nonzero().squeeze(1)
        self._climb(reduced, rows, best, open_, end)
        if len(open_) > 1:
            # The nearest to being proved first: time may not be enough for all.
            for n in open_[best[open_].argsort(descending=True)]:
                if best[n] <= 0:
                    self._climb(reduced, rows, best, n[None], end)
        return best

    def slopes(self, reduced: Reduced, row: Affine) -> list[Tensor]:
        """Return the slopes that were learned for one row, layer by layer."""
        with torch.no_grad():
            best = reduced.lower(row).clone()
        open_ = torch.zeros(1, dtype=torch.long)
        return self._climb(reduced, row, best, open_, time.monotonic() + self.seconds)

    @torch.enable_grad()
    def _climb(
        self, reduced: Reduced, rows: Affine, best: Tensor, open_: Tensor, end: float
    ) -> list[Tensor]:
        """Raise best[open_] with one set of slopes for these rows; returns the slopes."""
        slopes = [
            upper_line(layer.lb, layer.ub)[0].clone().requires_grad_() for layer in reduced.layers
        ]
        if not len(open_):
            return slopes
        optimiser = torch.optim.Adam(slopes, lr=self.lr)
        for iteration in range(self.iterations + 1):
            found = rebounded(reduced, slopes).lower(rows[open_], slopes)
            with torch.no_grad():
                best[open_] = torch.where(found > best[open_], found, best[open_])
            is_open = best[open_] <= 0
            if iteration == self.iterations or not bool(is_open.any()) or time.monotonic() >= end:
                break
            # Rows already proved need no more work: only the open ones pull at the slopes.
            gradients = torch.autograd.grad(-found[is_open].sum(), slopes, allow_unused=True)
            for slope, gradient in zip(slopes, gradients, strict=True):
                # (that of a line on a range of subnormal width is inf or NaN)
                slope.grad = None if gradient is None else gradient.nan_to_num(0.0, 0.0, 0.0)
            if self.period and iteration and not iteration % self.period:
                for group in optimiser.param_groups:
                    group["lr"] *= 0.1
            optimiser.step()
            with torch.no_grad():
                for slope in slopes:
                    slope.clamp_(0, 1)
        return slopes


def rebounded(reduced: Reduced, slopes: Sequence[Tensor]) -> Reduced:
    """The same network with every ReLU's input bounded again, by the zonotope with these slopes."""
    layers: list[Layer] = []
    for layer in reduced.layers:
        lb, ub = layer.lb, layer.ub
        if len(layer.index) and layer.rows.Z.shape[1]:
            so_far = replace(reduced, layers=layers)
            lb = never_below(lb, so_far.lower(layer.rows, slopes))
            ub = -never_below(-ub, -so_far.upper(layer.rows, slopes))
        layers.append(replace(layer, lb=lb, ub=ub))
    return replace(reduced, layers=layers)
