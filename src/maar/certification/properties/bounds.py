"""Bounds of the rows over the whole box: interval, CROWN, alpha-CROWN, cheap to expensive.

Whatever they find of the ReLUs is left in the question's memory for branching.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from maar.certification.properties.board import Board
from maar.certification.properties.question import Question
from maar.certification.verdict import proves
from maar.certification.verifiers.alpha_crown import inner_slopes
from maar.core import clock
from maar.domains.alpha_crown import AlphaCrown
from maar.domains.bound import Corners, Problem
from maar.domains.crown import Crown
from maar.domains.interval import Interval
from maar.domains.reduced.network import TooLarge, reduce

INTERVAL = Interval(rounding=True)
# Pieces so small that each takes less than a second: the clock is looked at between them.
CROWN = Crown(rounding=True, upper=False, budget=1 << 27)
ALPHA_CROWN = AlphaCrown(rounding=True, budget=1 << 30)
# Seconds that a bound may take in any case.
LEAST = 1.0
ROOM = 3 << 30
"""Bytes that a reduced network may take."""


@dataclass(frozen=True)
class BoundsStep:
    """All in float64, with rounding accounted for. `max_inner`: see the alpha_crown verifier.

    `share`: of the time that is left, how much each bound of a question may take.
    """

    max_inner: int = 2_000_000
    share: float = 0.35

    def __call__(self, board: Board) -> Iterator[float]:
        """Turns of one bound on one question."""
        for bound in (self._interval, self._crown, self._alpha_crown):
            for n in board.left():
                now = clock.now()
                seconds = self.share * (board.end - now) / len(board.left())
                if board.is_split:
                    seconds = min(seconds, max(LEAST, now - board.begin))
                end = now + seconds
                name = bound.__name__.strip("_")
                try:
                    with clock.until(end):
                        bound(board, n)
                except clock.Late:
                    board.note("bounds", f"{name} had no time to end")
                else:
                    lb = _furthest(board, n)
                    board.note("bounds", f"{name}: {len(board.questions[n].open)} open, {lb:.4g}")
                yield 0.0

    @torch.no_grad()
    def _interval(self, board: Board, n: int) -> None:
        question = board.questions[n]
        rows = question.open_rows()
        found = INTERVAL(question.subject.graph, Corners(*question.box()), chosen(question))
        board.memory[n].pre = found.pre
        _learn(board, n, rows, found.lb[0])

    @torch.no_grad()
    def _crown(self, board: Board, n: int) -> None:
        question, memory = board.questions[n], board.memory[n]
        rows = question.open_rows()
        try:
            lb = reduction(board, n, thrifty=True)
        except TooLarge:
            box = Corners(*question.box())
            found = CROWN(question.subject.batched, box, chosen(question), memory.pre)
            memory.pre, lb = found.pre, found.lb[0]
        _learn(board, n, rows, lb)

    def _alpha_crown(self, board: Board, n: int) -> None:
        question, memory = board.questions[n], board.memory[n]
        rows = question.open_rows()
        seconds = clock.left()
        bound = replace(ALPHA_CROWN, seconds=seconds, slopes="last")
        if inner_slopes(memory.pre) <= self.max_inner:
            bound = replace(bound, slopes="all")
        try:
            if memory.network is None:
                reduction(board, n, thrifty=bound.slopes == "last")
        except TooLarge:
            box = Corners(*question.box())
            lb = bound(question.subject.batched, box, chosen(question), memory.pre).lb[0]
            return _learn(board, n, rows, lb)
        assert memory.network is not None
        assert memory.rows is not None
        start = torch.tensor([memory.lb.get(row, -math.inf) for row in rows], dtype=torch.float64)
        part = memory.rows[torch.tensor([memory.place[row] for row in rows])]
        lb, memory.network = bound.improve(memory.network, part, start)
        _learn(board, n, rows, lb)
        return None


@torch.no_grad()
def reduction(board: Board, n: int, thrifty: bool = False) -> Tensor:
    """Leave a question's reduced network in its memory; returns the open rows' bounds by it."""
    question, memory = board.questions[n], board.memory[n]
    problem = Problem(
        question.subject.graph, Corners(*question.box()), chosen(question), memory.pre or None
    )
    network, rows = reduce(problem, rounding=True, budget=ROOM, thrifty=thrifty)
    memory.network, memory.rows, memory.pre = network, rows, network.boxes.pre()
    memory.place = {row: i for i, row in enumerate(question.open_rows())}
    return torch.maximum(network.lower(rows), network.interval[0][0])


def chosen(question: Question) -> Tensor:
    """C that picks the open rows, [1, open, rows]."""
    count = question.subject.rows[-1].stop
    return torch.eye(count, dtype=torch.float64)[question.open_rows()][None]


def _learn(board: Board, n: int, rows: Sequence[int], lb: Tensor) -> None:
    """Keep the rows' bounds, and what they prove."""
    memory = board.memory[n]
    for row, bound in zip(rows, map(float, lb.tolist()), strict=True):
        before = memory.lb.get(row, -math.inf)
        memory.lb[row] = bound if bound > before else before
    positive = (row for row in rows if proves(memory.lb[row]))
    board.prove(n, board.questions[n].proved(positive), "bounds")


def _furthest(board: Board, n: int) -> float:
    """The bound of the open condition that is furthest from proof: that of its best row."""
    question, lb = board.questions[n], board.memory[n].lb
    rows = (question.subject.rows[k] for k in question.open)
    best = [max((lb.get(row, -math.inf) for row in group), default=-math.inf) for group in rows]
    return min(best, default=0.0)


BOUNDS = BoundsStep()
