"""ATen operations as layers: the rules by which `from_torch` reads an exported graph.

A rule takes the conversion and the operation's own arguments, in which computed values stand for
tensors of the image; everything else is a number or a tensor of the module. Axes count the batch
axis, which every value has in front.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from maar.networks.aten_moves import Refusal
from maar.networks.maps import (
    Abs,
    Add,
    Clip,
    Combine,
    Concat,
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
    hold,
)
from maar.networks.windows import axis_windows


def _conv(
    run: Any,
    x: Any,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    rank = weight.dim() - 2
    kind: Any = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[rank - 1]
    channels, out = weight.shape[1] * groups, weight.shape[0]
    spans = [d * (k - 1) for k, d in zip(weight.shape[2:], _each(dilation, rank), strict=True)]
    if padding == "valid":
        padding = 0
    elif padding == "same" and not any(span % 2 for span in spans):
        padding = [span // 2 for span in spans]
    padding = padding if isinstance(padding, str) else _each(padding, rank)
    options = (tuple(weight.shape[2:]), _each(stride, rank), padding, _each(dilation, rank), groups)
    return run.add(_with(kind(channels, out, *options, device="meta"), weight=weight, bias=bias), x)


def _conv_transpose(
    run: Any,
    x: Any,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    rank = weight.dim() - 2
    kind: Any = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[rank - 1]
    layer = kind(
        weight.shape[0],
        weight.shape[1] * groups,
        tuple(weight.shape[2:]),
        _each(stride, rank),
        _each(padding, rank),
        _each(output_padding, rank),
        groups,
        True,
        _each(dilation, rank),
        device="meta",
    )
    return run.add(_with(layer, weight=weight, bias=bias), x)


def _convolution(
    run: Any,
    x: Any,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Any:
    if transposed:
        return _conv_transpose(
            run, x, weight, bias, stride, padding, output_padding, groups, dilation
        )
    return _conv(run, x, weight, bias, stride, padding, dilation, groups)


def _each(option: Any, rank: int) -> Any:
    values = tuple(option) if isinstance(option, tuple | list) else (option,)
    return values if len(values) == rank else values * rank


def _with(layer: nn.Module, **tensors: Tensor | None) -> nn.Module:
    """The layer over these tensors themselves: live parameters and buffers."""
    for name, tensor in tensors.items():
        layer._parameters.pop(name, None)
        layer._buffers.pop(name, None)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise Refusal("weights that are computed from the image are not supported")
        if name in ("weight", "bias") and tensor is not None and tensor.is_leaf:
            tensor = tensor if isinstance(tensor, nn.Parameter) else nn.Parameter(tensor, False)
        if name in ("weight", "bias") and tensor is None:
            layer.register_parameter(name, None)
        else:
            hold(layer, name, tensor)
    return layer


def _linear(run: Any, x: Any, weight: Tensor, bias: Tensor | None = None) -> Any:
    layer = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
    return run.add(_with(layer, weight=weight, bias=bias), x)


def _addmm(run: Any, bias: Tensor, x: Any, weight: Tensor) -> Any:
    return _linear(run, x, weight.t(), bias)


def _matmul(run: Any, left: Any, right: Any) -> Any:
    if isinstance(right, Tensor):
        return _linear(run, left, right.t()) if right.dim() == 2 else run.add(MatMul(right), left)
    if isinstance(left, Tensor) and len(run.shape(right)) > 1:
        return run.add(MatMul(left, left=True), right)
    raise Refusal("a product of two computed matrices has no bound here")


def _batch_norm(
    run: Any,
    x: Any,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    *rest: Any,
) -> Any:
    if mean is None or var is None:
        raise Refusal("without running statistics an image's output depends on its batch")
    shape = run.shape(x)
    kind: Any = (nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[len(shape) - 1]
    eps = next(number for number in reversed(rest) if isinstance(number, float))
    layer = kind(shape[0], eps, device="meta")
    count = torch.zeros((), dtype=torch.int64)
    parts = {"weight": weight, "bias": bias, "running_mean": mean, "running_var": var}
    return run.add(_with(layer, **parts, num_batches_tracked=count).eval(), x)


def _legit_batch_norm(run: Any, *args: Any) -> list[Any]:
    return [_batch_norm(run, *args)]


def _max_pool(rank: int) -> Callable[..., Any]:
    def rule(
        run: Any,
        x: Any,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil: bool = False,
    ) -> Any:
        kind: Any = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)[rank - 1]
        kernel = _each(kernel, rank)
        options = (_each(stride or kernel, rank), _each(padding, rank), _each(dilation, rank))
        return run.add(kind(kernel, *options, ceil_mode=ceil), x)

    return rule


def _average_pool(rank: int) -> Callable[..., Any]:
    def rule(
        run: Any,
        x: Any,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil: bool = False,
        counted: bool = True,
        divisor: int | None = None,
    ) -> Any:
        kernel = _each(kernel, rank)
        options = (kernel, _each(stride or kernel, rank), _each(padding, rank), ceil, counted)
        if divisor is not None:
            raise Refusal("divisor_override is not supported")
        kind: Any = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)[rank - 1]
        return run.add(kind(*options), x)

    return rule


def _adaptive(rank: int) -> Callable[..., Any]:
    def rule(run: Any, x: Any, size: Any) -> Any:
        kinds: Any = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)
        size = _each(size, rank)
        space = run.shape(x)[1:]
        # Even windows are a plain pooling, which every domain has a rule of its own for.
        if rank == 2 and all(n % s == 0 for n, s in zip(space, size, strict=True)):
            return run.add(nn.AvgPool2d(tuple(n // s for n, s in zip(space, size, strict=True))), x)
        return run.add(kinds[rank - 1](size), x)

    return rule


def _axes(run: Any, x: Any, dims: Any) -> list[int]:
    rank = len(run.shape(x)) + 1
    dims = range(rank) if dims is None else ([dims] if isinstance(dims, int) else dims)
    axes = [dim % rank - 1 for dim in dims]
    if -1 in axes:
        raise Refusal("it mixes the images of a batch")
    return axes


def _reduce(mean: bool) -> Callable[..., Any]:
    def rule(run: Any, x: Any, dims: Any = None, keep: bool = False, **_: Any) -> Any:
        axes = _axes(run, x, dims)
        if not keep and len(axes) == len(run.shape(x)):
            raise Refusal("it leaves one number for each image: keep its axis")
        return run.add(Reduce(axes, keep, mean), x)

    return rule


def _amax(run: Any, x: Any, dims: Any = (), keep: bool = False) -> Any:
    axes = _axes(run, x, dims or None)
    for axis in axes:
        shape = run.shape(x)
        x = run.add(WindowMax(axis_windows(shape, axis, torch.arange(shape[axis])[None])), x)
    shape = tuple(n for axis, n in enumerate(run.shape(x)) if keep or axis not in axes)
    return x if keep else run.add(Reshape(shape), x)


def _max(run: Any, x: Any, other: Any = None, keep: bool = False) -> Any:
    if isinstance(other, int):
        return [_amax(run, x, [other], keep)]
    return _extreme(Maximum)(run, x, other)


def _unary(make: Callable[..., nn.Module]) -> Callable[..., Any]:
    return lambda run, x, *options: run.add(make(*options), x)


def _prelu(run: Any, x: Any, weight: Tensor) -> Any:
    layer = nn.PReLU(weight.numel(), device="meta")
    return run.add(_with(layer, weight=weight.reshape(-1) if weight.dim() != 1 else weight), x)


def _clamp(
    run: Any, x: Any, low: Any = None, high: Any = None, *, min: Any = None, max: Any = None
) -> Any:
    ends = [min if low is None else low, max if high is None else high]
    if any(isinstance(end, Tensor) and end.numel() > 1 for end in ends):
        raise Refusal("clamp takes numbers, not tensors")
    low, high = (None if end is None else float(end) for end in ends)
    return run.add(Clip(low, high), x)


def _extreme(kind: type[nn.Module]) -> Callable[..., Any]:
    def rule(run: Any, left: Any, right: Any) -> Any:
        if isinstance(left, Tensor) or isinstance(right, Tensor):
            raise Refusal("of a value and a tensor: use clamp with numbers")
        return run.add(kind(), *_together(run, left, right))

    return rule


def _together(run: Any, left: Any, right: Any) -> list[Any]:
    """Two computed values, broadcast against each other."""
    shapes = [run.shape(left), run.shape(right)]
    if len(shapes[0]) != len(shapes[1]):
        raise Refusal("the two values have different numbers of axes")
    full = torch.broadcast_shapes(*shapes)
    values = []
    for value, shape in zip((left, right), shapes, strict=True):
        if shape != tuple(full):
            places = torch.arange(torch.Size(shape).numel()).view(shape).expand(full)
            value = run.add(Move(places), value)
        values.append(value)
    return values


def _number(run: Any, x: Any, other: Any) -> Tensor:
    """A number or tensor of the module, to broadcast over one image."""
    if not isinstance(other, Tensor):
        return torch.tensor([float(other)])
    rank = len(run.shape(x))
    if other.dim() == rank + 1:
        if other.shape[0] != 1:
            raise Refusal("a tensor with a batch axis of its own")
        return other[0]
    if other.dim() > rank + 1:
        raise Refusal("a tensor with more axes than the value")
    return other if other.dim() else other.reshape(1)


def _is_value(x: Any) -> bool:
    return not isinstance(x, Tensor | int | float)


def _add(run: Any, left: Any, right: Any, *, alpha: float = 1) -> Any:
    if _is_value(left) and _is_value(right):
        values = _together(run, left, right)
        return run.add(Add() if alpha == 1 else Combine((1.0, float(alpha))), *values)
    if not _is_value(left):
        left, right = right, left
        left = left if alpha == 1 else _mul(run, left, alpha)
        alpha = 1
    number = _number(run, left, right)
    return _wide(run, left, number, lambda n: Scale(shift=n if alpha == 1 else n * alpha))


def _sub(run: Any, left: Any, right: Any, *, alpha: float = 1) -> Any:
    if _is_value(left) and _is_value(right):
        return run.add(Combine((1.0, -float(alpha))), *_together(run, left, right))
    if _is_value(left):
        return _wide(run, left, _number(run, left, right), lambda n: Scale(shift=-n * alpha))
    return _add(run, _mul(run, right, -float(alpha)), left)


def _rsub(run: Any, left: Any, right: Any, alpha: float = 1) -> Any:
    return _sub(run, right, left, alpha=alpha)


def _mul(run: Any, left: Any, right: Any) -> Any:
    if _is_value(left) and _is_value(right):
        return run.add(Product(), *_together(run, left, right))
    if not _is_value(left):
        left, right = right, left
    return _wide(run, left, _number(run, left, right), Scale)


def _div(run: Any, left: Any, right: Any) -> Any:
    if _is_value(right):
        return _mul(run, left, run.add(Reciprocal(), right))
    return _wide(run, left, _number(run, left, right), lambda n: Scale(divisor=n))


def _wide(run: Any, x: Any, number: Tensor, make: Callable[[Tensor], nn.Module]) -> Any:
    """A scale or shift, of x broadcast to the number's shape."""
    shape = run.shape(x)
    full = torch.broadcast_shapes(shape, number.shape)
    if full != torch.Size(shape):
        places = torch.arange(torch.Size(shape).numel()).view(shape).expand(full)
        x = run.add(Move(places), x)
    return run.add(make(number), x)


def _neg(run: Any, x: Any) -> Any:
    return _mul(run, x, -1.0)


def _cat(run: Any, values: Sequence[Any], axis: int = 0) -> Any:
    if not all(_is_value(value) for value in values):
        raise Refusal("a tensor of the module beside a computed value is not supported")
    rank = len(run.shape(values[0])) + 1
    if axis % rank == 0:
        raise Refusal("it joins images of a batch")
    return run.add(Concat(axis % rank - 1), *values)


def _stack(run: Any, values: Sequence[Any], axis: int = 0) -> Any:
    rank = len(run.shape(values[0])) + 2
    at = axis % rank - 1
    if at < 0:
        raise Refusal("it joins images of a batch")
    shapes = [[*run.shape(v)[:at], 1, *run.shape(v)[at:]] for v in values]
    parts = [run.add(Reshape(shape), v) for shape, v in zip(shapes, values, strict=True)]
    return run.add(Concat(at), *parts)


def _silu(run: Any, x: Any) -> Any:
    return run.add(Product(), x, run.add(nn.Sigmoid(), x))


def _hard_sigmoid(run: Any, x: Any) -> Any:
    return _div(run, run.add(Clip(0.0, 6.0), _add(run, x, 3.0)), 6.0)


def _hard_swish(run: Any, x: Any) -> Any:
    return run.add(Product(), x, _hard_sigmoid(run, x))


def _softmax(kind: type[nn.Module]) -> Callable[..., Any]:
    return lambda run, x, dim, *_: run.add(kind(dim % (len(run.shape(x)) + 1)), x)


RULES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _conv),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _conv_transpose),
    "convolution": _convolution,
    "linear": _linear,
    "addmm": _addmm,
    **dict.fromkeys(("mm", "matmul"), _matmul),
    "batch_norm": _batch_norm,
    "_native_batch_norm_legit_no_training": _legit_batch_norm,
    **{f"max_pool{rank}d": _max_pool(rank) for rank in (1, 2, 3)},
    "max_pool2d_with_indices": lambda run, *args: [_max_pool(2)(run, *args)],
    **{f"avg_pool{rank}d": _average_pool(rank) for rank in (1, 2, 3)},
    **{f"adaptive_avg_pool{rank}d": _adaptive(rank) for rank in (1, 2, 3)},
    "_adaptive_avg_pool2d": _adaptive(2),
    "mean": _reduce(True),
    "sum": _reduce(False),
    "amax": _amax,
    "max": _max,
    "relu": _unary(nn.ReLU),
    "relu_": _unary(nn.ReLU),
    "leaky_relu": _unary(nn.LeakyReLU),
    "leaky_relu_": _unary(nn.LeakyReLU),
    "prelu": _prelu,
    "_prelu_kernel": _prelu,
    "relu6": _unary(nn.ReLU6),
    "hardtanh": _unary(nn.Hardtanh),
    "hardtanh_": _unary(nn.Hardtanh),
    "clamp": _clamp,
    "clamp_": _clamp,
    "clamp_min": lambda run, x, low: _clamp(run, x, low),
    "clamp_max": lambda run, x, high: _clamp(run, x, None, high),
    "abs": _unary(Abs),
    "maximum": _extreme(Maximum),
    "minimum": _extreme(Minimum),
    "sigmoid": _unary(nn.Sigmoid),
    "tanh": _unary(nn.Tanh),
    "silu": _silu,
    "silu_": _silu,
    "hardsigmoid": _hard_sigmoid,
    "hardswish": _hard_swish,
    "hardswish_": _hard_swish,
    "reciprocal": _unary(Reciprocal),
    **dict.fromkeys(("add", "add_"), _add),
    **dict.fromkeys(("sub", "sub_"), _sub),
    "rsub": _rsub,
    **dict.fromkeys(("mul", "mul_"), _mul),
    **dict.fromkeys(("div", "div_"), _div),
    "neg": _neg,
    "cat": _cat,
    "stack": _stack,
    "softmax": _softmax(nn.Softmax),
    "_softmax": _softmax(nn.Softmax),
    "log_softmax": _softmax(nn.LogSoftmax),
    "_log_softmax": _softmax(nn.LogSoftmax),
}
