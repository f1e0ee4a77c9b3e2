"""alpha-CROWN: CROWN's slopes improved by gradient, from where the crown verifier left off."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from maar.bounds.alpha_crown import AlphaCrown
from maar.bounds.reduced import Reduced
from maar.certify.query import Query
from maar.certify.reduction import reduction
from maar.certify.verdict import Verdict

ALPHA_CROWN = AlphaCrown(rounding=True)


@dataclass(frozen=True)
class AlphaCrownVerifier:
    """alpha-CROWN in float64 only: the crown verifier has already built that reduced network.

    `max_inner`: with more slopes of inner bounds than this, only those of the last bound are
    improved. Their number grows with the square of the unstable ReLUs: 10,000 on a network
    trained to be provable (10 ms a step), 15 million on another of the same size (6 s a step).
    """

    name: ClassVar[str] = "alpha_crown"
    bound: AlphaCrown = ALPHA_CROWN
    max_inner: int = 1_000_000

    def __call__(self, query: Query) -> Verdict:
        """VERIFIED or UNKNOWN, with the margins."""
        found, bound = reduction(query, torch.float64), self.bound
        if found is None:
            return self._last(query)
        if inner_slopes(found.reduced) > self.max_inner:
            bound = replace(bound, slopes="last")
        lb = bound.improve(found.reduced, found.rows, found.lb)
        return Verdict.bounded(dict(zip(query.targets, lb.tolist(), strict=True)))

    def _last(self, query: Query) -> Verdict:
        """The last bound's slopes only, on a network whose reduction does not pay."""
        dtype, bound = torch.float64, replace(self.bound, slopes="last")
        found = bound(query.network.graph(dtype), query.ball(dtype), query.margins(dtype))
        return Verdict.bounded(dict(zip(query.targets, found.lb[0].tolist(), strict=True)))


def inner_slopes(reduced: Reduced) -> int:
    """How many slopes the bounds of the ReLUs' inputs have: two rows per neuron, all below it."""
    below = total = 0
    for layer in reduced.layers:
        total += 2 * len(layer.index) * below
        below += len(layer.index)
    return total
