"""Affine operations that have no rule of their own in each domain, as one kind of linear map.

Three things are asked of such a map W x + b: W applied, |W| applied, and W transposed. The last is
torch's own gradient of the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from maar.core.errors import UsageError
from maar.networks.maps import MatMul, Move, Reduce, Reshape, Scale

Linear = Callable[[Any, Tensor, bool], Tensor]
"""A layer, a batch, and whether with absolute weights: W x or |W| x."""


class Mapped(nn.Module):
    """A layer of the network as a linear map. It adds no parameters: the layer is the user's."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.is_move = isinstance(layer, Reshape) or (
            isinstance(layer, Move) and layer.is_injective
        )
        """Each output is one input or zero, and no input comes twice: nothing is ever rounded."""
        self.is_exact = isinstance(layer, Reshape | Move)
        """Forwards nothing is rounded."""

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)

    def linear(self, x: Tensor, absolute: bool = False) -> Tensor:
        """W x, or |W| x."""
        return LINEAR[type(self.layer)](self.layer, x, absolute)

    def shift(self, rank: int) -> Tensor | None:
        """b, to broadcast against a batch of outputs with so many axes each."""
        layer = self.layer
        if isinstance(layer, Scale):
            return layer.shift
        bias = getattr(layer, "bias", None)
        if not isinstance(bias, Tensor) or isinstance(layer, nn.Linear):
            return bias
        return bias.view(-1, *[1] * (rank - 1))

    def terms(self, shape: torch.Size) -> int:
        """The longest sum of products that makes an output of an input of this shape."""
        return TERMS.get(type(self.layer), _all)(self.layer, shape)

    def transposed(self, rows: Tensor, shape: torch.Size) -> Tensor:
        """Rows over the output, [R, *out], as rows over the input, [R, *in]."""
        if isinstance(self.layer, Reshape):
            return rows.reshape(len(rows), *shape)
        with torch.enable_grad():
            zero = rows.new_zeros(len(rows), *shape).requires_grad_()
            wants = rows.requires_grad or any(p.requires_grad for p in self.layer.parameters())
            (below,) = torch.autograd.grad(self.linear(zero), zero, rows, create_graph=wants)
        return below


def _weight(layer: Any, absolute: bool) -> Tensor:
    return layer.weight.abs() if absolute else layer.weight


def _conv(layer: Any, x: Tensor, absolute: bool) -> Tensor:
    return layer._conv_forward(x, _weight(layer, absolute), None)


def _transposed_conv(convolve: Callable[..., Tensor]) -> Linear:
    def apply(layer: Any, x: Tensor, absolute: bool) -> Tensor:
        return convolve(
            x,
            _weight(layer, absolute),
            None,
            layer.stride,
            layer.padding,
            layer.output_padding,
            layer.groups,
            layer.dilation,
        )

    return apply


def _itself(layer: Any, x: Tensor, absolute: bool) -> Tensor:
    return layer(x)


def _linear(layer: nn.Linear, x: Tensor, absolute: bool) -> Tensor:
    return F.linear(x, _weight(layer, absolute))


def _matmul(layer: MatMul, x: Tensor, absolute: bool) -> Tensor:
    weight = _weight(layer, absolute)
    return torch.matmul(weight, x) if layer.left else torch.matmul(x, weight)


def _scale(layer: Scale, x: Tensor, absolute: bool) -> Tensor:
    weight = scale_weight(layer)
    if weight is None:
        return x
    return x * (weight.abs() if absolute else weight)


def scale_weight(layer: Scale) -> Tensor | None:
    """factor / divisor: within two roundings of itself; refused out of the normal range."""
    if layer.divisor is None:
        return layer.factor
    factor = torch.ones_like(layer.divisor) if layer.factor is None else layer.factor
    weight = factor.double() / layer.divisor.double()
    size, limits = weight.detach().abs(), torch.finfo(layer.divisor.dtype)
    if not bool((((size >= limits.tiny) & (size <= limits.max)) | (factor == 0)).all()):
        raise UsageError(f"a scale of {layer} leaves the normal range of {layer.divisor.dtype}")
    return weight.to(layer.divisor.dtype)


LINEAR: dict[type[nn.Module], Linear] = {
    nn.Conv1d: _conv,
    nn.Conv2d: _conv,
    nn.Conv3d: _conv,
    nn.ConvTranspose1d: _transposed_conv(F.conv_transpose1d),
    nn.ConvTranspose2d: _transposed_conv(F.conv_transpose2d),
    nn.ConvTranspose3d: _transposed_conv(F.conv_transpose3d),
    nn.Linear: _linear,
    nn.AvgPool1d: _itself,
    nn.AvgPool2d: _itself,
    nn.AvgPool3d: _itself,
    nn.AdaptiveAvgPool1d: _itself,
    nn.AdaptiveAvgPool2d: _itself,
    nn.AdaptiveAvgPool3d: _itself,
    Move: _itself,
    Reshape: _itself,
    Reduce: _itself,
    Scale: _scale,
    MatMul: _matmul,
}


def _all(layer: Any, shape: torch.Size) -> int:
    return shape.numel()


def _kernel(layer: Any, shape: torch.Size) -> int:
    return layer.weight[0].numel()


def _transposed_kernel(layer: Any, shape: torch.Size) -> int:
    # A weight is [in, out / groups, ...]; an output sees in / groups channels.
    return layer.in_channels // layer.groups * math.prod(layer.kernel_size)


TERMS: dict[type[nn.Module], Callable[[Any, torch.Size], int]] = {
    nn.Conv1d: _kernel,
    nn.Conv2d: _kernel,
    nn.Conv3d: _kernel,
    nn.ConvTranspose1d: _transposed_kernel,
    nn.ConvTranspose2d: _transposed_kernel,
    nn.ConvTranspose3d: _transposed_kernel,
    nn.Linear: lambda layer, shape: layer.in_features,
    Move: lambda layer, shape: 1,
    Reshape: lambda layer, shape: 1,
    Scale: lambda layer, shape: 1,
    MatMul: lambda layer, shape: shape[-2 if layer.left and len(shape) > 1 else -1],
}
"""Without an entry: every input may be in the sum."""
