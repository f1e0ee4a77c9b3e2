"""Branch and bound over the ReLUs' signs: complete, given time, where a condition has one row.

That is how robustness is written: any other class ahead. Of a condition with several rows one must
be positive on the whole box; where none is, cutting the box goes on.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from maar.bounds.bound import Corners, Problem
from maar.bounds.branching import Branching
from maar.bounds.reduced import TooLarge, reduce
from maar.certify.properties.bounds import chosen
from maar.certify.properties.question import Answer, Question, Witness
from maar.certify.properties.witness import confirm
from maar.certify.verdict import proves

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
        if not network.columns:
            return Answer()  # nothing to branch on: the bounds have said it all
        place = {row: n for n, row in enumerate(lb)}
        lookout, proved = _Lookout(question), set()
        for k in question.open:
            for row in sorted(question.subject.rows[k], key=lb.__getitem__, reverse=True):
                part, left = rows[torch.tensor([place[row]])], end - time.monotonic()
                proof = self.branching.prove(network, part, left, lookout.look)
                if lookout.witness is not None:
                    return Answer(witness=lookout.witness)
                if proves(proof.lb):
                    proved.add(k)
                    break
        return Answer(proved=frozenset(proved))


class _Lookout:
    """Tries the points at which branches are lowest."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.witness: Witness | None = None

    @torch.no_grad()
    def look(self, points: Tensor) -> bool:
        """Whether a point meets an open condition; the witness is kept."""
        low, high = (side[0] for side in self.question.box())
        points = points.view(-1, *self.question.subject.shape).clamp(low, high)
        value = self.question.subject.exact(points)
        for k in self.question.open:
            depth = value[:, list(self.question.subject.rows[k])].amax(1)
            deepest = int(depth.argmin())
            if depth[deepest] < 0:
                self.witness = confirm(self.question, points[deepest : deepest + 1])
                if self.witness is not None:
                    return True
        return False


BRANCHING = BranchingStep()
