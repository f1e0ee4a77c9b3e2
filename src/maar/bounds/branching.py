"""Branch and bound on a reduced network: split ReLUs until every part of the box is proved.

A part of the box where some unstable ReLUs have a given sign is a *branch*; the two branches of a
ReLU cover their parent. Each is bounded by alpha-CROWN with the signs as constraints (beta-CROWN,
Wang et al. 2021): slopes and prices climb by gradient, all branches of a round side by side. On the
reduced network of an MNIST image a branch costs less than a millisecond.

Every number is a bound by `Reduced.lower_in` for whatever slopes in [0, 1] and prices >= 0, with
rounding accounted for; the search may be as greedy as it likes.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from maar.bounds.ascent import Ascent, Rates
from maar.bounds.linear import Affine, Split
from maar.bounds.reduced import Reduced
from maar.bounds.relax import lower_slope, upper_line

# A ReLU with a positive coefficient is relaxed from below, where its slope is free to adapt: it is
# worth less as a split than one that is relaxed from above by the same height.
BELOW = 1e-3
# What slopes, prices and splits are searched in. Bounds are in the precision of the network.
QUICK = torch.float32


@dataclass(frozen=True)
class Proof:
    """What is known of the row's minimum over the box when the search ends."""

    lb: float
    """A lower bound."""
    branches: int
    """Bounded on the way."""


@dataclass(order=True)
class Branch:
    """An open branch; the one with the lowest bound comes first."""

    lb: float
    number: int
    sign: Tensor = field(compare=False)
    slope: Tensor = field(compare=False)
    price: Tensor = field(compare=False)


@dataclass(frozen=True)
class Branching:
    """The settings. Steps are of the gradient, for a new branch, the first, and a last resort.

    `tried`: ReLUs that are tried for each split (filtered smart branching, De Palma et al. 2021).

    Few steps are the quickest where few branches are needed; where the number of branches gets out
    of hand (more than `many`), tighter bounds (`hard_steps`) are what ends it.
    """

    together: int = 64
    steps: int = 12
    first_steps: int = 40
    many: int = 2000
    hard_steps: int = 30
    last_steps: int = 300
    slope_rate: float = 0.25
    price_rate: float = 0.15
    # (no part of a result's key: it is about how soon a proof is found)
    tried: int = field(default=4, repr=False)

    def prove(
        self,
        reduced: Reduced,
        row: Affine,
        seconds: float,
        look: Callable[[Tensor], bool] = lambda points: False,
    ) -> Proof:
        """Search until the row is proved positive, time is up, or `look` says to stop.

        `look` is shown the points at which each round's relaxed branches are lowest, [B, pixels].
        """
        if len(row) != 1:
            raise ValueError(f"one row at a time, not {len(row)}")
        search = _Search(self, reduced, row)
        end = time.monotonic() + seconds
        # (with a branch that can neither be proved nor split, the rest would be in vain)
        while search.heap and search.stuck > 0 and time.monotonic() < end:
            points = search.round()
            if look(points):
                break
        return Proof(search.lowest(), search.branches)


class _Search:
    """The open branches, and the least bound of those that are closed."""

    def __init__(self, settings: Branching, reduced: Reduced, row: Affine) -> None:
        self.settings, self.reduced, self.row = settings, reduced, row
        self.sizes = [len(layer.index) for layer in reduced.layers]
        none = reduced.centre.new_zeros(0)
        lb = torch.cat([none, *(layer.lb for layer in reduced.layers)])
        ub = torch.cat([none, *(layer.ub for layer in reduced.layers)])
        # A ReLU that became stable on the way has nothing to split.
        _, self.height = upper_line(lb, ub)
        first = Branch(
            -math.inf, 0, torch.zeros_like(lb), lower_slope(lb, ub), torch.zeros_like(lb)
        )
        self.heap, self.closed, self.stuck = [first], math.inf, math.inf
        self.branches = 0
        self.ascents: dict[torch.dtype, Ascent] = {}

    def lowest(self) -> float:
        """A lower bound of the row over the whole box."""
        opened = self.heap[0].lb if self.heap else math.inf
        return min(opened, self.closed, self.stuck)

    @torch.no_grad()
    def round(self) -> Tensor:
        """Bound the worst branches and split those that stay open; returns their lowest points."""
        count = min(self.settings.together, len(self.heap))
        taken = [heapq.heappop(self.heap) for _ in range(count)]
        sign, slope, price = (
            torch.stack([getattr(branch, name) for branch in taken])
            for name in ("sign", "slope", "price")
        )
        best = self._climb(sign, slope, price, self._steps(), QUICK)
        gain = (self.height * best.weight).clamp(min=0) * BELOW
        gain = torch.maximum(gain, -self.height * best.weight) * (sign == 0)
        is_open = ~(best.lb > 0)  # (a NaN is)
        last = is_open & ~(gain > 0).any(1)
        if bool(last.any()):
            # Nothing is left to split: what remains is a linear program, for the gradient alone.
            keep = last.nonzero().squeeze(1)
            again = self._climb(
                sign[keep],
                best.slope[keep],
                best.price[keep],
                self.settings.last_steps,
                sign.dtype,
                faster=10,
            )
            best.lb[keep] = torch.maximum(best.lb[keep], again.lb)
        keep = (is_open & ~last).nonzero().squeeze(1)
        chosen = dict(zip(keep.tolist(), self._choose(gain, sign, best, keep), strict=True))
        for b, branch in enumerate(taken):
            # (a child's region is within its parent's, so its parent's bound holds for it too)
            lb = max(branch.lb, float(best.lb[b]))
            if lb == math.inf:
                self.stuck = -math.inf  # an overflow proves nothing
            elif lb > 0:
                self.closed = min(self.closed, lb)
            elif bool(last[b]):
                self.stuck = min(self.stuck, lb)
            else:
                self._split(b, lb, chosen[b], sign, best)
        self.branches += count
        return best.points

    def _choose(self, gain: Tensor, sign: Tensor, best: _Best, keep: Tensor) -> list[int]:
        """The ReLU to split in each branch of `keep`.

        Of the few with the largest gain the children are bounded as their parent was, without a
        step of the gradient; the one that lifts the sum of both bounds most is taken, a proved
        child being worth no more than zero.
        """
        tried = min(self.settings.tried, gain.shape[1])
        if not len(keep):
            return []
        promise, neuron = gain[keep].topk(tried, dim=1)
        parents = keep.repeat_interleave(tried)
        total = torch.zeros_like(promise)
        for side in (1.0, -1.0):
            children = sign[parents]
            children[torch.arange(len(children)), neuron.flatten()] = side
            low = self.ascents[QUICK].low(children, best.slope[parents], best.price[parents])
            total += low.view(-1, tried).clamp(max=0)
        total[~(promise > 0) | total.isnan()] = -torch.inf
        return neuron[torch.arange(len(total)), total.argmax(1)].tolist()

    def _steps(self) -> int:
        if not self.branches:
            return self.settings.first_steps
        is_hard = self.branches > self.settings.many
        return self.settings.hard_steps if is_hard else self.settings.steps

    def _split(self, b: int, lb: float, neuron: int, sign: Tensor, best: _Best) -> None:
        for side in (1.0, -1.0):
            child = sign[b].clone()
            child[neuron] = side
            number = 2 * self.branches + 1 + len(self.heap)
            branch = Branch(lb, number, child, best.slope[b].clone(), best.price[b].clone())
            heapq.heappush(self.heap, branch)

    def _climb(
        self,
        sign: Tensor,
        slope: Tensor,
        price: Tensor,
        steps: int,
        dtype: torch.dtype,
        faster: float = 1.0,
    ) -> _Best:
        """Raise the branches' bounds by gradient steps on slopes and prices, then take them."""
        if dtype not in self.ascents:
            self.ascents[dtype] = Ascent(self.reduced, self.row, dtype)
        rates = Rates(self.settings.slope_rate, self.settings.price_rate, faster)
        slope, price = self.ascents[dtype].climb(sign, slope, price, steps, rates)
        # Whatever came of the search: slopes and prices for which the bound is one.
        slope = slope.to(sign).nan_to_num(0.0, 0.0, 0.0).clamp(0, 1)
        price = price.to(sign).nan_to_num(0.0, 0.0, 0.0).clamp(min=0)
        count = len(sign)
        rows = Affine(
            self.row.X.expand(count, -1),
            self.row.Z.expand(count, -1),
            self.row.c.expand(count),
            self.row.e.expand(count),
        )
        lb, X, weight = self.reduced.lower_in(
            rows, self._by_layer(slope), self._splits(sign, price)
        )
        points = self.reduced.centre - self.reduced.radius * X.sign()
        return _Best(lb, slope, price, weight, points)

    def _by_layer(self, flat: Tensor) -> Sequence[Tensor]:
        return flat.split(self.sizes, dim=1)

    def _splits(self, sign: Tensor, price: Tensor) -> list[Split]:
        signs, prices = self._by_layer(sign), self._by_layer(price)
        return [Split(*pair) for pair in zip(signs, prices, strict=True)]


@dataclass
class _Best:
    """The bound of each branch, and all that belongs to it."""

    lb: Tensor
    slope: Tensor
    price: Tensor
    weight: Tensor
    points: Tensor
