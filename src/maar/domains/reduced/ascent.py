"""Raise the lower bounds of many branches by gradient: which slopes, which prices for the signs.

The search for them proves nothing, so it may be as quick as it can: in float32, without a word
about rounding, the gradient by hand. What it finds is good for a bound by `Reduced.lower_in`.

For a branch with signs, the coefficients w of the z are known from the last layer down,

    p = w * (slope below if w >= 0, above if w < 0) - sign * price,   w of the layers below += p Z,

and the bound is c + p . (c_k + X_k centre) + min(w, 0) . intercepts - |(X + p X_k) radius|_1. The
gradient goes the same way back: one product with all rows each way is nearly all of the work.

Of several rows a mixture is bounded, a sum with weights >= 0: a branch is closed when one is
positive on it. The weight of one row, the pivot, stays 1: with all of them free, a row that is
zero at the least would be the best mixture everywhere, and say nothing.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from maar.domains.reduced.blocks import Blocks
from maar.domains.reduced.linear import Affine
from maar.domains.reduced.network import Reduced
from maar.domains.relax import lower_slope, upper_line

# Adam's, as usual.
BETAS, TINY = (0.9, 0.999), 1e-8
# A bound so many roundings of its terms above zero is taken for positive.
ROUNDINGS = 64


class Ascent:
    """Rows over a reduced network, in a precision, ready for branches: signs [B, columns]."""

    def __init__(self, reduced: Reduced, row: Affine, dtype: torch.dtype, pivot: int = 0) -> None:
        self.ends: list[tuple[int, int]] = []
        start = 0
        for layer in reduced.layers:
            self.ends.append((start, start + len(layer.index)))
            start += len(layer.index)
        centre, radius = reduced.centre, reduced.radius
        none = centre.new_zeros(0)
        lb = torch.cat([none, *(layer.lb for layer in reduced.layers)])
        ub = torch.cat([none, *(layer.ub for layer in reduced.layers)])
        self.unstable = (lb < 0) & (ub > 0)
        above, intercept = upper_line(lb, ub)
        self.above, self.intercept, self.below = (
            value.to(dtype) for value in (above, intercept, lower_slope(lb, ub))
        )
        every = [layer.rows for layer in reduced.layers]
        self.matrices = [_matrix(rows, radius, dtype) for rows in every]
        self.c = torch.cat([none, *(rows.c + rows.at(centre) for rows in every)]).to(dtype)
        self.centre, self.radius = centre, radius
        self.reach = torch.maximum(-lb, ub).to(dtype)
        self._take(row, pivot)

    def of(self, row: Affine, pivot: int = 0) -> Ascent:
        """The same network with other rows."""
        other = copy.copy(self)
        other._take(row, pivot)
        return other

    def _take(self, row: Affine, pivot: int) -> None:
        dtype, self.pivot = self.c.dtype, pivot
        self.row_X = (row.X * self.radius).to(dtype)
        self.row_Z = row.Z.to(dtype)
        self.row_c = (row.c + row.X @ self.centre).to(dtype)
        reach = self.reach[: row.Z.shape[1]]
        size = self.row_X.abs().sum(1) + self.row_Z.abs() @ reach + self.row_c.abs()
        self.least = ROUNDINGS * torch.finfo(dtype).eps * float(size.max())

    def climb(
        self,
        point: Point,
        steps: int,
        slope_rate: float,
        price_rate: float,
    ) -> Point:
        """The best slopes, prices and mixtures of so many steps; branches that seem proved rest."""
        dtype = self.c.dtype
        top = Point(*(value.to(dtype) for value in point))
        best = top.slope.new_full((len(top.sign),), -torch.inf)
        branches = torch.arange(len(best))
        state = _State(Point(*(value.clone() for value in top)))
        for step in range(steps):
            low, gradients = self._pass(state.point)
            better = low > best[branches]
            places = branches[better]
            best[places] = low[better]
            top.put(places, state.point, better)
            is_open = ~(best[branches] > self.least)
            left = int(is_open.sum())
            if not left:
                break
            if 4 * left <= 3 * len(branches):
                branches, state = branches[is_open], state[is_open]
                gradients = [gradient[is_open] for gradient in gradients]
            state.step(step + 1, gradients, (slope_rate, price_rate, price_rate), self.pivot)
        if steps and len(branches):
            low = self._pass(state.point, gradient=False)[0]
            better = low > best[branches]
            top.put(branches[better], state.point, better)
        return top

    def low(self, point: Point) -> Tensor:
        """The bounds of branches as they are, up to rounding, [B]."""
        return self._pass(Point(*(value.to(self.c) for value in point)), gradient=False)[0]

    def _pass(self, state: Point, gradient: bool = True) -> tuple[Tensor, list[Tensor]]:
        """The bounds, and their gradient in slopes, prices and the mixture."""
        sign, mix = state.sign, state.mix
        is_free, is_on = sign == 0, (sign > 0).to(sign)
        is_choice = is_free & self.unstable
        above = torch.where(is_free, self.above, is_on)
        intercept = self.intercept * is_free
        below = torch.where(is_choice, state.slope, torch.where(is_free, self.below, is_on))
        paid = sign * state.price
        count, columns = sign.shape
        weight = sign.new_zeros(count, columns)
        width = self.row_Z.shape[1]
        is_single = mix.shape[1] == 1  # (a mixture of one row is the row)
        weight[:, :width] = self.row_Z if is_single else mix @ self.row_Z
        line, part = torch.empty_like(weight), torch.empty_like(weight)
        X = self.row_X.repeat(count, 1) if is_single else mix @ self.row_X
        for (start, stop), matrix in zip(reversed(self.ends), reversed(self.matrices), strict=True):
            here = slice(start, stop)
            w = weight[:, here]
            line[:, here] = torch.where(w < 0, above[:, here], below[:, here])
            part[:, here] = w * line[:, here] - paid[:, here]
            matrix.add(part[:, here], X, weight[:, :start])
        low = (self.row_c if is_single else mix @ self.row_c) + part @ self.c - X.abs().sum(1)
        low = low + (weight.clamp(max=0) * intercept).sum(1)
        if not gradient:
            return low, []
        X = X.sign_().neg_()
        of_part = self.c.repeat(count, 1)
        of_weight = torch.empty_like(weight)
        lifted = intercept * (weight < 0)
        for (start, stop), matrix in zip(self.ends, self.matrices, strict=True):
            here = slice(start, stop)
            matrix.add_back(X, of_weight[:, :start], of_part[:, here])
            of_weight[:, here] = of_part[:, here] * line[:, here] + lifted[:, here]
        of_mix = torch.zeros_like(mix)
        if not is_single:
            of_mix = self.row_c + of_weight[:, :width] @ self.row_Z.T + X @ self.row_X.T
        return low, [of_part * weight.clamp_(min=0) * is_choice, -sign * of_part, of_mix]


@dataclass(frozen=True)
class _Dense:
    """A layer's rows over pixels in [-1, 1] and over the z before."""

    X: Tensor
    Z: Tensor

    def add(self, part: Tensor, X: Tensor, Z: Tensor) -> None:
        X.addmm_(part, self.X)
        Z.addmm_(part, self.Z)

    def add_back(self, X: Tensor, Z: Tensor, part: Tensor) -> None:
        part.addmm_(X, self.X.T).addmm_(Z, self.Z.T)


@dataclass(frozen=True)
class _Sparse:
    """The same in blocks."""

    blocks: Blocks

    def add(self, part: Tensor, X: Tensor, Z: Tensor) -> None:
        of_X, of_Z = self.blocks.times(part)
        X.add_(of_X)
        Z.add_(of_Z)

    def add_back(self, X: Tensor, Z: Tensor, part: Tensor) -> None:
        part.add_(self.blocks.back(X, Z))


def _matrix(rows: Affine, radius: Tensor, dtype: torch.dtype) -> _Dense | _Sparse:
    if rows.blocks is not None:
        return _Sparse(rows.blocks.to(dtype, radius))
    return _Dense((rows.X * radius).to(dtype), rows.Z.to(dtype))


class Point(NamedTuple):
    """Where branches stand: signs, slopes and prices [B, columns], the rows' mixture [B, rows]."""

    sign: Tensor
    slope: Tensor
    price: Tensor
    mix: Tensor

    def rows(self, keep: Tensor) -> Point:
        """Some of the branches."""
        return Point(*(value[keep] for value in self))

    def put(self, places: Tensor, other: Point, keep: Tensor) -> None:
        """Take over what others chose in these places."""
        for mine, value in zip(self[1:], other[1:], strict=True):
            mine[places] = value[keep]


class _State:
    """A point on its way, and Adam's moments."""

    def __init__(self, point: Point) -> None:
        self.point = point
        self.moments = [(torch.zeros_like(value), torch.zeros_like(value)) for value in point[1:]]

    def __getitem__(self, keep: Tensor) -> _State:
        part = _State(self.point.rows(keep))
        part.moments = [(mean[keep], square[keep]) for mean, square in self.moments]
        return part

    def step(
        self, number: int, gradients: list[Tensor], rates: tuple[float, ...], pivot: int
    ) -> None:
        """One step of Adam: slopes in [0, 1], prices and weights >= 0, the pivot's weight 1."""
        first, second = (1 - beta**number for beta in BETAS)
        _, slope, price, mix = self.point
        for value, gradient, rate, (mean, square) in zip(
            (slope, price, mix), gradients, rates, self.moments, strict=True
        ):
            if value is mix and mix.shape[1] == 1:
                continue
            mean.lerp_(gradient, 1 - BETAS[0])
            square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
            spread = square.sqrt().div_(second**0.5).add_(TINY)
            value.addcdiv_(mean, spread, value=rate / first)
        slope.clamp_(0, 1)
        price.clamp_(min=0)
        mix.clamp_(min=0)
        mix[:, pivot] = 1


def mixed(weights: Tensor) -> Tensor:
    """The weights as those of a mixture: >= 0, and all 1 where they say nothing."""
    weights = weights.nan_to_num(0.0, 0.0, 0.0).clamp(min=0)
    return torch.where((weights > 0).any(1, keepdim=True), weights, 1.0)
