"""Where the windows of a pooling lie, one axis after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

Shape = tuple[int, ...]


def positions(
    size: int,
    kernel: int,
    stride: int,
    pads: tuple[int, int] = (0, 0),
    dilation: int = 1,
    ceil: bool = False,
) -> Tensor:
    """Places [windows, kernel] along an axis; one in the padding is replaced by a near one inside.

    A maximum does not change if an element of its window comes twice.
    """
    span = dilation * (kernel - 1) + 1
    free = size + sum(pads) - span
    if free < 0:
        raise ValueError("the window is larger than the padded value")
    count = (-(-free // stride) if ceil else free // stride) + 1
    if ceil and (count - 1) * stride >= size + pads[0]:
        count -= 1  # the last window must begin inside
    start = torch.arange(count)[:, None] * stride - pads[0]
    place = start + torch.arange(kernel)[None, :] * dilation
    inside = (place >= 0) & (place < size)
    if not bool(inside.any(1).all()):
        raise ValueError("a window lies in the padding as a whole")
    first = place.masked_fill(~inside, size).amin(1, keepdim=True)
    return torch.where(inside, place, first)


def axis_windows(shape: Shape, axis: int, places: Tensor) -> Tensor:
    """For a `WindowMax` along one axis of a value: flat places [kernel, *out]."""
    whole = torch.arange(math.prod(shape)).view(shape)
    return torch.stack([whole.index_select(axis, places[:, k]) for k in range(places.shape[1])])


def pooling_windows(
    shape: Shape, places: Sequence[Tensor], axes: Sequence[int]
) -> list[tuple[Tensor, Shape]]:
    """A pooling axis by axis: the windows, and the shape behind each of them."""
    steps: list[tuple[Tensor, Shape]] = []
    for axis, place in zip(axes, places, strict=True):
        if place.shape[1] == 1 and place.flatten().equal(torch.arange(shape[axis])):
            continue
        index = axis_windows(shape, axis, place)
        shape = tuple(index.shape[1:])
        steps.append((index, shape))
    return steps


def max_pool_windows(layer: Any, shape: Shape) -> list[tuple[Tensor, Shape]]:
    """The windows of an nn.MaxPool1d, 2d or 3d on a value [channels, ...]."""
    rank = len(shape) - 1
    assert isinstance(layer, nn.MaxPool1d | nn.MaxPool2d | nn.MaxPool3d)
    stride = layer.kernel_size if layer.stride is None else layer.stride
    options = (layer.kernel_size, stride, layer.padding, layer.dilation)
    each = zip(shape[1:], *(_each(option, rank) for option in options), strict=True)
    places = [positions(n, k, s, (p, p), d, layer.ceil_mode) for n, k, s, p, d in each]
    return pooling_windows(shape, places, range(1, rank + 1))


def _each(option: Any, rank: int) -> tuple[int, ...]:
    return tuple(option) if isinstance(option, tuple | list) else (option,) * rank
