"""Branch and bound on the image's reduced network: complete, given time."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from maar.certification.crown import crown, reduced
from maar.certification.lookout import Lookout
from maar.certification.milp.leaf import LeafProgram
from maar.certification.query import Query
from maar.certification.verdict import NEAR_ZERO, UNKNOWN, Status, Verdict
from maar.domains.reduced.branching import Branching
from maar.domains.reduced.network import TooLarge

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
        lookout = Lookout(query)
        # The nearest to being proved first: what is proved of an image that stays open is kept.
        for n in found.lb.argsort(descending=True).tolist():
            target, row = query.targets[n], found.reduction.rows[torch.tensor([n])]
            network, left = found.reduction.network, end - time.monotonic()
            solve = LeafProgram(network, row)
            leaves = query.notes and query.notes.search(target, network, row)
            proof = self.branching.prove(network, row, solve, left, lookout.look, leaves)
            if lookout.point is not None:
                return Verdict(Status.FALSIFIED, counterexample=lookout.point)
            lb[target] = max(lb[target], proof.lb)
            if not lb[target] > 0:
                # The image stays open: the time is better spent elsewhere.
                reason = f"the margin of class {target} is {NEAR_ZERO}" if proof.undecided else ""
                return Verdict.bounded(lb, reason)
        return Verdict.bounded(lb)
