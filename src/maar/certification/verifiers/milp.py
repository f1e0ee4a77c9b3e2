"""Every unstable ReLU as it is: complete, given time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from maar.certification.milp import choose
from maar.certification.milp.program import Program
from maar.domains.reduced.linear import Affine
from maar.domains.reduced.network import Reduced


@dataclass(frozen=True)
class Milp(Program):
    """The network itself, as far as its rows are exact."""

    name: ClassVar[str] = "milp"
    complete: ClassVar[bool] = True

    def exact(self, network: Reduced, row: Affine) -> Tensor:
        return choose.all_(network)
