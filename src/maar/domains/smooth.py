"""Bounds and lines of smooth operations: sigmoid, tanh, products and reciprocals.

Numbers are computed in float64 and moved outwards by `MARGIN` of their size, thousands of times
more than what float64 and the library's exp, tanh and log (a few units in the last place) can lose.
A line's slope may be any number. Its intercept is the extreme of f(x) - s x on [lb, ub], which lies
at an end or where f' = s; there the function is flat, so that the place need not be exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from maar.domains.rounding import outward
from maar.networks.maps import Product, Reciprocal

MARGIN, TINY = 2.0**-40, 1e-290
STEPS = 40
"""Of bisection, for the place of a tangent."""

Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Planes:
    """below <= f <= above for all inputs of the boxes: a slope for each input, and an intercept."""

    below: tuple[Tensor, ...]
    low: Tensor
    above: tuple[Tensor, ...]
    high: Tensor


@dataclass(frozen=True)
class Curve:
    """An S-shaped function: convex below 0, concave above, f' even and at most `steepest`."""

    f: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]
    place: Callable[[Tensor], Tensor]
    """The x >= 0 at which f' has this value."""
    least: float
    most: float
    steepest: float


def _sigmoid_slope(x: Tensor) -> Tensor:
    return torch.sigmoid(x) * torch.sigmoid(-x)


def _sigmoid_place(slope: Tensor) -> Tensor:
    # s = p (1 - p); of the two p the smaller, by the form that does not cancel
    p = 2 * slope / (1 + (1 - 4 * slope).clamp(min=0).sqrt())
    return (torch.log1p(-p) - p.log()).clamp(min=0)


def _tanh_slope(x: Tensor) -> Tensor:
    return 4 * _sigmoid_slope(2 * x)


def _tanh_place(slope: Tensor) -> Tensor:
    return _sigmoid_place(slope / 4) / 2


CURVES: dict[type[nn.Module], Curve] = {
    nn.Sigmoid: Curve(torch.sigmoid, _sigmoid_slope, _sigmoid_place, 0.0, 1.0, 0.25),
    nn.Tanh: Curve(torch.tanh, _tanh_slope, _tanh_place, -1.0, 1.0, 1.0),
}


def _curve_ends(curve: Curve) -> Callable[..., Pair]:
    def ends(lb: Tensor, ub: Tensor, rounding: bool) -> Pair:
        if not rounding:
            return curve.f(lb), curve.f(ub)
        low, high = curve.f(lb.double()), curve.f(ub.double())
        low, high = outward(*_widened(low, high), lb.dtype)
        return low.clamp(min=curve.least), high.clamp(max=curve.most)

    return ends


def _widened(low: Tensor, high: Tensor) -> Pair:
    return low - MARGIN * low.abs() - TINY, high + MARGIN * high.abs() + TINY


def _product_ends(a: Tensor, b: Tensor, c: Tensor, d: Tensor, rounding: bool) -> Pair:
    products = torch.stack([x.double() * y.double() for x in (a, b) for y in (c, d)])
    low, high = products.amin(0), products.amax(0)
    if not rounding:
        return low.to(a.dtype), high.to(a.dtype)
    return outward(*_widened(low, high), a.dtype)


def _reciprocal_ends(lb: Tensor, ub: Tensor, rounding: bool) -> Pair:
    keeps_sign = (lb > 0) | (ub < 0)
    one = torch.ones_like(lb)
    low, high = (1 / torch.where(keeps_sign, end.double(), one.double()) for end in (ub, lb))
    if rounding:
        low, high = outward(*_widened(low, high), lb.dtype)
    inf = torch.full_like(lb, torch.inf)
    return torch.where(keeps_sign, low.to(lb), -inf), torch.where(keeps_sign, high.to(lb), inf)


ENDS: dict[type[nn.Module], Callable[..., Pair]] = {
    **{kind: _curve_ends(curve) for kind, curve in CURVES.items()},
    Product: _product_ends,
    Reciprocal: _reciprocal_ends,
}
"""(lb, ub) of each input, and whether rounding counts, to bounds of the output."""


def planes(kind: type[nn.Module], boxes: list[Pair]) -> Planes:
    """Planes around an operation on these boxes, sound in floating point."""
    dtype = boxes[0][0].dtype
    return LINES[kind](dtype, *(end.double() for pair in boxes for end in pair))


def _curve_planes(curve: Curve) -> Callable[..., Planes]:
    def lines(dtype: torch.dtype, lb: Tensor, ub: Tensor) -> Planes:
        with torch.no_grad():
            below, above = (slope.to(dtype) for slope in _slopes(curve, lb, ub))
        low = _extreme(curve, below.double(), lb, ub)[0]
        high = _extreme(curve, above.double(), lb, ub)[1]
        return Planes(
            (below,), outward(low, low, dtype)[0], (above,), outward(high, high, dtype)[1]
        )

    return lines


def _slopes(curve: Curve, lb: Tensor, ub: Tensor) -> Pair:
    """Slopes of the lines below and above: the chord's, or a tangent's where the curve turns."""
    width = ub - lb
    is_wide = width > 1e-6 * (1 + lb.abs() + ub.abs())
    rise = (curve.f(ub) - curve.f(lb)) / torch.where(is_wide, width, torch.ones_like(width))
    middle = curve.slope((lb + ub) / 2)
    chord = torch.where(is_wide, rise, middle)
    tangent_below = _tangent(curve, lb, ub)
    tangent_above = _tangent(curve, -ub, -lb)  # (the curve turned about its centre)
    below = torch.where(ub <= 0, middle, torch.where(lb >= 0, chord, tangent_below))
    above = torch.where(lb >= 0, middle, torch.where(ub <= 0, chord, tangent_above))
    return tuple(s.clamp(min=0, max=curve.steepest).nan_to_num(0.0) for s in (below, above))  # pyright: ignore[reportReturnType]


def _tangent(curve: Curve, lb: Tensor, ub: Tensor) -> Tensor:
    """The slope from (ub, f(ub)) to where the line touches the convex part, or to lb."""
    left, right = lb, torch.zeros_like(lb)
    for _ in range(STEPS):
        middle = (left + right) / 2
        # beyond the touching point the tangent passes above the end
        is_above = curve.f(middle) + curve.slope(middle) * (ub - middle) > curve.f(ub)
        left, right = torch.where(is_above, left, middle), torch.where(is_above, middle, right)
    return curve.slope((left + right) / 2)


def _extreme(curve: Curve, slope: Tensor, lb: Tensor, ub: Tensor) -> Pair:
    """Below the least and above the largest value of f(x) - slope x on [lb, ub]."""
    inner = curve.place(slope.clamp(min=1e-300, max=curve.steepest)).detach()
    values = [
        curve.f(x) - slope * x
        for x in (lb, ub, torch.clamp(inner, lb, ub), torch.clamp(-inner, lb, ub))
    ]
    size = MARGIN * (1 + slope * torch.maximum(lb.abs(), ub.abs()))
    every = torch.stack(values)
    return every.amin(0) - size, every.amax(0) + size


def _product_planes(dtype: torch.dtype, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Planes:
    """McCormick's: (x - a)(y - c) >= 0 and (b - x)(y - c) >= 0."""
    low, high = -a * c, -b * c
    low, high = low - MARGIN * low.abs() - TINY, high + MARGIN * high.abs() + TINY
    below, above = (c.to(dtype), a.to(dtype)), (c.to(dtype), b.to(dtype))
    return Planes(below, outward(low, low, dtype)[0], above, outward(high, high, dtype)[1])


def _reciprocal_planes(dtype: torch.dtype, lb: Tensor, ub: Tensor) -> Planes:
    keeps_sign, is_positive = (lb > 0) | (ub < 0), lb > 0
    # Of a negative x by symmetry: 1/x = -(1/-x).
    near = torch.where(keeps_sign, torch.where(is_positive, lb, -ub), torch.ones_like(lb))
    far = torch.where(keeps_sign, torch.where(is_positive, ub, -lb), torch.ones_like(lb))
    chord = (-1 / (near * far)).detach().to(dtype)
    tangent = (-1 / ((near + far) / 2) ** 2).detach().to(dtype)
    least, _ = _reciprocal_extreme(tangent.double(), near, far)
    _, most = _reciprocal_extreme(chord.double(), near, far)
    inf = torch.full_like(lb, torch.inf)
    low = torch.where(keeps_sign, torch.where(is_positive, least, -most), -inf)
    high = torch.where(keeps_sign, torch.where(is_positive, most, -least), inf)
    below = torch.where(is_positive, tangent, chord)
    above = torch.where(is_positive, chord, tangent)
    zero = torch.zeros_like(below)
    below, above = (torch.where(keeps_sign, slope, zero) for slope in (below, above))
    return Planes((below,), outward(low, low, dtype)[0], (above,), outward(high, high, dtype)[1])


def _reciprocal_extreme(slope: Tensor, near: Tensor, far: Tensor) -> Pair:
    """Of 1/x - slope x on [near, far], 0 < near."""
    inner = torch.clamp((-1 / slope).sqrt(), near, far).detach()
    every = torch.stack([1 / x - slope * x for x in (near, far, inner)])
    size = MARGIN * torch.stack([1 / x - slope * x for x in (near, far)]).abs().amax(0) + TINY
    return every.amin(0) - size, every.amax(0) + size


LINES: dict[type[nn.Module], Callable[..., Planes]] = {
    **{kind: _curve_planes(curve) for kind, curve in CURVES.items()},
    Product: _product_planes,
    Reciprocal: _reciprocal_planes,
}
