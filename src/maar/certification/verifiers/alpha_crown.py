"""alpha-CROWN: CROWN's slopes improved by gradient, from where the crown verifier left off."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from maar.certification.crown import Found, Reduction, crown, reduced, remember
from maar.certification.query import Query
from maar.certification.verdict import Verdict
from maar.domains.alpha_crown import AlphaCrown
from maar.domains.bound import Pair
from maar.domains.reduced.network import TooLarge

ALPHA_CROWN = AlphaCrown(rounding=True)
PRECISION = torch.float64


@dataclass(frozen=True)
class AlphaCrownVerifier:
    """alpha-CROWN in float64 only: what float32 settles, the crown verifier mostly has.

    `max_inner`: with more slopes of inner bounds than this, only those of the last bound are
    improved. Their number grows with the square of the unstable ReLUs: 10,000 on a network
    trained to be provable (10 ms a step), 15 million on another of the same size (6 s a step).
    """

    name: ClassVar[str] = "alpha_crown"
    bound: AlphaCrown = ALPHA_CROWN
    max_inner: int = 1_000_000

    def __call__(self, query: Query) -> Verdict:
        """VERIFIED or UNKNOWN, with the margins."""
        lb = self._lower(query, crown(query, PRECISION))
        return Verdict.bounded(dict(zip(query.targets, lb.tolist(), strict=True)))

    def _lower(self, query: Query, found: Found) -> Tensor:
        timed = replace(self.bound, seconds=query.left(self.bound.seconds))
        bound = replace(timed, slopes="last")
        is_small = inner_slopes(found.pre) <= self.max_inner
        if is_small or query.notes is not None:
            with contextlib.suppress(TooLarge):
                found = reduced(query, PRECISION, found)
                bound = timed if is_small else bound
        if found.reduction is not None:
            rows = found.reduction.rows
            improve = bound.improve
            if query.notes is not None:
                improve = query.notes.improving(bound, query.targets)
            lb, network = improve(found.reduction.network, rows, found.lb)
            remember(query, replace(found, reduction=Reduction(network, rows)))
            return lb
        graph = query.network.graph(PRECISION)
        return bound(graph, query.ball(PRECISION), query.margins(PRECISION), found.pre).lb[0]


def inner_slopes(pre: tuple[Pair, ...]) -> int:
    """How many slopes the bounds of the ReLUs' inputs have: two rows per neuron, all below it."""
    below = total = 0
    for lb, ub in pre:
        unstable = int(((lb < 0) & (ub > 0)).sum())
        total += 2 * unstable * below
        below += unstable
    return total
