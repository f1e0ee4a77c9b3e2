"""Losses that an attack climbs: one number per image from the logits z, larger is worse.

An image counts as *broken* when some other class is strictly ahead, z_k > z_y. A
tie is no counterexample (torch's argmax would pick the first of the equals, an
accident of the order of classes), and it is not verified either: verified means
z_y - z_k > 0 for every k. A NaN breaks nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from maar.core.errors import UsageError

LossName = Literal["cross_entropy", "margin", "dlr"]


def margin(z: Tensor, y: Tensor, target: Tensor | None = None) -> Tensor:
    """max over k != y of z_k - z_y, or z_t - z_y for a target class: > 0 means broken."""
    if target is None:
        other = z.scatter(1, y[:, None], float("-inf")).max(1).values
    else:
        other = _pick(z, target)
    return other - _pick(z, y)


def cross_entropy(z: Tensor, y: Tensor, target: Tensor | None = None) -> Tensor:
    """-log p_y, or log p_t for a target class."""
    if target is None:
        return F.cross_entropy(z, y, reduction="none")
    return -F.cross_entropy(z, target, reduction="none")


def dlr(z: Tensor, y: Tensor, target: Tensor | None = None) -> Tensor:
    """Difference of logits ratio (Croce & Hein 2020): the margin made free of shift and scale."""
    needed = 3 if target is None else 4
    if z.shape[1] < needed:
        raise UsageError(
            f"loss = 'dlr' needs at least {needed} classes, the network has {z.shape[1]}"
            " (accepted here: cross_entropy, margin)"
        )
    top = z.topk(needed, dim=1).values
    spread = top[:, 0] - (top[:, 2] if target is None else (top[:, 2] + top[:, 3]) / 2)
    return margin(z, y, target) / (spread + 1e-12)


def _pick(z: Tensor, index: Tensor) -> Tensor:
    return z.gather(1, index[:, None]).squeeze(1)


LOSSES: dict[str, Callable[[Tensor, Tensor, Tensor | None], Tensor]] = {
    "cross_entropy": cross_entropy,
    "margin": margin,
    "dlr": dlr,
}
