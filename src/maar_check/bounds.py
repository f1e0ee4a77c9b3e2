"""Boxes forwards and linear bounds backwards: the two steps that every lemma and leaf is made of.

Numbers in brackets refer to the README, which argues each step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from maar_check.arithmetic import LOST, Array, Floats, Numbers
from maar_check.layers import Affine, Relu, Reshape, Sum
from maar_check.network import Network
from maar_check.refusal import require
from maar_check.rows import Rows

TOGETHER = 1 << 21  # numbers in the largest value of all rows that are bounded at once
FLOAT32, LARGEST32 = 2.0**-24, 2.0**120  # one rounding of float32; no sum may reach the other
FLUSHED = 2.0**-125  # more than float32 may flush to zero in one step


@dataclass
class Choice:
    """Slopes, signs and prices of some neurons of one ReLU layer, for each of R rows.

    `index`: the neurons; `slope`, [R, m], of the lines below them; `sign`, [R, m], is 1 where the
    row is bounded on v >= 0 only, -1 for v <= 0; `price`, [R, m] >= 0, multiplies that constraint.
    """

    index: Array
    slope: Array
    sign: Array | None = None
    price: Array | None = None


Choices = dict[int, Choice]  # ReLU layer -> its choice


@dataclass
class Boxes:
    """Of each value its lower and upper ends, their sizes, and the sizes of the sums behind it."""

    net: Network
    num: Numbers
    lo: list[Array] = field(default_factory=list)
    hi: list[Array] = field(default_factory=list)
    size: list[Array] = field(default_factory=list)
    """At least the absolute value of anything that is summed up to the value [2]."""

    def enter(self, lo: Array, hi: Array, size: Array | None = None) -> None:
        """One more value."""
        require(self.num.finite(lo) and self.num.finite(hi), "a bound is not finite")
        self.lo.append(lo)
        self.hi.append(hi)
        size = np.maximum(np.abs(lo), np.abs(hi)) if size is None else size
        require(self.num.finite(size), "a bound is not finite")
        self.size.append(size)

    def halves(self, value: int) -> tuple[Array, Array]:
        """Centre and radius of a value's box; the radius reaches both ends."""
        lo, hi = self.lo[value], self.hi[value]
        centre = (lo + hi) / 2
        radius = np.maximum(hi - centre, centre - lo)
        return centre, radius * (1 + 4 * self.num.gamma(1)) + self.num.tiny

    def advance(self) -> None:
        """Enclose the next layer's output by interval arithmetic [1]."""
        layer, num = self.net.layers[len(self.lo) - 1], self.num
        first = layer.sources[0]
        if isinstance(layer, Relu):
            zero = 0 * self.lo[first]
            self.enter(np.maximum(self.lo[first], zero), np.maximum(self.hi[first], zero))
        elif isinstance(layer, Sum):
            a, b = layer.sources
            size, lost = self.size[a] + self.size[b], num.gamma(8)
            slack = lost * size + num.tiny
            self.enter(self.lo[a] + self.lo[b] - slack, self.hi[a] + self.hi[b] + slack, size)
        elif isinstance(layer, Affine):
            centre, radius = self.halves(first)
            middle = layer.linear(num, centre[None])[0] + num.array(layer.bias)
            both = np.stack([radius, np.abs(centre) + radius])
            reach, size = layer.linear(num, both, absolute=True)
            size = (size + num.array(layer.size)) * (1 + num.gamma(8))
            reach = reach + (num.gamma(layer.terms, layer.blur) * size) * 2 + num.tiny
            self.enter(middle - reach, middle + reach, size)
        else:
            self.enter(
                *(each[first].reshape(layer.shape) for each in (self.lo, self.hi, self.size))
            )

    def refine(self, value: int, index: Array, lo: Array, hi: Array) -> None:
        """Take over bounds of some neurons of a value where they are tighter."""
        require(self.num.finite(lo) and self.num.finite(hi), "a bound is not finite")
        low, high = self.lo[value].ravel().copy(), self.hi[value].ravel().copy()
        low[index], high[index] = np.maximum(low[index], lo), np.minimum(high[index], hi)
        require((low <= high).all(), "two lemmas exclude each other")
        shape = self.lo[value].shape
        self.lo[value], self.hi[value] = low.reshape(shape), high.reshape(shape)

    def unstable(self, value: int) -> Array:
        """The neurons of a value that may have either sign."""
        return np.nonzero((self.lo[value].ravel() < 0) & (self.hi[value].ravel() > 0))[0]

    def lower(
        self,
        value: int,
        rows: Rows,
        choices: Choices | None = None,
        thorough: bool = False,
        flat: bool = False,
    ) -> Array:
        """Lower bounds of linear functions of a value, each on its own part of the box [3].

        `thorough`: bound them also on the boxes of the values between. `flat`: the lines around a
        ReLU that may have either sign are 0 and its upper end.
        """
        if not len(rows):
            return self.num.array(np.zeros(0))
        return _Descent(self, rows, choices or {}, thorough, flat).run(value)

    def losses(self) -> Array:
        """What a forward pass in float32 can lose, in any order of summation: of the output [8]."""
        lost: list[Array] = [np.zeros(self.net.shape)]
        for i, layer in enumerate(self.net.layers):
            first, before = layer.sources[0], lost[layer.sources[0]]
            if isinstance(layer, Relu):
                reach = np.maximum(self.hi[first].astype(np.float64) + before, 0)
                lost.append(np.minimum(before, reach * (1 + FLOAT32)))
            elif isinstance(layer, Sum):
                a, b = (lost[source] for source in layer.sources)
                lost.append(a + b + 2 * FLOAT32 * (self.size[i + 1].astype(np.float64) + a + b))
            elif isinstance(layer, Affine):
                n = layer.fan_in + 32
                require(n * FLOAT32 < 0.1, f"a sum of {n} terms is too long for float32")
                gamma = n * FLOAT32 / (1 - n * FLOAT32)
                spread = layer.linear(Floats, before[None], absolute=True)[0]
                size = self.size[i + 1].astype(np.float64) + spread
                require((size < LARGEST32).all(), "a sum could overflow in float32")
                lost.append((spread + gamma * size + n * FLUSHED) * LOST)
            else:
                lost.append(before.reshape(layer.shape))
        require(Floats.finite(lost[-1]), "a bound is not finite")
        return lost[-1]


@dataclass
class _Descent:
    """Rows on their way down; `constant` is added to them, `lost` bounds every rounding so far."""

    boxes: Boxes
    rows: Rows
    choices: Choices
    thorough: bool
    flat: bool
    constant: Array = field(init=False)
    lost: Array = field(init=False)
    best: Array | None = None

    def run(self, value: int) -> Array:
        boxes, net, num = self.boxes, self.boxes.net, self.boxes.num
        self.constant = num.array(np.zeros(len(self.rows)))
        self.lost = self.constant
        pending = {value: self.rows}
        for i in range(value - 1, -1, -1):
            if i + 1 not in pending:
                continue
            if self.thorough and len(pending) == 1:
                self._look(i + 1, pending[i + 1])
            rows, layer = pending.pop(i + 1), net.layers[i]
            parts = [rows]
            if isinstance(layer, Relu):
                parts = [self._relax(net.relus.index(i), layer, rows)]
            elif isinstance(layer, Affine):
                bias, size = rows.times(num, [num.array(layer.bias)])[0], boxes.size[i + 1]
                self._add(bias, rows, size, num.gamma(layer.terms, layer.blur))
                parts = [layer.adjoint(num, rows)]
            elif isinstance(layer, Reshape):
                parts = [Rows(rows.A.reshape(len(rows), *net.shape_of(layer.sources[0])))]
            else:
                assert isinstance(layer, Sum)
                parts = [rows, rows]
            for source, part in zip(layer.sources, parts, strict=True):
                if source in pending:
                    part = part.plus(pending[source], net.shape_of(source))
                    self._add(0 * self.constant, part, boxes.size[source], num.gamma(4))
                pending[source] = part
        if 0 in pending:
            self._look(0, pending[0])
        assert self.best is not None
        return self.best

    def _add(self, more: Array, rows: Rows, size: Array, gamma: Any) -> None:
        """Add to the constant, and charge gamma times the sizes of all that went into the step."""
        num = self.boxes.num
        self.constant = self.constant + more
        lost = gamma * rows.absolute().times(num, [size])[0]
        self.lost = self.lost + lost + 2 * num.gamma(1) * np.abs(self.constant) + num.tiny

    def _look(self, value: int, rows: Rows) -> None:
        """Bound what is left on the value's own box; keep the best bound of all [4]."""
        num = self.boxes.num
        centre, radius = self.boxes.halves(value)
        middle = rows.times(num, [centre])[0]
        reach, size = rows.absolute().times(num, [radius, np.abs(centre) + radius])
        terms = centre.size + 32
        lost = self.lost + num.gamma(terms) * size + num.gamma(8) * np.abs(self.constant) + num.tiny
        bound = num.down(self.constant + middle - reach - lost * (1 if num.exact else LOST))
        require(num.finite(bound), "a bound is not finite")
        self.best = bound if self.best is None else np.maximum(self.best, bound)

    def _relax(self, k: int, layer: Relu, rows: Rows) -> Rows:
        """Replace every ReLU's output by a line: above where the coefficient is negative [5]."""
        num, source = self.boxes.num, layer.sources[0]
        lo, hi = self.boxes.lo[source].ravel(), self.boxes.hi[source].ravel()
        free = self.boxes.unstable(source)
        above = num.array((lo >= 0).astype(np.float64))
        below = above.copy()
        if not self.flat:
            above[free] = num.chord(lo[free], hi[free])
            below[free] = num.array((hi[free] >= -lo[free]).astype(np.float64))
        height = num.array(np.zeros(lo.size))
        height[free] = num.intercept(above[free], lo[free], hi[free])
        shape, choice = layer.shape, self.choices.get(k)
        rows = rows if choice is None else rows.spread(shape)
        pos = np.maximum(rows.A, 0 * rows.A[:1])
        neg = rows.A - pos
        A = pos * rows.look_up(below.reshape(shape)) + neg * rows.look_up(above.reshape(shape))
        reach = np.maximum(np.abs(lo), np.abs(hi))
        if choice is not None:
            flat = tuple(each.reshape(len(rows), -1) for each in (pos, neg, A))
            self._choose(choice, flat, (above, below, height, reach), np.isin(choice.index, free))
        lifted = Rows(neg, rows.corner).times(num, [height.reshape(shape)])[0]
        self._add(lifted, rows, reach.reshape(shape), num.gamma(lo.size + 32))
        return Rows(A, rows.corner)

    def _choose(
        self, choice: Choice, parts: tuple[Array, ...], lines: tuple[Array, ...], free: Array
    ) -> None:
        """Use each row's own slopes, signs and prices, in place [6]."""
        (pos, neg, A), (above, below, height, reach) = parts, lines
        num, index = self.boxes.num, choice.index
        low = np.where(free, choice.slope, below[index])
        high, lift = np.broadcast_arrays(above[index], height[index], low)[:2]
        paid = 0 * low
        if choice.sign is not None and choice.price is not None:
            is_free, is_on = choice.sign == 0, num.array((choice.sign > 0).astype(np.float64))
            low, high = np.where(is_free, low, is_on), np.where(is_free, high, is_on)
            lift = np.where(is_free, lift, 0 * lift)
            paid = num.array(choice.sign.astype(np.float64)) * choice.price
            lost = num.gamma(index.size + 32) * (choice.price * reach[index]).sum(1)
            self.lost = self.lost + lost
        A[:, index] = pos[:, index] * low + neg[:, index] * high - paid
        self.constant = self.constant + (neg[:, index] * lift).sum(1)
        height[index] = 0 * height[index]
