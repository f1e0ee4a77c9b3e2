"""A counterexample counts only if a plain forward pass confirms it, inside the ball."""

from __future__ import annotations

import torch
from torch import Tensor

from maar.attacks import margin
from maar.certification.query import Query
from maar.core.errors import RunError


class NoCounterexample(RunError):
    """A verifier's counterexample does not hold when it is replayed."""


@torch.no_grad()
def replay(query: Query, point: Tensor) -> None:
    """Raise unless another class is strictly ahead, in float32 and in float64, inside the ball."""
    if point.dtype != torch.float32 or point.shape != query.x.shape:
        raise NoCounterexample(f"the point is {point.dtype} of shape {tuple(point.shape)}")
    if query.moves is not None:
        if why := query.moves.fault(query.x[0].numpy(), point[0].numpy()):
            raise NoCounterexample(why)
    elif not bool(((point >= 0) & (point <= 1)).all()):
        raise NoCounterexample("the point has pixels outside [0, 1]")
    # Both are float32 in [0, 1], so their difference is exact in float64.
    distance = float((point.double() - query.x.double()).abs().max())
    if query.moves is None and distance > query.eps:
        raise NoCounterexample(f"the point is {distance:.9g} away, eps is {query.eps:.9g}")
    if not bool(margin(query.network.net(point), query.label()) > 0):
        raise NoCounterexample("the point is classified correctly in float32")
    if not bool(margin(query.network.exact(point.double()), query.label()) > 0):
        raise NoCounterexample("the point is classified correctly in float64")


@torch.no_grad()
def rival(query: Query, point: Tensor) -> tuple[int, float]:
    """The class k != y with the highest score at a point, and z_y - z_k there, in float64."""
    z = query.network.exact(point.double())[0]
    others = z.clone()
    others[query.y] = -torch.inf
    k = int(others.argmax())
    return k, float(z[query.y] - z[k])
