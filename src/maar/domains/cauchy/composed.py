"""The L1 norms of error terms that have passed two matrices since they were made.

For terms of radius r, a matrix V, a scale s of each neuron (a ReLU's slope, a BatchNorm) and a
matrix W, the norms are |W diag(s) V| r. Of two Linear layers that is a product per image; for two
convolutions see `two_convolutions`, where a sample of the sum may do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from maar.domains.affine import Conv
from maar.domains.cauchy.last_matrix import Matrix
from maar.domains.cauchy.projections import Map
from maar.domains.cauchy.two_convolutions import TwoConvolutions, axes, share

# What a number's part in the search for a median costs, in products of two numbers.
SELECT = 300
# How much more a neuron costs that is taken by itself.
SINGLE = 2.0
# How much more of the exact way's time than of the projections' the gradient takes, neuron for
# neuron, where all neurons have one.
DENSE = 2


@dataclass(frozen=True)
class Rival:
    """The alternative: so many random projections. `samples`: a spread like theirs will do."""

    projections: int
    samples: bool = False
    generator: torch.Generator | None = None


@dataclass(frozen=True)
class Path:
    """Error terms one matrix after they were made; `scale` is [1, 1 or N, *shape] since then.

    With a `second` matrix they are two matrices on, and `after` is the scale since that one.
    """

    radius: Tensor
    first: Matrix
    scale: Tensor
    second: Matrix | None = None
    after: Map = lambda x: x

    def scaled(self, apply: Map, absolute: Map) -> Path:
        """A map of each neuron by itself, on [k, N, *shape] and on norms."""
        if self.second is None:
            return replace(self, scale=apply(self.scale))
        return replace(self, after=lambda x: absolute(self.after(x)))

    def then(self, second: Matrix) -> Path | None:
        """Pass a second matrix; None where that is one kind of layer after the other."""
        if self.second is not None or isinstance(self.first, Conv) != isinstance(second, Conv):
            return None
        return replace(self, second=second)

    def norms(self, rival: Rival, where: Tensor | None) -> Tensor | None:
        """|second diag(scale) first| radius, [N, *shape], or None if projections cost less.

        `where` says at which neurons they matter; elsewhere they may be 0.
        """
        if self.second is None:
            return None
        scale = self.scale.squeeze(0).expand(len(self.radius), *self.scale.shape[2:])
        if isinstance(self.first, Conv):
            assert isinstance(self.second, Conv)
            two = TwoConvolutions(self.first, self.radius, scale, self.second)
            found = _convolutions(two, rival, where)
        else:
            assert isinstance(self.second, Tensor)
            found = _matrices(self.first, self.radius, scale, self.second, rival)
        return None if found is None else self.after(found)


def _matrices(V: Tensor, radius: Tensor, scale: Tensor, W: Tensor, rival: Rival) -> Tensor | None:
    projected = V.numel() + W.numel() + SELECT * len(W)
    if W.numel() * V.shape[1] > rival.projections * projected:
        return None
    joint = (W * scale.unsqueeze(1)) @ V
    return (joint.abs() @ radius.unsqueeze(-1)).squeeze(-1)


def _convolutions(two: TwoConvolutions, rival: Rival, where: Tensor | None) -> Tensor | None:
    first, second = two.first, two.second
    outputs, products = _products(second, two.scale.shape[2:], two.scale.shape[1])
    projected = _products(first, two.radius.shape[2:], first.weight.shape[1])[1]
    projected += products / second.groups + SELECT * outputs
    exact = products * first.weight[0, 0].numel() * two.radius.shape[1]
    part = 1.0 if where is None else min(1.0, SINGLE * share(where))
    # The gradient of a block costs more than that of single neurons, of which some need none.
    trained = torch.is_grad_enabled() and second.weight.requires_grad
    dense = DENSE if trained else 1
    sample = None
    if rival.samples and part > 0:
        drawn = two.sample(rival.projections, where, rival.generator)
        sampled = len(drawn) / two.columns
        if sampled * dense < part * (dense if part == 1 else 1):
            sample, part = drawn, sampled
    exact *= part * (dense if part == 1 or sample is not None else 1)
    return two.norms(where, sample) if exact <= rival.projections * projected else None


def _products(conv: Conv, size: torch.Size, channels: int) -> tuple[int, float]:
    """How many numbers a convolution makes, and of how many products."""
    height, width = (axis.outputs for axis in axes(conv, size))
    outputs = height * width * len(conv.weight)
    return outputs, outputs * channels * conv.weight[0, 0].numel()
