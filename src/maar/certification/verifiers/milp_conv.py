"""The ReLUs of the last layer and the steepest after the last convolution, the others relaxed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from maar.certification.milp import choose
from maar.certification.milp.program import Program
from maar.core.errors import UsageError
from maar.domains.learned_zonotope import LearnedZonotope
from maar.domains.reduced.linear import Affine
from maar.domains.reduced.network import Reduced

# COLT's learning rate falls to a tenth every so many steps. The choice is no part of the proof:
# it may take so long and no longer.
PERIOD, SECONDS = 100, 30.0


@dataclass(frozen=True)
class MilpConv(Program):
    """The paper's second MILP. `max_binary`: how many after the convolution, at most.

    They are chosen at slopes learned in `slope_iterations` steps, as in COLT's code; without any,
    at DeepZ's.
    """

    name: ClassVar[str] = "milp_conv"
    max_binary: int = 50
    slope_iterations: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_binary < 0:
            raise UsageError(f"max_binary = {self.max_binary} (accepted: 0 or more)")
        if self.slope_iterations < 0:
            raise UsageError(f"slope_iterations = {self.slope_iterations} (accepted: 0 or more)")

    def exact(self, network: Reduced, row: Affine) -> Tensor:
        learned = LearnedZonotope(self.slope_iterations, period=PERIOD, seconds=SECONDS)
        conv = choose.last_convolution(network, row, self.max_binary, learned)
        return choose.last(network) | conv
