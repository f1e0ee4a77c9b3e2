"""Shi et al. 2021: weights and regularisers that keep interval bounds from exploding.

A Linear or convolutional layer with weights from N(0, sqrt(2 pi) / fan_in) keeps the mean width of
interval bounds on its way through ReLUs; behind the sum of a residual block it is half of that.
While eps grows, two terms hold the network there:

    tightness   mean over ReLUs of short(ratio),   ratio = width of the input / width
    ReLU        mean over ReLUs of short(means) + short(variances)

short(r) = max(0, 1 - r / tau), tau = 0.5. `means` and `variances` compare active with inactive
neurons: the smaller over the larger, 1 where they are alike. The width of the input is that of the
normalised image, which is what the initialisation keeps. As in the authors' code, the bounds that
they look at are never of less than MIN_EPS: a box without width has no ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from maar.domains.bound import Pair
from maar.networks import Residual

TAU = 0.5
MIN_EPS = 1e-6


@torch.no_grad()
def initialise(net: nn.Sequential, generator: torch.Generator) -> None:
    """Draw the weights of every layer but the last."""
    layers = [m for m in net.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    for layer in layers[:-1]:
        spread = math.sqrt(2 * math.pi) / layer.weight[0].numel()
        drawn = torch.randn(layer.weight.shape, generator=generator, device=generator.device)
        layer.weight.copy_(drawn * spread)
    for layer in _behind_sums(net):
        if layer is not layers[-1]:
            layer.weight.mul_(0.5)


def _behind_sums(net: nn.Sequential) -> list[nn.Conv2d | nn.Linear]:
    """Layers whose input is a sum of two branches: its bounds are twice as wide."""
    found: list[nn.Conv2d | nn.Linear] = []
    is_sum = False
    for module in net:
        if isinstance(module, Residual):
            if is_sum:
                found += [
                    branch for part in (module.body, module.shortcut) for branch in _first(part)
                ]
            is_sum = True
        elif isinstance(module, nn.Conv2d | nn.Linear):
            found += [module] * is_sum
            is_sum = False
    return found


def _first(branch: nn.Sequential) -> list[nn.Conv2d | nn.Linear]:
    return [layer for layer in branch if isinstance(layer, nn.Conv2d | nn.Linear)][:1]


def tightness(width: Tensor, pre: Sequence[Pair]) -> Tensor:
    """`width`: the mean half width of the input box; `pre`: bounds on each ReLU's input."""
    ratios = [width / ((ub - lb).mean() / 2).clamp_min(1e-12) for lb, ub in pre]
    return torch.stack([_short(ratio) for ratio in ratios]).mean()


def balance(pre: Sequence[Pair]) -> Tensor:
    """The ReLU term."""
    return torch.stack([_imbalance(lb, ub) for lb, ub in pre]).mean()


def _imbalance(lb: Tensor, ub: Tensor) -> Tensor:
    centre = (lb + ub) / 2
    active, inactive = (lb > 0).to(centre), (ub < 0).to(centre)
    offset = (centre - centre.mean()) ** 2
    means = (centre * active).mean(), -(centre * inactive).mean()
    variances = (offset * active).sum(), (offset * inactive).sum()
    return _short(_alike(*means)) + _short(_alike(*variances))


def _alike(one: Tensor, other: Tensor) -> Tensor:
    """The smaller over the larger of two numbers >= 0."""
    return torch.minimum(one, other) / torch.maximum(one, other).clamp_min(1e-12)


def _short(ratio: Tensor) -> Tensor:
    return (TAU - ratio).clamp_min(0) / TAU
