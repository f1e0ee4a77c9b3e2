"""alpha-CROWN: CROWN with the lower slopes chosen by gradient (Xu et al. 2021).

Every slope in [0, 1] is sound, so the bound is maximised over them: the slopes of the last
bound only (`slopes="last"`), or also those of every ReLU input's own bound
(`slopes="all"`), which tightens the relaxations themselves. Only target classes that are
still open are worked on, and an image stops when none is left. On one image's reduced
network a step is a few small matrix products.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from maar.core import clock
from maar.domains.backward import specification
from maar.domains.bound import Bound, Enclosure, Pair, Problem
from maar.domains.crown import Crown
from maar.domains.interval import Boxes
from maar.domains.lines import lower
from maar.domains.reduced.linear import Affine
from maar.domains.reduced.local import Local, grouped
from maar.domains.reduced.network import Layer, Reduced, TooLarge, reduce
from maar.domains.relax import lower_slope, upper_line


@dataclass(frozen=True)
class AlphaCrown(Bound):
    """Optimised backward linear bounds, one image at a time.

    `slopes`: "last" or "all" (see above). `share`: "none" gives each target class its own
    slopes in the last bound, "targets" one set for all of them. `budget`: see `reduce`; as much
    again may go to groups of neurons (`bounds.local`).
    `seconds`: when they are over, the best bounds so far are the result.
    """

    name: ClassVar[str] = "alpha_crown"
    slopes: Literal["last", "all"] = "all"
    share: Literal["none", "targets"] = "none"
    steps: int = 20
    lr: float = 0.25
    decay: float = 0.95
    rounding: bool = False
    budget: int = 4 << 30
    seconds: float = field(default=math.inf, repr=False)

    def enclose(self, problem: Problem) -> Enclosure:
        """Upper bounds are CROWN's: robustness asks for the lower ones."""
        return Enclosure.stack([self._one(part) for part in problem.images()])

    def _one(self, problem: Problem) -> Enclosure:
        if getattr(problem.box, "dual", None) is not None:
            return self._plain(problem)  # the reduced network knows boxes only
        try:
            with torch.no_grad():
                thrifty = self.slopes == "last"
                reduced, spec = reduce(problem, self.rounding, budget=self.budget, thrifty=thrifty)
                start = reduced.bounds(spec)
        except TooLarge:
            if self.slopes == "all" and not problem.graph.smooth:
                raise  # the slopes of every inner bound are only at hand in the reduced network
            return self._plain(problem)
        better, _ = self.improve(reduced, spec, start[0][0])
        return Enclosure(better[None], start[1], reduced.boxes.pre())

    def _plain(self, problem: Problem) -> Enclosure:
        """The last bound's slopes on the network itself, where most ReLUs are unstable."""
        graph = problem.graph
        with torch.no_grad():
            crown = Crown(rounding=self.rounding, budget=self.budget)
            first = crown.enclose(problem)
            if graph.smooth:
                boxes = crown.boxes(problem)
            else:
                boxes = Boxes.start(graph, problem.box, self.rounding)
                for i, pair in zip(graph.relus, first.pre, strict=True):
                    boxes.advance(i)
                    boxes.refine(graph.nodes[i].inputs[0], pair)
            boxes.advance(len(graph.nodes))
        every = specification(graph, problem.C, 1, boxes.lb[0])

        def bound(open_: Tensor, slopes: list[Tensor]) -> Tensor:
            return lower(boxes, len(graph.nodes), every.with_A(every.A[open_]), slopes)

        best = first.lb[0].clone()
        open_ = (best <= 0).nonzero().squeeze(1)
        if len(open_):
            count = 1 if self.share == "targets" else len(open_)
            last = [
                lower_slope(lb, ub).expand(count, *lb.shape[1:]).clone().requires_grad_()
                for lb, ub in first.pre
            ]
            if not last:
                return Enclosure(best[None], first.ub, first.pre)
            with torch.enable_grad():
                best = self._ascend(lambda: bound(open_, last), last, best, open_)
        return Enclosure(best[None], first.ub, first.pre)

    def improve(self, reduced: Reduced, spec: Affine, start: Tensor) -> tuple[Tensor, Reduced]:
        """Raise the lower bounds `start` of the rows of `spec` until all are > 0 or steps end.

        Also the network with the tightest bounds of its ReLUs' inputs that came up on the way.
        """
        best, tightest = start.clone(), reduced
        open_ = (best <= 0).nonzero().squeeze(1)
        if not len(open_) or not reduced.columns:
            return best, tightest
        rows = spec[open_]
        last = _start(reduced.layers, 1 if self.share == "targets" else len(open_), lower_slope)
        inner: list[_Inner] = []
        if self.slopes == "all":
            room = self.budget // len(reduced.layers)
            inner = [_Inner.start(reduced, k, room) for k in range(len(reduced.layers))]

        def bound() -> Tensor:
            nonlocal tightest
            current = _retightened(reduced, inner) if inner else reduced
            tightest = _tighter(tightest, current)
            return current.lower(rows, last)

        every = [*last, *(slope for each in inner for slope in each.slopes)]
        every = [slope for slope in every if slope.numel()]
        with torch.enable_grad():
            return self._ascend(bound, every, best, open_), tightest

    def _ascend(
        self, bound: Callable[[], Tensor], slopes: list[Tensor], best: Tensor, open_: Tensor
    ) -> Tensor:
        """Raise best[open_] by gradient steps on the slopes that `bound` depends on."""
        end = clock.now() + self.seconds
        optimiser = torch.optim.Adam(slopes, lr=self.lr)
        for step in range(self.steps + 1):
            try:
                found = bound()
            except clock.Late:
                break
            with torch.no_grad():
                # (not `maximum`: a NaN must not take the place of what is already proved)
                best[open_] = torch.where(found > best[open_], found, best[open_])
            if step == self.steps or bool((best > 0).all()) or clock.now() >= end:
                break
            # Rows already proved need no more work: only the open ones pull at the slopes.
            # (`backward` would also leave gradients in a live network's weights)
            loss = -found[best[open_] <= 0].sum()
            gradients = torch.autograd.grad(loss, slopes, allow_unused=True)
            for slope, gradient in zip(slopes, gradients, strict=True):
                # (that of a line on a range of subnormal width is inf or NaN)
                slope.grad = None if gradient is None else gradient.nan_to_num(0.0, 0.0, 0.0)
            optimiser.step()
            for group in optimiser.param_groups:
                group["lr"] *= self.decay
            with torch.no_grad():
                for slope in slopes:
                    slope.clamp_(0, 1)
        return best


def _start(
    layers: Sequence[Layer], count: int, choose: Callable[[Tensor, Tensor], Tensor]
) -> list[Tensor]:
    """Slopes for `count` rows over each layer, as parameters."""
    return [
        choose(layer.lb, layer.ub).expand(count, -1).clone().requires_grad_() for layer in layers
    ]


def _upper_slope(lb: Tensor, ub: Tensor) -> Tensor:
    return upper_line(lb, ub)[0]


@dataclass(frozen=True)
class _Inner:
    """The slopes by which the ReLU inputs of one layer are bounded, all at once or in groups."""

    slopes: list[Tensor]
    groups: Local | None

    @staticmethod
    def start(reduced: Reduced, k: int, budget: int) -> _Inner:
        """In groups where that pays and `budget` bytes suffice."""
        # Measured: from the upper line's slope the inner bounds climb fastest.
        before, count = reduced.layers[:k], 2 * len(reduced.layers[k].index)
        groups = grouped(reduced, k, budget)
        if groups is not None:
            return _Inner(groups.slopes(before, _upper_slope), groups)
        return _Inner(_start(before, count, _upper_slope), None)

    def bounds(self, so_far: Reduced, rows: Affine) -> Pair:
        if self.groups is not None:
            return self.groups.bounds(so_far.layers, self.slopes)
        low, high = zip(*(slope.chunk(2) for slope in self.slopes), strict=True)
        return so_far.lower(rows, low), so_far.upper(rows, high)


def _retightened(reduced: Reduced, inner: list[_Inner]) -> Reduced:
    """The same network with every ReLU input bounded again, by the slopes of its own bound."""
    layers: list[Layer] = []
    for layer, slopes in zip(reduced.layers, inner, strict=True):
        clock.check()
        lb, ub = layer.lb, layer.ub
        if len(layer.index) and layer.rows.Z.shape[1]:
            low, high = slopes.bounds(replace(reduced, layers=layers), layer.rows)
            lb = never_below(lb, low)
            ub = -never_below(-ub, -high)
        layers.append(replace(layer, lb=lb, ub=ub))
    return replace(reduced, layers=layers)


@torch.no_grad()
def _tighter(one: Reduced, other: Reduced) -> Reduced:
    """A network with the tighter of two bounds of every ReLU's input. Both are sound."""
    layers = [
        # (not `maximum`: a NaN must not take the place of what is already proved)
        replace(a, lb=torch.where(b.lb > a.lb, b.lb, a.lb), ub=torch.where(b.ub < a.ub, b.ub, a.ub))
        for a, b in zip(one.layers, other.layers, strict=True)
    ]
    network = replace(one, layers=layers)
    network.interval = one.interval
    return network


def never_below(old: Tensor, new: Tensor) -> Tensor:
    """max(old, new), both sound; the gradient always goes to `new`.

    With the true gradient of max, a slope that once made a bound worse than the old one
    would never be moved again (measured: 19 instead of 22 of 40 hard images proved).
    """
    # new - new is exactly zero: the value is the maximum to the last bit, rounding included.
    return torch.maximum(old, new).detach() + (new - new.detach())
