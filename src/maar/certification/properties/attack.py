"""Look for an unsafe point with the attacks that images are broken with.

The network is dressed as a classifier: class 0 always scores 0, and class k + 1 scores how far
inside condition k the output is. An input meets a condition where that class is ahead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from maar.attacks import APGD, PGD, Attack, search
from maar.certification.properties.board import Board
from maar.certification.properties.question import Question, Subject
from maar.certification.verifiers.quick_pgd import GLANCE
from maar.core import clock
from maar.regions import Box

# A point this near to meeting a condition may meet it exactly.
NEAR = 1e-6


class Depth(nn.Module):
    """[0, min over the rows of condition 0 of b - A y, the same of condition 1, ...]."""

    index: Tensor

    def __init__(self, rows: Sequence[range]) -> None:
        super().__init__()
        longest = max(map(len, rows))
        # A shorter condition repeats its last row, which changes no minimum.
        index = [[row[min(i, len(row) - 1)] for i in range(longest)] for row in rows]
        self.register_buffer("index", torch.tensor(index))

    def forward(self, rows: Tensor) -> Tensor:
        clock.check()
        depth = -rows[:, self.index].amax(2)
        return torch.cat([torch.zeros_like(depth[:, :1]), depth], 1)


def dressed(subject: Subject) -> nn.Sequential:
    """The classifier that is broken where a condition is met."""
    return nn.Sequential(*subject.signed, Depth(subject.rows)).eval()


def inside(lb: Tensor, ub: Tensor) -> Box:
    """Boxes of float32 numbers; a side too short for any of them is its nearest one."""
    low, high = lb.float(), ub.float()
    near = low
    low = torch.where(low < lb, torch.nextafter(low, torch.tensor(torch.inf)), low)
    high = torch.where(high > ub, torch.nextafter(high, torch.tensor(-torch.inf)), high)
    short = low > high
    return Box(torch.where(short, near, low), torch.where(short, near, high))


@dataclass(frozen=True)
class AttackStep:
    """Attacks on the whole box of each question, one after the other."""

    name: str
    attacks: tuple[Attack, ...]

    def __call__(self, board: Board) -> Iterator[float]:
        """Turns of one attack on one question."""
        for attack in self.attacks:
            for n in board.left():
                self._try(board, n, attack)
                yield 0.0
        board.note(self.name, "no witness")

    def _try(self, board: Board, n: int, attack: Attack) -> None:
        question = board.questions[n]
        if any(not len(question.subject.rows[k]) for k in question.open):
            # Every output meets a condition without rows, so every input will do.
            lb, ub = question.box()
            board.look(n, (lb + ub).flatten(1) / 2, self.name)
            return
        targets = torch.zeros(1, len(question.subject.rows) + 1, dtype=torch.bool)
        targets[0, [k + 1 for k in question.open]] = True
        found = search(
            dressed(question.subject),
            inside(*question.box()),
            torch.zeros(1, dtype=torch.long),
            attacks=(attack,),
            generator=torch.Generator().manual_seed(question.seed),
            targets=targets,
        )
        if float(found.margin) >= -NEAR:
            board.look(n, nearby(question, found.point.double().flatten(1)), self.name)


def nearby(question: Question, points: Tensor) -> Tensor:
    """The points, and those with every input moved to the nearest corner: ties lie there."""
    lb, ub = (side.flatten(1) for side in question.box())
    corners = torch.where(points - lb < ub - points, lb, ub)
    return torch.cat([points, corners])


QUICK = AttackStep("attack", (GLANCE,))
STRONG = AttackStep(
    "strong_attack",
    (
        PGD(steps=20, step_size=0.15, loss="margin", keep="best", early_exit=True),
        APGD(steps=50, loss="margin", restarts=10),
        APGD(steps=50, loss="margin", targeted=True, restarts=3),
    ),
)
