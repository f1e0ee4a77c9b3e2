"""A glance before the bounds: most breakable images break within five steps."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from maar.attacks import PGD, Attack, margin
from maar.certification.block import Block
from maar.certification.replay import NoCounterexample, replay
from maar.certification.verdict import UNKNOWN, Status, Verdict
from maar.certification.verifiers.pgd import Pgd

# Measured on networks that were not trained to be provable: this finds 97 to 99 % of what the full
# attack finds, in a fiftieth of its time. From the centre it beats random starts, the margin
# beats cross-entropy.
GLANCE = PGD(
    steps=5, step_size=0.5, loss="margin", random_start=False, keep="best", early_exit=True
)


@dataclass(frozen=True)
class QuickPgd(Pgd):
    """Five steps of PGD."""

    name: ClassVar[str] = "quick_pgd"
    attacks: tuple[Attack, ...] = (GLANCE,)

    def together(self, block: Block) -> list[Verdict]:
        """For each query FALSIFIED or UNKNOWN."""
        if any(attack.random_start for attack in self.attacks):
            return [self(query) for query in block.queries]  # whose chance is each image's own
        verdicts = [UNKNOWN] * len(block.queries)
        for attack in self.attacks:
            for n, point in enumerate(_points(attack, block)):
                if point is not None and verdicts[n] is UNKNOWN:
                    with contextlib.suppress(NoCounterexample):  # it is one in float32 only
                        replay(block.queries[n], point)
                        verdicts[n] = Verdict(Status.FALSIFIED, counterexample=point)
        return verdicts


def _points(attack: Attack, block: Block) -> list[Tensor | None]:
    """For each query a point at which another class is ahead, if the attack has found one."""
    ball, net = block.ball(), block.network.net
    # Nobody leaves early: that would make the batch, and with it the last bits, another.
    found = replace(attack, early_exit=False)(net, ball, block.y, generator=torch.Generator())
    with torch.no_grad():
        points = ball.point(found)
        broken = (margin(net(points), block.y) > 0).tolist()
    return [points[row : row + 1].clone() if broken[row] else None for row in block.rows]
