"""The ONNX operators that maar reads, each as torch layers that compute exactly the same.

Exactly means in real numbers, with the numbers in the file: where folding two of them into one
would round, they stay two layers.

An operator is a function from a `Node` to what the node gives: a `Link` (something computed from
the image) or an array (a constant, or a shape on its way to a Reshape). It raises `ValueError` with
the reason where the operator is used in a way that has no exact counterpart; nothing is ignored.
The table at the end is the supported list.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from maar.core import limits
from maar.exchange.onnx_values import Link, Node, Value, layers_between, then
from maar.networks.layers import Normalize, Residual
from maar.networks.supported import Shape

# Stands for the batch size in the shapes that a graph computes; moved around, never calculated with
BATCH = -(2**40)


# Layers with weights


def conv(node: Node) -> Link:
    x, weight = node.image(0), node.weight(1)
    if weight.ndim != 4 or len(x.shape) != 3:
        raise ValueError("only 2-D convolutions of images are supported")
    kernel = (weight.shape[2], weight.shape[3])
    if node.pair("kernel_shape", kernel) != kernel:
        raise ValueError("kernel_shape differs from the weight's")
    strides, dilations = node.pair("strides", (1, 1)), node.pair("dilations", (1, 1))
    groups = int(node.take("group", 1))
    pads = _pads(node, x.shape[1:], kernel, strides, dilations)
    padding = (max(pads[0], pads[2]), max(pads[1], pads[3]))
    weight = _even_out(weight, pads, dilations)
    layer = nn.Conv2d(
        weight.shape[1] * groups,
        weight.shape[0],
        (weight.shape[2], weight.shape[3]),
        strides,
        padding,
        dilations,
        groups,
        bias=node.has(2),
        device="meta",  # no random weights are drawn that would be overwritten
    ).to_empty(device="cpu")
    _fill(layer, weight=weight, **({"bias": node.weight(2)} if node.has(2) else {}))
    return then(x, layer)


def _pads(
    node: Node, size: Shape, kernel: Shape, strides: Shape, dilations: Shape
) -> tuple[int, ...]:
    """(top, left, bottom, right), from `pads` or `auto_pad`."""
    auto = node.take("auto_pad", "NOTSET")
    pads = tuple(node.take("pads", (0, 0, 0, 0)))
    if len(pads) != 4 or min(pads) < 0:
        raise ValueError(f"pads = {list(pads)} must be four numbers that are not negative")
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
    x, weight = node.image(0), node.weight(1)
    if node.take("transA", 0):
        raise ValueError("transA = 1 is not supported")
    alpha, beta = np.float32(node.take("alpha", 1.0)), np.float32(node.take("beta", 1.0))
    if weight.ndim != 2:
        raise ValueError("the weight must be a matrix")
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
        x = then(x, _linear(scaled, bias))
    else:
        x = then(x, _linear(weight, None))
        x = then(x, _scaling(x, np.full(weight.shape[0], alpha), bias))
    return x if rest is None else _shift(x, -rest)


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
    x, weight = node.image(0), node.weight(1)
    if weight.ndim != 2:
        raise ValueError("the weight must be a matrix")
    return then(x, _linear(weight.T, None))


def _linear(weight: np.ndarray, bias: np.ndarray | None) -> nn.Linear:
    out, features = weight.shape
    layer = nn.Linear(features, out, bias=bias is not None, device="meta").to_empty(device="cpu")
    _fill(layer, weight=weight, **({} if bias is None else {"bias": bias}))
    return layer


def batch_normalization(node: Node) -> Link:
    x = node.image(0)
    if node.take("training_mode", 0) or not node.take("spatial", 1):
        raise ValueError("training_mode = 1 and spatial = 0 are not supported")
    node.take("momentum", 0.9)  # of training only
    # (the standard's default is a float32, as every attribute is)
    layer = _batch_norm(x, float(np.float32(node.take("epsilon", 1e-5))))
    _fill(
        layer,
        weight=node.weight(1),
        bias=node.weight(2),
        running_mean=node.weight(3),
        running_var=node.weight(4),
    )
    return then(x, layer)


def _batch_norm(x: Link, eps: float) -> nn.BatchNorm1d | nn.BatchNorm2d:
    if len(x.shape) == 3:
        return nn.BatchNorm2d(x.shape[0], eps=eps)
    return nn.BatchNorm1d(x.shape[0], eps=eps)


def _fill(layer: nn.Module, **arrays: np.ndarray) -> None:
    tensors = dict(layer.named_parameters()) | dict(layer.named_buffers())
    with torch.no_grad():
        for name, array in arrays.items():
            if tuple(tensors[name].shape) != array.shape:
                raise ValueError(
                    f"{name} has shape {list(array.shape)}, must be {list(tensors[name].shape)}"
                )
            tensors[name].copy_(torch.from_numpy(np.array(array)))


# Layers without weights


def relu(node: Node) -> Link:
    return then(node.image(0), nn.ReLU())


def average_pool(node: Node) -> Link:
    x, kernel = node.image(0), node.pair("kernel_shape", None)
    if len(x.shape) != 3:
        raise ValueError("only 2-D pooling of images is supported")
    strides = node.pair("strides", (1, 1))
    if node.pair("dilations", (1, 1)) != (1, 1):
        raise ValueError("dilations are not supported")
    pads = _pads(node, x.shape[1:], kernel, strides, (1, 1))
    counts_pads = node.take("count_include_pad", 0)
    if pads[:2] != pads[2:]:
        raise ValueError(f"uneven pads {list(pads)} are not supported")
    if any(pads) and not counts_pads:
        raise ValueError(f"pads = {list(pads)} need count_include_pad = 1")
    sizes = zip(x.shape[1:], pads[:2], kernel, strides, strict=True)
    fit = all((n + 2 * p - k) % s == 0 for n, p, k, s in sizes)
    if node.take("ceil_mode", 0) and not fit:  # where the windows fit, it changes nothing
        raise ValueError("ceil_mode = 1 is not supported")
    return then(x, nn.AvgPool2d(kernel, strides, (pads[0], pads[1])))


def global_average_pool(node: Node) -> Link:
    x = node.image(0)
    if len(x.shape) != 3:
        raise ValueError("only 2-D pooling of images is supported")
    return then(x, nn.AvgPool2d((x.shape[1], x.shape[2])))


def flatten(node: Node) -> Link:
    x, axis = node.image(0), node.take("axis", 1)
    if axis not in (1, -len(x.shape)):
        raise ValueError(f"axis = {axis} is not supported: only all but the batch axis")
    return _flat(x)


def reshape(node: Node) -> Link:
    x, target = node.image(0), [int(size) for size in node.constant(1).reshape(-1)]
    if node.take("allowzero", 0) and 0 in target:
        raise ValueError("allowzero = 1 is not supported")
    # A 1 in the target of a network with a free batch axis: written for one image at a time.
    if not target or target[0] not in (BATCH, 0, -1, node.batch or 1):
        raise ValueError(f"the target {_spell(target)} moves the batch axis")
    sizes = [
        x.shape[axis] if size == 0 and axis < len(x.shape) else size
        for axis, size in enumerate(target[1:])
    ]
    if sizes.count(-1) == 1 and target[0] != -1:
        known = -math.prod(sizes)
        sizes[sizes.index(-1)] = math.prod(x.shape) // known if known > 0 else 0
    if tuple(sizes) == x.shape:
        return x
    if tuple(sizes) != (math.prod(x.shape),):
        raise ValueError(f"the target {_spell(target)} is not a flattening of {list(x.shape)}")
    return _flat(x)


def _flat(x: Link) -> Link:
    return x if len(x.shape) == 1 else then(x, nn.Flatten())


def _spell(target: list[int]) -> str:
    return str(["batch" if size == BATCH else size for size in target]).replace("'", "")


def identity(node: Node) -> Value:
    value = node.inputs[0]
    if value is None:
        raise ValueError("it has no input")
    return value


# Element by element: a residual sum, a bias, or a normalisation


def add(node: Node) -> Link:
    if all(isinstance(value, Link) for value in node.inputs):
        return _residual(node, node.image(0), node.image(1))
    x, shift = _with_constant(node)
    last = x.layer
    if isinstance(last, (nn.Conv2d, nn.Linear)) and last.bias is None and node.sole(x):
        last.bias = nn.Parameter(torch.from_numpy(shift))
        return x
    return _shift(x, -shift)


def sub(node: Node) -> Link:
    x, shift = node.image(0), _per_channel(node.image(0), node.weight(1))
    return _shift(x, shift)


def div(node: Node) -> Link:
    x, divisor = node.image(0), _per_channel(node.image(0), node.weight(1))
    if divisor.min() <= 0:
        raise ValueError("only division by positive constants is supported")
    last = x.layer
    if isinstance(last, Normalize) and bool((last.std == 1).all()) and node.sole(x):
        assert x.parent is not None
        return then(x.parent, Normalize(last.mean.tolist(), divisor.tolist()))
    # Kept even where it divides by one: so does maar write the Normalize of mean 0 and std 1.
    return then(x, Normalize([0.0] * len(divisor), divisor.tolist()))


def mul(node: Node) -> Link:
    x, factor = _with_constant(node)
    if (factor == 1).all():
        return x
    return then(x, _scaling(x, factor, None))


def _scaling(x: Link, factor: np.ndarray, bias: np.ndarray | None) -> nn.Module:
    """A BatchNorm that only scales and shifts: exact, where a Normalize would round 1 / factor."""
    layer = _batch_norm(x, 0.0)
    _fill(layer, weight=factor, **({} if bias is None else {"bias": bias}))
    return layer


def _shift(x: Link, mean: np.ndarray) -> Link:
    return then(x, Normalize(mean.tolist(), [1.0] * len(mean))) if mean.any() else x


def _with_constant(node: Node) -> tuple[Link, np.ndarray]:
    """The operands of a commutative operator: the image, and one constant per channel."""
    position = 0 if isinstance(node.inputs[0], Link) else 1
    x = node.image(position)
    return x, _per_channel(x, node.weight(1 - position))


def _per_channel(x: Link, constant: np.ndarray) -> np.ndarray:
    try:
        full = np.broadcast_to(constant, (1, *x.shape))
    except ValueError:
        raise ValueError(
            f"the constant of shape {list(constant.shape)} does not fit {list(x.shape)}"
        ) from None
    rows = full.reshape(x.shape[0], -1)
    if (rows != rows[:, :1]).any():
        raise ValueError("the constant must be one number per channel")
    return rows[:, 0].copy()


def _residual(node: Node, a: Link, b: Link) -> Link:
    if a.shape != b.shape:
        raise ValueError(f"the branches have shapes {list(a.shape)} and {list(b.shape)}")
    fork = _fork(a, b)
    body, shortcut = layers_between(fork, a), layers_between(fork, b)
    if len(body) < len(shortcut):
        body, shortcut = shortcut, body
    # Sharing across blocks has no place in a tree of Residuals but by copying layers.
    if not node.taken.isdisjoint(body + shortcut):
        raise ValueError("the residual blocks overlap; only nested ones are supported")
    node.taken.update(body + shortcut)
    nesting = 1 + max((link.nesting for link in body + shortcut), default=0)
    if nesting > limits.RESIDUAL_DEPTH:
        raise ValueError(
            f"{nesting} residual blocks inside each other (accepted: up to {limits.RESIDUAL_DEPTH})"
        )
    parts = [nn.Sequential(*(_layer(link) for link in part)) for part in (body, shortcut)]
    return Link(fork, Residual(*parts), a.shape, nesting)


def _fork(a: Link, b: Link) -> Link:
    """The last link that both come from; the image is one."""
    while a is not b:
        if a.depth < b.depth:
            a, b = b, a
        assert a.parent is not None
        a = a.parent
    return a


def _layer(link: Link) -> nn.Module:
    assert link.layer is not None
    return link.layer


# Constants, and the shapes that lead to a Reshape


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
    sizes = [BATCH, *node.image(0).shape]
    return np.array(sizes[node.take("start", None) : node.take("end", None)], dtype=np.int64)


def gather(node: Node) -> np.ndarray:
    data, indices, axis = node.constant(0), node.constant(1), node.take("axis", 0)
    node.allot(data.size // max(data.shape[axis], 1) * indices.size)
    return np.asarray(np.take(data, indices, axis=axis))  # never a bare number


def unsqueeze(node: Node) -> np.ndarray:
    axes = node.constant(1).reshape(-1).tolist() if node.has(1) else node.take("axes", ())
    return np.expand_dims(node.constant(0), tuple(axes))


def concat(node: Node) -> np.ndarray:
    parts = [node.constant(position) for position in range(len(node.inputs))]
    node.allot(sum(part.size for part in parts))
    return np.concatenate(parts, axis=node.take("axis", None))


OPERATORS: dict[str, Callable[[Node], Value]] = {
    "Add": add,
    "AveragePool": average_pool,
    "BatchNormalization": batch_normalization,
    "Concat": concat,
    "Constant": constant,
    "Conv": conv,
    "Div": div,
    "Flatten": flatten,
    "Gather": gather,
    "Gemm": gemm,
    "GlobalAveragePool": global_average_pool,
    "Identity": identity,
    "MatMul": matmul,
    "Mul": mul,
    "Relu": relu,
    "Reshape": reshape,
    "Shape": shape,
    "Sub": sub,
    "Unsqueeze": unsqueeze,
}
