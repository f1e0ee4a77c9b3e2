"""The ONNX operators with weights, each as torch layers that compute exactly the same.

Exactly means in real numbers, with the numbers in the file: where folding two of them into one
would round, they stay two layers.

An operator is a function from a `Node` to what the node gives: a `Link` (something computed from
the image), an array (a constant), or a list of these. It raises `ValueError` with the reason where
the operator is used in a way that has no exact counterpart; nothing is ignored. `OPERATORS` in
`onnx_table` is the supported list.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import nn

from maar.core import limits
from maar.exchange.onnx_moves import moved
from maar.exchange.onnx_values import Link, Node
from maar.networks.layers import Normalize
from maar.networks.maps import MatMul, Reshape, Scale
from maar.networks.operations import Shape

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def conv(node: Node) -> Link:
    """A convolution over one to three axes."""
    x, weight = node.image(0), node.weight(1)
    rank = _space(x, weight)
    kernel = weight.shape[2:]
    ones = (1,) * rank
    if node.sizes("kernel_shape", rank, kernel) != kernel:
        raise ValueError("kernel_shape differs from the weight's")
    strides, dilations = node.sizes("strides", rank, ones), node.sizes("dilations", rank, ones)
    groups = int(node.take("group", 1))
    pads = pads_of(node, x.shape[1:], kernel, strides, dilations)
    before, after = pads[:rank], pads[rank:]
    steps = [abs(b - a) % d for b, a, d in zip(before, after, dilations, strict=True)]
    if rank == 2 and not any(steps):
        padding = tuple(map(max, before, after))
        weight = _even_out(weight, pads, dilations)
    elif before == after:
        padding = before
    else:
        x, padding = padded(node, x, before, after), (0,) * rank
    layer = _empty(
        node,
        CONVOLUTIONS[rank - 1],
        weight.shape[1] * groups,
        weight.shape[0],
        weight.shape[2:],
        strides,
        padding,
        dilations,
        groups,
        bias=node.has(2),
    )
    _fill(layer, weight=weight, **({"bias": node.weight(2)} if node.has(2) else {}))
    return node.then(layer, x)


def _space(x: Link, weight: np.ndarray) -> int:
    """How many axes of space there are."""
    rank = weight.ndim - 2
    if rank not in (1, 2, 3) or len(x.full) != rank + 2 or len(x.shape) != rank + 1:
        raise ValueError(
            f"a kernel of shape {list(weight.shape)} does not fit a value {list(x.full)}"
        )
    return rank


def padded(node: Node, x: Link, before: Shape, after: Shape) -> Link:
    """Zeros around the axes of space."""
    widths = [(0, 0), (0, 0), *zip(before, after, strict=True)]
    return moved(node, x, lambda places: np.pad(places, widths, constant_values=-1))


def conv_transpose(node: Node) -> Link:
    """A transposed convolution; uneven pads are cut off behind it."""
    x, weight = node.image(0), node.weight(1)
    rank = _space(x, weight)
    kernel, ones = weight.shape[2:], (1,) * rank
    if node.sizes("kernel_shape", rank, kernel) != kernel:
        raise ValueError("kernel_shape differs from the weight's")
    strides, dilations = node.sizes("strides", rank, ones), node.sizes("dilations", rank, ones)
    groups = int(node.take("group", 1))
    extra = tuple(node.take("output_padding", (0,) * rank))
    auto = node.take("auto_pad", "NOTSET")
    pads, wanted = node.take("pads", None), node.take("output_shape", None)
    if auto not in ("NOTSET", "VALID") or wanted is not None:
        raise ValueError("auto_pad and output_shape are not supported: write pads")
    pads = tuple(pads or (0,) * (2 * rank))
    if len(pads) != 2 * rank or min(pads) < 0 or len(extra) != rank or min(extra) < 0:
        raise ValueError(f"pads = {list(pads)} must be {2 * rank} numbers that are not negative")
    before, after = pads[:rank], pads[rank:]
    even = before == after
    layer = _empty(
        node,
        TRANSPOSED[rank - 1],
        weight.shape[0],
        weight.shape[1] * groups,
        kernel,
        strides,
        before if even else (0,) * rank,
        extra,
        groups,
        node.has(2),
        dilations,
    )
    _fill(layer, weight=weight, **({"bias": node.weight(2)} if node.has(2) else {}))
    x = node.then(layer, x)
    if even:
        return x
    cut = [slice(b, size - a) for b, a, size in zip(before, after, x.full[2:], strict=True)]
    return moved(node, x, lambda places: places[(slice(None), slice(None), *cut)])


def _empty(node: Node, kind: Any, *options: Any, **more: Any) -> nn.Module:
    # on the meta device, so that no random weights are drawn that would be overwritten
    return kind(*options, **more, device="meta", dtype=node.dtype).to_empty(device="cpu")


def pads_of(
    node: Node, size: Shape, kernel: Shape, strides: Shape, dilations: Shape
) -> tuple[int, ...]:
    """All begins, then all ends, from `pads` or `auto_pad`."""
    rank = len(kernel)
    auto = node.take("auto_pad", "NOTSET")
    pads = tuple(node.take("pads", (0,) * (2 * rank)))
    if len(pads) != 2 * rank or min(pads) < 0:
        count = "four" if rank == 2 else str(2 * rank)
        raise ValueError(f"pads = {list(pads)} must be {count} numbers that are not negative")
    if auto == "NOTSET":
        return pads
    if any(pads):
        raise ValueError(f"auto_pad = {auto} and pads = {list(pads)} exclude each other")
    if auto == "VALID":
        return pads
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        raise ValueError(f"auto_pad = {auto} is unknown")
    if max(dilations) > 1:  # onnxruntime refuses this too
        raise ValueError(f"auto_pad = {auto} with dilations is not supported")
    if any(k < s for k, s in zip(kernel, strides, strict=True)):
        # Runtimes disagree on where the windows then stand.
        raise ValueError(
            f"auto_pad = {auto} with a kernel {list(kernel)} smaller than the strides "
            f"{list(strides)} is not supported"
        )
    before, after = [], []
    for n, k, s, d in zip(size, kernel, strides, dilations, strict=True):
        total = max((math.ceil(n / s) - 1) * s + (k - 1) * d + 1 - n, 0)
        small, large = total // 2, total - total // 2
        before.append(small if auto == "SAME_UPPER" else large)
        after.append(large if auto == "SAME_UPPER" else small)
    return (*before, *after)


def _even_out(weight: np.ndarray, pads: tuple[int, ...], dilations: Shape) -> np.ndarray:
    """Zeros on one side of the kernel, so that uneven pads become even ones of the larger size."""
    widths = [(0, 0), (0, 0)]
    for begin, end, dilation in zip(pads[:2], pads[2:], dilations, strict=True):
        difference = end - begin
        if difference % dilation:
            raise ValueError(f"pads = {list(pads)} are uneven and the kernel is dilated")
        steps = difference // dilation
        widths.append((max(steps, 0), max(-steps, 0)))
    size = math.prod(n + sum(width) for n, width in zip(weight.shape, widths, strict=True))
    if size > limits.ELEMENTS:
        raise ValueError(
            f"pads = {list(pads)} make a kernel of {size} numbers (accepted: up to "
            f"{limits.ELEMENTS})"
        )
    return np.pad(weight, widths)


def gemm(node: Node) -> Link:
    """A matrix product; alpha and beta are multiplied in where that does not round."""
    x, weight = node.image(0), node.weight(1)
    if node.take("transA", 0):
        raise ValueError("transA = 1 is not supported")
    alpha, beta = np.float32(node.take("alpha", 1.0)), np.float32(node.take("beta", 1.0))
    if weight.ndim != 2 or len(x.full) != 2:
        raise ValueError("the weight must be a matrix, and the value too")
    if node.dtype != torch.float32 and not alpha == beta == 1:
        raise ValueError("alpha and beta are supported for float32 only")
    weight = weight if node.take("transB", 0) else weight.T
    bias = rest = None
    if node.has(2):
        row = np.broadcast_to(node.weight(2), (1, weight.shape[0]))[0]
        exact, bias, rest = _product(beta, row)
        with np.errstate(invalid="ignore"):
            fits = _same(exact, bias.astype(np.float64) + rest)
        if not fits:
            raise ValueError(f"beta = {beta} times its input leaves the range of float32")
    exact, scaled, _ = _product(alpha, weight)
    if _same(exact, scaled):
        x = node.then(_linear(node, scaled, bias), x)
    else:
        x = node.then(_linear(node, weight, None), x)
        x = node.then(_scaling(node, x, np.full(weight.shape[0], alpha), bias), x)
    return x if rest is None else shifted(node, x, rest)


def _product(factor: np.float32, array: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return factor * array: exact, rounded to float32, and what that misses, in float32.

    A product of two float32 numbers is exact in float64, and a sum of two float32 numbers unless
    it is tiny or huge.
    """
    with np.errstate(all="ignore"):
        exact = np.float64(factor) * array.astype(np.float64)
        high = exact.astype(np.float32)
        return exact, high, (exact - high).astype(np.float32)


def _same(exact: np.ndarray, other: np.ndarray) -> bool:
    # (weights that are not finite are refused by whoever certifies)
    return bool(((exact == other) | ~np.isfinite(exact)).all())


def matmul(node: Node) -> Link:
    """x @ W or W @ x. (A product of two computed values is none of a linear map.)"""
    if isinstance(node.inputs[0], Link) and isinstance(node.inputs[1], Link):
        raise ValueError("a matrix product of two computed values is not supported")
    is_left = not isinstance(node.inputs[0], Link)
    x, weight = node.image(int(is_left)), node.weight(int(not is_left))
    if not is_left and weight.ndim == 2:
        return node.then(_linear(node, weight.T, None), x, full=(*x.full[:-1], weight.shape[1]))
    if is_left and weight.ndim == 2 and len(x.full) == 1:
        return node.then(_linear(node, weight, None), x, full=(weight.shape[0],))
    if x.shape != x.full:  # (with every axis, as the file means it)
        x = Link(node.builder.add(Reshape(x.full), x.number), x.full, x.full)
    tensor = torch.from_numpy(np.array(weight))
    probe = np.empty(x.full, np.int8)
    other = np.empty(weight.shape, np.int8)
    full = np.matmul(other, probe).shape if is_left else np.matmul(probe, other).shape
    node.allot(math.prod(full))
    return node.then(MatMul(tensor, is_left), x, full=full)


def _linear(node: Node, weight: np.ndarray, bias: np.ndarray | None) -> nn.Module:
    out, features = weight.shape
    layer = _empty(node, nn.Linear, features, out, bias=bias is not None)
    _fill(layer, weight=weight, **({} if bias is None else {"bias": bias}))
    return layer


def batch_normalization(node: Node) -> Link:
    """By the running statistics."""
    x = node.image(0)
    if node.take("training_mode", 0) or not node.take("spatial", 1):
        raise ValueError("training_mode = 1 and spatial = 0 are not supported")
    node.take("momentum", 0.9)  # of training only
    # (the standard's default is a float32, as every attribute is)
    layer = _batch_norm(node, x, float(np.float32(node.take("epsilon", 1e-5))))
    _fill(
        layer,
        weight=node.weight(1),
        bias=node.weight(2),
        running_mean=node.weight(3),
        running_var=node.weight(4),
    )
    return node.then(layer, x)


def _batch_norm(node: Node, x: Link, eps: float) -> nn.Module:
    channels, *space = x.shape
    if len(space) > 3 or len(x.full) != len(x.shape) + 1:
        raise ValueError(f"a value of shape {list(x.full)} has no channels")
    return BATCH_NORMS[len(space)](channels, eps=eps, dtype=node.dtype)


def _scaling(node: Node, x: Link, factor: np.ndarray, bias: np.ndarray | None) -> nn.Module:
    """A BatchNorm that only scales and shifts: exact, where a Normalize would round 1 / factor."""
    layer = _batch_norm(node, x, 0.0)
    _fill(layer, weight=factor, **({} if bias is None else {"bias": bias}))
    return layer


def _fill(layer: nn.Module, **arrays: np.ndarray) -> None:
    tensors = dict(layer.named_parameters()) | dict(layer.named_buffers())
    with torch.no_grad():
        for name, array in arrays.items():
            if tuple(tensors[name].shape) != array.shape:
                raise ValueError(
                    f"{name} has shape {list(array.shape)}, must be {list(tensors[name].shape)}"
                )
            tensors[name].copy_(torch.from_numpy(np.array(array)))


# A constant for each channel, or for each element


def shifted(node: Node, x: Link, shift: np.ndarray) -> Link:
    """x + shift, with a Normalize where that is one number for each channel."""
    x, full = fitted(node, x, shift)
    numbers = per_channel(node, x, full)
    if numbers is not None:
        numbers = -numbers
        return node.then(_normalize(numbers, np.ones_like(numbers)), x) if numbers.any() else x
    return node.then(Scale(shift=torch.from_numpy(full)), x, full=x.full)


def scaled(node: Node, x: Link, factor: np.ndarray) -> Link:
    """x * factor."""
    x, full = fitted(node, x, factor)
    numbers = per_channel(node, x, full)
    if (factor == 1).all():
        return x
    if numbers is not None and len(x.shape) < 5:
        return node.then(_scaling(node, x, numbers, None), x)
    return node.then(Scale(torch.from_numpy(full)), x, full=x.full)


def divided(node: Node, x: Link, divisor: np.ndarray) -> Link:
    """x / divisor, with a Normalize where all is positive and one number for each channel."""
    if not divisor.all():
        raise ValueError("a division by zero")
    x, full = fitted(node, x, divisor)
    numbers = per_channel(node, x, full)
    if numbers is None or numbers.min() <= 0:
        return node.then(Scale(divisor=torch.from_numpy(full)), x, full=x.full)
    last = node.layer(x)
    if isinstance(last, Normalize) and bool((last.std == 1).all()) and node.sole(x):
        last.std.copy_(torch.from_numpy(numbers))
        return x
    # Kept even where it divides by one: so does maar write the Normalize of mean 0 and std 1.
    return node.then(_normalize(np.zeros_like(numbers), numbers), x)


def _normalize(mean: np.ndarray, std: np.ndarray) -> Normalize:
    return Normalize(mean.tolist(), std.tolist())


def fitted(node: Node, x: Link, constant: np.ndarray) -> tuple[Link, np.ndarray]:
    """x and a constant for each element of it, both broadcast against each other."""
    try:
        full = np.broadcast_shapes(x.full, constant.shape)
    except ValueError:
        raise ValueError(
            f"the constant of shape {list(constant.shape)} does not fit {list(x.full)}"
        ) from None
    node.allot(math.prod(full))
    if full != x.full:
        x = moved(node, x, lambda places: np.broadcast_to(places, full))
    return x, np.array(np.broadcast_to(constant, full).reshape(x.shape))


def per_channel(node: Node, x: Link, full: np.ndarray) -> np.ndarray | None:
    """One number for each channel, if that is what a constant is."""
    if node.dtype != torch.float32 or len(x.full) != len(x.shape) + 1:
        return None
    rows = full.reshape(x.shape[0], -1)
    same = (rows == rows[:, :1]).all()
    return rows[:, 0].copy() if same else None
