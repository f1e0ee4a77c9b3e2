"""Means over an epoch."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


class Means:
    """Means over the steps of an epoch, by name: the sum of sums over the sum of counts."""

    def __init__(self) -> None:
        self.sums: dict[str, tuple[float, float]] = {}

    def add(self, numbers: Mapping[str, Tensor | tuple[Tensor, Tensor]]) -> None:
        """Take one step's numbers in, each a number or (sum, count)."""
        for name, number in numbers.items():
            parts = number if isinstance(number, tuple) else (number, torch.ones(()))
            total, count = (part.item() for part in parts)
            before, counted = self.sums.get(name, (0.0, 0.0))
            self.sums[name] = before + total, counted + count

    @property
    def values(self) -> dict[str, float]:
        """The means so far; what has counted nothing yet is left out."""
        return {name: total / count for name, (total, count) in self.sums.items() if count}
