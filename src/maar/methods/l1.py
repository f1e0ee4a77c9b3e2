"""The L1 norm of the weights, which makes them sparse and programs over them small."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def l1_norm(net: nn.Sequential) -> Tensor:
    """Return the L1 norm of the weights that are trained, without biases, as in COLT."""
    weights = [p for p in net.parameters() if p.requires_grad and p.dim() > 1]
    return torch.stack([weight.abs().sum() for weight in weights]).sum()
