"""Branch and bound over the ReLUs' signs: complete, given time, where a condition has one row.

That is how robustness is written: any other class ahead. Of a condition with several rows one must
be positive on the whole box; where none is, cutting the box goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from maar.certification.milp.leaf import LeafProgram
from maar.certification.properties.bounds import chosen
from maar.certification.properties.question import Answer, Question, Witness
from maar.certification.properties.witness import confirm, highest
from maar.certification.verdict import NEAR_ZERO, proves
from maar.domains.bound import Corners, Problem
from maar.domains.reduced.branching import Branching
from maar.domains.reduced.network import TooLarge, reduce

SEARCH = Branching()


@dataclass(frozen=True)
class BranchingStep:
    """It takes half of the time that is left, at most `most` seconds: splitting is next."""

    branching: Branching = SEARCH
    most: float = 300.0

    def __call__(self, question: Question) -> Answer:
        """The conditions of which some row is positive on the whole box; or a witness."""
        now = time.monotonic()
        end = now + min(self.most, (question.deadline - now) / 2)
        with torch.no_grad():
            problem = Problem(question.subject.graph, Corners(*question.box()), chosen(question))
            try:
                network, rows = reduce(problem)
            except TooLarge:
                return Answer()
            lb = dict(zip(question.open_rows(), network.lower(rows).tolist(), strict=True))
        place = {row: n for n, row in enumerate(lb)}
        lookout, proved, reason = _Lookout(question), set(), ""
        for k in question.open:
            for row in sorted(question.subject.rows[k], key=lb.__getitem__, reverse=True):
                part, left = rows[torch.tensor([place[row]])], end - time.monotonic()
                solve, look = LeafProgram(network, part), lookout.at(row)
                proof = self.branching.prove(network, part, solve, left, look)
                if lookout.witness is not None:
                    return Answer(witness=lookout.witness)
                if proves(proof.lb):
                    proved.add(k)
                    break
                if proof.undecided and lookout.is_alone(row):
                    reason = f"the row of condition {k} is {NEAR_ZERO}"
        return Answer(proved=frozenset(proved), reason=reason)


class _Lookout:
    """Tries the points at which branches are lowest."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.witness: Witness | None = None

    def at(self, row: int) -> Callable[[Tensor], bool]:
        """Look at points until one is a witness, or shows that the row cannot be proved."""

        @torch.no_grad()
        def look(points: Tensor) -> bool:
            low, high = (side[0] for side in self.question.box())
            points = points.view(-1, *self.question.subject.shape).clamp(low, high)
            value = self.question.subject.exact(points)
            return self._meets_a_condition(points, value) or self._breaks(row, points, value)

        return look

    def _meets_a_condition(self, points: Tensor, value: Tensor) -> bool:
        """Whether a point meets an open condition; the witness is kept."""
        for k in self.question.open:
            depth = value[:, list(self.question.subject.rows[k])].amax(1)
            deepest = int(depth.argmin())
            if depth[deepest] < 0:
                self.witness = confirm(self.question, points[deepest : deepest + 1])
                if self.witness is not None:
                    return True
        return False

    def _breaks(self, row: int, points: Tensor, value: Tensor) -> bool:
        """Whether the row, one of several of its condition, is negative for sure at a point."""
        lowest = int(value[:, row].argmin())
        if value[lowest, row] >= 0 or self.is_alone(row):
            return False
        return bool(highest(self.question, points[lowest : lowest + 1])[row] < 0)

    def is_alone(self, row: int) -> bool:
        """Whether breaking the row meets its condition: then a witness is worth the search."""
        return any(len(rows) == 1 and row in rows for rows in self.question.subject.rows)


BRANCHING = BranchingStep()
