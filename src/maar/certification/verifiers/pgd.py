"""The full attack: a sequence of attacks of which most images survive the first, few the last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from maar.attacks import STRONG, Attack, search
from maar.certification.query import Query
from maar.certification.verdict import UNKNOWN, Status, Verdict


@dataclass(frozen=True)
class Pgd:
    """`maar.attacks.search`, on the classes still open."""

    name: ClassVar[str] = "pgd"
    attacks: tuple[Attack, ...] = STRONG

    def __call__(self, query: Query) -> Verdict:
        """FALSIFIED or UNKNOWN."""
        targets = torch.zeros(1, query.network.classes, dtype=torch.bool)
        targets[0, list(query.targets)] = True
        found = search(
            query.network.net,
            query.ball(),
            query.label(),
            attacks=self.attacks,
            generator=torch.Generator().manual_seed(query.seed),
            targets=targets,
            seconds=query.left(),
        )
        if not bool(found.broken):
            return UNKNOWN
        return Verdict(Status.FALSIFIED, counterexample=found.point)
