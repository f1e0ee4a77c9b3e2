"""A counterexample counts only if a plain forward pass confirms it, inside the ball."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from maar.attacks import margin
from maar.certify.query import Query


@dataclass(frozen=True)
class Replay:
    """What a plain forward pass says of a point; `problem` is empty if it breaks the image."""

    target: int
    """The class that is ahead of y, or comes closest to it."""
    margin: float
    """z_y - z_target, in float64."""
    problem: str


@torch.no_grad()
def replay(query: Query, point: Tensor) -> Replay:
    """Check that another class is strictly ahead, in float32 and in float64, inside the ball."""
    x, at = query.x.double(), point.double()
    z = query.network.exact(at)
    others = z.clone()
    others[0, query.y] = -torch.inf
    target = int(others.argmax())
    found = float(z[0, query.y] - z[0, target])
    problem = ""
    if point.dtype != torch.float32 or point.shape != query.x.shape:
        problem = f"is {point.dtype} of shape {tuple(point.shape)}"
    elif not bool(((at >= 0) & (at <= 1)).all()):
        problem = "has pixels outside [0, 1]"
    # Both are float32 in [0, 1], so their difference is exact in float64.
    elif float((at - x).abs().max()) > query.eps:
        problem = f"is {float((at - x).abs().max()):.9g} away from the image"
    elif not found < 0:
        problem = f"is classified correctly in float64, by {found:.3g}"
    elif not bool(margin(query.network.net(point), query.label()) > 0):
        problem = "is classified correctly in float32"
    return Replay(target, found, problem)
