"""Branch and bound on the image's reduced network: complete, given time."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from maar.attacks import margin
from maar.bounds.branching import Branching
from maar.bounds.reduced import TooLarge
from maar.certify.crown import crown, reduced
from maar.certify.query import Query
from maar.certify.replay import NoCounterexample, replay
from maar.certify.verdict import UNKNOWN, Status, Verdict

PRECISION = torch.float64
BRANCHING = Branching()


@dataclass(frozen=True)
class BranchAndBound:
    """One open class after the other; a point at which a branch is lowest may be a counterexample.

    `seconds`: for all classes of an image together; the query's deadline may leave less.
    """

    name: ClassVar[str] = "bab"
    seconds: float = field(default=math.inf, repr=False)
    branching: Branching = BRANCHING

    def __call__(self, query: Query) -> Verdict:
        """VERIFIED, FALSIFIED, or UNKNOWN with the margins found."""
        end = time.monotonic() + query.left(self.seconds)
        try:
            found = reduced(query, PRECISION, crown(query, PRECISION))
        except TooLarge:
            return UNKNOWN
        assert found.reduction is not None
        lb = dict(zip(query.targets, found.lb.tolist(), strict=True))
        search = _Search(query)
        # The nearest to being proved first: what is proved of an image that stays open is kept.
        for n in found.lb.argsort(descending=True).tolist():
            target, row = query.targets[n], found.reduction.rows[torch.tensor([n])]
            left = end - time.monotonic()
            proof = self.branching.prove(found.reduction.network, row, left, search.look)
            if search.point is not None:
                return Verdict(Status.FALSIFIED, counterexample=search.point)
            lb[target] = max(lb[target], proof.lb)
            if not lb[target] > 0:
                break  # the image stays open: the time is better spent elsewhere
        return Verdict.bounded(lb)


class _Search:
    """Looks at points for a counterexample."""

    def __init__(self, query: Query) -> None:
        self.query, self.point = query, None
        self.low, self.high = query.ball().ends

    point: Tensor | None

    @torch.no_grad()
    def look(self, points: Tensor) -> bool:
        """Whether a point, moved into the ball, is classified otherwise; it is kept."""
        points = points.float().view(-1, *self.query.x.shape[1:]).clamp(self.low, self.high)
        label = self.query.label().expand(len(points))
        for place in (margin(self.query.network.net(points), label) > 0).nonzero().flatten():
            try:
                replay(self.query, points[place : place + 1])
            except NoCounterexample:
                continue  # in float32 only
            self.point = points[place : place + 1].clone()
            return True
        return False
