"""The L2 ball around an input, cut to a range.

`lb` and `ub` are the corners of its enclosing box, rounded outwards: every bound over them holds
for the ball too. `dual` is what bounds that know the L2 norm use besides. `point` stays inside.
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor

from maar.core.errors import UsageError
from maar.regions.ball import Ball
from maar.regions.region import Errors, Region


class L2Ball(Region):
    """{x' : |x' - x|_2 <= eps, low <= x' <= high}; e is a direction, shortened to length 1."""

    at = 0

    def __init__(self, x: Tensor, eps: float, low: Tensor, high: Tensor) -> None:
        if not (math.isfinite(eps) and eps >= 0):
            raise UsageError(f"eps = {eps!r} is not a radius (accepted: finite numbers >= 0)")
        box = Ball(x, eps, low, high)
        self.x, self.eps, self.box = x, eps, box
        self.lb, self.ub = box.lb, box.ub
        self.shapes = (x.shape,)
        self.dtype, self.device = x.dtype, x.device
        info = torch.finfo(x.dtype)
        # The radius as x's type has it, rounded up: one rounding, and what is below normal numbers.
        self.outer = torch.tensor(eps * (1 + 2 * info.eps) + (info.tiny if eps else 0.0)).to(x)
        # Each place of `point` is off by at most 3 roundings of eps and one of |x| + eps.
        count = x[0].numel()
        size = float(x.abs().max()) + eps if x.numel() else eps
        slack = 4 * info.eps * (eps * (math.sqrt(count) + count) + math.sqrt(count) * size)
        self.inner = max(0.0, eps - slack - count * info.tiny)

    @property
    def dual(self) -> tuple[Tensor, Tensor]:
        """The centre, and the radius by which the L2 norm of a row counts, rounded up."""
        return self.x, self.outer

    @property
    def ends(self) -> tuple[Tensor, Tensor]:
        """The enclosing box, rounded inwards; its corners are not in the ball."""
        return self.box.ends

    def point(self, e: Errors) -> Tensor:
        length = e[0].flatten(1).square().sum(1).sqrt().clamp_min(1)
        away = e[0] * (self.inner / length).view(-1, *(1 for _ in e[0].shape[1:]))
        # (to move a place into the range brings it nearer to x, which is in it)
        low, high = self.ends
        return torch.minimum(torch.maximum(self.x + away, low), high)

    def ascend(self, e: Tensor, slope: Tensor, size: float) -> Tensor:
        """Go along the gradient, each row by the same length, and back into the ball."""
        shape = (-1, *(1 for _ in e.shape[1:]))
        length = slope.flatten(1).norm(dim=1).clamp_min(torch.finfo(slope.dtype).tiny)
        e.add_(slope / length.view(shape), alpha=size)
        return e.div_(e.flatten(1).norm(dim=1).clamp_min(1).view(shape))

    def select(self, index: Tensor) -> L2Ball:
        part = copy.copy(self)
        part.x, part.box = self.x[index], self.box.select(index)
        part.lb, part.ub = part.box.lb, part.box.ub
        part.shapes = (part.x.shape,)
        return part
