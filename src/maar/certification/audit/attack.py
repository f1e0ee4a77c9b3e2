"""An attack that shares nothing with those of certification but torch.

Every other class is a target of its own; for each, sign steps with momentum down z_y - z_k, by
autograd on the plain network, with steps that shrink from the radius to nothing. The first start is
the image, the others are random corners of the ball.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from maar.certification.audit.points import Limits

STEPS = 20
MOMENTUM = 0.75


@dataclass(frozen=True)
class Worst:
    """For each image the point with the least margin that was found."""

    point: Tensor
    """[N, *shape], float32, inside the ball."""
    margin: Tensor
    """min over k != y of z_y - z_k there, in the precision of the network, [N]."""


def attack(
    net: nn.Module, x: Tensor, y: Tensor, near: Limits, *, restarts: int, seeds: Sequence[int]
) -> Worst:
    """Attack images [N, *shape]: restarts x all targets, side by side.

    Each image has a seed of its own: what is found of it does not depend on the others.
    """
    low, high = inside(x, near)
    eps = torch.as_tensor(near.each, dtype=torch.float32)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    worst = Worst(x.clone(), _margins(net(x).detach(), y))
    targets = _others(y, net(x[:1]).shape[1])
    each = targets.shape[1]
    rows = torch.arange(len(x)).repeat_interleave(each)
    target = targets.flatten()
    for restart in range(restarts):
        point = x[rows]
        if restart:
            up = torch.stack([torch.rand(x.shape[1:], generator=g) for g in generators]) < 0.5
            point = torch.where(up, high, low)[rows]
        worst = _descend(net, point, y[rows], target, low[rows], high[rows], worst, eps)
    return worst


def _descend(
    net: nn.Module,
    point: Tensor,
    y: Tensor,
    target: Tensor,
    low: Tensor,
    high: Tensor,
    worst: Worst,
    eps: Tensor,
) -> Worst:
    momentum = torch.zeros_like(point)
    for step in range(STEPS):
        point = point.detach().requires_grad_()
        z = net(point)
        margin = (_pick(z, y) - _pick(z, target)).sum()
        (slope,) = torch.autograd.grad(margin, point)
        worst = _lower(worst, point.detach(), _margins(z.detach(), y))
        size = slope.abs().flatten(1).sum(1).clamp_min(1e-30)
        momentum = MOMENTUM * momentum + slope / size.view(-1, *[1] * (slope.dim() - 1))
        length = 2 * eps * (1 - step / STEPS) ** 2
        point = (point.detach() - length * momentum.sign()).clamp(low, high)
    with torch.no_grad():
        return _lower(worst, point, _margins(net(point), y))


def inside(x: Tensor, near: Limits) -> tuple[Tensor, Tensor]:
    """The ball's corners, rounded to float32 towards x: every point between is in the ball."""
    low, high = near.corners(x)
    low32, high32 = low.float(), high.float()
    up, down = torch.tensor(torch.inf), torch.tensor(-torch.inf)
    low32 = torch.where(low32.double() < low, torch.nextafter(low32, up), low32)
    high32 = torch.where(high32.double() > high, torch.nextafter(high32, down), high32)
    return torch.minimum(low32, x), torch.maximum(high32, x)


def _lower(worst: Worst, point: Tensor, margin: Tensor) -> Worst:
    """Take over what is lower; the rows of an image stand together."""
    count = len(worst.point)
    least, place = margin.view(count, -1).min(1)
    found = point.view(count, -1, *point.shape[1:])[torch.arange(count), place]
    better = least < worst.margin
    keep = better.view(-1, *[1] * (point.dim() - 1))
    return Worst(torch.where(keep, found, worst.point), torch.where(better, least, worst.margin))


def _margins(z: Tensor, y: Tensor) -> Tensor:
    return _pick(z, y) - z.scatter(1, y[:, None], -torch.inf).max(1).values


def _others(y: Tensor, classes: int) -> Tensor:
    every = torch.arange(classes).expand(len(y), -1)
    return every[every != y[:, None]].view(len(y), classes - 1)


def _pick(z: Tensor, index: Tensor) -> Tensor:
    return z.gather(1, index[:, None]).squeeze(1)
