"""A network as a flat list of operations, the form that every bound domain walks over.

A plain `nn.Sequential` is already such a list; nested Sequentials and blocks are opened, a
Residual becomes its two branches and an `Add`, piecewise-linear layers become affine maps and
ReLUs (`rewriting`). Value 0 is the input and node i makes value i+1, so a domain is a loop over
nodes and a table *module type -> rule*.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from maar.core.errors import UsageError
from maar.domains.linear_map import LINEAR, Mapped
from maar.domains.rewriting import REWRITES, Direct
from maar.networks.layers import Normalize, Residual
from maar.networks.maps import Add, Combine, Dag, Reshape, Scale
from maar.networks.operations import NO_OPS, OPERATIONS, is_odd

# A matrix with fewer than one coefficient in so many is worth multiplying as a sparse one.
SPARSE = 20


@dataclass(frozen=True)
class Node:
    """One operation: `op` applied to the values `inputs`; `path` is its place in the network."""

    op: nn.Module
    inputs: tuple[int, ...]
    path: str
    direct: Direct | None = None
    """A rule for intervals of what this node and those before it compute together."""


@dataclass
class Graph:
    """The nodes, the shape of each value without its batch dimension, and where the ReLUs are."""

    nodes: list[Node]
    shapes: list[torch.Size]
    relus: list[int] = field(init=False)
    smooth: list[int] = field(init=False)
    cache: dict[Any, Any] = field(default_factory=dict)
    constant: bool = False

    def __post_init__(self) -> None:
        self.relus = [i for i, node in enumerate(self.nodes) if isinstance(node.op, nn.ReLU)]
        self.smooth = [
            i
            for i, node in enumerate(self.nodes)
            if type(node.op) in OPERATIONS and OPERATIONS[type(node.op)].kind == "smooth"
        ]

    def remember(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return `make()`, kept for the next call if the weights are promised not to change."""
        if not self.constant:
            return make()
        if key not in self.cache:
            self.cache[key] = make()
        return self.cache[key]

    def keep_sparse(self) -> None:
        """Keep matrices of few coefficients as sparse ones too. The weights must never change."""
        for i, node in enumerate(self.nodes):
            weight = node.op.weight if isinstance(node.op, nn.Linear) else None
            if weight is not None and SPARSE * int((weight != 0).sum()) < weight.numel():
                kept = [each.to_sparse().coalesce() for each in (weight, weight.abs(), weight.T)]
                self.cache[i, "sparse"] = tuple(kept)

    def sparse(self, i: int) -> tuple[Tensor, Tensor, Tensor] | None:
        """W, |W| and the transpose of W of node i, where they are kept."""
        return self.cache.get((i, "sparse"))

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights (float32 for a network without any)."""
        for node in self.nodes:
            for tensor in (*node.op.parameters(), *node.op.buffers()):
                if tensor.is_floating_point():
                    return tensor.dtype
        return torch.float32


def by_sparse(matrix: Tensor, x: Tensor) -> Tensor:
    """Sparse matrix times each of the vectors x, [..., inputs]."""
    flat = x.reshape(-1, x.shape[-1])
    return torch.sparse.mm(matrix, flat.T).T.reshape(*x.shape[:-1], len(matrix))


def one_affine(graph: Graph, value: int) -> bool:
    """Whether a value is one affine layer away from the input, so that intervals are exact there.

    A scale per channel or a Flatten keeps a box a box; one matrix after it keeps every
    neuron's range exact; a second matrix does not.
    """
    matrices = 0
    while value > 0:
        node = graph.nodes[value - 1]
        source, *others = node.inputs
        if others or isinstance(node.op, nn.ReLU) or (value - 1) in graph.smooth:
            return False
        matrices += not _keeps_boxes(node.op)
        value = source
    return matrices <= 1


def _keeps_boxes(op: nn.Module) -> bool:
    if isinstance(op, Mapped):
        return op.is_move or isinstance(op.layer, Scale)
    return isinstance(op, (nn.Flatten, Combine, *SCALES))


SCALES = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, Normalize)


def trace(net: nn.Module, shape: tuple[int, ...] | torch.Size) -> Graph:
    """Open a network that takes images of `shape` into a Graph over its own, live modules."""
    parameter = next(net.parameters(), None)
    like = torch.zeros(()) if parameter is None else parameter
    opening = _Opening([torch.zeros((1, *shape), dtype=like.dtype, device=like.device)])
    with torch.no_grad():
        end = opening.open(net, (0,), "")
        if end != len(opening.nodes):
            # (the last value is the output)
            opening.add(Mapped(Reshape(opening.shape(end))), end)
    return Graph(opening.nodes, [value.shape[1:] for value in opening.values])


@dataclass
class _Opening:
    """A graph that is being made; each value once, for its shape."""

    values: list[Tensor]
    nodes: list[Node] = field(default_factory=list)
    path: str = ""

    def shape(self, value: int) -> torch.Size:
        return self.values[value].shape[1:]

    def open(self, module: nn.Module, inputs: tuple[int, ...], path: str) -> int:
        """Append the nodes of `module` on these values; return the value that it makes."""
        prefix = f"{path}." if path else ""
        if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
            for name, child in module.named_children():
                inputs = (self.open(child, inputs, prefix + name),)
            return inputs[0]
        if isinstance(module, Residual):
            body = self.open(module.body, inputs, f"{prefix}body")
            shortcut = self.open(module.shortcut, inputs, f"{prefix}shortcut")
            self.path = path
            return self.add(Add(), body, shortcut)
        if isinstance(module, Dag):
            values = list(inputs)
            for k, (layer, sources) in enumerate(zip(module.layers, module.inputs, strict=True)):
                values.append(self.open(layer, tuple(values[i] for i in sources), f"{prefix}{k}"))
            return values[-1]
        if isinstance(module, NO_OPS):
            return inputs[0]
        self.path = path
        return self._layer(module, inputs)

    def _layer(self, layer: nn.Module, inputs: tuple[int, ...]) -> int:
        # A subclass may compute anything.
        operation = OPERATIONS.get(type(layer))
        where = f"layer {self.path or '0'}"
        if operation is None:
            raise UsageError(f"{where} is a {type(layer).__name__}; supported: {names()}")
        reason = operation.refuse(layer)
        if operation.kind == "last":
            reason = "bounds are of the scores before it: leave it out"
        if reason:
            raise UsageError(f"{where} ({layer}): {reason}")
        shape = self.shape(inputs[0])
        if type(layer) in REWRITES:
            self._value(layer, inputs)  # (does it fit?)
            return REWRITES[type(layer)](self.add, layer, inputs, shape)
        if isinstance(layer, nn.Linear) and len(shape) > 1:
            return self.add(Mapped(layer), *inputs)
        if type(layer) in LINEAR and (type(layer) not in FAST or is_odd(layer)):
            return self.add(Mapped(layer), *inputs)
        return self.add(layer, *inputs)

    def add(self, op: nn.Module, *inputs: int, direct: Direct | None = None) -> int:
        """Append one node; return the value that it makes."""
        self.values.append(self._value(op, inputs))
        self.nodes.append(Node(op, inputs, self.path, direct))
        return len(self.nodes)

    def _value(self, op: nn.Module, inputs: tuple[int, ...]) -> Tensor:
        given = [self.values[i] for i in inputs]
        # BatchNorm in training mode refuses single images and would move its statistics.
        if isinstance(op, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
            return given[0]
        try:
            return op(*given)
        except (RuntimeError, IndexError) as error:
            shapes = " and ".join(str(tuple(value.shape[1:])) for value in given)
            raise UsageError(
                f"layer {self.path} ({type(op).__name__}) does not take a value of shape "
                f"{shapes}: {str(error).splitlines()[0]}"
            ) from None


FAST = (nn.Conv2d, nn.Linear, nn.AvgPool2d)
"""Linear maps for which each domain has a rule of its own."""


def names() -> str:
    """The layers that are supported, for messages."""
    return ", ".join(layer.__name__ for layer in (*OPERATIONS, nn.Sequential))


def rule_of(rules: Mapping[type[nn.Module], Any], node: Node, domain: str) -> Any:
    """A domain's rule for a node; a `UsageError` where it has none."""
    if type(node.op) not in rules:
        layer = node.op.layer if isinstance(node.op, Mapped) else node.op
        raise UsageError(
            f"layer {node.path} is a {type(layer).__name__}, for which {domain} has no rule"
        )
    return rules[type(node.op)]


def compile_network(
    net: nn.Module, shape: tuple[int, ...] | torch.Size, dtype: torch.dtype | None = None
) -> Graph:
    """Trace a frozen copy of `net` in `dtype`: what certification uses, image after image.

    The copy's weights never change, so rules may keep what they derive from them.
    """
    frozen = copy.deepcopy(net).eval().requires_grad_(False)
    if dtype is not None:
        frozen = frozen.to(dtype)
    graph = trace(frozen, shape)
    graph.constant = True
    return graph
