"""Make a list of layers out of an ONNX graph, or say which operation is not read."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from maar_check.arithmetic import Array
from maar_check.layers import Conv, Dense, Layer, Relu, Reshape, Scale, Shape, Sum
from maar_check.refusal import Refused, require
from maar_check.wire import Model, Op, read_model

# Roundings in BatchNorm's scale (a sum, a root, a quotient) and shift, in a reciprocal, with room.
DERIVED = 32
MOST_NUMBERS = 1 << 26  # of one value, or of a matrix


@dataclass
class Network:
    """Value 0 is the input, layer i makes value i + 1; the last value is the output."""

    sha256: str
    shape: Shape
    layers: list[Layer]
    relus: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.relus = [i for i, layer in enumerate(self.layers) if isinstance(layer, Relu)]

    @property
    def classes(self) -> int:
        """Numbers in the output."""
        return math.prod(self.shape_of(len(self.layers)))

    def shape_of(self, value: int) -> Shape:
        """Shape of a value, without the number of images."""
        return self.layers[value - 1].shape if value else self.shape


def read_network(content: bytes) -> Network:
    """The network of an ONNX file, for one image at a time."""
    model = read_model(content)
    shape = model.shape[1:]
    require(len(model.shape) >= 2 and model.shape[0] == 1, f"the input has shape {model.shape}")
    require(len(shape) in (1, 3), f"an image has shape {shape} (accepted: one or three sides)")
    require(math.prod(shape) <= MOST_NUMBERS, f"an image has shape {shape}")
    reader = _Reader(model, [])
    reader.value[model.input] = (0, shape)
    for op in model.ops:
        require(op.kind in READ, f"operation {op.kind} is not read (read: {', '.join(READ)})")
        name = op.outputs[0]
        require(name not in reader.value and name not in model.tensors, f"{name!r} is made twice")
        READ[op.kind](reader, op)
    require(model.output in reader.value, "the output does not depend on the input")
    last, out = reader.value[model.output]
    require(last == len(reader.layers), "the output is not the last value")
    require(len(out) == 1, f"the output has shape {out} (accepted: scores)")
    return Network(hashlib.sha256(content).hexdigest(), shape, reader.layers)


@dataclass
class _Reader:
    """Layers so far; of each name either a value of the network or a constant."""

    model: Model
    layers: list[Layer]
    value: dict[str, tuple[int, Shape]] = field(default_factory=dict)

    def data(self, op: Op, position: int = 0) -> tuple[int, Shape]:
        """The value that an input names."""
        require(len(op.inputs) > position, f"{op.kind} lacks an input")
        name = op.inputs[position]
        require(name in self.value, f"input {name!r} of {op.kind} is no value of the network")
        return self.value[name]

    def constant(self, op: Op, position: int) -> Array:
        """The tensor that an input names."""
        require(len(op.inputs) > position, f"{op.kind} lacks an input")
        name = op.inputs[position]
        require(name in self.model.tensors, f"input {name!r} of {op.kind} is no constant")
        return self.model.tensors[name]

    def weights(self, op: Op, position: int) -> Array:
        """The float32 tensor that an input names, in float64."""
        tensor = self.constant(op, position)
        require(tensor.dtype == np.float32, f"{op.kind} has weights of type {tensor.dtype}")
        return tensor.astype(np.float64)

    def add(self, op: Op, layer: Layer) -> None:
        """One more layer."""
        require(math.prod(layer.shape) <= MOST_NUMBERS, f"{op.kind} makes shape {layer.shape}")
        self.layers.append(layer)
        self.value[op.outputs[0]] = (len(self.layers), layer.shape)


def _only(op: Op, **accepted: Any) -> None:
    """Refuse options other than those named; a tuple lists the values that one may have."""
    for name, value in op.options.items():
        require(name in accepted, f"option {name} of {op.kind} is not read")
        values = accepted[name]
        require(values is None or value in values, f"{op.kind} with {name} = {value} is not read")


def _two(op: Op, name: str, default: int) -> tuple[int, int]:
    sides = op.options.get(name) or [default, default]
    whole = isinstance(sides, list) and len(sides) == 2 and all(1 <= side < 2**15 for side in sides)
    require(whole, f"{op.kind} with {name} = {sides} is not read")
    return sides[0], sides[1]


def _pads(op: Op) -> tuple[int, int, int, int]:
    pads = op.options.get("pads") or [0, 0, 0, 0]
    require(len(pads) == 4 and all(0 <= side < 2**15 for side in pads), f"{op.kind} pads {pads}")
    return pads[0], pads[1], pads[2], pads[3]


def _conv(reader: _Reader, op: Op) -> None:
    _only(op, kernel_shape=None, strides=None, pads=None, dilations=None, group=None,
          auto_pad=("NOTSET",))  # fmt: skip
    source, shape = reader.data(op)
    weight = reader.weights(op, 1)
    require(weight.ndim == 4 and len(shape) == 3, "Conv is read for images only")
    require(_two(op, "kernel_shape", 1) == weight.shape[2:] or "kernel_shape" not in op.options,
            "Conv has a kernel of another shape than it says")  # fmt: skip
    groups = op.options.get("group", 1)
    require(groups >= 1 and shape[0] == groups * weight.shape[1] and len(weight) % groups == 0,
            f"Conv has {groups} groups of weights {weight.shape} for {shape}")  # fmt: skip
    if groups > 1:
        full = np.zeros((len(weight), shape[0], *weight.shape[2:]))
        outs, ins = len(weight) // groups, weight.shape[1]
        for g in range(groups):
            here = slice(g * outs, (g + 1) * outs)
            full[here, g * ins : (g + 1) * ins] = weight[here]
        weight = full
    bias = reader.weights(op, 2) if len(op.inputs) > 2 else np.zeros(len(weight))
    _convolve(reader, op, source, shape, weight, bias, _two(op, "dilations", 1))


def _convolve(
    reader: _Reader, op: Op, source: int, shape: Shape, weight: Array, bias: Array,
    dilation: tuple[int, int], blur: int = 0,
) -> None:  # fmt: skip
    stride, pads = _two(op, "strides", 1), _pads(op)
    out = tuple(
        (side + pads[i] + pads[i + 2] - d * (k - 1) - 1) // s + 1
        for i, (side, k, s, d) in enumerate(
            zip(shape[1:], weight.shape[2:], stride, dilation, strict=True)
        )
    )
    require(min(out) >= 1, f"{op.kind} leaves nothing of an image of shape {shape}")
    require(bias.shape == (len(weight),), f"{op.kind} has a bias of shape {bias.shape}")
    full = np.broadcast_to(bias[:, None, None], (len(weight), *out))
    made = Conv((source,), full.shape, shape, full, np.abs(full), weight, stride, pads, dilation,
                blur=blur)  # fmt: skip
    reader.add(op, made)


def _pool(reader: _Reader, op: Op) -> None:
    _only(op, kernel_shape=None, strides=None, pads=None, count_include_pad=(0, 1),
          auto_pad=("NOTSET",), ceil_mode=(0,), dilations=([1, 1],))  # fmt: skip
    source, shape = reader.data(op)
    require(len(shape) == 3 and "kernel_shape" in op.options, "AveragePool is read for images only")
    kernel = _two(op, "kernel_shape", 1)
    padded = any(_pads(op)) and not op.options.get("count_include_pad", 0)
    require(not padded, "AveragePool that does not count its padding is not read")
    weight = np.zeros((shape[0], shape[0], *kernel))
    weight[np.arange(shape[0]), np.arange(shape[0])] = 1 / math.prod(kernel)
    _convolve(reader, op, source, shape, weight, np.zeros(shape[0]), (1, 1), DERIVED)


def _dense(reader: _Reader, op: Op, weight: Array, bias: Array, blur: int = 0) -> None:
    source, shape = reader.data(op)
    require(weight.ndim == 2 and shape == weight.shape[1:],
            f"{op.kind} has weights {weight.shape} for {shape}")  # fmt: skip
    try:
        bias = np.broadcast_to(bias, (1, len(weight)))[0]
    except ValueError:
        raise Refused(f"{op.kind} has a bias of shape {bias.shape}") from None
    reader.add(op, Dense((source,), (len(weight),), shape, bias, np.abs(bias), weight, blur=blur))


def _gemm(reader: _Reader, op: Op) -> None:
    _only(op, alpha=(1.0,), beta=(1.0,), transA=(0,), transB=(0, 1))
    weight = reader.weights(op, 1)
    weight = weight if op.options.get("transB", 0) else weight.T
    _dense(reader, op, weight, reader.weights(op, 2) if len(op.inputs) > 2 else np.zeros(1))


def _matmul(reader: _Reader, op: Op) -> None:
    _only(op)
    _dense(reader, op, reader.weights(op, 1).T, np.zeros(1))


def _scale(
    reader: _Reader, op: Op, position: int, weight: Array, bias: Array, size: Array, blur: int
) -> None:
    """A factor and a shift, in shapes that broadcast to one image's."""
    source, shape = reader.data(op, position)
    try:
        full = [np.broadcast_to(each, (1, *shape))[0] for each in (weight, bias, size)]
    except ValueError:
        raise Refused(f"{op.kind} has constants of shape {weight.shape} for {shape}") from None
    reader.add(op, Scale((source,), shape, shape, full[1], full[2], full[0], blur=blur))


def _arithmetic(reader: _Reader, op: Op) -> None:
    _only(op)
    require(len(op.inputs) == 2, f"{op.kind} has {len(op.inputs)} inputs")
    are_data = [name in reader.value for name in op.inputs]
    if all(are_data):
        require(op.kind == "Add", f"{op.kind} of two values is not read")
        (left, shape), (right, other) = reader.data(op, 0), reader.data(op, 1)
        require(shape == other, f"Add of shapes {shape} and {other} is not read")
        reader.add(op, Sum((left, right), shape))
        return
    at = are_data.index(True) if True in are_data else 0
    number = reader.weights(op, 1 - at)
    one, zero = np.ones(1), np.zeros(1)
    if op.kind == "Add":
        _scale(reader, op, at, one, number, np.abs(number), 0)
    elif op.kind == "Sub":
        sign = 1.0 if at == 0 else -1.0  # (x - number, or number - x)
        _scale(reader, op, at, sign * one, -sign * number, np.abs(number), 0)
    elif op.kind == "Mul":
        _scale(reader, op, at, number, zero, zero, 0)
    else:
        require(at == 0 and (number != 0).all(), "Div by a value or by zero is not read")
        _scale(reader, op, at, 1 / number, zero, zero, DERIVED)


def _batch_norm(reader: _Reader, op: Op) -> None:
    _only(op, epsilon=None, momentum=None, training_mode=(0,), spatial=(1,))
    _, shape = reader.data(op)
    gain, shift, mean, var = (reader.weights(op, position) for position in (1, 2, 3, 4))
    epsilon = float(np.float32(op.options.get("epsilon", 1e-5)))
    require(((var + epsilon) > 0).all() and (var >= 0).all(), "BatchNormalization of variance < 0")
    weight = gain / np.sqrt(var + epsilon)
    side = (len(gain), *[1] * (len(shape) - 1))
    bias, size = shift - mean * weight, np.abs(shift) + np.abs(mean * weight)
    parts = [each.reshape(side) for each in (weight, bias, size * 2)]
    _scale(reader, op, 0, parts[0], parts[1], parts[2], DERIVED)


def _relu(reader: _Reader, op: Op) -> None:
    _only(op)
    source, shape = reader.data(op)
    reader.add(op, Relu((source,), shape))


def _same(reader: _Reader, op: Op) -> None:
    _only(op)
    reader.value[op.outputs[0]] = reader.data(op)


def _flatten(reader: _Reader, op: Op) -> None:
    _only(op, axis=(1,))
    source, shape = reader.data(op)
    reader.add(op, Reshape((source,), (math.prod(shape),)))


def _reshape(reader: _Reader, op: Op) -> None:
    _only(op, allowzero=(0,))
    source, shape = reader.data(op)
    wanted = reader.constant(op, 1)
    require(wanted.dtype == np.int64 and wanted.ndim == 1, "Reshape has no list of sides")
    sides = [(1, *shape)[i] if side == 0 and i <= len(shape) else int(side)
             for i, side in enumerate(wanted.tolist())]  # fmt: skip
    if sides.count(-1) == 1:
        rest = math.prod(side for side in sides if side != -1)
        require(rest > 0 and math.prod(shape) % rest == 0, f"Reshape of {shape} to {sides}")
        sides[sides.index(-1)] = math.prod(shape) // rest
    fits = len(sides) in (2, 4) and sides[0] == 1 and math.prod(sides) == math.prod(shape)
    require(fits and min(sides) > 0, f"Reshape of {shape} to {sides} is not read")
    reader.add(op, Reshape((source,), tuple(sides[1:])))


def _constant(reader: _Reader, op: Op) -> None:
    _only(op, value=None)
    tensor = op.options.get("value")
    if not isinstance(tensor, np.ndarray):
        raise Refused("Constant without a tensor is not read")
    reader.model.tensors[op.outputs[0]] = tensor


def _shape(reader: _Reader, op: Op) -> None:
    _only(op)
    _, shape = reader.data(op)
    reader.model.tensors[op.outputs[0]] = np.array([1, *shape], np.int64)


def _gather(reader: _Reader, op: Op) -> None:
    _only(op, axis=(0,))
    table, index = reader.constant(op, 0), reader.constant(op, 1)
    fits = table.dtype == np.int64 == index.dtype and table.ndim == 1 and index.ndim <= 1
    require(fits and (np.abs(index) < len(table)).all(), "Gather is read for shapes only")
    reader.model.tensors[op.outputs[0]] = table[index]


def _unsqueeze(reader: _Reader, op: Op) -> None:
    _only(op, axes=([0],))
    axes = [0] if "axes" in op.options else reader.constant(op, 1).tolist()
    require(axes == [0], "Unsqueeze is read for numbers of a shape only")
    reader.model.tensors[op.outputs[0]] = reader.constant(op, 0)[None]


def _concat(reader: _Reader, op: Op) -> None:
    _only(op, axis=(0,))
    parts = [reader.constant(op, position) for position in range(len(op.inputs))]
    require(parts and all(part.dtype == np.int64 and part.ndim == 1 for part in parts),
            "Concat is read for shapes only")  # fmt: skip
    reader.model.tensors[op.outputs[0]] = np.concatenate(parts)


READ = {
    "Conv": _conv, "Gemm": _gemm, "MatMul": _matmul, "Relu": _relu,
    "Add": _arithmetic, "Sub": _arithmetic, "Mul": _arithmetic, "Div": _arithmetic,
    "BatchNormalization": _batch_norm, "AveragePool": _pool,
    "Flatten": _flatten, "Reshape": _reshape, "Identity": _same,
    "Constant": _constant, "Shape": _shape, "Gather": _gather, "Unsqueeze": _unsqueeze,
    "Concat": _concat,
}  # fmt: skip
