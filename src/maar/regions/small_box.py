"""SABR's small box around an adversarial point inside the ball."""

from __future__ import annotations

import torch
from torch import Tensor

from maar.core.errors import UsageError
from maar.regions.ball import Ball
from maar.regions.box import Box
from maar.regions.region import Errors


class SmallBox(Box):
    """A box of a part of the ball's radius around a point of the ball, shifted to stay in it.

    The ball is clipped to the pixel range, and so is its radius at the clipped pixels: the small
    box is `ratio` as wide as the ball at every pixel, and its centre is projected on where it fits
    (Müller et al. 2023, section 3, and their code). With ratio = 1 it is the ball, bit for bit;
    with ratio = 0 the point alone, up to rounding.
    """

    def __init__(self, ball: Ball, around: Tensor | Errors, ratio: float) -> None:
        if not 0 <= ratio <= 1:
            raise UsageError(
                f"ratio = {ratio!r} is not a part of eps (accepted: a number in [0, 1])"
            )
        point = around if isinstance(around, Tensor) else ball.point(around)
        # Counted from both ends of the ball: at ratio = 1 there is no room on either side.
        width = ball.ub - ball.lb
        room, half = (1 - ratio) * width, ratio / 2 * width
        below = torch.minimum((point.detach() - ball.lb - half).clamp_min(0), room)
        lb = torch.minimum(ball.lb + below, ball.ub)
        super().__init__(lb, torch.maximum(lb, ball.ub - (room - below)))
