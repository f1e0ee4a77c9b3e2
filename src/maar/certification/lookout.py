"""Looks at points that a search or a solver comes upon: is one a counterexample?"""

from __future__ import annotations

import torch
from torch import Tensor

from maar.attacks import margin
from maar.certification.query import Query
from maar.certification.replay import NoCounterexample, replay

# Steps of gradient from a solver's point, and how far they go to begin with, in radii.
STEPS, STEP = 20, 0.1


class Lookout:
    """`point` is the first counterexample that was seen, [1, *shape], replayed; or None."""

    def __init__(self, query: Query) -> None:
        self.query = query
        ball = query.ball()
        self.low, self.high = ball.ends
        self.size = query.eps if query.moves is None else ball.eps
        self.point: Tensor | None = None

    @torch.no_grad()
    def look(self, points: Tensor) -> bool:
        """Whether one of the points, [B, pixels], moved into the ball, is classified otherwise."""
        points = self._inside(points)
        label = self.query.label().expand(len(points))
        for place in (margin(self.query.network.net(points), label) > 0).nonzero().flatten():
            try:
                replay(self.query, points[place : place + 1])
            except NoCounterexample:
                continue  # in float32 only
            self.point = points[place : place + 1].clone()
            return True
        return False

    def climb(self, point: Tensor) -> bool:
        """`look` at a point and, from there, along the gradient's sign, in ever smaller steps."""
        point = self._inside(point)
        for step in range(STEPS):
            if self.look(point):
                return True
            with torch.enable_grad():
                x = point.detach().requires_grad_()
                ahead = margin(self.query.network.net(x), self.query.label())
                (gradient,) = torch.autograd.grad(ahead.sum(), x)
            size = STEP * self.size * (1 - step / STEPS)
            point = (point + size * gradient.sign()).clamp(self.low, self.high)
        return self.look(point)

    def _inside(self, points: Tensor) -> Tensor:
        return points.float().view(-1, *self.query.x.shape[1:]).clamp(self.low, self.high)
