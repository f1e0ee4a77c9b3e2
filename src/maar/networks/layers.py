"""The two layers that torch lacks. Everything else in a network is a standard torch module."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Normalize(nn.Module):
    """(x - mean) / std per channel: layer 0, so that eps is measured on pixels in [0,1]."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if len(mean) != len(std) or not mean:
            raise ValueError(f"mean {mean!r} and std {std!r} need one number per channel each")
        if min(std) <= 0:
            raise ValueError(f"std {std!r} must be positive")
        # Buffers: they travel with the weights and are part of their hash, but are never trained.
        self.register_buffer("mean", torch.tensor(list(mean), dtype=torch.float32))
        self.register_buffer("std", torch.tensor(list(std), dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        shape = (-1, *([1] * (x.dim() - 2)))
        return (x - self.mean.view(shape)) / self.std.view(shape)

    def extra_repr(self) -> str:
        return f"mean={self.mean.tolist()}, std={self.std.tolist()}"


class Residual(nn.Module):
    """body(x) + shortcut(x); an absent shortcut is the identity."""

    def __init__(self, body: nn.Sequential, shortcut: nn.Sequential | None = None) -> None:
        super().__init__()
        self.body = body
        self.shortcut = nn.Sequential() if shortcut is None else shortcut

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) + self.shortcut(x)
