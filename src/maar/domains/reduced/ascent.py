"""Raise the lower bounds of many branches by gradient: which slopes, which prices for the signs.

The search for them proves nothing, so it may be as quick as it can: in float32, without a word
about rounding, the gradient by hand. What it finds is good for a bound by `Reduced.lower_in`.

For a branch with signs, the coefficients w of the z are known from the last layer down,

    p = w * (slope below if w >= 0, above if w < 0) - sign * price,   w of the layers below += p Z,

and the bound is c + p . (c_k + X_k centre) + min(w, 0) . intercepts - |(X + p X_k) radius|_1. The
gradient goes the same way back: one product with all rows each way is nearly all of the work.
"""

from __future__ import annotations

import torch
from torch import Tensor

from maar.domains.reduced.linear import Affine
from maar.domains.reduced.network import Reduced
from maar.domains.relax import lower_slope, upper_line

# Adam's, as usual.
BETAS, TINY = (0.9, 0.999), 1e-8
# A bound so many roundings of its terms above zero is taken for positive.
ROUNDINGS = 64


class Ascent:
    """One row over a reduced network, in a precision, ready for branches: signs [B, columns]."""

    def __init__(self, reduced: Reduced, row: Affine, dtype: torch.dtype) -> None:
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
        X = torch.cat([centre.new_zeros(0, len(centre)), *(rows.X for rows in every)])
        self.X = (X * radius).to(dtype)
        self.c = (torch.cat([none, *(rows.c for rows in every)]) + X @ centre).to(dtype)
        self.Z = [rows.Z.to(dtype) for rows in every]
        self.row_X = (row.X * radius).to(dtype)
        self.row_Z = row.Z.to(dtype)
        self.row_c = (row.c + row.X @ centre).to(dtype)
        reach = torch.maximum(-lb, ub).to(dtype)[: row.Z.shape[1]]
        size = self.row_X.abs().sum() + self.row_Z.abs() @ reach + self.row_c.abs()
        self.least = ROUNDINGS * torch.finfo(dtype).eps * float(size)

    def climb(
        self,
        sign: Tensor,
        slope: Tensor,
        price: Tensor,
        steps: int,
        slope_rate: float,
        price_rate: float,
    ) -> tuple[Tensor, Tensor]:
        """The best slopes and prices of so many steps; branches that seem proved rest."""
        dtype = self.X.dtype
        best_slope, best_price = slope.to(dtype), price.to(dtype)
        best = best_slope.new_full((len(sign),), -torch.inf)
        branches = torch.arange(len(sign))
        state = _State(sign.to(dtype), best_slope.clone(), best_price.clone())
        for step in range(steps):
            low, grad_slope, grad_price = self._pass(state)
            better = low > best[branches]
            places = branches[better]
            best[places] = low[better]
            best_slope[places], best_price[places] = state.slope[better], state.price[better]
            is_open = ~(best[branches] > self.least)
            left = int(is_open.sum())
            if not left:
                break
            if 4 * left <= 3 * len(branches):
                branches, state = branches[is_open], state[is_open]
                grad_slope, grad_price = grad_slope[is_open], grad_price[is_open]
            state.step(step + 1, grad_slope, slope_rate, grad_price, price_rate)
        if steps and len(branches):
            low = self._pass(state, gradient=False)[0]
            better = low > best[branches]
            places = branches[better]
            best_slope[places], best_price[places] = state.slope[better], state.price[better]
        return best_slope, best_price

    def low(self, sign: Tensor, slope: Tensor, price: Tensor) -> Tensor:
        """The bounds of branches as they are, up to rounding, [B]."""
        dtype = self.X.dtype
        state = _State(sign.to(dtype), slope.to(dtype), price.to(dtype))
        return self._pass(state, gradient=False)[0]

    def _pass(self, state: _State, gradient: bool = True) -> tuple[Tensor, Tensor, Tensor]:
        """The bounds, and their gradient in slopes and prices."""
        sign = state.sign
        is_free, is_on = sign == 0, (sign > 0).to(sign)
        is_choice = is_free & self.unstable
        above = torch.where(is_free, self.above, is_on)
        intercept = self.intercept * is_free
        below = torch.where(is_choice, state.slope, torch.where(is_free, self.below, is_on))
        paid = sign * state.price
        count, columns = sign.shape
        weight = sign.new_zeros(count, columns)
        weight[:, : self.row_Z.shape[1]] = self.row_Z
        line, part = torch.empty_like(weight), torch.empty_like(weight)
        for (start, stop), Z in zip(reversed(self.ends), reversed(self.Z), strict=True):
            here = slice(start, stop)
            w = weight[:, here]
            line[:, here] = torch.where(w < 0, above[:, here], below[:, here])
            part[:, here] = w * line[:, here] - paid[:, here]
            weight[:, :start].addmm_(part[:, here], Z)
        X = torch.addmm(self.row_X, part, self.X)
        low = self.row_c + part @ self.c - X.abs().sum(1)
        low = low + (weight.clamp(max=0) * intercept).sum(1)
        if not gradient:
            return low, low, low
        of_part = torch.addmm(self.c, X.sign_(), self.X.T, alpha=-1)
        of_weight = torch.empty_like(weight)
        lifted = intercept * (weight < 0)
        for (start, stop), Z in zip(self.ends, self.Z, strict=True):
            here = slice(start, stop)
            of_part[:, here].addmm_(of_weight[:, :start], Z.T)
            of_weight[:, here] = of_part[:, here] * line[:, here] + lifted[:, here]
        return low, of_part * weight.clamp_(min=0) * is_choice, -sign * of_part


class _State:
    """Where branches stand, and Adam's moments."""

    def __init__(self, sign: Tensor, slope: Tensor, price: Tensor) -> None:
        self.sign, self.slope, self.price = sign, slope, price
        self.moments = [torch.zeros_like(sign) for _ in range(4)]

    def __getitem__(self, keep: Tensor) -> _State:
        part = _State(self.sign[keep], self.slope[keep], self.price[keep])
        part.moments = [moment[keep] for moment in self.moments]
        return part

    def step(
        self, number: int, slope: Tensor, slope_rate: float, price: Tensor, price_rate: float
    ) -> None:
        """One step of Adam up the gradients, within slopes in [0, 1] and prices >= 0."""
        first, second = (1 - beta**number for beta in BETAS)
        for value, gradient, rate, (mean, square) in (
            (self.slope, slope, slope_rate, self.moments[:2]),
            (self.price, price, price_rate, self.moments[2:]),
        ):
            mean.lerp_(gradient, 1 - BETAS[0])
            square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
            spread = square.sqrt().div_(second**0.5).add_(TINY)
            value.addcdiv_(mean, spread, value=rate / first)
        self.slope.clamp_(0, 1)
        self.price.clamp_(min=0)
