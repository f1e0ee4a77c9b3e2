"""Several bounds, each given what the ones before it have found, and all intersected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from maar.bounds.bound import Bound, Box, Enclosure, Pair, as_graph, intersect
from maar.bounds.graph import Graph
from maar.errors import UsageError


@dataclass(frozen=True)
class BestOf:
    """Never looser than any of its parts. Order them from cheap to dear."""

    name: ClassVar[str] = "best_of"
    sound: ClassVar[bool] = True
    parts: tuple[Bound, ...]

    def __post_init__(self) -> None:
        for part in self.parts:
            if not part.sound:
                raise UsageError(f"best_of takes sound bounds only; {part.name} is an estimate")
        if not self.parts:
            raise UsageError("best_of needs at least one bound")

    def __call__(
        self,
        net: nn.Module | Graph,
        box: Box,
        C: Tensor | None = None,
        known: Sequence[Pair | None] | None = None,
    ) -> Enclosure:
        """See `Bound`."""
        graph = as_graph(net, box)
        best = self.parts[0](graph, box, C, known)
        for part in self.parts[1:]:
            found = part(graph, box, C, best.pre)
            pre = tuple(intersect(old, new) for old, new in zip(best.pre, found.pre, strict=True))
            best = Enclosure(*intersect((best.lb, best.ub), (found.lb, found.ub)), pre)
        return best
