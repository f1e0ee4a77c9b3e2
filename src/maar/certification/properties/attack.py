"""Look for an unsafe point with the attacks that images are broken with.

The network is dressed as a classifier: class 0 always scores 0, and class k + 1 scores how far
inside condition k the output is. An input meets a condition where that class is ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from maar.attacks import APGD, PGD, Attack, search
from maar.certification.properties.question import Answer, Question, Subject
from maar.certification.properties.witness import confirm
from maar.certification.verifiers.quick_pgd import GLANCE
from maar.regions import Box


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
    """Attacks on the whole box, one after the other."""

    attacks: tuple[Attack, ...]

    def __call__(self, question: Question) -> Answer:
        """A witness, if one is found."""
        net, region = dressed(question.subject), inside(*question.box())
        targets = torch.zeros(1, len(question.subject.rows) + 1, dtype=torch.bool)
        targets[0, [k + 1 for k in question.open]] = True
        for attack in self.attacks:
            if question.is_late():
                break
            found = search(
                net,
                region,
                torch.zeros(1, dtype=torch.long),
                attacks=(attack,),
                generator=torch.Generator().manual_seed(question.seed),
                targets=targets,
            )
            if bool(found.broken) and (witness := confirm(question, found.point)):
                return Answer(witness=witness)
        return Answer()


QUICK = AttackStep((GLANCE,))
STRONG = AttackStep(
    (
        PGD(steps=20, step_size=0.15, loss="margin", keep="best", early_exit=True),
        APGD(steps=50, loss="margin", restarts=10),
        APGD(steps=50, loss="margin", targeted=True, restarts=3),
    )
)
