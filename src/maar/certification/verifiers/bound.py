"""A bound as a verifier: float32 first, float64 for what rounding or looseness left open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from maar.certification.network import PRECISIONS
from maar.certification.query import Query
from maar.certification.verdict import Verdict, proves
from maar.core.errors import UsageError
from maar.domains.bound import Bound


def climb(query: Query, lower: Callable[[Query, torch.dtype], Tensor]) -> Verdict:
    """The best lower bound of each open class; `lower(query, dtype)` has one per open class.

    float64 halves the speed and takes nearly all of the rounding away, so it gets only the
    classes that float32 could not settle.
    """
    best = dict.fromkeys(query.targets, -torch.inf)
    for dtype in PRECISIONS:
        for k, found in zip(query.targets, lower(query, dtype).tolist(), strict=True):
            best[k] = max(best[k], found)
        query = query.narrowed(k for k in query.targets if not proves(best[k]))
        if not query.targets:
            break
    return Verdict.bounded(best)


@dataclass(frozen=True)
class BoundVerifier:
    """Any bound domain that is sound, rounding included; others are refused when it is made."""

    bound: Bound

    def __post_init__(self) -> None:
        for part in getattr(self.bound, "parts", (self.bound,)):
            if not part.sound:
                raise UsageError(f"{part.name} is an estimate, not a bound: it cannot certify")
            if not getattr(part, "rounding", False):
                raise UsageError(
                    f"{part.name} without rounding=True is not sound in floating point: "
                    "it cannot certify"
                )

    @property
    def name(self) -> str:
        """The bound's name."""
        return self.bound.name

    def __call__(self, query: Query) -> Verdict:
        """VERIFIED or UNKNOWN, with the margins."""
        return climb(query, self._lower)

    @torch.no_grad()
    def _lower(self, query: Query, dtype: torch.dtype) -> Tensor:
        graph = query.network.graph(dtype)
        return self.bound(graph, query.ball(dtype), query.margins(dtype)).lb[0]
