"""The weights of affine layers, in one of three forms.

Every affine layer of a supported network is a matrix (Linear), a convolution (Conv2d,
AvgPool2d) or a scale and shift per channel (Normalize, BatchNorm in evaluation).

A claim is about the numbers in the file. Numbers derived from them (1 / std, a BatchNorm's
scale) are therefore enclosed, never rounded silently: `enclosed_scale` gives them within a
known number of roundings, or refuses the layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from maar.core.errors import UsageError
from maar.networks.layers import Normalize

SCALING = (Normalize, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
"""Layers that are a scale and a shift per channel."""


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
    """Return the scale and shift per channel, differentiably; for training, not for proofs."""
    if isinstance(op, Normalize):
        return 1 / op.std, -op.mean / op.std
    mean, var = statistics_of(op)
    assert isinstance(op, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d)
    scale = torch.rsqrt(var + op.eps)
    if op.weight is not None:
        scale = scale * op.weight
    shift = -mean * scale
    if op.bias is not None:
        shift = shift + op.bias
    return scale, shift


def enclosed_scale(op: nn.Module, dtype: torch.dtype, path: str) -> tuple[Tensor, Tensor]:
    """Return the scale and shift per channel, for proofs; refuse a layer that has none.

    Computed in float64: var + eps is one rounding of two stored numbers, and no step leaves the
    normal range. The scale is within 4 roundings of the real one, relative to itself; the shift
    within 7, relative to |bias| + |mean scale|.
    """
    if isinstance(op, Normalize):
        mean, divisor, weight, bias = op.mean.double(), op.std.double(), None, None
    else:
        assert isinstance(op, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d)
        mean, var = (part.double() for part in statistics_of(op))
        weight, bias = op.weight, op.bias
        variance = var + op.eps
        _require(variance > 0, variance, op, path, "running_var + eps", "a number > 0")
        divisor = variance.sqrt()
    weight = torch.ones_like(mean) if weight is None else weight.double()
    scale = weight / divisor
    shift = -mean * scale
    if bias is not None:
        shift = shift + bias.double()
    size, range_ = scale.abs(), torch.finfo(dtype)
    normal = ((size >= range_.tiny) & (size <= range_.max)) | (weight == 0)
    accepted = f"0, or within the normal range of {str(dtype).removeprefix('torch.')}"
    _require(normal, scale, op, path, "the scale", accepted)
    _require(shift.abs() <= range_.max, shift, op, path, "the shift", "a finite number")
    return scale.to(dtype), shift.to(dtype)


def statistics_of(op: nn.Module) -> tuple[Tensor, Tensor]:
    """Return a BatchNorm's running mean and variance."""
    if not isinstance(op.running_mean, Tensor) or not isinstance(op.running_var, Tensor):
        raise UsageError("BatchNorm without running statistics is not a fixed affine map")
    return op.running_mean, op.running_var


def _require(
    right: Tensor, values: Tensor, op: nn.Module, path: str, name: str, accepted: str
) -> None:
    """Refuse a layer by its place, its first wrong channel and the value there."""
    if bool(right.all()):
        return
    channel = int((~right).nonzero()[0])
    raise UsageError(
        f"layer {path} ({type(op).__name__}): {name} of channel {channel} is "
        f"{values[channel].item():.6g} (accepted: {accepted})"
    )


def per_channel(values: Tensor, rank: int) -> Tensor:
    """Shape per-channel numbers to broadcast over [batch, channels, ...] of `rank` dimensions."""
    return values.view(-1, *([1] * (rank - 2)))


def _pair(value: int | tuple[int, ...]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])
