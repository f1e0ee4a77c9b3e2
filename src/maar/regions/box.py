"""Axis-parallel boxes: the shape behind the ball, SABR's small box and TAPS' latent box."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from maar.core.errors import UsageError
from maar.regions.region import Errors, Region


class Box(Region):
    """[lb, ub], with one error term per coordinate. Gradients flow into lb and ub as well."""

    def __init__(self, lb: Tensor, ub: Tensor, at: int = 0) -> None:
        if lb.shape != ub.shape:
            raise UsageError(
                f"box bounds differ in shape: lb {tuple(lb.shape)}, ub {tuple(ub.shape)}"
            )
        self.lb = lb
        self.ub = ub
        self.at = at
        self.shapes = (lb.shape,)
        self.dtype = lb.dtype
        self.device = lb.device

    @property
    def ends(self) -> tuple[Tensor, Tensor]:
        """Where e = -1 and e = 1 lead; every `point` lies between."""
        return self.lb, self.ub

    def point(self, e: Errors) -> Tensor:
        # lerp is exact at both ends and, rounding being monotone, never leaves [lb, ub]. A clamp
        # would do the same but zero the gradient of coordinates rounded outside at e = +-1, and
        # these would then be stuck at the border.
        return torch.lerp(*self.ends, (e[0] + 1) / 2)

    def select(self, index: Tensor) -> Box:
        part = copy.copy(self)
        part.lb = self.lb[index]
        part.ub = self.ub[index]
        part.shapes = (part.lb.shape,)
        return part


class LatentBox(Box):
    """TAPS: the interval bounds after a block, attacked by the layers `net[at:]`."""

    def __init__(self, lb: Tensor, ub: Tensor, at: int) -> None:
        super().__init__(lb, ub, at)
