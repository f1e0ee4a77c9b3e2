"""The interface of a region: a set written as e in [-1,1]^m, so that one attack loop serves all."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

Errors = tuple[Tensor, ...]
"""One tensor per error group, each with the batch dimension first."""


class Region(ABC):
    """A batch of sets {point(e) : e in [-1,1]^m}, one per image.

    `at` is the index in the network's Sequential at which the point enters: 0 is
    the input, and the layers that an attack sees are `net[at:]`.
    """

    at: int
    shapes: tuple[torch.Size, ...]
    """Shape of each error group, batch dimension first."""
    dtype: torch.dtype
    device: torch.device

    @abstractmethod
    def point(self, e: Errors) -> Tensor:
        """The point that e names: one forward pass, differentiable in e."""

    @abstractmethod
    def select(self, index: Tensor) -> Region:
        """The same sets for a sub-batch: `index` holds positions (repeats allowed) or is a mask."""

    def ascend(self, e: Tensor, slope: Tensor, size: float) -> Tensor:
        """Go a step along the gradient of one error group, in place: of its sign, into the cube."""
        return e.add_(slope.sign(), alpha=size).clamp_(-1, 1)

    def __len__(self) -> int:
        return self.shapes[0][0]

    def zero(self) -> Errors:
        """e = 0, the centre."""
        return tuple(torch.zeros(s, dtype=self.dtype, device=self.device) for s in self.shapes)

    def random_start(self, generator: torch.Generator) -> Errors:
        """e ~ U(-1,1), drawn on the generator's own device.

        A CPU generator thus gives the same start whatever device the region is on.
        """
        return tuple(
            torch.empty(s, dtype=self.dtype, device=generator.device)
            .uniform_(-1, 1, generator=generator)
            .to(self.device)
            for s in self.shapes
        )


def take(e: Errors, index: Tensor) -> Errors:
    """The rows of every error group that `index` (positions or a mask) names."""
    return tuple(group[index] for group in e)
