"""What the affine layers have in common: their weights in one of two forms.

Every affine layer of a supported network is a matrix (Linear), a convolution (Conv2d,
AvgPool2d) or a scale and shift per channel (Normalize, BatchNorm in evaluation).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from maar.errors import UsageError
from maar.networks.layers import Normalize


@dataclass(frozen=True)
class Conv:
    """A convolution's numbers, whichever layer they come from."""

    weight: Tensor
    bias: Tensor | None
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Convolve with another weight of the same geometry (such as the absolute one)."""
        return F.conv2d(x, weight, bias, self.stride, self.padding, self.dilation, self.groups)


def conv_of(op: nn.Module, channels: int) -> Conv:
    """Read a Conv2d, or write an AvgPool2d on `channels` channels as the convolution it is."""
    if isinstance(op, nn.Conv2d):
        if op.padding_mode != "zeros" or isinstance(op.padding, str):
            raise UsageError(
                f"Conv2d has padding={op.padding!r}, padding_mode={op.padding_mode!r}; "
                "supported: whole numbers with padding_mode='zeros'"
            )
        return Conv(
            op.weight, op.bias, _pair(op.stride), _pair(op.padding), dilation_of(op), op.groups
        )
    assert isinstance(op, nn.AvgPool2d)
    padding = _pair(op.padding)
    if op.ceil_mode or (padding != (0, 0) and not op.count_include_pad):
        raise UsageError(
            f"AvgPool2d has ceil_mode={op.ceil_mode}, count_include_pad={op.count_include_pad}; "
            "supported: ceil_mode=False, and count_include_pad=True where there is padding"
        )
    height, width = _pair(op.kernel_size)
    divisor = op.divisor_override or height * width
    # float64: 1/9 must not be rounded to float32 on its way to a float64 network
    weight = torch.full((channels, 1, height, width), 1.0 / divisor, dtype=torch.float64)
    return Conv(weight, None, _pair(op.stride), padding, (1, 1), channels)


def dilation_of(conv: nn.Conv2d) -> tuple[int, int]:
    """1 along an axis with one tap, where it means nothing.

    oneDNN's kernels for channels last crash at other numbers there, if the stride is above 1.
    """
    (height, width), (down, across) = _pair(conv.kernel_size), _pair(conv.dilation)
    return down if height > 1 else 1, across if width > 1 else 1


def scale_of(op: nn.Module) -> tuple[Tensor, Tensor]:
    """The scale and shift per channel of a Normalize or of a BatchNorm's running statistics."""
    if isinstance(op, Normalize):
        return 1 / op.std, -op.mean / op.std
    assert isinstance(op, nn.BatchNorm1d | nn.BatchNorm2d)
    if op.running_mean is None or op.running_var is None:
        raise UsageError("BatchNorm without running statistics is not a fixed affine map")
    scale = torch.rsqrt(op.running_var + op.eps)
    if op.weight is not None:
        scale = scale * op.weight
    shift = -op.running_mean * scale
    if op.bias is not None:
        shift = shift + op.bias
    return scale, shift


def per_channel(values: Tensor, rank: int) -> Tensor:
    """Shape per-channel numbers to broadcast over [batch, channels, ...] of `rank` dimensions."""
    return values.view(-1, *([1] * (rank - 2)))


def _pair(value: int | tuple[int, ...]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])
