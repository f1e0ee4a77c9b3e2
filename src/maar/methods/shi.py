"""Shi et al. 2021: weights and regularisers that keep interval bounds from exploding.

A Linear or convolutional layer with weights from N(0, sqrt(2 pi) / fan_in) keeps the mean width of
interval bounds on its way through ReLUs. While eps grows, two terms hold the network there:

    tightness   mean over ReLUs of max(0, 1 - ratio / tau),   ratio = width of the input / width
    ReLU        mean over ReLUs of max(0, 1 - balance / tau)

`balance` compares active and inactive neurons by their means and by their variances; it is 1 where
both are alike. tau = 0.5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from maar.bounds.bound import Pair

TAU = 0.5


@torch.no_grad()
def initialise(net: nn.Sequential, generator: torch.Generator) -> None:
    """Draw the weights of every layer but the last."""
    layers = [m for m in net.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    for layer in layers[:-1]:
        spread = math.sqrt(2 * math.pi) / layer.weight[0].numel()
        drawn = torch.randn(layer.weight.shape, generator=generator, device=generator.device)
        layer.weight.copy_(drawn * spread)


def tightness(width: Tensor, pre: Sequence[Pair]) -> Tensor:
    """`width`: the mean half width of the input box; `pre`: bounds on each ReLU's input."""
    ratios = [width / ((ub - lb).mean() / 2).clamp_min(1e-12) for lb, ub in pre]
    return _shortfall(ratios)


def balance(pre: Sequence[Pair]) -> Tensor:
    """The ReLU term."""
    return _shortfall([_balance(lb, ub) for lb, ub in pre])


def _balance(lb: Tensor, ub: Tensor) -> Tensor:
    centre = (lb + ub) / 2
    active, inactive = (lb > 0).to(centre), (ub < 0).to(centre)
    offset = (centre - centre.mean()) ** 2
    means = (centre * active).mean(), -(centre * inactive).mean()
    variances = (offset * active).sum(), (offset * inactive).sum()
    return (_alike(*means) + _alike(*variances)) / 2


def _alike(one: Tensor, other: Tensor) -> Tensor:
    """The smaller over the larger of two numbers >= 0."""
    return torch.minimum(one, other) / torch.maximum(one, other).clamp_min(1e-12)


def _shortfall(ratios: Sequence[Tensor]) -> Tensor:
    return torch.stack([(TAU - ratio).clamp_min(0) / TAU for ratio in ratios]).mean()
