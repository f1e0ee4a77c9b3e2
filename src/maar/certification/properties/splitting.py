"""Cut boxes into smaller ones until each is settled: complete for networks of few inputs.

Each cut is at a float64 number that belongs to both halves, so the halves cover the box. Boxes of
all questions are bounded together, many at a time, by a cheap bound first and by others where they
pay.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from maar.certification.properties.attack import NEAR, nearby
from maar.certification.properties.board import Board
from maar.certification.properties.bounds import CROWN
from maar.certification.properties.contraction import contracted
from maar.certification.properties.question import Question
from maar.core import clock
from maar.domains.bound import Corners, Pair
from maar.domains.crown import Crown
from maar.domains.forward import Forward, free_inputs, lowest
from maar.domains.graph import Graph

# How much a side counts along which the row does not change, as a part of the steepest slope.
FLOOR = 0.05
# Steps down the gradient that every box is attacked with.
STEPS = 3
# One batch in so many is a trial of bounds that do not pay.
OTHER = 4
# How many boxes a box that stays open is taken to become in the end.
LEAVES = 8.0
# A bound is first tried on so few boxes for so many seconds.
TRIAL, PATIENCE = 8, 1.0
LARGEST = 256
# Passes of contraction over a batch, and the part of the widths that must be gained by them.
ROUNDS, GAIN = 3, 0.05
LARGE = 1e300
# Weights times boxes that an attack may have.
WORK = 2e7
LAST = Crown(rounding=True, upper=False, intermediate="interval", budget=CROWN.budget)


@dataclass(frozen=True)
class Boxes:
    """Boxes [B, inputs], the place of each one's question, and its share of the whole."""

    lb: Tensor
    ub: Tensor
    owner: Tensor
    share: Tensor

    def __len__(self) -> int:
        return len(self.lb)

    def __getitem__(self, keep: Tensor | slice) -> Boxes:
        return Boxes(self.lb[keep], self.ub[keep], self.owner[keep], self.share[keep])

    @staticmethod
    def joined(parts: Sequence[Boxes]) -> Boxes:
        """The boxes of all parts, in order."""
        return Boxes(*map(torch.cat, zip(*(vars(part).values() for part in parts), strict=True)))


@dataclass(frozen=True)
class Splitting:
    """`batch`: the most boxes that are bounded at once; `pace`: how long that may take, seconds."""

    batch: int = 1024
    pace: float = 0.5

    def __call__(self, board: Board) -> Iterator[float]:
        """Turns of one batch."""
        if any(not len(rows) for question in board.questions for rows in question.subject.rows):
            return  # a condition that every output meets has no row to refute
        waiting = _begin(board)
        total = float(sum(len(part) for part in waiting)) or 1.0
        rows, bounds = _Rows(board.questions), _Bounds(board.questions[0])
        # Last in, first out: of d cuts in a row, about d batches wait.
        size, done, batches, settled = 64, 0.0, 0, 0
        while waiting:
            begin = clock.now()
            boxes, waiting = _taken(waiting, size)
            is_open = torch.tensor([bool(board.questions[n].open) for n in boxes.owner.tolist()])
            done += float(boxes.share[~is_open].sum())
            boxes = boxes[is_open]
            if not len(boxes):
                continue
            batches += 1
            asked = rows.of(boxes.owner, board)
            left, change = bounds.open(boxes, asked)
            done += float(boxes.share[~left].sum())
            settled += int((~left).sum())
            boxes = boxes[left]
            if len(boxes) and bounds.forward is not None:
                boxes, change, asked, gone = _contracted(board, bounds, boxes, change, asked[left])
                done += gone
            else:
                asked = asked[left]
            if len(boxes):
                if _attack(board, boxes, asked, bounds.most):
                    return
                axis = _axis(boxes, change)
                if axis is None:
                    board.reasons.append("splitting: a box has shrunk to a point")
                    return
                waiting.append(_halves(boxes, axis))
            self._close(board, waiting)
            taken = clock.now() - begin
            size = min(2 * size, self.batch) if taken < self.pace / 2 else max(1, size // 2)
            if batches & (batches - 1) == 0 or not waiting:
                text = f"{settled} boxes settled, {done / total:.2%} of the input, by {bounds}"
                board.note("splitting", text)
            yield done / total

    def _close(self, board: Board, waiting: Sequence[Boxes]) -> None:
        """Write down the questions of which no box is left."""
        if not waiting:
            owners: set[int] = set()
        elif len(board.questions) == 1:
            return
        else:
            owners = set(torch.cat([part.owner for part in waiting]).tolist())
        for n in set(board.left()) - owners:
            board.prove(n, board.questions[n].open, "splitting")


def _begin(board: Board) -> list[Boxes]:
    parts = []
    for n in board.left():
        lb, ub = (side.flatten(1) for side in board.questions[n].box())
        parts.append(Boxes(lb, ub, torch.tensor([n]), torch.ones(1, dtype=torch.float64)))
    return parts


def _taken(waiting: list[Boxes], size: int) -> tuple[Boxes, list[Boxes]]:
    """The last `size` boxes, and the others."""
    parts, count = [], 0
    while waiting and count < size:
        part = waiting.pop()
        if count + len(part) > size:
            waiting.append(part[: len(part) - (size - count)])
            part = part[len(part) - (size - count) :]
        parts.append(part)
        count += len(part)
    return Boxes.joined(parts), waiting


@dataclass(frozen=True)
class Asked:
    """The rows C y - b of each box, and which conditions (still open) they are of."""

    C: Tensor
    """[B, rows, outputs]"""
    b: Tensor
    """[B, rows]; what `lower` bounds are compared with."""
    member: Tensor
    """[B, conditions, rows]; all false for a condition that is no longer open."""

    def __getitem__(self, keep: Tensor) -> Asked:
        return Asked(self.C[keep], self.b[keep], self.member[keep])


class _Rows:
    """The rows of every question, of one shape."""

    def __init__(self, questions: Sequence[Question]) -> None:
        cases = [question.subject.case for question in questions]
        self.rows = max(sum(len(c.b) for c in case.conditions) for case in cases)
        self.conditions = max(len(case.conditions) for case in cases)
        self.made: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
        self.questions = questions

    def of(self, owner: Tensor, board: Board) -> Asked:
        names, place = owner.unique(return_inverse=True)
        C, b, member = zip(*(self._of(n) for n in names.tolist()), strict=True)
        is_open = torch.zeros(len(names), self.conditions, 1, dtype=torch.bool)
        for i, n in enumerate(names.tolist()):
            is_open[i, list(board.questions[n].open)] = True
        members = torch.stack(member) & is_open
        return Asked(torch.stack(C)[place], torch.stack(b)[place], members[place])

    def _of(self, n: int) -> tuple[Tensor, Tensor, Tensor]:
        if n not in self.made:
            subject = self.questions[n].subject
            A = np.concatenate([condition.A for condition in subject.case.conditions])
            b = np.concatenate([condition.b for condition in subject.case.conditions])
            C = torch.zeros(self.rows, A.shape[1], dtype=torch.float64)
            right = torch.zeros(self.rows, dtype=torch.float64)
            C[: len(A)], right[: len(b)] = torch.from_numpy(A), torch.from_numpy(b)
            member = torch.zeros(self.conditions, self.rows, dtype=torch.bool)
            for k, rows in enumerate(subject.rows):
                member[k, rows.start : rows.stop] = True
            self.made[n] = C, right, member
        return self.made[n]


def _below(low: Tensor, b: Tensor) -> Tensor:
    """Low - b, rounded down; what overflowed proves nothing."""
    low = torch.nextafter(low - b, torch.full_like(low, -torch.inf))
    return torch.where(low.isfinite(), low, -torch.inf)


def _depths(value: Tensor, asked: Asked) -> tuple[Tensor, Tensor]:
    """The least over open conditions of the largest row, and that row: of values [B, rows]."""
    inner = torch.where(asked.member, value[:, None], -torch.inf)
    best, row = inner.max(2)
    is_open = asked.member.any(2)
    best = torch.where(is_open, best, torch.inf)
    depth, k = best.min(1)
    return depth, row.gather(1, k[:, None]).squeeze(1)


def _contracted(
    board: Board, bounds: _Bounds, boxes: Boxes, change: Tensor, asked: Asked
) -> tuple[Boxes, Tensor, Asked, float]:
    """The boxes without what a single open condition leaves out; and the share of closed ones."""
    is_alone = (asked.member.any(2).sum(1) == 1).all()
    if bounds.forward is None or not bool(is_alone) or not bounds.contracts():
        return boxes, change, asked, 0.0
    closed, before = 0.0, (boxes.ub - boxes.lb).sum()
    begin, count = clock.now(), len(boxes)
    rows = asked.member.any(1)
    for _ in range(ROUNDS):
        shape = (-1, *bounds.shape)
        _, pre = bounds.forward(boxes.lb.view(shape), boxes.ub.view(shape))
        # A row of no open condition says nothing: its bound is taken from below any value.
        C, b = asked.C, torch.where(asked.member.any(1), asked.b, LARGE)
        lb, ub, low = contracted(bounds.graph, boxes.lb, boxes.ub, C, b, pre)
        left = ~(torch.where(rows, low, -torch.inf) > 0).any(1)
        closed += float(boxes.share[~left].sum())
        moved = bool((ub - lb < boxes.ub - boxes.lb)[left].any())
        boxes = replace(boxes, lb=lb, ub=ub)[left]
        change, asked, rows = change[left], asked[left], rows[left]
        if not moved or not len(boxes):
            break
    after = (boxes.ub - boxes.lb).sum() if len(boxes) else 0.0 * before
    bounds.contraction.learn(count, count - len(boxes), clock.now() - begin)
    bounds.gained = 0.7 * bounds.gained + 0.3 * float(1 - after / before)
    return boxes, change, asked, closed


def _attack(board: Board, boxes: Boxes, asked: Asked, most: int) -> bool:
    """Steps down from the centres of up to `most` boxes; whether one met a condition."""
    subject = board.questions[0].subject
    boxes, asked = boxes[:most], asked[torch.arange(min(most, len(boxes)))]
    radius = (boxes.ub - boxes.lb) / 2
    x = (boxes.lb + boxes.ub) / 2
    for step in range(STEPS + 1):
        clock.check()
        with torch.enable_grad():
            at = x.detach().requires_grad_()
            y = subject.double(at.view(-1, *subject.shape)).flatten(1)
            depth, _ = _depths((asked.C @ y[..., None])[..., 0] - asked.b, asked)
            (gradient,) = torch.autograd.grad(depth.sum(), at)
        depth = depth.detach()
        deepest = int(depth.argmin())
        if float(depth[deepest]) <= NEAR:
            n = int(boxes.owner[deepest])
            around = nearby(board.questions[n], x[deepest : deepest + 1])
            if board.look(n, around, "splitting"):
                return True
        x = x - (1.0 if step == 0 else 0.5) * radius * gradient.nan_to_num(0.0).sign()
        x = torch.minimum(torch.maximum(x, boxes.lb), boxes.ub)
    return False


class _Bound:
    """One of several bounds, what it costs, and how often it settles what others leave open."""

    def __init__(self, name: str, bound: Crown) -> None:
        self.name, self.bound = name, bound
        self.boxes, self.together = 0, 0
        self.seconds, self.share = 0.0, 0.0
        """By now, of a box; the latest ones count most."""

    def learn(self, boxes: int, settled: int, seconds: float) -> None:
        """Take one batch into account."""
        part = 1.0 if boxes > self.together else 0.3
        self.together = boxes
        self.seconds += part * (seconds / boxes - self.seconds)
        self.share += part * (settled / boxes - self.share)
        self.boxes += boxes


class _Bounds:
    """A forward bound of all boxes; then backward ones of those left open, where they pay.

    A bound pays if settling a box by it costs less than cutting the box: than `LEAVES` times
    what a box has cost so far.
    """

    def __init__(self, question: Question) -> None:
        subject, self.question = question.subject, question
        self.graph: Graph = subject.outputs
        self.shape = subject.shape
        self.forward = Forward(self.graph) if Forward.supports(self.graph) else None
        self.bounds = [_Bound("backward", LAST), _Bound("CROWN", CROWN)]
        if self.forward is None:
            self.bounds = self.bounds[1:]
        self.batches, self.seconds, self.settled = 0, 0.0, 0
        self.contraction, self.gained = _Bound("contraction", CROWN), 1.0
        weights = sum(p.numel() for p in subject.double.parameters())
        self.most = int(max(4, min(4096, WORK // (1 + weights))))
        """How many boxes an attack is worth while for."""

    def __str__(self) -> str:
        bounds = [*self.bounds, self.contraction]
        return ", ".join(f"{bound.name} of {bound.boxes}" for bound in bounds if bound.boxes)

    def contracts(self) -> bool:
        """Whether cutting off what is out of reach has been worth it, or may be now."""
        return self.gained > GAIN or self.batches % OTHER == 0

    def open(self, boxes: Boxes, asked: Asked) -> tuple[Tensor, Tensor]:
        """Which boxes stay open, and for these how much the row to prove next changes by inputs."""
        self.batches += 1
        begin = clock.now()
        low, change = self._low(boxes, asked)
        depth, row = _depths(low, asked)
        left = ~(depth > 0)
        self.seconds += clock.now() - begin
        self.settled += int((~left).sum())
        if change is None:
            change = self._slopes(boxes, asked, row)
        else:
            change = change[torch.arange(len(row)), row]
        return left, change[left]

    @torch.no_grad()
    def _low(self, boxes: Boxes, asked: Asked) -> tuple[Tensor, Tensor | None]:
        """Lower bounds of C y - b, [B, rows]; and how much each row changes along each input."""
        lb, ub = (side.view(-1, *self.shape) for side in (boxes.lb, boxes.ub))
        change, pre = None, ()
        if self.forward is None:
            low = torch.full_like(asked.b, -torch.inf)
        else:
            band, pre = self.forward(lb, ub)
            low = _below(lowest(band, asked.C), asked.b)
            change = low.new_zeros(*low.shape, boxes.lb.shape[1])
            slopes = (band.A.flatten(2) @ asked.C.transpose(1, 2)).abs()
            change[..., free_inputs(lb, ub)] = slopes.transpose(1, 2)
        for bound in list(self.bounds):
            left = (~(_depths(low, asked)[0] > 0)).nonzero().squeeze(1)
            if not self._pays(bound):
                left = left[: self._trial(bound)]
            if not len(left):
                continue
            begin = clock.now()
            known: list[Pair] = [(a[left], b[left]) for a, b in pre]
            box = Corners(lb[left], ub[left])
            is_trial = not bound.boxes and len(self.bounds) > 1
            try:
                with clock.until(begin + PATIENCE if is_trial else math.inf):
                    better = bound.bound(self.graph, box, asked.C[left], known or None).lb
            except clock.Late:
                if not is_trial:
                    raise
                self.bounds.remove(bound)  # too slow for this network
                continue
            low[left] = torch.maximum(low[left], _below(better, asked.b[left]))
            settled = int((_depths(low, asked)[0][left] > 0).sum())
            bound.learn(len(left), settled, clock.now() - begin)
        return low, change

    def _trial(self, bound: _Bound) -> int:
        """A few boxes now and then, to see whether a bound pays by now."""
        if not bound.boxes:
            return TRIAL
        room, count = self.seconds / OTHER, bound.together
        if self.batches % OTHER or count * bound.seconds > room:
            return 0
        # A few boxes cost nearly what many do: the next trial is larger.
        return min(LARGEST, 8 * count) if 8 * count * bound.seconds < room else count

    def _pays(self, bound: _Bound) -> bool:
        if len(self.bounds) == 1 and self.forward is None:
            return True
        if not bound.boxes:
            return False
        return bound.seconds < bound.share * LEAVES * self.seconds / max(1, self.settled)

    def _slopes(self, boxes: Boxes, asked: Asked, row: Tensor) -> Tensor:
        """How much each box's row changes along each input, by the gradient at the centre."""
        with torch.enable_grad():
            at = ((boxes.lb + boxes.ub) / 2).requires_grad_()
            y = self.question.subject.double(at.view(-1, *self.shape)).flatten(1)
            value = (asked.C @ y[..., None])[..., 0].gather(1, row[:, None])
            (gradient,) = torch.autograd.grad(value.sum(), at)
        return gradient.nan_to_num(0.0).abs() * (boxes.ub - boxes.lb)


def _axis(boxes: Boxes, change: Tensor) -> Tensor | None:
    """Where to cut each box: where its row changes most. None if one is a mere point."""
    middle, width = (boxes.lb + boxes.ub) / 2, boxes.ub - boxes.lb
    can = (middle > boxes.lb) & (middle < boxes.ub)
    if not bool(can.any(1).all()):
        return None
    change = change.nan_to_num(0.0)
    # Where a row does not change at the centre, it may elsewhere in the box.
    steepest = torch.where(can, change / width, 0.0).amax(1, keepdim=True)
    change = change + FLOOR * steepest.clamp_min(torch.finfo(width.dtype).tiny) * width
    return torch.where(can, change, -1.0).argmax(1)


def _halves(boxes: Boxes, axis: Tensor) -> Boxes:
    at = (torch.arange(len(boxes)), axis)
    middle = (boxes.lb[at] + boxes.ub[at]) / 2
    left, right = boxes.ub.clone(), boxes.lb.clone()
    left[at] = right[at] = middle
    share = boxes.share / 2
    low, high = torch.cat([boxes.lb, right]), torch.cat([left, boxes.ub])
    return Boxes(low, high, boxes.owner.repeat(2), share.repeat(2))


SPLITTING = Splitting()
