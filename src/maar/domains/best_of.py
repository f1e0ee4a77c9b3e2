"""Several bounds, each given what the ones before it have found, and all intersected."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from maar.core.errors import UsageError
from maar.domains.bound import Bound, Enclosure, Problem, intersect


@dataclass(frozen=True)
class BestOf(Bound):
    """Never looser than any of its parts. Order them from cheap to dear.

    `thorough`: run each part also by itself. Tighter boxes can make CROWN choose lower slopes that
    turn out worse, so what is carried on helps nearly always, but not always; without this the
    time is half and the promise is gone.
    """

    name: ClassVar[str] = "best_of"
    parts: tuple[Bound, ...]
    thorough: bool = True

    def __post_init__(self) -> None:
        for part in self.parts:
            if not part.sound:
                raise UsageError(f"best_of takes sound bounds only; {part.name} is an estimate")
        if not self.parts:
            raise UsageError("best_of needs at least one bound")

    def enclose(self, problem: Problem) -> Enclosure:
        """Each part gets what the ones before it have found."""
        best = self.parts[0].enclose(problem)
        for part in self.parts[1:]:
            best = _both(best, part.enclose(replace(problem, known=best.pre)))
            if self.thorough:
                best = _both(best, part.enclose(problem))
        return best


def _both(left: Enclosure, right: Enclosure) -> Enclosure:
    pre = tuple(intersect(old, new) for old, new in zip(left.pre, right.pre, strict=True))
    return Enclosure(*intersect((left.lb, left.ub), (right.lb, right.ub)), pre)
