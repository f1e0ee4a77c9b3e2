"""Any module as a network that maar handles: through torch.export, over the module's own numbers.

The exported graph is a list of ATen operations. Each is turned into layers of the one table of
operations by a rule of `aten`; parameters and buffers stay the module's, so that the network can
be trained. What has no rule is refused with the user's own source line.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_arg

from maar.core.errors import UsageError
from maar.networks.assembling import Builder
from maar.networks.aten import RULES
from maar.networks.aten_moves import HINTS, MOVES, SAME, Refusal, moved

BATCH = 5
"""Images of the example: a size that no axis has by accident."""


@dataclass(frozen=True)
class Value:
    """A value that is computed from the image; its number in the builder."""

    number: int


class Conversion:
    """One pass over an exported graph."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.values: dict[fx.Node, Any] = {}

    def run(self, graph: fx.Graph, tensors: dict[str, Any], image: str) -> int:
        """Convert all nodes; `tensors` has what each other input of the graph stands for."""
        for node in graph.nodes:
            if node.op == "placeholder":
                self.values[node] = Value(0) if node.name == image else tensors.get(node.name)
            elif node.op == "get_attr":
                self.values[node] = tensors.get(str(node.target))
            elif node.op == "call_function":
                self.values[node] = self._call(node)
            elif node.op == "output":
                return self._output(node)
        raise UsageError("the module's graph has no output")

    def _output(self, node: fx.Node) -> int:
        results: Any = self._resolved(node.args[0])
        results = results if isinstance(results, tuple | list) else [results]
        if len(results) != 1 or not isinstance(results[0], Value):
            raise UsageError("the module must give one tensor that depends on its input")
        return results[0].number

    def _call(self, node: fx.Node) -> Any:
        args = [self._resolved(arg) for arg in node.args]
        options = {name: self._resolved(arg) for name, arg in node.kwargs.items()}
        name = name_of(node)
        try:
            if name == "getitem":
                return args[0][args[1]]
            if not any(isinstance(arg, Value) for arg in _flat([*args, *options.values()])):
                return node.target(*args, **options)  # pyright: ignore[reportCallIssue]
            if name in SAME:
                if not node.meta["val"].is_floating_point():
                    raise Refusal("only casts among floating-point types are supported")
                return args[0]
            if name in MOVES:
                return self._move(node, args, options)
            if name not in RULES:
                hint = HINTS.get(name, "maar has no bound for it")
                raise Refusal(f"{name} is not supported: {hint}")
            made = RULES[name](self, *args, **options)
            return self._checked(node, made)
        except (Refusal, ValueError, TypeError, NotImplementedError) as error:
            raise UsageError(f"{place(node)}{error}") from None

    def _move(self, node: fx.Node, args: list[Any], options: dict[str, Any]) -> Any:
        x, *rest = args
        found = moved(node.target, self.shape(x), BATCH, rest, options)
        values = [self.add(layer, x) if layer is not None else x for layer in found]
        is_list = isinstance(node.meta["val"], tuple | list)
        return values if is_list else values[0]

    def _checked(self, node: fx.Node, made: Any) -> Any:
        """The value, if its shape is what torch says; anything else is a mistake of ours."""
        value, wanted = made, node.meta.get("val")
        if isinstance(value, Value) and isinstance(wanted, Tensor):
            shape = (BATCH, *self.shape(value))
            if shape != tuple(wanted.shape):
                raise Refusal(f"it mixes the images of a batch (shape {tuple(wanted.shape)})")
        return value

    def _resolved(self, arg: Any) -> Any:
        return map_arg(arg, lambda node: self.values[node])

    def shape(self, value: Value) -> tuple[int, ...]:
        """The shape of a value for one image."""
        return self.builder.shapes[value.number]

    def add(self, layer: nn.Module, *values: Value) -> Value:
        """Append a layer."""
        return Value(self.builder.add(layer, *(value.number for value in values)))


def _flat(args: Any) -> list[Any]:
    found: list[Any] = []
    for arg in args:
        found += _flat(arg) if isinstance(arg, tuple | list) else [arg]
    return found


def name_of(node: fx.Node) -> str:
    """The operation's name without its overload: conv2d."""
    target: Any = node.target
    return getattr(target, "__name__", str(target)).split(".")[0]


def place(node: fx.Node) -> str:
    """The line of the user's code that a node comes from."""
    lines = re.findall(r'File "([^"]+)", line (\d+), in \w+\n\s*(.*)', node.stack_trace or "")
    own = [line for line in lines if "/torch/" not in line[0]]
    if not own:
        return ""
    file, number, text = own[-1]
    return f"{file.rsplit('/', 1)[-1]}, line {number} ({text.strip()[:80]}): "


def from_torch(model: nn.Module, example: Tensor) -> nn.Sequential:
    """The module as a network, for inputs like those of the batch `example`."""
    shape = tuple(example.shape[1:])
    inputs = torch.zeros((BATCH, *shape), dtype=example.dtype, device=example.device)
    graph, tensors, image = _exported(model, inputs)
    conversion = Conversion(Builder([shape]))
    output = conversion.run(graph, tensors, image)
    return conversion.builder.network(output)


def _exported(model: nn.Module, inputs: Tensor) -> tuple[fx.Graph, dict[str, Any], str]:
    """The graph in evaluation mode, the live tensor behind each of its inputs, and the image's."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                program = torch.export.export(model, (inputs,), strict=False)
                program = program.run_decompositions({})
            except Exception as error:
                return _traced(model, inputs, error)
    finally:
        for module, training in modes.items():
            module.training = training
    signature = program.graph_signature
    live = {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }
    named = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    tensors = {name: live.get(path, program.state_dict.get(path)) for name, path in named.items()}
    for name, path in signature.inputs_to_lifted_tensor_constants.items():
        tensors[name] = program.constants[path]
    if signature.buffers_to_mutate:
        raise UsageError("the module changes its buffers in its forward pass")
    (image,) = signature.user_inputs
    return program.graph, tensors, str(image)


def _traced(model: nn.Module, inputs: Tensor, error: Exception) -> Any:
    """The same by torch.fx's tracer of tensors, where export fails."""
    from torch.fx.experimental.proxy_tensor import make_fx

    live = {**dict(model.named_parameters()), **dict(model.named_buffers())}

    def call(tensors: dict[str, Tensor], x: Tensor) -> Any:
        return torch.func.functional_call(model, tensors, (x,))

    try:
        traced = make_fx(call, tracing_mode="fake")(live, inputs)
    except Exception:
        line = (str(error).splitlines() or [type(error).__name__])[0][:300]
        raise UsageError(
            f"torch.export cannot follow {type(model).__name__}: {line} (a forward pass may not "
            "branch on the values of tensors)"
        ) from None
    places = [node for node in traced.graph.nodes if node.op == "placeholder"]
    tensors = {node.name: tensor for node, tensor in zip(places, live.values(), strict=False)}
    for node in traced.graph.nodes:
        if node.op == "get_attr":
            tensors[str(node.target)] = getattr(traced, str(node.target))
    return traced.graph, tensors, places[-1].name
