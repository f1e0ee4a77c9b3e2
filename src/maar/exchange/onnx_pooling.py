"""The ONNX operators that pool over windows or reduce axes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import nn

from maar.exchange.onnx_operators import padded, pads_of
from maar.exchange.onnx_values import Link, Node
from maar.networks.maps import Reduce, Scale, WindowMax
from maar.networks.windows import pooling_windows, positions


def average_pool(node: Node) -> Link:
    """The mean over windows, of what is inside or with the zeros of the padding."""
    x, kernel = node.image(0), node.take("kernel_shape", None)
    rank = len(x.shape) - 1
    if rank not in (1, 2, 3) or len(x.full) != rank + 2:
        raise ValueError(f"pooling of a value {list(x.full)} is not supported")
    node.attributes["kernel_shape"] = kernel
    kernel = node.sizes("kernel_shape", rank, None)
    ones = (1,) * rank
    strides = node.sizes("strides", rank, ones)
    if node.sizes("dilations", rank, ones) != ones:
        raise ValueError("dilations are not supported")
    pads = pads_of(node, x.shape[1:], kernel, strides, ones)
    before, after = pads[:rank], pads[rank:]
    counts_pads = node.take("count_include_pad", 0)
    sizes = zip(x.shape[1:], before, after, kernel, strides, strict=True)
    fit = all((n + b + a - k) % s == 0 for n, b, a, k, s in sizes)
    if node.take("ceil_mode", 0) and not fit:  # where the windows fit, it changes nothing
        raise ValueError("ceil_mode = 1 is not supported")
    average: Any = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)[rank - 1]
    if rank == 2 and before == after and (counts_pads or not any(pads)):
        return node.then(average(kernel, strides, before), x)
    inside = np.ones(x.shape[1:])
    if any(pads):
        x = padded(node, x, before, after)
        inside = np.pad(inside, list(zip(before, after, strict=True)))
    pool = average(kernel, strides)
    pooled = node.then(pool, x)
    if counts_pads or not any(pads):
        return pooled
    whole = math.prod(kernel)
    count = (pool(torch.from_numpy(inside)[None]) * whole).round().to(node.dtype)
    if not bool((count > 0).all()):
        raise ValueError("a window lies in the padding as a whole")
    return node.then(Scale(torch.full_like(count, whole), count), pooled, full=pooled.full)


def global_average_pool(node: Node) -> Link:
    """The mean over all axes of space."""
    x = node.image(0)
    if len(x.full) != len(x.shape) + 1:
        raise ValueError(f"pooling of a value {list(x.full)} is not supported")
    if len(x.shape) == 3 and len(x.full) == 4:
        return node.then(nn.AvgPool2d((x.shape[1], x.shape[2])), x)
    axes = range(1, len(x.shape))
    return node.then(Reduce(axes, keep=True), x, full=(*x.full[:2], *(1 for _ in x.full[2:])))


def max_pool(node: Node) -> Link:
    """The maximum over windows, one axis after the other."""
    x, kernel = node.image(0), node.take("kernel_shape", None)
    rank = len(x.shape) - 1
    if rank not in (1, 2, 3) or len(x.full) != rank + 2:
        raise ValueError(f"pooling of a value {list(x.full)} is not supported")
    node.attributes["kernel_shape"] = kernel
    kernel, ones = node.sizes("kernel_shape", rank, None), (1,) * rank
    strides, dilations = node.sizes("strides", rank, ones), node.sizes("dilations", rank, ones)
    pads = pads_of(node, x.shape[1:], kernel, strides, dilations)
    ceil = bool(node.take("ceil_mode", 0))
    if node.take("storage_order", 0):
        raise ValueError("storage_order = 1 is not supported")
    ends = zip(pads[:rank], pads[rank:], strict=True)
    each = zip(x.shape[1:], kernel, strides, ends, dilations, strict=True)
    places = [positions(n, k, s, p, d, ceil) for n, k, s, p, d in each]
    return _windowed(node, x, places, range(1, rank + 1))


def _windowed(node: Node, x: Link, places: list[torch.Tensor], axes: Any) -> Link:
    for index, _ in pooling_windows(x.shape, places, axes):
        node.allot(index.numel())
        x = node.then(WindowMax(index), x)
    return x


def global_max_pool(node: Node) -> Link:
    """The maximum over all axes of space."""
    x = node.image(0)
    if len(x.full) != len(x.shape) + 1:
        raise ValueError(f"pooling of a value {list(x.full)} is not supported")
    places = [torch.arange(size)[None] for size in x.shape[1:]]
    return _windowed(node, x, places, range(1, len(x.shape)))


def reduce_mean(node: Node) -> Link:
    """The mean over some axes."""
    return _reduced(node, mean=True)


def reduce_sum(node: Node) -> Link:
    """The sum over some axes."""
    return _reduced(node, mean=False)


def _reduced(node: Node, mean: bool) -> Link:
    x, axes, keep = _reduction(node)
    full = tuple(1 if axis in axes else size for axis, size in enumerate(x.full))
    short = tuple(size for axis, size in enumerate(x.full) if axis not in axes)
    if axes:
        offset = len(x.full) - len(x.shape)
        inner_axes = [axis - offset for axis in axes if axis >= offset]
        if inner_axes:
            x = node.then(Reduce(inner_axes, keep=True, mean=mean), x, full=full)
    return node.shaped(x, full if keep else short)


def reduce_max(node: Node) -> Link:
    """The maximum over some axes."""
    x, axes, keep = _reduction(node)
    offset = len(x.full) - len(x.shape)
    for axis in axes:
        if axis >= offset:
            places = torch.arange(x.shape[axis - offset])[None]
            x = _windowed(node, x, [places], [axis - offset])
    full = tuple(1 if axis in axes else size for axis, size in enumerate(x.full))
    short = tuple(size for axis, size in enumerate(full) if axis not in axes)
    return node.shaped(x, full if keep else short)


def _reduction(node: Node) -> tuple[Link, list[int], bool]:
    x, keep = node.image(0), bool(node.take("keepdims", 1))
    axes = [axis % len(x.full) for axis in node.axes()]
    nothing = bool(node.take("noop_with_empty_axes", 0))
    if not axes and not nothing:
        axes = list(range(len(x.full)))
    return x, axes, keep
