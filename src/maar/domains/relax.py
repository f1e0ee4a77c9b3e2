"""The linear relaxation of one ReLU on [lb, ub] with lb < 0 < ub.

Above, the line from (lb, 0) to (ub, ub): slope s, intercept t. Below, any line through the
origin with slope alpha in [0, 1]. A stable ReLU is its own relaxation (s = alpha = 0 or 1).
"""

from __future__ import annotations

import torch
from torch import Tensor

from maar.domains.rounding import unit


def intercept_above(slope: Tensor, lb: Tensor, ub: Tensor) -> Tensor:
    """The least t with slope v + t >= relu(v) on [lb, ub], sound in floating point.

    Both ends are covered (four roundings away at most, or an underflow), so by convexity is all
    in between.
    """
    t = torch.maximum(-slope * lb, (1 - slope) * ub) * (1 + 8 * unit(ub.dtype))
    return t + torch.finfo(ub.dtype).tiny


def upper_line(lb: Tensor, ub: Tensor) -> tuple[Tensor, Tensor]:
    """Slope and intercept of the line above, sound in floating point for the given lb and ub."""
    unstable = (lb < 0) & (ub > 0)
    # The untaken branch of `where` must stay finite, or its gradient would be NaN.
    width = torch.where(unstable, ub - lb, torch.ones_like(ub))
    slope = torch.where(unstable, ub / width, (lb >= 0).to(ub.dtype))
    return slope, _unless_stable(lb, ub, intercept_above(slope, lb, ub))


def _unless_stable(lb: Tensor, ub: Tensor, intercept: Tensor) -> Tensor:
    """Zero where the ReLU is known to be stable: not where a bound is NaN, which must stay one.

    (With a NaN for a bound, `unstable` is false: the ReLU would pass for zero everywhere.)
    """
    return torch.where((lb >= 0) | (ub <= 0), torch.zeros_like(intercept), intercept)


def parallel_lines(lb: Tensor, ub: Tensor, slope: Tensor | None) -> tuple[Tensor, Tensor]:
    """Slope and intercept of a zonotope's band [s v, s v + t]; DeepZ's slope unless given one."""
    if slope is None:
        return upper_line(lb, ub)
    unstable = (lb < 0) & (ub > 0)
    slope = torch.where(unstable, slope.clamp(0, 1), (lb >= 0).to(ub.dtype))
    return slope, _unless_stable(lb, ub, intercept_above(slope, lb, ub))


def lower_slope(lb: Tensor, ub: Tensor) -> Tensor:
    """CROWN's choice: the line that leaves the smaller triangle, 1 where ub >= -lb, else 0."""
    return (ub >= -lb).to(ub.dtype) * (ub > 0).to(ub.dtype)
