"""The supported ONNX operators: those element by element, those of constants, and the table."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from maar.exchange import onnx_moves as moves
from maar.exchange import onnx_operators as weighted
from maar.exchange import onnx_pooling as pooling
from maar.exchange.onnx_moves import moved
from maar.exchange.onnx_operators import divided, fitted, per_channel, scaled, shifted
from maar.exchange.onnx_values import Link, Node, Value, is_exact
from maar.networks.maps import (
    Abs,
    Add,
    Clip,
    Combine,
    Concat,
    Maximum,
    Minimum,
    Product,
    Reciprocal,
    Scale,
)


def add(node: Node) -> Value:
    if _is_constant(node):
        return _exactly(node, np.add)
    if all(isinstance(value, Link) for value in node.inputs):
        return node.then(Add(), *_together(node))
    position = 0 if isinstance(node.inputs[0], Link) else 1
    x, shift = node.image(position), node.weight(1 - position)
    last = node.layer(x)
    if isinstance(last, (nn.Conv2d, nn.Linear)) and last.bias is None and node.sole(x):
        wide, full = fitted(node, x, shift)
        bias = per_channel(node, wide, full) if wide is x and len(x.shape) in (1, 3) else None
        if bias is not None:
            last.bias = nn.Parameter(torch.from_numpy(bias))
            return x
    return shifted(node, x, shift)


def sub(node: Node) -> Value:
    if _is_constant(node):
        return _exactly(node, np.subtract)
    if all(isinstance(value, Link) for value in node.inputs):
        return node.then(Combine((1.0, -1.0)), *_together(node))
    if isinstance(node.inputs[0], Link):
        return shifted(node, node.image(0), -node.weight(1))
    return shifted(node, _negated(node, node.image(1)), node.weight(0))


def neg(node: Node) -> Value:
    if isinstance(node.inputs[0], np.ndarray):
        return -node.inputs[0]
    return _negated(node, node.image(0))


def _negated(node: Node, x: Link) -> Link:
    return node.then(Scale(torch.full((1,), -1.0, dtype=node.dtype)), x, full=x.full)


def mul(node: Node) -> Value:
    if _is_constant(node):
        return _exactly(node, np.multiply)
    if all(isinstance(value, Link) for value in node.inputs):
        return node.then(Product(), *_together(node))
    position = 0 if isinstance(node.inputs[0], Link) else 1
    return scaled(node, node.image(position), node.weight(1 - position))


def div(node: Node) -> Value:
    if _is_constant(node):
        whole = all(node.constant(k).dtype.kind in "iu" for k in (0, 1))
        return _exactly(node, np.floor_divide if whole else np.divide)
    if not isinstance(node.inputs[1], Link):
        return divided(node, node.image(0), node.weight(1))
    below = node.then(Reciprocal(), node.image(1), full=node.image(1).full)
    if isinstance(node.inputs[0], Link):
        return node.then(Product(), *_broadcast(node, [node.image(0), below]))
    return scaled(node, below, node.weight(0))


def _together(node: Node) -> list[Link]:
    return _broadcast(node, [node.image(0), node.image(1)])


def _broadcast(node: Node, links: list[Link]) -> list[Link]:
    """Computed values, broadcast against each other."""
    full = np.broadcast_shapes(*(link.full for link in links))
    return [
        link if link.full == full else moved(node, link, lambda p: np.broadcast_to(p, full))
        for link in links
    ]


def relu(node: Node) -> Link:
    return _each(node, nn.ReLU())


def _each(node: Node, layer: nn.Module) -> Link:
    x = node.image(0)
    return node.then(layer, x, full=x.full)


def leaky_relu(node: Node) -> Link:
    return _each(node, nn.LeakyReLU(float(np.float32(node.take("alpha", 0.01)))))


def p_relu(node: Node) -> Link:
    x, slope = fitted(node, node.image(0), node.weight(1))
    numbers = per_channel(node, x, slope)
    if numbers is not None:
        layer = nn.PReLU(len(numbers))
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(numbers))
        return node.then(layer, x, full=x.full)
    above = node.then(nn.ReLU(), x, full=x.full)
    below = node.then(nn.ReLU(), _negated(node, x), full=x.full)
    below = node.then(Scale(torch.from_numpy(-slope)), below, full=x.full)
    return node.then(Add(), above, below, full=x.full)


def clip(node: Node) -> Link:
    ends = []
    for position, name in ((1, "min"), (2, "max")):
        if node.has(position):
            ends.append(float(node.weight(position)))
        else:
            end = node.take(name, None)
            ends.append(None if end is None else float(np.float32(end)))
    low, high = ends
    if low is not None and high is not None and low > high:
        raise ValueError(f"min = {low} is above max = {high}")
    return _each(node, Clip(low, high))


def maximum(node: Node) -> Link:
    return _extreme(node, Maximum(), lambda c: Clip(c, None), 1.0)


def minimum(node: Node) -> Link:
    return _extreme(node, Minimum(), lambda c: Clip(None, c), -1.0)


def _extreme(
    node: Node, of_two: nn.Module, of_number: Callable[..., nn.Module], sign: float
) -> Any:
    links = [value for value in node.inputs if isinstance(value, Link)]
    if not links:
        raise ValueError("of constants only is not supported")
    result, *more = links
    for link in more:
        result = node.then(of_two, *_broadcast(node, [result, link]))
    for position, value in enumerate(node.inputs):
        if isinstance(value, Link):
            continue
        constant = node.weight(position)
        if constant.size == 1 and constant.ndim <= len(result.full):
            result = node.then(of_number(float(constant.reshape(()))), result, full=result.full)
            continue
        # max(x, c) = c + relu(x - c); min(x, c) = c - relu(c - x)
        over = shifted(node, result, -constant)
        over = over if sign > 0 else _negated(node, over)
        over = node.then(nn.ReLU(), over, full=over.full)
        result = shifted(node, over if sign > 0 else _negated(node, over), constant)
    return result


def softmax(node: Node) -> Link:
    return _last(node, nn.Softmax)


def log_softmax(node: Node) -> Link:
    return _last(node, nn.LogSoftmax)


def _last(node: Node, kind: Callable[..., nn.Module]) -> Link:
    x = node.image(0)
    axis = node.take("axis", 1 if node.opset < 13 else -1) % len(x.full)
    offset = len(x.full) - len(x.shape)
    if axis < offset or (node.opset < 13 and math.prod(x.full[axis:]) != x.full[axis]):
        raise ValueError(f"axis = {axis} of a value {list(x.full)} is not supported")
    return node.then(kind(axis - offset + 1), x, full=x.full)


def hard_sigmoid(node: Node) -> Link:
    x = node.image(0)
    factor = np.array([node.take("alpha", 0.2)], np.float32)
    x = scaled(node, x, factor)
    x = shifted(node, x, np.array([node.take("beta", 0.5)], np.float32))
    return node.then(Clip(0.0, 1.0), x, full=x.full)


def concat(node: Node) -> Value:
    axis = node.take("axis", None)
    if all(isinstance(value, np.ndarray) for value in node.inputs):
        parts = [node.constant(position) for position in range(len(node.inputs))]
        node.allot(sum(part.size for part in parts))
        return np.concatenate(parts, axis=axis)
    links = [_computed(node, position) for position in range(len(node.inputs))]
    if len(links) == 1:
        return links[0]
    ranks = {len(link.full) for link in links}
    if len(ranks) != 1:
        raise ValueError("the values have different numbers of axes")
    axis %= ranks.pop()
    full = list(links[0].full)
    full[axis] = sum(link.full[axis] for link in links)
    if len({len(link.full) - len(link.shape) for link in links}) == 1:
        offset = len(links[0].full) - len(links[0].shape)
        if axis >= offset:
            return node.then(Concat(axis - offset), *links, full=tuple(full))
    # Along the batch axis of one image: side by side as rows, then as the file has it.
    rows = [node.then(nn.Flatten(), link) if len(link.shape) > 1 else link for link in links]
    if axis != 0:
        raise ValueError(f"axis = {axis} of such values is not supported")
    return node.then(Concat(0), *rows, full=tuple(full))


def _computed(node: Node, position: int) -> Link:
    """A value; a constant as one that does not depend on the image."""
    if isinstance(node.inputs[position], Link):
        return node.image(position)
    constant = node.weight(position)
    some = next(value for value in node.inputs if isinstance(value, Link))
    zero = moved(node, some, lambda places: np.full(constant.shape, -1))
    return shifted(node, zero, constant)


def identity(node: Node) -> Value:
    value = node.inputs[0]
    if value is None:
        raise ValueError("it has no input")
    return value


def dropout(node: Node) -> list[Any]:
    node.take("ratio", 0.5)
    node.take("seed", 0)
    if node.has(2) and bool(node.constant(2).any()):
        raise ValueError("training_mode = 1 is not supported")
    return [identity(node), None]


KINDS = {1: np.float32, 10: np.float16, 11: np.float64, 6: np.int32, 7: np.int64, 9: np.bool_}
"""Some of onnx.TensorProto's types."""


def cast(node: Node) -> Value:
    kind = KINDS.get(node.take("to", None))
    node.take("saturate", 1)
    value = node.inputs[0]
    if isinstance(value, np.ndarray) and kind is not None:
        made = value.astype(kind)
        if value.dtype.kind == "f" and not (made.astype(np.float64) == value).all():
            raise ValueError("it rounds a constant")
        return made
    if kind is None or np.dtype(kind).kind != "f":
        raise ValueError("only casts among floating-point types are supported")
    return node.image(0)


# Constants


def constant(node: Node) -> np.ndarray:
    for name, kind in (
        ("value", None),
        ("value_float", np.float32),
        ("value_floats", np.float32),
        ("value_int", np.int64),
        ("value_ints", np.int64),
    ):
        if name in node.attributes:
            return np.asarray(node.take(name, None), dtype=kind)
    raise ValueError("only value, value_float(s) and value_int(s) are supported")


def shape(node: Node) -> np.ndarray:
    value = node.inputs[0]
    sizes = value.shape if isinstance(value, np.ndarray) else node.image(0).full
    return np.array(sizes[node.take("start", None) : node.take("end", None)], dtype=np.int64)


def constant_of_shape(node: Node) -> np.ndarray:
    sizes = node.numbers(0)
    node.allot(math.prod(sizes))
    value = np.asarray(node.take("value", np.zeros(1, np.float32)))
    return np.full(sizes, value.reshape(-1)[0])


def range_(node: Node) -> np.ndarray:
    start, stop, step = (node.numbers(k)[0] for k in range(3))
    node.allot(max((stop - start) // step, 0))
    return np.arange(start, stop, step, dtype=node.constant(0).dtype)


def _is_constant(node: Node) -> bool:
    return all(isinstance(value, np.ndarray) for value in node.inputs)


def _exactly(node: Node, compute: Any) -> np.ndarray:
    """An operation on two constants, refused where it rounds."""
    left, right = node.constant(0), node.constant(1)
    node.allot(math.prod(np.broadcast_shapes(left.shape, right.shape)))
    made = np.asarray(compute(left, right))
    if made.dtype.kind != "f":
        return made
    wide = np.asarray(compute(left.astype(np.longdouble), right.astype(np.longdouble)))
    if not (made.astype(np.longdouble) == wide).all() or not is_exact(made, np.float32):
        raise ValueError("it computes with constants, which would round them")
    return made


REFUSED = {"Sign": "it jumps, so that no bound is tight near 0: leave it out, or use Clip"}
"""Why some operators never come."""

OPERATORS: dict[str, Callable[[Node], Any]] = {
    "Abs": lambda node: _each(node, Abs()),
    "Add": add,
    "AveragePool": pooling.average_pool,
    "BatchNormalization": weighted.batch_normalization,
    "Cast": cast,
    "Clip": clip,
    "Concat": concat,
    "Constant": constant,
    "ConstantOfShape": constant_of_shape,
    "Conv": weighted.conv,
    "ConvTranspose": weighted.conv_transpose,
    "DepthToSpace": moves.depth_to_space,
    "Div": div,
    "Dropout": dropout,
    "Expand": moves.expand,
    "Flatten": moves.flatten,
    "Gather": moves.gather,
    "Gemm": weighted.gemm,
    "GlobalAveragePool": pooling.global_average_pool,
    "GlobalMaxPool": pooling.global_max_pool,
    "HardSigmoid": hard_sigmoid,
    "Identity": identity,
    "LeakyRelu": leaky_relu,
    "LogSoftmax": log_softmax,
    "MatMul": weighted.matmul,
    "Max": maximum,
    "MaxPool": pooling.max_pool,
    "Min": minimum,
    "Mul": mul,
    "Neg": neg,
    "PRelu": p_relu,
    "Pad": moves.pad,
    "Range": range_,
    "Reciprocal": lambda node: _each(node, Reciprocal()),
    "ReduceMax": pooling.reduce_max,
    "ReduceMean": pooling.reduce_mean,
    "ReduceSum": pooling.reduce_sum,
    "Relu": relu,
    "Reshape": moves.reshape,
    "Resize": moves.resize,
    "Shape": shape,
    "Sigmoid": lambda node: _each(node, nn.Sigmoid()),
    "Slice": moves.slice_,
    "Softmax": softmax,
    "Split": moves.split,
    "Squeeze": moves.squeeze,
    "Sub": sub,
    "Tanh": lambda node: _each(node, nn.Tanh()),
    "Tile": moves.tile,
    "Transpose": moves.transpose,
    "Unsqueeze": moves.unsqueeze,
    "Upsample": moves.upsample,
}
