"""Notes that the verifiers of one image leave for its certificate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from maar.certificates.slopes import Recorded, record
from maar.domains.alpha_crown import AlphaCrown
from maar.domains.reduced.ascent import Point
from maar.domains.reduced.linear import Affine
from maar.domains.reduced.network import Reduced

Improve = Callable[[Reduced, Affine, Tensor], tuple[Tensor, Reduced]]


@dataclass
class Search:
    """A class that branch and bound proved: over which network, and the leaves of its tree."""

    network: Reduced
    row: Affine
    leaves: list[Point] = field(default_factory=list)


@dataclass
class Notes:
    """Bounds that the standard slopes give need no notes: the checker finds them itself."""

    recorded: Recorded | None = None
    """The slopes of alpha-CROWN, for the ReLUs' inputs and for each class that was open."""
    searches: dict[int, Search] = field(default_factory=dict)

    def improving(self, bound: AlphaCrown, targets: tuple[int, ...]) -> Improve:
        """`bound.improve` for these classes, with the slopes kept; bounds are of rounded slopes."""

        def improve(network: Reduced, rows: Affine, start: Tensor) -> tuple[Tensor, Reduced]:
            self.recorded = record(bound, network, rows, start, targets)
            with torch.no_grad():
                low = torch.maximum(start, self.recorded.lower(rows))
            return low, self.recorded.network

        return improve

    def search(self, target: int, network: Reduced, row: Affine) -> list[Point]:
        """The list that a search enters its leaves in."""
        self.searches[target] = Search(network, row)
        return self.searches[target].leaves
