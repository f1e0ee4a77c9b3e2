"""The triangle relaxation as a linear program: the best that any slopes of CROWN can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from maar.certification.milp import choose
from maar.certification.milp.program import Program
from maar.domains.reduced.linear import Affine
from maar.domains.reduced.network import Reduced


@dataclass(frozen=True)
class Lp(Program):
    """Every ReLU relaxed, the bounds on their inputs as they are (CROWN's)."""

    name: ClassVar[str] = "lp"

    def exact(self, network: Reduced, row: Affine) -> Tensor:
        return choose.none(network)
