"""The tree of a search, rebuilt from its leaves, with slopes and prices short enough to keep.

The search is greedy: a leaf is closed as soon as its bound is positive. Rounding its slopes may
undo that, so a leaf whose rounded bound is not clearly positive is climbed again, and if need be
split once more.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from maar.certificates.notes import Search
from maar.certificates.slopes import STEPS, rounded
from maar.domains.reduced.ascent import Ascent, Point
from maar.domains.reduced.branching import Branching
from maar.domains.reduced.linear import Affine, Split
from maar.domains.relax import upper_line

FINE = 65535
# A bound must exceed so much of the size of its terms: what two programs' rounding may differ by.
CLEAR = 1e-9
TOGETHER, CLIMB = 512, 40
SETTINGS = Branching()


class Unproved(Exception):
    """A leaf's bound does not survive rounding, whatever is tried."""


@dataclass(frozen=True)
class Tree:
    """A row's proof: splits, and of each leaf its slopes and prices."""

    nodes: list[int]
    """In preorder: the column that is split, or -1 for a leaf; v >= 0 comes first."""
    which: Tensor
    """For each leaf, which row of `slopes`."""
    slopes: Tensor
    """[S, columns], whole multiples of 1 / steps."""
    steps: int
    prices: Tensor
    """Of each leaf's splits, from the root down."""


@torch.no_grad()
def tree_of(search: Search, usual: Tensor, seconds: float) -> Tree:
    """The tree of a search that proved its row; raises `Unproved`.

    `usual`: slopes that many leaves may share, [columns].
    """
    leaves = _Leaves(search, rounded(usual))
    leaves.settle(time.monotonic() + seconds)
    nodes, paths, order = preorder(leaves.sign)
    own = [n for n in order if leaves.own[n]]
    place = {n: i + 1 for i, n in enumerate(own)}
    which = torch.tensor([place.get(n, 0) for n in order], dtype=torch.int32)
    slopes = torch.cat([leaves.usual[None], leaves.slope[own]])
    prices = [leaves.price[n, path] for n, path in zip(order, paths, strict=True)]
    return Tree(nodes, which, (slopes * leaves.steps).round(), leaves.steps, torch.cat(prices))


def preorder(sign: Tensor) -> tuple[list[int], list[list[int]], list[int]]:
    """A tree with these leaves, [L, columns]: its nodes, each leaf's path, the order of leaves.

    Any column that has a sign in all leaves of a part can be split first: each side of it keeps the
    leaves that cover it.
    """
    nodes, paths, order = list[int](), list[list[int]](), list[int]()
    open_: list[tuple[Tensor, list[int]]] = [(torch.arange(len(sign)), [])]
    while open_:
        part, path = open_.pop()
        if not len(part):
            raise Unproved("the leaves make no tree")
        both = (sign[part] != 0).all(0)
        both[path] = False
        if not both.any():
            if len(part) != 1:
                raise Unproved("the leaves make no tree")
            nodes.append(-1)
            paths.append(path)
            order.append(int(part[0]))
            continue
        column = int(both.nonzero()[0])
        nodes.append(column)
        side = sign[part, column]
        open_ += [(part[side < 0], [*path, column]), (part[side > 0], [*path, column])]
    return nodes, paths, order


class _Leaves:
    """Signs, slopes and prices, [L, columns]; `own` where a leaf has slopes of its own."""

    def __init__(self, search: Search, usual: Tensor) -> None:
        self.network, self.row, self.usual = search.network, search.row, usual
        like = self.network.centre
        self.sign, self.slope, self.price = (
            torch.stack([getattr(leaf, name) for leaf in search.leaves]).to(like)
            for name in ("sign", "slope", "price")
        )
        self.price = self.price.nan_to_num(0.0, 0.0, 0.0).clamp(min=0)
        self.sizes = [len(layer.index) for layer in self.network.layers]
        lb = torch.cat([layer.lb for layer in self.network.layers])
        ub = torch.cat([layer.ub for layer in self.network.layers])
        self.unstable = (lb < 0) & (ub > 0)
        self.height = upper_line(lb, ub)[1]
        self.own = torch.zeros(len(self.sign), dtype=torch.bool)
        self.steps = STEPS
        self.ascent = Ascent(self.network, self.row, torch.float32)
        self.clear = CLEAR * self.ascent.least / (64 * torch.finfo(torch.float32).eps)
        self.ascent.least = float("inf")  # climb on, whatever seems proved

    def settle(self, end: float) -> None:
        """Give every leaf slopes and prices whose rounded bound is clearly positive."""
        every = torch.arange(len(self.sign))
        low, _ = self._bounds(every, self.usual.expand(len(every), -1))
        todo = every[~(low > self.clear)]
        self.own[todo] = True
        todo = self._try(todo)
        while len(todo):
            todo = self._try(self._climb(todo))
            if len(todo) and self.steps == STEPS:
                self.steps = FINE
                todo = self._try(self._climb(todo))
            if time.monotonic() >= end:
                raise Unproved(f"{len(todo)} leaves are open when time is up")
            if len(todo):
                todo = self._split(todo)

    def _try(self, todo: Tensor) -> Tensor:
        """Round the slopes of these leaves; return those which that undoes, with what they had."""
        if not len(todo):
            return todo
        slope = rounded(self.slope[todo], self.steps)
        low, weight = self._bounds(todo, slope)
        is_good = low > self.clear
        # What does not enter the bound is as usual: it packs better.
        is_idle = (weight <= 0) | (self.sign[todo] != 0) | ~self.unstable
        self.slope[todo[is_good]] = torch.where(is_idle, self.usual, slope)[is_good]
        return todo[~is_good]

    def _climb(self, todo: Tensor) -> Tensor:
        rates = SETTINGS.slope_rate, SETTINGS.price_rate
        for part in todo.split(TOGETHER):
            start = self.sign[part], self.slope[part], self.price[part]
            point = Point(*start, self.slope.new_ones(len(part), 1))
            found = self.ascent.climb(point, CLIMB, *rates)
            slope, price = (
                each.to(self.slope).nan_to_num(0.0, 0.0, 0.0) for each in (found.slope, found.price)
            )
            self.slope[part], self.price[part] = slope.clamp(0, 1), price.clamp(min=0)
        return todo

    def _split(self, todo: Tensor) -> Tensor:
        """Two leaves for each, split where its bound loses most."""
        _, weight = self._bounds(todo, self.slope[todo])
        is_free = (self.sign[todo] == 0) & self.unstable
        if not bool(is_free.any(1).all()):
            raise Unproved("a leaf without unsplit ReLUs is too near zero")
        loss = torch.where(is_free, (self.height * weight).abs() + 1e-30, -1.0)
        column = loss.argmax(1)
        more = torch.arange(len(self.sign), len(self.sign) + len(todo))
        for name in ("sign", "slope", "price", "own"):
            value = getattr(self, name)
            setattr(self, name, torch.cat([value, value[todo]]))
        self.sign[todo, column], self.sign[more, column] = 1.0, -1.0
        return torch.cat([todo, more])

    def _bounds(self, which: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
        """The leaves' bounds in float64, and the coefficient of every ReLU's output."""
        lows, weights = [], []
        for part, own in zip(which.split(TOGETHER), slope.split(TOGETHER), strict=True):
            count = len(part)
            row = self.row
            X, Z = row.X.expand(count, -1), row.Z.expand(count, -1)
            rows = Affine(X, Z, row.c.expand(count), row.e.expand(count))
            splits = zip(
                self.sign[part].split(self.sizes, 1),
                self.price[part].split(self.sizes, 1),
                strict=True,
            )
            low, _, weight = self.network.lower_in(
                rows, own.split(self.sizes, 1), [Split(*each) for each in splits]
            )
            lows.append(low)
            weights.append(weight)
        return torch.cat(lows), torch.cat(weights)
