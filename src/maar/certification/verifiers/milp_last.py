"""The ReLUs of the last layer as they are, the others relaxed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from maar.certification.milp import choose
from maar.certification.milp.program import Program
from maar.domains.reduced.linear import Affine
from maar.domains.reduced.network import Reduced


@dataclass(frozen=True)
class MilpLast(Program):
    """The paper's first MILP."""

    name: ClassVar[str] = "milp_last"
    share: ClassVar[float] = 0.5

    def exact(self, network: Reduced, row: Affine) -> Tensor:
        return choose.last(network)
