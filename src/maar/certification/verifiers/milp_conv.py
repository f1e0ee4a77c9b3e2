"""The ReLUs of the last layer and the steepest after the last convolution, the others relaxed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from maar.certification.milp import choose
from maar.certification.milp.program import Program
from maar.core.errors import UsageError
from maar.domains.reduced.linear import Affine
from maar.domains.reduced.network import Reduced


@dataclass(frozen=True)
class MilpConv(Program):
    """The paper's second MILP. `max_binary`: how many after the convolution, at most."""

    name: ClassVar[str] = "milp_conv"
    max_binary: int = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_binary < 0:
            raise UsageError(f"max_binary = {self.max_binary} (accepted: 0 or more)")

    def exact(self, network: Reduced, row: Affine) -> Tensor:
        return choose.last(network) | choose.last_convolution(network, row, self.max_binary)
