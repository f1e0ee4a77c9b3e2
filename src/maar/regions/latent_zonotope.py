"""COLT's latent region: the zonotope a + A e that a ball becomes behind a ReLU.

A is never built. Walking e through the prefix once, with the relaxation

    v <- lam * v + mu * (1 + e_j)          at the j-th ReLU

in place of the ReLU, gives a + A e for any e: lam = 1, mu = 0 where the ReLU is
stably active, lam = mu = 0 where it is stably inactive, and where l < 0 < u

    lam = u / (u - l),   mu = -u l / (2 (u - l))                    (DeepZ)

For l <= v <= u the true output relu(v) lies in [lam v, lam v + 2 mu], so an e_j
in [-1,1] reaches it: every true activation is a point of the region.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from maar.core.errors import UsageError
from maar.networks.layers import Normalize, Residual
from maar.regions.box import Box
from maar.regions.region import Errors, Region

# Modules that map each image affinely, hence the error terms exactly.
AFFINE = (
    nn.Conv2d,
    nn.Linear,
    nn.Flatten,
    nn.AvgPool2d,
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.Identity,
    nn.Dropout,
    nn.Dropout2d,
    Normalize,
)
# Of these, the ones that are not affine, or not the same twice, while training.
EVAL_ONLY = (nn.BatchNorm1d, nn.BatchNorm2d, nn.Dropout, nn.Dropout2d)


class LatentZonotope(Region):
    """a + A e behind `prefix`, the layers `net[:at]`, for the images of a ball.

    `pre` holds the bounds (lb, ub) before each ReLU of the prefix, from whatever
    bound the caller trusts, in the order in which they run; inside a Residual
    block the body's ReLUs come first, then the shortcut's.

    Error group 0 is the ball's, group j belongs to the j-th ReLU (of no effect on
    its stable neurons).
    """

    def __init__(
        self,
        prefix: nn.Sequential,
        ball: Box,
        pre: Sequence[tuple[Tensor, Tensor]],
        at: int | None = None,
    ) -> None:
        relus = _check(prefix)
        if len(pre) != relus:
            raise UsageError(
                f"the prefix has {relus} ReLU layers, but pre gives bounds of {len(pre)}"
            )
        self.at = len(prefix) if at is None else at
        self.prefix = prefix
        self.ball = ball
        self.bands = [_band(lb, ub) for lb, ub in pre]
        self._set_shapes()
        self.dtype = ball.dtype
        self.device = ball.device

    def point(self, e: Errors) -> Tensor:
        bands = zip(self.bands, e[1:], strict=True)
        return _walk(self.prefix, self.ball.point(e[:1]), bands)

    def select(self, index: Tensor) -> LatentZonotope:
        part = copy.copy(self)
        part.ball = self.ball.select(index)
        part.bands = [(lam[index], mu[index]) for lam, mu in self.bands]
        part._set_shapes()
        return part

    def _set_shapes(self) -> None:
        self.shapes = (*self.ball.shapes, *(mu.shape for _, mu in self.bands))


Band = tuple[Tensor, Tensor]
"""lam and mu of one ReLU layer."""


def _band(lb: Tensor, ub: Tensor) -> Band:
    # Clipping at 0 gives the stable cases without asking: u / (u - 0) is 1 and 0 / (0 - l) is 0,
    # both exactly. The floor only keeps 0 / 0 out.
    below, above = lb.clamp_max(0), ub.clamp_min(0)
    lam = above / (above - below).clamp_min_(torch.finfo(lb.dtype).tiny)
    return lam, (lam * below).mul_(-0.5)


def _walk(layer: nn.Module, v: Tensor, bands: Iterator[tuple[Band, Tensor]]) -> Tensor:
    """One forward pass with the relaxation in place of each ReLU."""
    if isinstance(layer, nn.Sequential):
        for child in layer:
            v = _walk(child, v, bands)
        return v
    if isinstance(layer, Residual):
        body = _walk(layer.body, v, bands)
        return body + _walk(layer.shortcut, v, bands)
    if isinstance(layer, nn.ReLU):
        (lam, mu), e = next(bands)
        check_bounds_fit(lam, v)
        return torch.addcmul(torch.addcmul(mu, mu, e), lam, v)
    return layer(v)


def check_bounds_fit(lam: Tensor, v: Tensor) -> None:
    """Refuse bounds that are not those of the ReLU whose input is v."""
    if v.shape != lam.shape:
        raise UsageError(
            f"pre-activation bounds of shape {tuple(lam.shape)}"
            f" given for a ReLU layer of shape {tuple(v.shape)}"
        )


def _check(layer: nn.Module, name: str = "") -> int:
    """Count the ReLU layers; refuse a layer for which the walk would not be affine in e."""
    if isinstance(layer, nn.Sequential):
        return sum(_check(child, f"{name}.{i}".strip(".")) for i, child in enumerate(layer))
    if isinstance(layer, Residual):
        return _check(layer.body, f"{name}.body") + _check(layer.shortcut, f"{name}.shortcut")
    if isinstance(layer, nn.ReLU):
        return 1
    if not isinstance(layer, AFFINE):
        supported = ", ".join(kind.__name__ for kind in (*AFFINE, nn.ReLU, Residual))
        raise UsageError(
            f"layer {name} is a {type(layer).__name__}, which a latent zonotope cannot pass"
            f" (supported: {supported})"
        )
    if isinstance(layer, EVAL_ONLY) and layer.training:
        raise UsageError(
            f"layer {name} is a {type(layer).__name__} in training mode; a latent zonotope needs"
            " the prefix in eval mode"
        )
    return 0
