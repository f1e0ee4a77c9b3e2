"""Cut the box into smaller ones until each is settled: complete for networks of few inputs.

Each cut is at a float64 number that belongs to both halves, so the halves cover the box. They are
bounded by CROWN, many at a time, and looked at by a short attack.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from maar.attacks import search
from maar.certification.properties.attack import dressed, inside
from maar.certification.properties.bounds import CROWN, chosen
from maar.certification.properties.question import Answer, Question, Witness
from maar.certification.properties.witness import confirm
from maar.certification.verifiers.quick_pgd import GLANCE
from maar.domains.bound import Corners

# Where the gradient at a box's centre is zero, there may be slopes elsewhere in it.
FLOOR = 0.05


@dataclass(frozen=True)
class Splitting:
    """`batch`: the most boxes that are bounded at once; `pace`: how long that may take, seconds."""

    batch: int = 512
    pace: float = 1.0

    def __call__(self, question: Question) -> Answer:
        """All open conditions proved, or none; or a witness."""
        net = dressed(question.subject)
        # Last in, first out: of d cuts in a row, about d batches wait.
        waiting = [tuple(side.flatten(1) for side in question.box())]
        size = 1
        while waiting:
            begin = time.monotonic()
            if begin >= question.deadline:
                return Answer()
            lb, ub = (torch.cat(sides) for sides in zip(*waiting[-size:], strict=True))
            del waiting[-size:]
            if witness := _look(question, net, lb, ub):
                return Answer(witness=witness)
            lb, ub, row = _undecided(question, lb, ub)
            if len(lb):
                axis = _axis(question, lb, ub, row)
                if axis is None:
                    return Answer()
                waiting += _halves(lb, ub, axis)
            quick = time.monotonic() - begin < self.pace / 2
            size = min(2 * size, self.batch) if quick else max(1, size // 2)
        return Answer(proved=frozenset(question.open))


def _look(question: Question, net: nn.Module, lb: Tensor, ub: Tensor) -> Witness | None:
    """A short attack on every box."""
    shape = (-1, *question.subject.shape)
    found = search(
        net,
        inside(lb.view(shape), ub.view(shape)),
        torch.zeros(len(lb), dtype=torch.long),
        attacks=(GLANCE,),
        generator=torch.Generator().manual_seed(question.seed),
    )
    if not bool(found.broken.any()):
        return None
    deepest = int(torch.where(found.broken, found.margin, -torch.inf).argmax())
    return confirm(question, found.point[deepest : deepest + 1])


@torch.no_grad()
def _undecided(question: Question, lb: Tensor, ub: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The boxes that CROWN does not settle, and for each the row to prove next.

    That is the best row of the condition that is furthest from proof.
    """
    shape, rows = (-1, *question.subject.shape), question.open_rows()
    C = chosen(question).expand(len(lb), -1, -1)
    low = CROWN(question.subject.batched, Corners(lb.view(shape), ub.view(shape)), C).lb
    low = torch.where(low.isfinite(), low, -torch.inf)  # what overflowed proves nothing
    best, place, start = [], [], 0
    for k in question.open:
        stop = start + len(question.subject.rows[k])
        value, index = low[:, start:stop].max(1)
        best.append(value)
        place.append(index + start)
        start = stop
    hardest, condition = torch.stack(best, 1).min(1)
    row = torch.tensor(rows)[torch.stack(place, 1).gather(1, condition[:, None]).squeeze(1)]
    left = ~(hardest > 0)
    return lb[left], ub[left], row[left]


def _axis(question: Question, lb: Tensor, ub: Tensor, row: Tensor) -> Tensor | None:
    """Where to cut each box: where the row changes most along it. None if one is a mere point."""
    middle = (lb + ub) / 2
    can = (middle > lb) & (middle < ub)
    if not bool(can.any(1).all()):
        return None
    with torch.enable_grad():
        x = middle.view(-1, *question.subject.shape).detach().requires_grad_()
        out = question.subject.exact(x).gather(1, row[:, None])
        slope = torch.autograd.grad(out.sum(), x)[0].flatten(1).abs()
    slope = slope + FLOOR * slope.amax(1, keepdim=True).clamp_min(torch.finfo(slope.dtype).tiny)
    return torch.where(can, slope * (ub - lb), -1.0).argmax(1)


def _halves(lb: Tensor, ub: Tensor, axis: Tensor) -> list[tuple[Tensor, ...]]:
    at = (torch.arange(len(lb)), axis)
    middle = (lb[at] + ub[at]) / 2
    left, right = ub.clone(), lb.clone()
    left[at] = right[at] = middle
    low, high = torch.cat([lb, right]), torch.cat([left, ub])
    return list(zip(low.split(1), high.split(1), strict=True))


SPLITTING = Splitting()
