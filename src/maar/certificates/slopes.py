"""alpha-CROWN with the slopes kept: rounded to k/255, and every bound computed again with them.

A bound of CROWN holds for any slopes in [0, 1], so a certificate that has the slopes needs nothing
else; rounding them can weaken a bound, never make it false. The search that follows works on the
bounds of the rounded slopes, which are what a checker will find.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from maar.domains.alpha_crown import AlphaCrown, never_below
from maar.domains.reduced.linear import Affine
from maar.domains.reduced.network import Layer, Reduced
from maar.domains.relax import lower_slope, upper_line

STEPS = 255
"""Slopes are multiples of 1 / STEPS."""


def rounded(slope: Tensor, steps: int = STEPS) -> Tensor:
    """The nearest multiples of 1 / steps in [0, 1]."""
    return (slope.nan_to_num(0.0, 0.0, 0.0).clamp(0, 1) * steps).round() / steps


@dataclass(frozen=True)
class Inner:
    """The slopes by which one ReLU layer's inputs are bounded: for each earlier layer [U, U_j].

    One set for the lower bounds, one for the upper.
    """

    lower: list[Tensor]
    upper: list[Tensor]


@dataclass(frozen=True)
class Recorded:
    """Slopes, and the network with the bounds that they give."""

    network: Reduced
    inner: dict[int, Inner]
    targets: tuple[int, ...]
    last: list[Tensor]
    """For each layer [targets, U_k]."""

    def lower(self, rows: Affine) -> Tensor:
        """Bounds of the targets' rows by these slopes."""
        return self.network.lower(rows, self.last)


def record(
    bound: AlphaCrown, network: Reduced, rows: Affine, start: Tensor, targets: tuple[int, ...]
) -> Recorded:
    """Climb as `bound` is set, from CROWN's slopes, until every row is positive or steps end."""
    climb = _Climb(bound, network, rows, start)
    climb.run()
    certified = climb.certified()
    last = [rounded(slope) for slope in climb.best_last]
    return Recorded(certified, climb.inner() if climb.is_all else {}, targets, last)


class _Climb:
    """The slopes on their way up, and the best of each row so far."""

    def __init__(self, bound: AlphaCrown, network: Reduced, rows: Affine, start: Tensor) -> None:
        self.bound, self.network, self.rows = bound, network, rows
        self.is_all = bound.slopes == "all"
        layers, count = network.layers, len(rows)
        self.last = [_expand(lower_slope(layer.lb, layer.ub), count) for layer in layers]
        self.best, self.best_last = start.clone(), [slope.detach().clone() for slope in self.last]
        self.slopes: list[list[Tensor]] = []
        self.best_slopes: list[list[Tensor]] = []
        self.best_bounds: list[Tensor] = []
        for k, layer in enumerate(layers if self.is_all else []):
            count, before = 2 * len(layer.index), layers[:k]
            # Measured: from the upper line's slope the inner bounds climb fastest.
            self.slopes.append([_expand(upper_line(b.lb, b.ub)[0], count) for b in before])
            standard = [lower_slope(b.lb, b.ub).expand(count, -1).clone() for b in before]
            self.best_slopes.append(standard)
            self.best_bounds.append(torch.cat([layer.lb, -layer.ub]))

    def run(self) -> None:
        """Adam's steps on all slopes together."""
        end = time.monotonic() + self.bound.seconds
        every = [*self.last, *(slope for each in self.slopes for slope in each)]
        every = [slope for slope in every if slope.numel()]
        if not every:
            return
        optimiser = torch.optim.Adam(every, lr=self.bound.lr)
        for step in range(self.bound.steps + 1):
            with torch.enable_grad():
                low = self._bounds().lower(self.rows, self.last)
            _keep(low.detach(), self.best, self.last, self.best_last)
            is_open = ~(self.best > 0)
            if step == self.bound.steps or not is_open.any() or time.monotonic() >= end:
                break
            gradients = torch.autograd.grad(-low[is_open].sum(), every, allow_unused=True)
            for slope, gradient in zip(every, gradients, strict=True):
                slope.grad = None if gradient is None else gradient.nan_to_num(0.0, 0.0, 0.0)
            optimiser.step()
            for group in optimiser.param_groups:
                group["lr"] *= self.bound.decay
            with torch.no_grad():
                for slope in every:
                    slope.clamp_(0, 1)

    def _bounds(self) -> Reduced:
        """The network with every ReLU's input bounded by the present slopes."""
        if not self.is_all:
            return self.network
        layers: list[Layer] = []
        for k, layer in enumerate(self.network.layers):
            lb, ub = layer.lb, layer.ub
            if _has_choice(layer):
                low = _both(replace(self.network, layers=layers), layer, self.slopes[k])
                _keep(low.detach(), self.best_bounds[k], self.slopes[k], self.best_slopes[k])
                count = len(layer.index)
                lb, ub = never_below(lb, low[:count]), -never_below(-ub, low[count:])
            layers.append(replace(layer, lb=lb, ub=ub))
        return replace(self.network, layers=layers)

    @torch.no_grad()
    def certified(self) -> Reduced:
        """The network with the bounds of the best slopes, rounded: what a checker will find."""
        if not self.is_all:
            return self.network
        layers: list[Layer] = []
        for k, layer in enumerate(self.network.layers):
            lb, ub = layer.lb, layer.ub
            if _has_choice(layer):
                self.best_slopes[k] = [rounded(slope) for slope in self.best_slopes[k]]
                low = _both(replace(self.network, layers=layers), layer, self.best_slopes[k])
                lb, ub = torch.maximum(lb, low[: len(lb)]), torch.minimum(ub, -low[len(lb) :])
            layers.append(replace(layer, lb=lb, ub=ub))
        made = replace(self.network, layers=layers)
        made.interval = self.network.interval
        return made

    def inner(self) -> dict[int, Inner]:
        """The rounded slopes of every layer that has a choice."""
        made: dict[int, Inner] = {}
        for k, layer in enumerate(self.network.layers):
            if _has_choice(layer):
                halves = [slope.chunk(2) for slope in self.best_slopes[k]]
                made[k] = Inner([low for low, _ in halves], [high for _, high in halves])
        return made


def _expand(slope: Tensor, count: int) -> Tensor:
    return slope.expand(count, -1).clone().requires_grad_()


def _has_choice(layer: Layer) -> bool:
    return len(layer.index) > 0 and layer.rows.Z.shape[1] > 0


def _both(so_far: Reduced, layer: Layer, slopes: list[Tensor]) -> Tensor:
    """Lower bounds of a layer's rows and of their negatives."""
    return so_far.lower(Affine.joined([layer.rows, -layer.rows]), slopes)


@torch.no_grad()
def _keep(low: Tensor, best: Tensor, slopes: list[Tensor], best_slopes: list[Tensor]) -> None:
    """Take over the slopes of the rows that are bounded better than ever."""
    better = low > best
    best[better] = low[better]
    for slope, kept in zip(slopes, best_slopes, strict=True):
        kept[better] = slope[better]
