"""How far the outputs at two points are apart, and how much an image counts by how wrong it is."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def consistency(nat: Tensor, worst: Tensor) -> Tensor:
    """KL(p(x) || p(x')) of each image, from logits."""
    p, q = F.log_softmax(nat, 1), F.log_softmax(worst, 1)
    return (p.exp() * (p - q)).sum(1)


def image_weight(kind: str, nat: Tensor, y: Tensor) -> Tensor:
    """w(x) of each image."""
    if kind == "soft":
        return 1 - nat.softmax(1).gather(1, y[:, None]).squeeze(1)
    wrong = (nat.argmax(1) != y).to(nat)
    return wrong if kind == "hard" else torch.ones_like(wrong)
