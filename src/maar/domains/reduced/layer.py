"""Some neurons of one ReLU in a reduced network: their rows and bounds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from maar.domains.bound import Pair
from maar.domains.reduced.linear import Affine
from maar.domains.relax import lower_slope, upper_line


@dataclass
class Layer:
    """The unstable neurons of one ReLU: their flat places, rows and bounds."""

    index: Tensor
    rows: Affine
    lb: Tensor
    ub: Tensor

    @cached_property
    def above(self) -> Pair:
        """Slope and intercept of the lines above the ReLUs."""
        return upper_line(self.lb, self.ub)

    @cached_property
    def below(self) -> Tensor:
        """CROWN's slopes of the lines below them."""
        return lower_slope(self.lb, self.ub)
