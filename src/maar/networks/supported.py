"""The layers that maar handles: for each, which options are refused and what shape it gives.

The table at the end is the list: a type that is not in it is refused by `check`. Shapes come from
these rules rather than from a trial run, which for torch's meta device costs seconds of imports.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from maar.networks.layers import Normalize, Residual

Shape = tuple[int, ...]  # of one image, without the batch axis


def _same(layer: nn.Module, shape: Shape) -> Shape:
    return shape


def _normalize(layer: Normalize, shape: Shape) -> Shape:
    # Broadcasting would silently turn one channel into three.
    _require_channels(layer.mean.numel(), shape)
    return shape


def _conv(layer: nn.Conv2d, shape: Shape) -> Shape:
    _require_image(shape)
    _require_channels(layer.in_channels, shape)
    assert not isinstance(layer.padding, str)  # refused below
    sizes = zip(
        shape[1:], layer.kernel_size, layer.stride, layer.padding, layer.dilation, strict=True
    )
    return (layer.out_channels, *(_windows(*size) for size in sizes))


def _pool(layer: nn.AvgPool2d, shape: Shape) -> Shape:
    _require_image(shape)
    options = (layer.kernel_size, layer.stride, layer.padding)
    sizes = zip(shape[1:], *map(_pair, options), (1, 1), strict=True)
    return (shape[0], *(_windows(*size) for size in sizes))


def _linear(layer: nn.Linear, shape: Shape) -> Shape:
    _require_flat(shape)
    if shape[0] != layer.in_features:
        raise ValueError(f"it takes {layer.in_features} features")
    return (layer.out_features,)


def _batch_norm_1d(layer: nn.BatchNorm1d, shape: Shape) -> Shape:
    _require_flat(shape)
    _require_channels(layer.num_features, shape)
    return shape


def _batch_norm_2d(layer: nn.BatchNorm2d, shape: Shape) -> Shape:
    _require_image(shape)
    _require_channels(layer.num_features, shape)
    return shape


def _flatten(layer: nn.Flatten, shape: Shape) -> Shape:
    return (math.prod(shape),)


def _windows(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    free = size + 2 * padding - dilation * (kernel - 1) - 1
    if free < 0:
        raise ValueError("the window is larger than the padded image")
    return free // stride + 1


def _require_image(shape: Shape) -> None:
    if len(shape) != 3:
        raise ValueError("it takes channels x height x width")


def _require_flat(shape: Shape) -> None:
    # torch would apply a Linear to the last axis of an image; the bounds would not.
    if len(shape) != 1:
        raise ValueError("it takes flat features (nn.Flatten() before it)")


def _require_channels(channels: int, shape: Shape) -> None:
    if shape[0] != channels:
        raise ValueError(f"it takes {channels} channels")


def _pair(size: Any) -> tuple[int, int]:
    return tuple(size) if isinstance(size, (tuple, list)) else (size, size)


def _refuse_nothing(layer: nn.Module) -> str:
    return ""


def _refuse_conv(layer: nn.Conv2d) -> str:
    if isinstance(layer.padding, str):
        return "write the padding as numbers"
    return "" if layer.padding_mode == "zeros" else "only padding_mode='zeros' is supported"


def _refuse_relu(layer: nn.ReLU) -> str:
    return "write nn.ReLU(): inplace overwrites values still needed" if layer.inplace else ""


def _refuse_flatten(layer: nn.Flatten) -> str:
    whole = (layer.start_dim, layer.end_dim) == (1, -1)
    return "" if whole else "only nn.Flatten() of all but the batch axis is supported"


def _refuse_batch_norm(layer: nn.BatchNorm1d | nn.BatchNorm2d) -> str:
    if layer.running_mean is None:
        return "without running statistics an image's output depends on its batch"
    return ""


def _refuse_pool(layer: nn.AvgPool2d) -> str:
    if layer.ceil_mode or layer.divisor_override is not None:
        return "ceil_mode and divisor_override are not supported"
    if any(_pair(layer.padding)) and not layer.count_include_pad:
        return "padding needs count_include_pad=True: one divisor for every window"
    return ""


@dataclass(frozen=True)
class Rule:
    """What maar knows of a layer type."""

    shape: Callable[[Any, Shape], Shape]
    """The output's shape for an input's; a ValueError says why there is none."""
    refuse: Callable[[Any], str] = _refuse_nothing
    """Why this layer's options are not supported, or ""."""
    options: tuple[str, ...] = ()
    """The attributes that, beside its tensors, decide what the layer computes."""


SUPPORTED: dict[type[nn.Module], Rule] = {
    Normalize: Rule(_normalize),
    nn.Conv2d: Rule(_conv, _refuse_conv, ("stride", "padding", "dilation", "groups")),
    nn.Linear: Rule(_linear),
    nn.ReLU: Rule(_same, _refuse_relu),
    nn.Flatten: Rule(_flatten, _refuse_flatten),
    nn.BatchNorm1d: Rule(_batch_norm_1d, _refuse_batch_norm, ("eps",)),
    nn.BatchNorm2d: Rule(_batch_norm_2d, _refuse_batch_norm, ("eps",)),
    nn.AvgPool2d: Rule(_pool, _refuse_pool, ("kernel_size", "stride", "padding")),
    Residual: Rule(_same),  # its parts have their own rules
}


def shape_after(layer: nn.Module, shape: Shape) -> Shape:
    """The shape that a supported layer gives; a ValueError if it does not fit."""
    after = SUPPORTED[type(layer)].shape(layer, shape)
    if 0 in after:
        raise ValueError("it gives nothing")
    return after
