"""Read an ONNX file into a plain `nn.Sequential`: a chain of layers, residual blocks and Dags.

The file is read for one image. Each node appends its layers to a `Builder`, which cuts them into a
chain in the end.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from maar.core import limits
from maar.core.errors import RunError, UsageError, printable
from maar.exchange.onnx_fields import require_few
from maar.exchange.onnx_table import OPERATORS, REFUSED
from maar.exchange.onnx_values import Link, Node, Value, inner, is_exact
from maar.exchange.packed import read_packed
from maar.networks.assembling import Builder
from maar.networks.build import check_mean_std
from maar.networks.checking import check
from maar.networks.layers import Normalize
from maar.networks.operations import Shape

if TYPE_CHECKING:
    import numpy as np
    import onnx

# What an operator raises: ValueError with its reason, the others for a node that is not as the
# standard has it, such as a string where numbers belong.
MALFORMED = (ValueError, IndexError, TypeError, OverflowError, MemoryError, RuntimeError)

FLOATS, DOUBLE = (1, 10, 11), 11  # of onnx.TensorProto: float32, float16, float64
DEFAULT_DOMAIN = ("", "ai.onnx")  # two names of one
ABOUT = ("name", "type", "doc_string", "ref_attr_name")  # an attribute; its value is beside them
OLDEST_OPSET = 7  # before it, broadcasting was written differently
STRINGS, LAST_OF_WHOLE_BYTES = 8, 16  # of onnx.TensorProto; numbers of fewer bits come behind


def read_onnx(
    path: str | Path,
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Sequential:
    """The network in the file, in evaluation mode.

    `mean` and `std` are for files that take the already normalised image: they become a Normalize
    in front, so that the network takes pixels in [0,1].
    """
    return read_with_shape(path, mean=mean, std=std)[0]


def read_with_shape(
    path: str | Path,
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> tuple[nn.Sequential, Shape]:
    """The same, and the shape of the image that the file takes."""
    try:
        reader = _Reader(Path(path))
        output = reader.run()
    except _Refused as error:
        # A first size above 1 may be a batch that the file fixes, or an axis of the one image.
        if not error.batch:
            raise
        try:
            reader = _Reader(Path(path), has_batch=False)
            output = reader.run()
        except UsageError:
            raise error from None
    if len(output.shape) != 1:
        if sum(size > 1 for size in output.shape) > 1:
            raise UsageError(f"{path}: the output has shape {list(output.shape)}, not class scores")
        output = Link(reader.builder.add(nn.Flatten(), output.number), (), ())
    net = reader.builder.network(output.number)
    if mean is not None or std is not None:
        check_mean_std(reader.image.shape[0], mean, std)
    if mean is not None and std is not None:
        net.insert(0, Normalize(mean, std))
    check(net, reader.image.shape)
    return net.eval(), reader.image.shape


class _Reader:
    """One pass over one file's graph."""

    def __init__(self, path: Path, *, has_batch: bool = True) -> None:
        self.path, self.has_batch = path, has_batch
        model = load(path)
        self.graph, self.opset = model.graph, _opset(model)
        self.tensors = {tensor.name: tensor for tensor in self.graph.initializer}
        self.name, self.batch, self.image = self._input()
        self.nodes = self._needed()
        self.uses = Counter(name for node in self.nodes for name in node.input)
        self.builder = Builder([self.image.shape])
        self.values: dict[str, Value] = {}
        self.names: Counter[int] = Counter()  # of each value, by its id
        self.allotted = self.beside = 0
        self.dtype = self._dtype()

    def run(self) -> Link:
        for position, node in enumerate(self.nodes):
            self._run_node(position, node)
        output = self._value(self.graph.output[0].name)
        if not isinstance(output, Link):
            raise UsageError(f"{self.path}: the output does not depend on the input")
        return output

    def _input(self) -> tuple[str, int | None, Link]:
        """The input's name, its fixed batch size, if any, and the image."""
        inputs = [value for value in self.graph.input if value.name not in self.tensors]
        if len(inputs) != 1 or len(self.graph.output) != 1:
            raise UsageError(
                f"{self.path}: has {len(inputs)} inputs and {len(self.graph.output)} outputs; "
                "only one of each is supported"
            )
        kind = inputs[0].type.tensor_type
        if kind.elem_type not in FLOATS:
            raise UsageError(
                f"{self.path}: input {inputs[0].name[:40]!r} is not of type float32 "
                "(accepted: float16, float32, float64)"
            )
        sizes = [size.dim_value for size in kind.shape.dim]
        if not sizes or min(sizes[1:], default=1) < 1 or (len(sizes) == 1 and sizes[0] < 1):
            spelled = [size.dim_value or size.dim_param[:40] or "?" for size in kind.shape.dim]
            raise UsageError(
                f"{self.path}: input {inputs[0].name[:40]!r} has shape {spelled[:10]}; "
                "needed are fixed sizes behind the batch axis"
            )
        is_batched = len(sizes) > 1 and (self.has_batch or sizes[0] <= 1)
        batch = sizes[0] if is_batched and sizes[0] > 1 else None
        full = (1, *sizes[1:]) if is_batched else tuple(sizes)
        image = Link(0, inner(full), full)
        limits.require(math.prod(image.shape), limits.ELEMENTS, self.path, "elements of the input")
        elements = (batch or 1) * math.prod(image.shape)
        limits.require(elements, limits.BATCH_ELEMENTS, self.path, "elements of a batch of inputs")
        return inputs[0].name, batch, image

    def _dtype(self) -> torch.dtype:
        """float64 where a number of the file is none of float32."""
        import numpy as np

        doubles = (t for t in self.tensors.values() if t.data_type == DOUBLE)
        exact = all(is_exact(self._array(tensor), np.float32) for tensor in doubles)
        return torch.float32 if exact else torch.float64

    def _needed(self) -> list[onnx.NodeProto]:
        """The nodes that the output depends on, in the file's order, with none unsupported."""
        nodes = needed(self.graph)
        limits.require(len(nodes), limits.NODES, self.path, "nodes")
        for position, node in enumerate(nodes):
            if node.domain not in DEFAULT_DOMAIN or node.op_type not in OPERATORS:
                reason = REFUSED.get(node.op_type, f"(supported: {', '.join(OPERATORS)})")
                raise self._refusal(position, node, f"not supported {reason}")
        return nodes

    def _run_node(self, position: int, proto: onnx.NodeProto) -> None:
        outputs = list(proto.output)
        try:
            node = Node(
                inputs=[self._value(name) if name else None for name in proto.input],
                outputs=len(outputs),
                attributes=self._attributes(proto),
                opset=self.opset,
                batch=self.batch,
                dtype=self.dtype,
                builder=self.builder,
                sole=lambda link: self._sole(link, proto),
                allot=self._allot,
            )
            made = OPERATORS[proto.op_type](node)
            values = made if isinstance(made, list) else [made]
            if node.attributes:
                raise ValueError(f"attribute {next(iter(node.attributes))!r} is not supported")
            if any(name for name in outputs[len(values) :]):
                raise ValueError("more than one output is not supported")
            for value in values:
                if value is not None:
                    self._require_room(value)
        except MALFORMED as reason:
            raise self._refusal(position, proto, str(reason)) from reason
        for output, value in zip(outputs, values, strict=False):
            if output in self.values or output in self.tensors or output == self.name:
                raise self._refusal(position, proto, f"value {output!r} is computed twice")
            if output and value is not None:
                self._name(output, value)

    def _name(self, name: str, value: Value) -> None:
        self.values[name] = value
        self.names[id(value)] += 1

    def _allot(self, elements: int) -> None:
        self.allotted += elements
        if self.allotted > limits.CONSTANT_ELEMENTS:
            raise ValueError(
                f"the graph computes constants of {self.allotted} elements (accepted: up to "
                f"{limits.CONSTANT_ELEMENTS})"
            )

    def _require_room(self, value: Value) -> None:
        if not isinstance(value, Link):
            return
        elements = math.prod(value.shape)
        for count, most, what in (
            (elements, limits.ELEMENTS, "elements"),
            (elements * (self.batch or 1), limits.BATCH_ELEMENTS, "elements for the whole batch"),
        ):
            if count > most:
                raise ValueError(f"gives {count} {what} (accepted: up to {most})")

    def _sole(self, link: Link, proto: onnx.NodeProto) -> bool:
        names = [name for name in proto.input if self.values.get(name) is link]
        return self.names[id(link)] == 1 == self.uses[names[0]]

    def _value(self, name: str) -> Value:
        if name == self.name:
            return self.image
        if name in self.values:
            return self.values[name]
        if name in self.tensors:
            self._name(name, self._array(self.tensors[name]))
            return self.values[name]
        raise UsageError(f"{self.path}: value {name[:40]!r} is used before any node computes it")

    def _attributes(self, proto: onnx.NodeProto) -> dict[str, Any]:
        import onnx

        schema = onnx.defs.get_schema(proto.op_type, self.opset).attributes
        values: dict[str, Any] = {}
        for item in proto.attribute:
            if item.name in values:
                raise ValueError(f"attribute {item.name!r} stands there twice")
            if item.name not in schema:
                raise ValueError(f"attribute {item.name!r} is not supported")
            kind: Any = schema[item.name].type
            if item.type != kind.value:
                raise ValueError(f"attribute {item.name!r} is of ONNX's type {item.type}")
            if sum(field.name not in ABOUT for field, _ in item.ListFields()) > 1:
                raise ValueError(f"attribute {item.name!r} has two values")
            values[item.name] = self._attribute(item)
        return values

    def _attribute(self, item: onnx.AttributeProto) -> Any:
        import onnx

        value = onnx.helper.get_attribute_value(item)
        if isinstance(value, onnx.TensorProto):
            return self._array(value)
        return value.decode(errors="replace") if isinstance(value, bytes) else value

    def _array(self, tensor: onnx.TensorProto) -> np.ndarray:
        from onnx import external_data_helper, numpy_helper

        if tensor.data_type == STRINGS or tensor.data_type > LAST_OF_WHOLE_BYTES:
            raise UsageError(
                f"{self.path}: tensor {tensor.name[:40]!r} is of ONNX's type {tensor.data_type} "
                "(accepted: whole and floating-point numbers of 8 bits and more)"
            )
        if external_data_helper.uses_external_data(tensor):
            if len({entry.key for entry in tensor.external_data}) < len(tensor.external_data):
                raise UsageError(f"{self.path}: tensor {tensor.name[:40]!r} lies in two places")
            beside = external_data_helper.ExternalDataInfo(tensor)
            where, file = beside.location, self.path.parent / beside.location
            self.beside += beside.length or (file.stat().st_size if file.is_file() else 0)
            limits.require(self.beside, limits.ONNX_BYTES, self.path, "bytes of files beside it")
            try:
                external_data_helper.load_external_data_for_tensor(tensor, str(self.path.parent))
            except Exception as error:
                raise RunError(
                    f"{self.path}: tensor {tensor.name[:40]!r} lies in the file {where[:200]!r} "
                    f"beside it, which cannot be read ({_line(error)})"
                ) from error
        try:
            return numpy_helper.to_array(tensor)
        except Exception as error:
            raise RunError(
                f"{self.path}: tensor {tensor.name[:40]!r} is damaged ({_line(error)})"
            ) from error

    def _refusal(self, position: int, node: onnx.NodeProto, reason: str) -> UsageError:
        name = repr(node.name) if node.name else f"{position} (output {', '.join(node.output)})"
        domain = f"{node.domain}." if node.domain else ""
        message = f"{self.path}: node {name}, operator {domain}{node.op_type}: {reason}"
        return _Refused(printable(message), self.batch)


class _Refused(UsageError):
    """A node that is not supported, in a file with this batch size."""

    def __init__(self, message: str, batch: int | None) -> None:
        super().__init__(message)
        self.batch = batch


def needed(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The nodes that the output depends on, in the file's order."""
    wanted, nodes = {graph.output[0].name}, []
    for node in reversed(graph.node):
        if wanted.intersection(node.output):
            wanted.update(node.input)
            nodes.append(node)
    return nodes[::-1]


def load(path: Path) -> onnx.ModelProto:
    """The file's content, which has a graph and is not too large."""
    try:
        import onnx
    except ImportError:
        raise RunError(
            "reading ONNX files needs the onnx package: pip install 'maar[onnx]'"
        ) from None
    content = read_packed(path, "ONNX file", limits.ONNX_BYTES)
    require_few(content, path)
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # protobuf's DecodeError, of a module that moves between versions
        raise RunError(f"{path} is not an ONNX file, or is damaged") from error
    # Protobuf reads many a string of bytes as an empty message.
    if not model.graph.node:
        raise RunError(f"{path} is not an ONNX file, or is damaged: it holds no graph")
    _require_one_meaning(model, path)
    opset, newest = _opset(model), onnx.defs.onnx_opset_version()
    if not OLDEST_OPSET <= opset <= newest:
        raise UsageError(
            f"{path} uses opset {opset}; supported is {OLDEST_OPSET} to {newest}, the newest that "
            "the installed onnx package knows"
        )
    return model


def _opset(model: onnx.ModelProto) -> int:
    return max((o.version for o in model.opset_import if o.domain in DEFAULT_DOMAIN), default=1)


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _require_one_meaning(model: onnx.ModelProto, path: Path) -> None:
    """Refuse operators and names that stand for two things: runtimes differ on them."""
    if any(function.domain in DEFAULT_DOMAIN for function in model.functions):
        raise UsageError(f"{path}: a function of the file has the name of a standard operator")
    if len({opset.version for opset in model.opset_import if opset.domain in DEFAULT_DOMAIN}) > 1:
        raise UsageError(f"{path}: it names two versions of the standard operators")
    graph = model.graph
    names = [tensor.name for tensor in graph.initializer]
    names += [tensor.values.name for tensor in graph.sparse_initializer]
    names += [value.name for value in graph.input if value.name not in set(names)]
    names += [name for node in graph.node for name in node.output if name]
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        shown = "".join(c if c.isprintable() else "?" for c in name[:40])
        raise UsageError(f"{path}: {count} values have the name {shown!r}")
