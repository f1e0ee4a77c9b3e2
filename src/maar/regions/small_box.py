"""SABR's small box around an adversarial point inside the ball."""

from __future__ import annotations

import torch
from torch import Tensor

from maar.errors import UsageError
from maar.regions.ball import Ball
from maar.regions.box import Box
from maar.regions.region import Errors


class SmallBox(Box):
    """A box of radius tau = ratio * eps around a point of the ball, shifted to stay in the ball.

    The centre is projected on the ball of radius eps - tau around x (Müller et al.
    2023, section 3), then the box is clipped to the pixel range like the ball. With
    ratio = 1 it is the ball, bit for bit; with ratio = 0 the point alone.
    """

    def __init__(self, ball: Ball, around: Tensor | Errors, ratio: float) -> None:
        if not 0 <= ratio <= 1:
            raise UsageError(
                f"ratio = {ratio!r} is not a part of eps (accepted: a number in [0, 1])"
            )
        point = around if isinstance(around, Tensor) else ball.point(around)
        point = point.detach()
        # In units of eps: at ratio = 1 the centre is then exactly 0 and lb exactly the ball's.
        offset = (point - ball.x) / ball.eps_out.clamp_min(torch.finfo(ball.dtype).tiny)
        centre = offset.clamp(ratio - 1, 1 - ratio)
        super().__init__(
            (ball.x + ball.eps_out * (centre - ratio)).clamp(ball.lb, ball.ub),
            (ball.x + ball.eps_out * (centre + ratio)).clamp(ball.lb, ball.ub),
        )
