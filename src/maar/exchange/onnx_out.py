"""Write a network as an ONNX file: one graph for the image in [0,1], weights inside, no torch.onnx.

The graph is written node by node, so the same network always gives the same bytes, and `read_onnx`
gives the same layers back. The table at the end says how each layer is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from maar.core.errors import RunError, UsageError
from maar.core.files import write_bytes
from maar.networks.checking import check, trace
from maar.networks.layers import Normalize, Residual
from maar.networks.maps import Abs, Clip
from maar.networks.operations import OPERATIONS, Shape, is_odd

if TYPE_CHECKING:
    import onnx

OPSET = 13  # every operator here is older; younger opsets are refused by many a verifier
IR_VERSION = 8
BATCH = "batch"


def write_onnx(
    net: nn.Sequential, path: str | Path, shape: Shape, *, batch: int | None = None
) -> None:
    """Write `net`, as it is in evaluation mode, for images of `shape` (such as 1, 28, 28).

    `batch` fixes the number of images that the file takes at once; without it any number will do.
    """
    write_bytes(Path(path), onnx_bytes(net, shape, batch=batch))


def onnx_bytes(net: nn.Sequential, shape: Shape, *, batch: int | None = None) -> bytes:
    """The content of the file that `write_onnx` writes."""
    try:
        import onnx
    except ImportError:
        raise RunError(
            "writing ONNX files needs the onnx package: pip install 'maar[onnx]'"
        ) from None
    if batch is not None and batch < 1:
        raise UsageError(f"batch = {batch} (accepted: 1 or more, or none for any)")
    check(net, shape)
    _require_float32(net)
    graph = _Graph(tuple(shape))
    last = graph.run(net, "x", "")
    graph.node("Identity", [last], name="y")
    steps = trace(net, shape)
    out = steps[-1].shape if steps else shape
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "maar",
            [helper.make_tensor_value_info("x", kind, [batch or BATCH, *shape])],
            [helper.make_tensor_value_info("y", kind, [batch or BATCH, *out])],
            graph.tensors,
        ),
        producer_name="maar",
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    return model.SerializeToString(deterministic=True)


def _require_float32(net: nn.Sequential) -> None:
    for name, tensor in net.state_dict().items():
        if tensor.is_floating_point() and tensor.dtype != torch.float32:
            raise UsageError(f"weight {name} is of type {tensor.dtype} (accepted: torch.float32)")


@dataclass
class _Graph:
    """The nodes and weights written so far, and the shape that the next layer sees."""

    shape: Shape
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    tensors: list[onnx.TensorProto] = field(default_factory=list)

    def run(self, net: nn.Sequential, value: str, prefix: str) -> str:
        """Write the layers after the value of that name; the name of what comes out."""
        for position, layer in enumerate(net):
            if type(layer) not in RULES or is_odd(layer):
                raise UsageError(
                    f"layer {prefix}{position} is a {type(layer).__name__}, which maar does not "
                    "write as ONNX; use torch.onnx.export on the module"
                )
            value = RULES[type(layer)](self, layer, value, f"{prefix}{position}")
            if not isinstance(layer, Residual):
                self.shape = OPERATIONS[type(layer)].shape(layer, self.shape)
        return value

    def node(self, kind: str, inputs: list[str], name: str, **attributes: Any) -> str:
        """One node with one output, called like the node itself."""
        import onnx

        self.nodes.append(onnx.helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def weight(self, name: str, tensor: Tensor | np.ndarray) -> str:
        """One tensor of weights."""
        from onnx import numpy_helper

        array = tensor.detach().cpu().numpy() if isinstance(tensor, Tensor) else tensor
        self.tensors.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def per_channel(self, name: str, tensor: Tensor) -> str:
        """One number per channel, in a shape that broadcasts over the images."""
        return self.weight(name, tensor.reshape(1, -1, *[1] * (len(self.shape) - 1)))


def _normalize(graph: _Graph, layer: Normalize, x: str, at: str) -> str:
    x = graph.node("Sub", [x, graph.per_channel(f"{at}.mean", layer.mean)], f"{at}.sub")
    return graph.node("Div", [x, graph.per_channel(f"{at}.std", layer.std)], f"{at}.div")


def _conv(graph: _Graph, layer: nn.Conv2d, x: str, at: str) -> str:
    assert not isinstance(layer.padding, str)  # `check` has seen to it
    return graph.node(
        "Conv",
        [x, *_weight_bias(graph, layer, at)],
        at,
        kernel_shape=list(layer.kernel_size),
        strides=list(layer.stride),
        pads=[*layer.padding, *layer.padding],
        dilations=list(layer.dilation),
        group=layer.groups,
    )


def _linear(graph: _Graph, layer: nn.Linear, x: str, at: str) -> str:
    return graph.node("Gemm", [x, *_weight_bias(graph, layer, at)], at, transB=1)


def _weight_bias(graph: _Graph, layer: nn.Conv2d | nn.Linear, at: str) -> list[str]:
    names = [graph.weight(f"{at}.weight", layer.weight)]
    return names if layer.bias is None else [*names, graph.weight(f"{at}.bias", layer.bias)]


def _batch_norm(graph: _Graph, layer: nn.BatchNorm1d | nn.BatchNorm2d, x: str, at: str) -> str:
    ones = np.ones(layer.num_features, np.float32)
    mean, var = layer.running_mean, layer.running_var
    assert mean is not None  # `check` has seen to it
    assert var is not None
    inputs = [
        graph.weight(f"{at}.weight", ones if layer.weight is None else layer.weight),
        graph.weight(f"{at}.bias", 0 * ones if layer.bias is None else layer.bias),
        graph.weight(f"{at}.mean", mean),
        graph.weight(f"{at}.var", var),
    ]
    return graph.node("BatchNormalization", [x, *inputs], at, epsilon=layer.eps)


def _pool(graph: _Graph, layer: nn.AvgPool2d, x: str, at: str) -> str:
    kernel, stride, padding = (
        [size, size] if isinstance(size, int) else list(size)
        for size in (layer.kernel_size, layer.stride, layer.padding)
    )
    return graph.node(
        "AveragePool",
        [x],
        at,
        kernel_shape=kernel,
        strides=stride,
        pads=padding * 2,
        count_include_pad=1,
    )


def _relu(graph: _Graph, layer: nn.ReLU, x: str, at: str) -> str:
    return graph.node("Relu", [x], at)


def _flatten(graph: _Graph, layer: nn.Flatten, x: str, at: str) -> str:
    return graph.node("Flatten", [x], at, axis=1)


def _residual(graph: _Graph, layer: Residual, x: str, at: str) -> str:
    shape = graph.shape
    body = graph.run(layer.body, x, f"{at}.body.")
    out, graph.shape = graph.shape, shape
    shortcut = graph.run(layer.shortcut, x, f"{at}.shortcut.")
    graph.shape = out
    return graph.node("Add", [body, shortcut], at)


def _plain(kind: str) -> Callable[[_Graph, Any, str, str], str]:
    return lambda graph, layer, x, at: graph.node(kind, [x], at)


def _leaky_relu(graph: _Graph, layer: nn.LeakyReLU, x: str, at: str) -> str:
    return graph.node("LeakyRelu", [x], at, alpha=layer.negative_slope)


def _clip(low: str | float, high: str | float) -> Callable[[_Graph, Any, str, str], str]:
    """A Clip between two numbers, or between two attributes of the layer."""

    def write(graph: _Graph, layer: nn.Module, x: str, at: str) -> str:
        inputs = [x]
        for name, end in (("low", low), ("high", high)):
            end = getattr(layer, end) if isinstance(end, str) else end
            number = None if end is None else np.array(end, np.float32)
            inputs.append("" if number is None else graph.weight(f"{at}.{name}", number))
        return graph.node("Clip", inputs, at)

    return write


def _max_pool(graph: _Graph, layer: nn.MaxPool2d, x: str, at: str) -> str:
    stride = layer.kernel_size if layer.stride is None else layer.stride
    options = (layer.kernel_size, stride, layer.padding, layer.dilation)
    kernel, strides, padding, dilations = (
        [size, size] if isinstance(size, int) else list(size) for size in options
    )
    return graph.node(
        "MaxPool",
        [x],
        at,
        kernel_shape=kernel,
        strides=strides,
        pads=padding * 2,
        dilations=dilations,
        ceil_mode=int(layer.ceil_mode),
    )


RULES: dict[type[nn.Module], Callable[[_Graph, Any, str, str], str]] = {
    Normalize: _normalize,
    nn.Conv2d: _conv,
    nn.Linear: _linear,
    nn.ReLU: _relu,
    nn.Flatten: _flatten,
    nn.BatchNorm1d: _batch_norm,
    nn.BatchNorm2d: _batch_norm,
    nn.AvgPool2d: _pool,
    Residual: _residual,
    nn.LeakyReLU: _leaky_relu,
    nn.ReLU6: _clip(0.0, 6.0),
    nn.Hardtanh: _clip("min_val", "max_val"),
    Clip: _clip("low", "high"),
    Abs: _plain("Abs"),
    nn.Sigmoid: _plain("Sigmoid"),
    nn.Tanh: _plain("Tanh"),
    nn.MaxPool2d: _max_pool,
}
