"""THE table of operations: for each its kind, its shape rule, and the options that are refused.

A type that is not in the table is refused by `check`. Shapes of the layers that training uses come
from rules; the others are tried on one value of zeros. Readers and domains ask this table; a test
holds each domain's rules against it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from maar.networks.layers import Normalize, Residual
from maar.networks.maps import (
    Abs,
    Add,
    Clip,
    Combine,
    Concat,
    Dag,
    MatMul,
    Maximum,
    Minimum,
    Move,
    Product,
    Reciprocal,
    Reduce,
    Reshape,
    Scale,
    WindowMax,
)

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
    if is_odd(layer):
        return _tried(layer, shape)
    assert not isinstance(layer.padding, str)  # (is odd)
    sizes = zip(
        shape[1:], layer.kernel_size, layer.stride, layer.padding, layer.dilation, strict=True
    )
    return (layer.out_channels, *(_windows(*size) for size in sizes))


def _pool(layer: nn.AvgPool2d, shape: Shape) -> Shape:
    _require_image(shape)
    if is_odd(layer):
        return _tried(layer, shape)
    options = (layer.kernel_size, layer.stride, layer.padding)
    sizes = zip(shape[1:], *map(_pair, options), (1, 1), strict=True)
    return (shape[0], *(_windows(*size) for size in sizes))


def _linear(layer: nn.Linear, shape: Shape) -> Shape:
    if shape[-1] != layer.in_features:
        flat = " (nn.Flatten() before it)" if len(shape) > 1 else ""
        raise ValueError(f"it takes {layer.in_features} features{flat}")
    return (*shape[:-1], layer.out_features)


def _tried(layer: nn.Module, *shapes: Shape) -> Shape:
    """The shape that a value of zeros gives."""
    numbers = next((t for t in layer.state_dict().values() if t.is_floating_point()), None)
    like = torch.zeros(()) if numbers is None else numbers
    values = [torch.zeros((1, *shape), dtype=like.dtype, device=like.device) for shape in shapes]
    if isinstance(layer, Move | WindowMax):
        most, size = int(layer.index.max()) if layer.index.numel() else -1, math.prod(shapes[0])
        if most >= size:
            raise ValueError(f"it takes {most + 1} numbers or more")
    try:
        with torch.no_grad():
            out = layer(*values)
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        raise ValueError((str(error).splitlines() or [type(error).__name__])[0]) from None
    if out.dim() < 2 or out.shape[0] != 1:
        raise ValueError("it gives no value for each image")
    return tuple(out.shape[1:])


def _same_shapes(layer: nn.Module, left: Shape, right: Shape) -> Shape:
    if left != right:
        raise ValueError(f"the values have shapes {left} and {right}")
    return left


def _dag(layer: Dag, shape: Shape) -> Shape:
    shapes = [shape]
    for part, inputs in zip(layer.layers, layer.inputs, strict=True):
        shapes.append(shape_after(part, *(shapes[i] for i in inputs)))
    return shapes[-1]


def _batch_norm_1d(layer: nn.BatchNorm1d, shape: Shape) -> Shape:
    if len(shape) > 2:
        raise ValueError("it takes features, or channels x length")
    _require_channels(layer.num_features, shape)
    return shape


def _batch_norm_2d(layer: nn.BatchNorm2d, shape: Shape) -> Shape:
    _require_image(shape)
    _require_channels(layer.num_features, shape)
    return shape


def _batch_norm_3d(layer: nn.BatchNorm3d, shape: Shape) -> Shape:
    if len(shape) != 4:
        raise ValueError("it takes channels x depth x height x width")
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


def _require_channels(channels: int, shape: Shape) -> None:
    if shape[0] != channels:
        raise ValueError(f"it takes {channels} channels")


def _pair(size: Any) -> tuple[int, int]:
    return tuple(size) if isinstance(size, (tuple, list)) else (size, size)


def is_odd(layer: nn.Module) -> bool:
    """Whether a layer has options that only its own forward pass knows."""
    if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return isinstance(layer.padding, str) or layer.padding_mode != "zeros"
    if isinstance(layer, nn.AvgPool2d):
        uneven = any(_pair(layer.padding)) and not layer.count_include_pad
        return layer.ceil_mode or layer.divisor_override is not None or uneven
    return False


def _refuse_nothing(layer: nn.Module) -> str:
    return ""


def _refuse_inplace(layer: Any) -> str:
    kind = type(layer).__name__
    return f"write nn.{kind}(): inplace overwrites values still needed" if layer.inplace else ""


def _refuse_flatten(layer: nn.Flatten) -> str:
    whole = (layer.start_dim, layer.end_dim) == (1, -1)
    return "" if whole else "only nn.Flatten() of all but the batch axis is supported"


def _refuse_batch_norm(layer: Any) -> str:
    if layer.running_mean is None:
        return "without running statistics an image's output depends on its batch"
    return ""


def _refuse_max_pool(layer: Any) -> str:
    return "return_indices is not supported" if layer.return_indices else ""


Kind = Literal["affine", "relu", "piecewise", "smooth", "structure", "last"]
"""piecewise: rewritten into affine maps and ReLUs. last: only where the answer is a class, at the
end of a network, where it is left out."""


@dataclass(frozen=True)
class Operation:
    """What maar knows of a layer type."""

    kind: Kind
    shape: Callable[..., Shape] = _tried
    """The output's shape for the inputs'; a ValueError says why there is none."""
    refuse: Callable[[Any], str] = _refuse_nothing
    """Why this layer's options are not supported, or ""."""
    options: tuple[str, ...] = ()
    """The attributes that, beside its tensors, decide what the layer computes."""
    onnx: tuple[str, ...] = ()
    """The ONNX operators that become such a layer."""
    aten: tuple[str, ...] = ()
    """The ATen operators that do."""


CONV = ("stride", "padding", "dilation", "groups")
TRANSPOSED = (*CONV, "output_padding")
POOL = ("kernel_size", "stride", "padding")
AVERAGE = (*POOL, "ceil_mode", "count_include_pad")
MAX = (*POOL, "dilation", "ceil_mode")
_CONV = ("conv1d", "conv2d", "conv3d", "convolution")
_BATCH_NORM = ("batch_norm", "_native_batch_norm_legit_no_training")
_MOVES = ("permute", "transpose", "slice", "select", "index_select", "constant_pad_nd", "expand")
_MAX_POOL = ("max_pool1d", "max_pool2d", "max_pool3d", "adaptive_max_pool2d", "amax", "max")

OPERATIONS: dict[type[nn.Module], Operation] = {
    Normalize: Operation("affine", _normalize, onnx=("Sub", "Div", "Add")),
    nn.Conv2d: Operation("affine", _conv, options=CONV, onnx=("Conv",), aten=_CONV),
    nn.Linear: Operation(
        "affine", _linear, onnx=("Gemm", "MatMul"), aten=("linear", "addmm", "mm", "matmul")
    ),
    nn.ReLU: Operation("relu", _same, _refuse_inplace, onnx=("Relu",), aten=("relu", "relu_")),
    nn.Flatten: Operation(
        "affine", _flatten, _refuse_flatten, onnx=("Flatten", "Reshape"), aten=("flatten", "view")
    ),
    nn.BatchNorm1d: Operation(
        "affine", _batch_norm_1d, _refuse_batch_norm, ("eps",), ("BatchNormalization",), _BATCH_NORM
    ),
    nn.BatchNorm2d: Operation(
        "affine", _batch_norm_2d, _refuse_batch_norm, ("eps",), ("BatchNormalization",), _BATCH_NORM
    ),
    nn.AvgPool2d: Operation(
        "affine",
        _pool,
        options=POOL,
        onnx=("AveragePool", "GlobalAveragePool"),
        aten=("avg_pool2d", "adaptive_avg_pool2d"),
    ),
    Residual: Operation("structure", _same, onnx=("Add",), aten=("add",)),
    # Affine maps without a rule of their own in each domain
    nn.Conv1d: Operation("affine", options=CONV, onnx=("Conv",), aten=_CONV),
    nn.Conv3d: Operation("affine", options=CONV, onnx=("Conv",), aten=_CONV),
    nn.ConvTranspose1d: Operation("affine", options=TRANSPOSED, onnx=("ConvTranspose",)),
    nn.ConvTranspose2d: Operation("affine", options=TRANSPOSED, onnx=("ConvTranspose",)),
    nn.ConvTranspose3d: Operation("affine", options=TRANSPOSED, onnx=("ConvTranspose",)),
    nn.BatchNorm3d: Operation(
        "affine", _batch_norm_3d, _refuse_batch_norm, ("eps",), ("BatchNormalization",), _BATCH_NORM
    ),
    nn.AvgPool1d: Operation("affine", options=AVERAGE, onnx=("AveragePool",), aten=("avg_pool1d",)),
    nn.AvgPool3d: Operation("affine", options=AVERAGE, onnx=("AveragePool",), aten=("avg_pool3d",)),
    nn.AdaptiveAvgPool1d: Operation("affine", options=("output_size",)),
    nn.AdaptiveAvgPool2d: Operation("affine", options=("output_size",)),
    nn.AdaptiveAvgPool3d: Operation("affine", options=("output_size",)),
    Move: Operation(
        "affine",
        onnx=("Transpose", "Slice", "Split", "Gather", "Pad", "Upsample", "Resize", "Expand"),
        aten=_MOVES,
    ),
    Reshape: Operation(
        "affine",
        options=("shape",),
        onnx=("Reshape", "Squeeze", "Unsqueeze"),
        aten=("view", "reshape", "squeeze", "unsqueeze"),
    ),
    Scale: Operation(
        "affine", onnx=("Mul", "Div", "Add", "Sub", "Neg"), aten=("mul", "div", "neg")
    ),
    MatMul: Operation("affine", options=("left",), onnx=("MatMul",), aten=("matmul", "mm", "bmm")),
    Reduce: Operation(
        "affine",
        options=("axes", "keep", "mean"),
        onnx=("ReduceMean", "ReduceSum"),
        aten=("mean", "sum"),
    ),
    Add: Operation("affine", _same_shapes, onnx=("Add",), aten=("add", "add_")),
    Combine: Operation("affine", options=("coefficients", "shift"), onnx=("Sub",), aten=("sub",)),
    Concat: Operation("affine", options=("axis",), onnx=("Concat",), aten=("cat",)),
    # Piecewise linear
    nn.LeakyReLU: Operation(
        "piecewise",
        _same,
        _refuse_inplace,
        ("negative_slope",),
        ("LeakyRelu",),
        ("leaky_relu", "leaky_relu_"),
    ),
    nn.PReLU: Operation("piecewise", _same, onnx=("PRelu",), aten=("prelu", "_prelu_kernel")),
    nn.ReLU6: Operation("piecewise", _same, _refuse_inplace, aten=("relu6", "relu6_")),
    nn.Hardtanh: Operation(
        "piecewise", _same, _refuse_inplace, ("min_val", "max_val"), aten=("hardtanh", "hardtanh_")
    ),
    Clip: Operation("piecewise", _same, options=("low", "high"), onnx=("Clip",), aten=("clamp",)),
    Abs: Operation("piecewise", _same, onnx=("Abs",), aten=("abs",)),
    Maximum: Operation("piecewise", _same_shapes, onnx=("Max",), aten=("maximum",)),
    Minimum: Operation("piecewise", _same_shapes, onnx=("Min",), aten=("minimum",)),
    nn.MaxPool1d: Operation("piecewise", _tried, _refuse_max_pool, MAX, aten=_MAX_POOL),
    nn.MaxPool2d: Operation("piecewise", _tried, _refuse_max_pool, MAX, aten=_MAX_POOL),
    nn.MaxPool3d: Operation("piecewise", _tried, _refuse_max_pool, MAX, aten=_MAX_POOL),
    WindowMax: Operation(
        "piecewise", onnx=("MaxPool", "GlobalMaxPool", "ReduceMax"), aten=_MAX_POOL
    ),
    # Smooth
    nn.Sigmoid: Operation("smooth", _same, onnx=("Sigmoid",), aten=("sigmoid",)),
    nn.Tanh: Operation("smooth", _same, onnx=("Tanh",), aten=("tanh",)),
    Product: Operation("smooth", _same_shapes, onnx=("Mul",), aten=("mul",)),
    Reciprocal: Operation("smooth", _same, onnx=("Div", "Reciprocal"), aten=("reciprocal", "div")),
    # At the end
    nn.Softmax: Operation("last", _same, options=("dim",), onnx=("Softmax",), aten=("softmax",)),
    nn.LogSoftmax: Operation(
        "last", _same, options=("dim",), onnx=("LogSoftmax",), aten=("log_softmax",)
    ),
    Dag: Operation("structure", _dag, options=("inputs",)),
}

NO_OPS = (
    nn.Identity,
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
)
"""Layers that do nothing in evaluation mode."""


def shape_after(layer: nn.Module, *shapes: Shape) -> Shape:
    """The shape that a supported layer gives; a ValueError if it does not fit."""
    after = tuple(OPERATIONS[type(layer)].shape(layer, *shapes))
    if 0 in after:
        raise ValueError("it gives nothing")
    return after
