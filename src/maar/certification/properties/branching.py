"""Branch and bound over the ReLUs' signs, one search for each condition: complete, given time.

A branch is closed where a mixture of the condition's rows is positive on it. The searches take
turns, and the bounds that alpha-CROWN left behind are where they all begin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from maar.certification.milp.leaf import LeafProgram
from maar.certification.properties.attack import NEAR, nearby
from maar.certification.properties.board import Board
from maar.certification.properties.bounds import reduction
from maar.certification.verdict import NEAR_ZERO, proves
from maar.core import clock
from maar.domains.reduced.branching import Branching, Search
from maar.domains.reduced.network import TooLarge

SEARCH = Branching()
# Seconds of a search's first turn, and the most that a later one has.
FIRST, LONGEST = 0.25, 4.0


@dataclass(frozen=True)
class BranchingStep:
    """The searches of all questions, the nearest to being proved first."""

    branching: Branching = SEARCH

    def __call__(self, board: Board) -> Iterator[float]:
        """Turns of one search."""
        turn = FIRST
        searches: dict[int, dict[int, Search]] = {}
        closed: set[tuple[int, int]] = set()
        has_run = True
        while board.left() and has_run:
            has_run = False
            for n in board.left():
                if n not in searches:
                    searches[n] = self._begin(board, n)
                    yield 0.0
                order = sorted(searches[n], key=lambda k: -searches[n][k].lowest())
                for k in order:
                    if (n, k) in closed or k not in board.questions[n].open:
                        continue
                    self._go_on(board, n, k, searches[n][k], turn)
                    has_run = True
                    if not searches[n][k].is_open():
                        closed.add((n, k))
                    yield _done(searches)
            turn = min(2 * turn, LONGEST)

    def _begin(self, board: Board, n: int) -> dict[int, Search]:
        memory, question = board.memory[n], board.questions[n]
        try:
            if memory.network is None:
                reduction(board, n)
        except TooLarge as error:
            board.note("branching", str(error))
            board.reasons.append(f"branching: {error}")
            return {}
        assert memory.network is not None
        assert memory.rows is not None
        searches: dict[int, Search] = {}
        like = None
        for k in question.open:
            if not len(question.subject.rows[k]):
                continue  # no row to refute
            rows = memory.rows[torch.tensor([memory.place[r] for r in question.subject.rows[k]])]
            solve = LeafProgram(memory.network, rows)
            like = searches[k] = self.branching.start(memory.network, rows, solve, like)
        board.note("branching", f"{memory.network.columns} unstable ReLUs")
        return searches

    def _go_on(self, board: Board, n: int, k: int, search: Search, seconds: float) -> None:
        search.run(min(board.end, clock.now() + seconds), _lookout(board, n))
        proof = search.proof()
        text = f"condition {k}: {proof.lb:.4g}, {proof.branches} branches, {search.done:.1%} closed"
        board.note("branching", text)
        if board.witness is None and proves(proof.lb):
            board.prove(n, [k], "branching")
        elif proof.undecided:
            board.reasons.append(f"the rows of condition {k} are together {NEAR_ZERO}")


def _done(searches: dict[int, dict[int, Search]]) -> float:
    parts = [search.done for group in searches.values() for search in group.values()]
    return sum(parts) / max(1, len(parts))


def _lookout(board: Board, n: int) -> Callable[[Tensor], bool]:
    """Look at the points at which branches are lowest until one is a witness."""

    @torch.no_grad()
    def look(points: Tensor) -> bool:
        question = board.questions[n]
        low, high = (side.flatten(1) for side in question.box())
        points = points.clamp(low, high)
        value = question.subject.exact(points.view(-1, *question.subject.shape))
        for k in question.open:
            depth = value[:, list(question.subject.rows[k])].amax(1)
            deepest = int(depth.argmin())
            if depth[deepest] <= NEAR:
                around = nearby(question, points[deepest : deepest + 1])
                if board.look(n, around, "branching"):
                    return True
        return False

    return look


BRANCHING = BranchingStep()
