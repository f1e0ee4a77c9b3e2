"""The ONNX operators that only move numbers: each as a `Move` of one image's places, or none."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import torch

from maar.exchange.onnx_values import Link, Node, Value, inner
from maar.networks.maps import Move


def moved(node: Node, x: Link, how: Callable[[np.ndarray], np.ndarray]) -> Link:
    """What `how` does to an array of the value's places; -1 stands for zero."""
    places = how(np.arange(math.prod(x.full)).reshape(x.full))
    node.allot(places.size)
    full = places.shape
    if not places.size:
        raise ValueError("it gives an empty value")
    if places.size == math.prod(x.full) and (places.reshape(-1) == np.arange(places.size)).all():
        return node.shaped(x, full)
    index = torch.from_numpy(np.ascontiguousarray(places)).view(inner(full))
    return node.then(Move(index), x, full=full)


def transpose(node: Node) -> Value:
    value = node.inputs[0]
    rank = value.ndim if isinstance(value, np.ndarray) else len(node.image(0).full)
    order = node.take("perm", tuple(reversed(range(rank))))
    return _of(node, lambda places: np.transpose(places, order))


def _of(node: Node, how: Callable[[np.ndarray], np.ndarray]) -> Value:
    """The same of a constant or of a value."""
    value = node.inputs[0]
    if isinstance(value, np.ndarray):
        made = np.asarray(how(value))
        node.allot(made.size)
        return made
    return moved(node, node.image(0), how)


def slice_(node: Node) -> Value:
    if node.opset < 10:
        starts, ends = node.take("starts", None), node.take("ends", None)
        axes, steps = node.take("axes", range(len(starts))), [1] * len(starts)
    else:
        starts, ends = node.numbers(1), node.numbers(2)
        axes = node.numbers(3) if node.has(3) else range(len(starts))
        steps = node.numbers(4) if node.has(4) else [1] * len(starts)

    def cut(places: np.ndarray) -> np.ndarray:
        where = [slice(None)] * places.ndim
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            # (a negative step goes down to before 0, which ONNX writes as a very negative end)
            stop = None if step < 0 and end < -places.shape[axis] else end
            where[axis] = slice(start, stop, step)
        return places[tuple(where)]

    return _of(node, cut)


def split(node: Node) -> list[Value]:
    x, axis = node.image(0), node.take("axis", 0)
    count = node.take("num_outputs", None) or node.outputs
    size = x.full[axis]
    sizes = node.numbers(1) if node.has(1) else node.take("split", None)
    if sizes is None:
        each = -(-size // count)
        sizes = [min(each, size - start) for start in range(0, size, each)]
    if sum(sizes) != size or min(sizes) < 1 or len(sizes) != node.outputs:
        raise ValueError(f"sizes {list(sizes)} do not split an axis of {size}")
    ends = np.cumsum([0, *sizes]).tolist()
    return [
        moved(node, x, lambda places, a=a, b=b: np.take(places, range(a, b), axis))
        for a, b in itertools.pairwise(ends)
    ]


def gather(node: Node) -> Value:
    indices, axis = node.constant(1), node.take("axis", 0)
    if indices.dtype.kind not in "iu":
        raise ValueError("the indices must be whole numbers")
    value = node.inputs[0]
    shape = value.shape if isinstance(value, np.ndarray) else node.image(0).full
    size = math.prod(shape)
    node.allot(size // max(shape[axis], 1) * indices.size)
    return _of(node, lambda places: np.asarray(np.take(places, indices, axis=axis)))


def squeeze(node: Node) -> Value:
    axes = node.axes(None) if node.has(1) or "axes" in node.attributes else None

    def without(places: np.ndarray) -> np.ndarray:
        return np.squeeze(places) if axes is None else np.squeeze(places, tuple(axes))

    return _of(node, without)


def unsqueeze(node: Node) -> Value:
    axes = tuple(node.axes())
    return _of(node, lambda places: np.expand_dims(places, axes))


def flatten(node: Node) -> Value:
    axis = node.take("axis", 1)

    def flat(places: np.ndarray) -> np.ndarray:
        at = axis + places.ndim if axis < 0 else axis
        return places.reshape(math.prod(places.shape[:at]), -1)

    return _of(node, flat)


def reshape(node: Node) -> Value:
    target = node.numbers(1)
    if node.take("allowzero", 0) and 0 in target:
        raise ValueError("allowzero = 1 is not supported")
    if node.batch and target and target[0] == node.batch:
        target[0] = 1  # written for all the images that the file takes at once

    def reshaped(places: np.ndarray) -> np.ndarray:
        sizes = [places.shape[axis] if n == 0 else n for axis, n in enumerate(target)]
        try:
            return places.reshape(sizes)
        except ValueError:
            raise ValueError(
                f"the target {target} does not fit a value of shape {list(places.shape)}"
            ) from None

    return _of(node, reshaped)


def pad(node: Node) -> Link:
    x, mode = node.image(0), node.take("mode", "constant")
    pads = node.numbers(1) if node.has(1) else list(node.take("pads", ()))
    value = float(node.constant(2)) if node.has(2) else node.take("value", 0.0)
    rank = len(x.full)
    axes = [axis % rank for axis in node.numbers(3)] if node.has(3) else list(range(rank))
    if len(pads) != 2 * len(axes):
        raise ValueError(f"pads = {pads} must be two numbers for each axis")
    widths = [(0, 0)] * rank
    for axis, begin, end in zip(axes, pads, pads[len(axes) :], strict=False):
        widths[axis] = (begin, end)
    if any(abs(width) > 1 << 16 for pair in widths for width in pair):
        raise ValueError(f"pads = {pads} are too wide")

    def around(places: np.ndarray) -> np.ndarray:
        grown = [(max(b, 0), max(e, 0)) for b, e in widths]
        if mode == "constant":
            places = np.pad(places, grown, constant_values=-1)
        elif mode in ("edge", "reflect", "wrap"):
            places = np.pad(places, grown, mode)
        else:
            raise ValueError(f"mode = {mode} is unknown")
        cut = [
            slice(max(-b, 0), size - max(-e, 0))
            for (b, e), size in zip(widths, places.shape, strict=True)
        ]
        return places[tuple(cut)]

    if value and any(b > 0 or e > 0 for b, e in widths):
        raise ValueError(f"padding with {value} is not supported (accepted: 0)")
    node.allot(
        math.prod(n + max(b, 0) + max(e, 0) for n, (b, e) in zip(x.full, widths, strict=True))
    )
    return moved(node, x, around)


def expand(node: Node) -> Value:
    target = node.numbers(1)
    if node.batch and target and target[0] == node.batch:
        target[0] = 1
    value = node.inputs[0]
    shape = value.shape if isinstance(value, np.ndarray) else node.image(0).full
    full = np.broadcast_shapes(shape, tuple(target))
    node.allot(math.prod(full))
    return _of(node, lambda places: np.broadcast_to(places, full))


def tile(node: Node) -> Value:
    repeats = node.numbers(1)
    value = node.inputs[0]
    shape = value.shape if isinstance(value, np.ndarray) else node.image(0).full
    node.allot(math.prod(shape) * math.prod(repeats))
    return _of(node, lambda places: np.tile(places, repeats))


def depth_to_space(node: Node) -> Link:
    x, block, mode = node.image(0), node.take("blocksize", None), node.take("mode", "DCR")

    def spread(places: np.ndarray) -> np.ndarray:
        n, c, h, w = places.shape
        if mode == "DCR":
            parts = places.reshape(n, block, block, c // block**2, h, w).transpose(0, 3, 4, 1, 5, 2)
        else:
            parts = places.reshape(n, c // block**2, block, block, h, w).transpose(0, 1, 4, 2, 5, 3)
        return parts.reshape(n, c // block**2, h * block, w * block)

    return moved(node, x, spread)


NEAREST = {
    ("asymmetric", "floor"),
    ("half_pixel", "round_prefer_floor"),
    ("pytorch_half_pixel", "round_prefer_floor"),
}
"""With whole factors all of these repeat each element."""


def resize(node: Node) -> Link:
    x = node.image(0)
    if node.take("mode", "nearest") != "nearest":
        raise ValueError("only mode = nearest is supported")
    how = node.take("coordinate_transformation_mode", "half_pixel")
    near = node.take("nearest_mode", "round_prefer_floor")
    node.take("cubic_coeff_a", None)
    node.take("extrapolation_value", None)
    if node.take("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise ValueError("only keep_aspect_ratio_policy = stretch is supported")
    if node.take("antialias", 0) or node.take("exclude_outside", 0):
        raise ValueError("antialias and exclude_outside are not supported")
    if node.opset >= 11 and (how, near) not in NEAREST:
        raise ValueError(f"nearest by {how} and {near} is not supported")
    at = 2 if node.opset >= 11 else 1
    if node.has(3) and node.constant(3).size:
        factors = [n / size for n, size in zip(node.numbers(3), x.full, strict=True)]
    else:
        factors = node.constant(at).reshape(-1).tolist()
    return _enlarged(node, x, factors)


def upsample(node: Node) -> Link:
    x = node.image(0)
    if node.take("mode", "nearest") != "nearest":
        raise ValueError("only mode = nearest is supported")
    scales = node.constant(1).reshape(-1).tolist() if node.has(1) else node.take("scales", ())
    return _enlarged(node, x, scales)


def _enlarged(node: Node, x: Link, factors: list[float]) -> Link:
    if len(factors) != len(x.full) or any(f < 1 or f != int(f) for f in factors):
        raise ValueError(f"factors {factors} must be whole numbers, one for each axis")
    node.allot(math.prod(x.full) * math.prod(int(f) for f in factors))

    def repeat(places: np.ndarray) -> np.ndarray:
        for axis, factor in enumerate(factors):
            places = np.repeat(places, int(factor), axis)
        return places

    return moved(node, x, repeat)
