"""The function in an ONNX file, in rational numbers, read straight from its protobuf.

Shares nothing with maar's reader. Attributes are the float32 numbers that the file holds, or the
standard's defaults. Only a square root is not rational: it is taken to 200 bits.
"""

from __future__ import annotations

import itertools
import math
import operator
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

EPSILON = Fraction(float(np.float32(1e-5)))


def rational(array: np.ndarray) -> np.ndarray:
    """Return the same numbers as Fractions."""
    flat = [Fraction(float(value)) for value in np.asarray(array).reshape(-1)]
    result = np.empty(len(flat), dtype=object)
    result[:] = flat
    return result.reshape(np.asarray(array).shape)


def root(value: Fraction) -> Fraction:
    """Return the square root of a positive number, to a relative 2^-200 or better."""
    bits = 200 + max(0, value.denominator.bit_length() - value.numerator.bit_length())
    return Fraction(math.isqrt((value.numerator << 2 * bits) // value.denominator), 1 << bits)


def run(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """Return the output, without its batch axis, for one input of Fractions [*shape]."""
    values: dict[str, Any] = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    values[model.graph.input[0].name] = x
    for node in model.graph.node:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        inputs = [values[name] for name in node.input]
        values[node.output[0]] = OPERATORS[node.op_type](attributes, *inputs)
    return values[model.graph.output[0].name]


def _gemm(at: dict[str, Any], x: Any, weight: Any, bias: Any = None) -> np.ndarray:
    weight = rational(weight if at.get("transB") else weight.T)
    out = Fraction(at.get("alpha", 1.0)) * (weight @ x)
    if bias is None:
        return out
    return out + Fraction(at.get("beta", 1.0)) * np.broadcast_to(rational(bias), (1, len(out)))[0]


def _batch_norm(at: dict[str, Any], x: Any, scale: Any, bias: Any, mean: Any, var: Any) -> Any:
    scale, bias, mean, var = (rational(part) for part in (scale, bias, mean, var))
    eps = Fraction(at["epsilon"]) if "epsilon" in at else EPSILON
    rows = [
        (x[c] - mean[c]) / root(var[c] + eps) * scale[c] + bias[c] if var[c] + eps > 0 else None
        for c in range(len(x))
    ]
    if any(row is None for row in rows):
        raise ArithmeticError("var + eps <= 0")
    return np.array(rows, dtype=object).reshape(x.shape)


def _same_pads(at: dict[str, Any], size: Any, kernel: Any, strides: Any) -> list[int]:
    """Return the standard's SAME_UPPER or SAME_LOWER pads, for kernels no smaller than strides."""
    before, after = [], []
    for n, k, s in zip(size, kernel, strides, strict=True):
        total = max((-(-n // s) - 1) * s + k - n, 0)
        halves = (total // 2, total - total // 2)
        small, large = halves if at["auto_pad"] == b"SAME_UPPER" else halves[::-1]
        before.append(small)
        after.append(large)
    return before + after


def _windows(at: dict[str, Any], x: Any, kernel: tuple[int, int]) -> tuple[np.ndarray, int, int]:
    """Return [channels, positions, taps] of the padded image, and the output's size."""
    strides, dilations = at.get("strides", [1, 1]), at.get("dilations", [1, 1])
    pads = list(at.get("pads", [0, 0, 0, 0]))
    if at.get("auto_pad", b"NOTSET").startswith(b"SAME"):
        pads = _same_pads(at, x.shape[1:], kernel, strides)
    padded = np.full(
        (len(x), x.shape[1] + pads[0] + pads[2], x.shape[2] + pads[1] + pads[3]), Fraction(0)
    )
    padded[:, pads[0] : pads[0] + x.shape[1], pads[1] : pads[1] + x.shape[2]] = x
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    height, width = (
        (n - r) // s + 1 for n, r, s in zip(padded.shape[1:], reach, strides, strict=True)
    )
    rows = []
    for i, j in itertools.product(range(height), range(width)):
        top, left = i * strides[0], j * strides[1]
        cut = padded[:, top : top + reach[0] : dilations[0], left : left + reach[1] : dilations[1]]
        rows.append(cut.reshape(len(x), -1))
    return np.stack(rows, 1), height, width


def _conv(at: dict[str, Any], x: Any, weight: Any, bias: Any = None) -> np.ndarray:
    windows, height, width = _windows(at, x, weight.shape[2:])
    groups, size = at.get("group", 1), weight.shape[1]
    each = len(weight) // groups
    out = []
    for o, row in enumerate(rational(weight)):
        start = o // each * size
        cut = windows[start : start + size]
        value = sum(cut[c] @ row[c].reshape(-1) for c in range(size))
        out.append(value + (rational(bias)[o] if bias is not None else 0))
    return np.array(out, dtype=object).reshape(len(weight), height, width)


def _average_pool(at: dict[str, Any], x: Any) -> np.ndarray:
    windows, height, width = _windows(at, x, at["kernel_shape"])
    total = windows.sum(2) / Fraction(math.prod(at["kernel_shape"]))
    return total.reshape(len(x), height, width)


def _operands(a: Any, b: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return both in rational numbers, constants broadcast to the shape of the other."""
    x = a if a.dtype == object else b

    def full(value: Any) -> np.ndarray:
        if value.dtype == object:
            return value
        return np.broadcast_to(rational(value), (1, *x.shape))[0]

    return full(a), full(b)


def _mean(x: Any) -> np.ndarray:
    return (x.reshape(len(x), -1).sum(1) / Fraction(x[0].size)).reshape(-1, 1, 1)


OPERATORS: dict[str, Any] = {
    "Gemm": _gemm,
    "BatchNormalization": _batch_norm,
    "Conv": _conv,
    "AveragePool": _average_pool,
    "Relu": lambda at, x: np.where(x > 0, x, Fraction(0)),
    "Flatten": lambda at, x: x.reshape(-1),
    "GlobalAveragePool": lambda at, x: _mean(x),
    "Identity": lambda at, x: x,
    "MatMul": lambda at, x, weight: x @ rational(weight),
    "Add": lambda at, *pair: operator.add(*_operands(*pair)),
    "Sub": lambda at, *pair: operator.sub(*_operands(*pair)),
    "Mul": lambda at, *pair: operator.mul(*_operands(*pair)),
    "Div": lambda at, *pair: operator.truediv(*_operands(*pair)),
}
