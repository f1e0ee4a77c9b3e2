"""The ReLUs of the last layer as they are, the others relaxed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from maar.bounds.linear import Affine
from maar.bounds.reduced import Reduced
from maar.certify.milp import choose
from maar.certify.milp.program import Program


@dataclass(frozen=True)
class MilpLast(Program):
    """The paper's first MILP."""

    name: ClassVar[str] = "milp_last"
    share: ClassVar[float] = 0.5

    def exact(self, network: Reduced, row: Affine) -> Tensor:
        return choose.last(network)
