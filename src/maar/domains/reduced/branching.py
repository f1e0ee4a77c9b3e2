"""Branch and bound on a reduced network: split ReLUs until every part of the box is proved.

A part of the box where some unstable ReLUs have a given sign is a *branch*; the two branches of a
ReLU cover their parent. Each is bounded by alpha-CROWN with the signs as constraints (beta-CROWN,
Wang et al. 2021): slopes and prices climb by gradient, all branches of a round side by side. On the
reduced network of an MNIST image a branch costs less than a millisecond.

The search is complete. A branch is closed only when it is proved; otherwise one of its unstable
ReLUs is split, whether or not it enters the bound. A branch without unsplit ReLUs is a leaf, which
is a linear program: a solver finds prices that prove it, or a point at which the row is not
positive. Only a row that is zero up to rounding has neither.

Of several rows one must be positive everywhere, not always the same: a branch is closed when some
mixture of them is positive on it.

Every number is a bound by `Reduced.lower_in` for whatever slopes in [0, 1] and prices >= 0, with
rounding accounted for; the search may be as greedy as it likes.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from maar.core import clock
from maar.domains.reduced.ascent import Ascent, Point, mixed
from maar.domains.reduced.linear import Affine, Split
from maar.domains.reduced.network import Reduced
from maar.domains.relax import lower_slope, upper_line

# A ReLU with a positive coefficient is relaxed from below, where its slope is free to adapt: it is
# worth less as a split than one that is relaxed from above by the same height.
BELOW = 1e-3
# Seconds that a round may take: on large networks fewer branches go side by side.
PACE = 1.0
# What slopes, prices and splits are searched in. Bounds are in the precision of the network.
QUICK = torch.float32
# An open branch keeps its signs in SIGN, and slopes and prices in QUICK: bytes of each ReLU, and of
# the branch itself.
SIGN = torch.int8
BYTES, OBJECTS = 9, 1500


@dataclass(frozen=True)
class Proof:
    """What is known of the minimum over the box of the rows' maximum when the search ends."""

    lb: float
    """A lower bound."""
    branches: int
    """Bounded on the way."""
    undecided: bool = False
    """Whether a branch without unsplit ReLUs was neither proved nor refuted."""


@dataclass(frozen=True)
class Leaf:
    """The solved linear program of a branch in which every unstable ReLU is split."""

    price: Tensor
    """[columns]"""
    points: Tensor
    """Where the rows are lowest, [P, pixels]."""
    mix: Tensor
    """The mixture of the rows that the prices belong to, [rows]."""


Solve = Callable[[Tensor, float], Leaf | None]
"""Signs, [columns], and seconds to the solved leaf; None if time is up or the solver fails."""


@dataclass(order=True)
class Branch:
    """An open branch; the one with the lowest bound comes first."""

    lb: float
    number: int
    sign: Tensor = field(compare=False)
    slope: Tensor = field(compare=False)
    price: Tensor = field(compare=False)
    mix: Tensor = field(compare=False)


@dataclass(frozen=True)
class Branching:
    """The settings. Steps are of the gradient, for a new branch and for the first.

    `tried`: ReLUs that are tried for each split (filtered smart branching, De Palma et al. 2021).

    Few steps are the quickest where few branches are needed; where the number of branches gets out
    of hand (more than `many`), tighter bounds (`hard_steps`) are what ends it. `room`: bytes of
    open branches from which on the search goes depth first, which needs hardly any more.
    """

    together: int = 64
    steps: int = 12
    first_steps: int = 40
    many: int = 2000
    hard_steps: int = 30
    slope_rate: float = 0.25
    price_rate: float = 0.15
    # (no part of a result's key: it is about how soon a proof is found)
    tried: int = field(default=4, repr=False)
    room: int = field(default=1 << 30, repr=False)

    def prove(
        self,
        reduced: Reduced,
        rows: Affine,
        solve: Solve,
        seconds: float,
        look: Callable[[Tensor], bool] = lambda points: False,
        leaves: list[Point] | None = None,
    ) -> Proof:
        """Search until everywhere some row is positive, time is up, or `look` says to stop.

        `look` is shown the points at which each round's relaxed branches are lowest, [B, pixels].
        `solve` is asked about branches in which every unstable ReLU is split. `leaves` gets every
        branch that is proved.
        """
        search = self.start(reduced, rows, solve)
        search.leaves = leaves
        search.run(clock.now() + seconds, look)
        return search.proof()

    def start(
        self, reduced: Reduced, rows: Affine, solve: Solve, like: Search | None = None
    ) -> Search:
        """Begin a search, to be run in as many parts as its caller likes.

        `like`: another one of the same network, which keeps in memory what both can share.
        """
        if not len(rows):
            raise ValueError("a search needs at least one row")
        return Search(self, reduced, rows, solve, like)


class Search:
    """The open branches, and the least bound of those that are closed."""

    def __init__(
        self,
        settings: Branching,
        reduced: Reduced,
        row: Affine,
        solve: Solve,
        like: Search | None = None,
    ) -> None:
        self.settings, self.reduced, self.row = settings, reduced, row
        self.solve, self.end = solve, math.inf
        self.together = settings.together
        self.sizes = [len(layer.index) for layer in reduced.layers]
        none = reduced.centre.new_zeros(0)
        lb = torch.cat([none, *(layer.lb for layer in reduced.layers)])
        ub = torch.cat([none, *(layer.ub for layer in reduced.layers)])
        # A ReLU that became stable on the way has nothing to split.
        self.unstable = ~((lb >= 0) | (ub <= 0))
        _, self.height = upper_line(lb, ub)
        zero = torch.zeros_like(lb)
        even = torch.ones(len(row), dtype=QUICK)
        start = zero.to(SIGN), lower_slope(lb, ub).to(QUICK), zero.to(QUICK), even
        first = Branch(-math.inf, 0, *start)
        self.heap, self.newest = [first], list[Branch]()
        self.most = settings.room // (OBJECTS + BYTES * len(lb))
        self.closed, self.stuck = math.inf, math.inf
        self.branches, self.numbers = 0, itertools.count(1)
        self.leaves: list[Point] | None = None
        """Gets every branch that is proved, where somebody wants them."""
        self.done = 0.0
        """The share of the search that is closed: each split halves its branch's."""
        # The row that is furthest from proof cannot do without the others.
        pivot = int(reduced.lower(row).argmin()) if len(row) > 1 else 0
        self.ascent = like.ascent.of(row, pivot) if like else Ascent(reduced, row, QUICK, pivot)

    def run(self, end: float, look: Callable[[Tensor], bool] = lambda points: False) -> None:
        """Go on until nothing is left to do, `look` says to stop, or the clock shows `end`."""
        self.end = end
        while self.is_open() and not self.is_late():
            begin, before = clock.now(), self.branches
            points = self.round()
            each = (clock.now() - begin) / max(1, self.branches - before)
            self.together = max(1, min(self.settings.together, int(PACE / max(each, 1e-9))))
            if look(points):
                break

    def is_open(self) -> bool:
        """Whether a branch is left, and a proof of all still possible."""
        # (with a branch that can neither be proved nor split, the rest would be in vain)
        return self.stuck > 0 and bool(self.heap or self.newest)

    def proof(self) -> Proof:
        """What is known by now."""
        return Proof(self.lowest(), self.branches, self.stuck <= 0)

    def is_late(self) -> bool:
        """Whether time is up."""
        return clock.now() >= self.end

    def lowest(self) -> float:
        """A lower bound of the row over the whole box."""
        opened = [branch.lb for branch in (*self.heap[:1], *self.newest)]
        return min([*opened, self.closed, self.stuck])

    @torch.no_grad()
    def round(self) -> Tensor:
        """Bound the worst branches and split those that stay open; returns their lowest points."""
        taken = self._taken()
        point = Point(
            *(
                torch.stack([getattr(branch, name) for branch in taken]).to(self.reduced.centre)
                for name in Point._fields
            )
        )
        sign = point.sign
        best = self._bounded(self._climbed(point))
        can_split = ((sign == 0) & self.unstable).any(1)
        is_open = ~(best.lb > 0)  # (a NaN is)
        points = self._solved(sign, best, (is_open & ~can_split).nonzero().flatten().tolist())
        keep = (is_open & can_split).nonzero().squeeze(1)
        chosen = dict(zip(keep.tolist(), self._choose(sign, best, keep), strict=True))
        is_first = not self.branches
        self.branches += len(taken)
        for b, branch in enumerate(taken):
            # (a child's region is within its parent's, so its parent's bound holds for it too)
            lb = max(branch.lb, float(best.lb[b]))
            if lb == math.inf or (is_first and not math.isfinite(lb)):
                self.stuck = -math.inf  # an overflow proves nothing
            elif lb > 0:
                self.closed = min(self.closed, lb)
                self.done += 0.5 ** int((branch.sign != 0).sum())
                if self.leaves is not None:
                    fields = (best.slope[b], best.price[b], best.mix[b])
                    self.leaves.append(
                        Point(sign[b].to(SIGN), *(each.to(QUICK) for each in fields))
                    )
            elif b in chosen:
                self._split(b, lb, chosen[b], sign, best)
            elif self.is_late():
                self._put(replace(branch, lb=lb))  # its program had no time
            else:
                self.stuck = min(self.stuck, lb)
        return torch.cat([best.points, *points])

    def _taken(self) -> list[Branch]:
        """The branches with the lowest bounds; the newest ones where memory is short."""
        count = self.together
        if self.newest:
            taken = self.newest[-count:]
            del self.newest[-count:]
            return taken
        return [heapq.heappop(self.heap) for _ in range(min(count, len(self.heap)))]

    def _put(self, branch: Branch) -> None:
        if len(self.heap) < self.most:
            heapq.heappush(self.heap, branch)
        else:
            self.newest.append(branch)

    def _solved(self, sign: Tensor, best: _Best, leaves: list[int]) -> list[Tensor]:
        """Improve these leaves in `best` by their linear programs; returns the programs' points."""
        points: list[Tensor] = []
        for b in leaves:
            leaf = self.solve(sign[b], self.end - clock.now())
            if leaf is None:
                continue
            points.append(leaf.points)
            mix = leaf.mix[None].to(sign)
            point = Point(sign[b : b + 1], best.slope[b : b + 1], leaf.price[None], mix)
            better = self._bounded(point)
            if float(better.lb) > 0:
                best.put(b, better)
        return points

    def _choose(self, sign: Tensor, best: _Best, keep: Tensor) -> list[int]:
        """The ReLU to split in each branch of `keep`.

        Of the few with the largest gain the children are bounded as their parent was, without a
        step of the gradient; the one that lifts the sum of both bounds most is taken, a proved
        child being worth no more than zero. A ReLU without a coefficient gains nothing at once, but
        its sign is a constraint: where no ReLU has one, the widest is taken.
        """
        if not len(keep):
            return []
        free = (sign[keep] == 0) & self.unstable
        change = self.height * best.weight[keep]
        gain = torch.maximum(change.clamp(min=0) * BELOW, -change).nan_to_num() * free
        aimless = ~(gain > 0).any(1, keepdim=True)
        gain = torch.where(aimless, self.height.nan_to_num(1.0) * free, gain)
        tried = min(self.settings.tried, gain.shape[1])
        promise, neuron = gain.topk(tried, dim=1)
        parents = keep.repeat_interleave(tried)
        total = torch.zeros_like(promise)
        for side in (1.0, -1.0):
            children = sign[parents]
            children[torch.arange(len(children)), neuron.flatten()] = side
            start = best.slope[parents], best.price[parents], best.mix[parents]
            low = self.ascent.low(Point(children, *start))
            total += low.view(-1, tried).clamp(max=0)
        total[~(promise > 0) | total.isnan()] = -torch.inf
        return neuron[torch.arange(len(total)), total.argmax(1)].tolist()

    def _steps(self) -> int:
        if not self.branches:
            return self.settings.first_steps
        is_hard = self.branches > self.settings.many
        return self.settings.hard_steps if is_hard else self.settings.steps

    def _split(self, b: int, lb: float, neuron: int, sign: Tensor, best: _Best) -> None:
        start = [value[b].to(QUICK) for value in (best.slope, best.price, best.mix)]
        for side in (1, -1):
            child = sign[b].to(SIGN)
            child[neuron] = side
            self._put(Branch(lb, next(self.numbers), child, *start))

    def _climbed(self, point: Point) -> Point:
        """Better slopes, prices and mixtures, by gradient steps."""
        rates = self.settings.slope_rate, self.settings.price_rate
        return self.ascent.climb(point, self._steps(), *rates)

    def _bounded(self, point: Point) -> _Best:
        """The branches' bounds by these slopes, prices and mixtures."""
        # Whatever came of the search: numbers for which the bound is one.
        sign = point.sign.to(self.reduced.centre)
        slope = point.slope.to(sign).nan_to_num(0.0, 0.0, 0.0).clamp(0, 1)
        price = point.price.to(sign).nan_to_num(0.0, 0.0, 0.0).clamp(min=0)
        mix = mixed(point.mix.to(sign))
        rows = self._mixture(mix)
        lb, X, weight = self.reduced.lower_in(
            rows, self._by_layer(slope), self._splits(sign, price)
        )
        points = self.reduced.centre - self.reduced.radius * X.sign()
        if mix.shape[1] > 1:
            # (Of the sign, which counts, a positive factor takes nothing.)
            lb = lb / mix.sum(1)
        return _Best(lb, slope, price, mix, weight, points)

    def _mixture(self, mix: Tensor) -> Affine:
        """A row for each branch; what rounding does to the sum is in the rows' own errors."""
        row = self.row
        if len(row) > 1:
            return Affine(mix @ row.X, mix @ row.Z, mix @ row.c, mix @ row.e)
        count = len(mix)
        return Affine(
            row.X.expand(count, -1),
            row.Z.expand(count, -1),
            row.c.expand(count),
            row.e.expand(count),
        )

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
    mix: Tensor
    weight: Tensor
    points: Tensor

    def put(self, b: int, one: _Best) -> None:
        """Replace branch b by the only one of `one`."""
        for name, value in vars(one).items():
            getattr(self, name)[b] = value[0]
