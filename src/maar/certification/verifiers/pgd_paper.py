"""The paper's attack, which is COLT's: 20 restarts of 100 steps of 0.015 of the radius."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from maar.attacks import PAPER, Attack
from maar.certification.verifiers.pgd import Pgd


@dataclass(frozen=True)
class PgdPaper(Pgd):
    """For figures to be compared with the paper's: `pgd` finds more in the same time."""

    name: ClassVar[str] = "pgd_paper"
    attacks: tuple[Attack, ...] = PAPER
