"""CROWN-IBP (Zhang et al. 2020): CE of CROWN's bounds on top of interval ones, fading into IBP.

    kappa * CE(z(x), y) + (1 - kappa) * CE(-(beta * lb_CROWN + (1 - beta) * lb_IBP), y)

beta goes from `beta_start` to `beta` while eps grows; 0 is IBP. With `fusion` (Xu et al. 2020) one
linear bound of sum_k exp(z_k - z_y) takes the place of one for each class: exp lies below its chord
on the interval of z_k - z_y, so the weighted sum of all margins is carried backwards in one row.
The two bounds of 1 + sum_k exp(z_k - z_y) are then mixed, and the logarithm taken of the mixture.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from maar.core.settings import Share
from maar.domains.bound import Enclosure, margins
from maar.domains.crown import Crown
from maar.methods.base import Batch
from maar.methods.batchnorm import Statistics
from maar.methods.bounded import BoundedOutputs, enclosed, worst_logits
from maar.methods.ibp import IBP
from maar.methods.schedules import Ramp
from maar.regions import Ball

CROWN = Crown("interval", upper=False)
FLAT = 1e-5


@dataclass(frozen=True)
class CrownIBP(IBP):
    """IBP whose last bounds are carried backwards at first."""

    name: ClassVar[str] = "crown_ibp"
    paper: ClassVar[str] = (
        "Zhang et al., Towards stable and efficient training of verifiably robust neural networks"
    )
    year: ClassVar[int] = 2020
    idea: ClassVar[str] = "CROWN's bounds on top of interval ones, fading into IBP as eps grows"

    beta_start: Share = 1.0
    """share of CROWN's bounds while eps begins to grow"""
    beta: Share = 0.0
    """share of CROWN's bounds once eps is grown"""
    fusion: bool = False
    """one backward bound of the loss instead of one for each class"""

    def numbers(self, with_eps: Callable[[float, float], Ramp]) -> dict[str, Ramp]:
        return {**super().numbers(with_eps), "beta": with_eps(self.beta_start, self.beta)}

    def bound(self, batch: Batch, passes: Statistics, out: BoundedOutputs) -> None:
        ball, beta = Ball(batch.x, batch.eps), batch.at.get("beta", self.beta)
        with passes.fixed():
            found = self.enclose(batch, ball, out)
            if beta and self.fusion:
                out.loss_of_box = _fused(batch, ball, found)
            elif beta:
                better = enclosed(batch, ball, CROWN, found.pre)
                out.of_box = worst_logits(
                    torch.lerp(found.lb.to(better.lb), better.lb, beta), batch.y
                )
        assert out.of_box is not None
        out.worst = [(1.0, out.of_box)]

    def worst(self, batch: Batch, outputs: BoundedOutputs) -> Tensor:
        if outputs.loss_of_box is None:
            return super().worst(batch, outputs)
        assert outputs.of_box is not None
        of_box = F.cross_entropy(outputs.of_box, batch.y, reduction="none")
        beta = batch.at.get("beta", self.beta)
        if beta == 1:
            return outputs.loss_of_box.mean()
        shares = math.log(beta), math.log1p(-beta)
        return torch.logaddexp(outputs.loss_of_box + shares[0], of_box + shares[1]).mean()


def _fused(batch: Batch, ball: Ball, found: Enclosure) -> Tensor:
    """An upper bound of CE over the ball, [N]: log(1 + sum_k exp(z_k - z_y))."""
    low, high = -found.ub, -found.lb  # of z_k - z_y
    top = high.detach().amax(1, keepdim=True).clamp_min(0)
    at_low, at_high = (low - top).exp(), (high - top).exp()
    # The chord of an interval without width is the tangent at its end: it has a gradient, where the
    # quotient has none but its rounding.
    width = high - low
    is_flat = width < FLAT
    slope = torch.where(is_flat, at_high, (at_high - at_low) / width.masked_fill(is_flat, 1.0))
    whole = margins(batch.y, found.lb.shape[1] + 1, batch.x.dtype)
    row = slope.unsqueeze(1) @ whole
    least = enclosed(batch, ball, CROWN, found.pre, row).lb.squeeze(1)
    total = (at_low - slope * low).sum(1) - least
    # (never more than the intervals allow, and never less than nothing)
    total = torch.minimum(total, at_high.sum(1)).clamp_min(0)
    return ((-top.squeeze(1)).exp() + total).log() + top.squeeze(1)
