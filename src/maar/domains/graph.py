"""A network as a flat list of operations, the form that every bound domain walks over.

A plain `nn.Sequential` is already such a list; nested Sequentials are opened and a
Residual becomes its two branches and an `Add`. Value 0 is the input and node i makes
value i+1, so a domain is a loop over nodes and a table *module type -> rule*.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from maar.core.errors import UsageError
from maar.networks.layers import Normalize, Residual
from maar.networks.supported import SUPPORTED


class Add(nn.Module):
    """The sum of two values: where a Residual's branches meet."""

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return left + right


# What a domain must have a rule for. Dropout and Identity do nothing in evaluation.
LAYERS: tuple[type[nn.Module], ...] = (
    nn.Conv2d,
    nn.Linear,
    nn.ReLU,
    nn.Flatten,
    nn.AvgPool2d,
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    Normalize,
    Residual,
    nn.Sequential,
)
# A matrix with fewer than one coefficient in so many is worth multiplying as a sparse one.
SPARSE = 20
NO_OPS = (nn.Identity, nn.Dropout, nn.Dropout2d)


@dataclass(frozen=True)
class Node:
    """One operation: `op` applied to the values `inputs`; `path` is its place in the network."""

    op: nn.Module
    inputs: tuple[int, ...]
    path: str


@dataclass
class Graph:
    """The nodes, the shape of each value without its batch dimension, and where the ReLUs are."""

    nodes: list[Node]
    shapes: list[torch.Size]
    relus: list[int] = field(init=False)
    cache: dict[Any, Any] = field(default_factory=dict)
    constant: bool = False

    def __post_init__(self) -> None:
        self.relus = [i for i, node in enumerate(self.nodes) if isinstance(node.op, nn.ReLU)]

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
        if isinstance(node.op, nn.ReLU | Add):
            return False
        matrices += isinstance(node.op, nn.Conv2d | nn.Linear | nn.AvgPool2d)
        value = node.inputs[0]
    return matrices <= 1


def trace(net: nn.Module, shape: tuple[int, ...] | torch.Size) -> Graph:
    """Open a network that takes images of `shape` into a Graph over its own, live modules."""
    nodes: list[Node] = []
    _open(net, 0, "", nodes)
    parameter = next(net.parameters(), None)
    like = torch.zeros(()) if parameter is None else parameter
    values = [torch.zeros((1, *shape), dtype=like.dtype, device=like.device)]
    with torch.no_grad():
        for node in nodes:
            given = [values[i] for i in node.inputs]
            _refuse_options(node, given[0].shape[1:])
            try:
                # BatchNorm in training mode refuses single images and would move its statistics.
                if isinstance(node.op, nn.BatchNorm1d | nn.BatchNorm2d):
                    values.append(given[0])
                else:
                    values.append(node.op(*given))
            except RuntimeError as error:
                raise UsageError(
                    f"layer {node.path} ({type(node.op).__name__}) does not take a value of shape "
                    f"{tuple(given[0].shape[1:])}: {str(error).splitlines()[0]}"
                ) from None
    return Graph(nodes, [value.shape[1:] for value in values])


def _refuse_options(node: Node, shape: torch.Size) -> None:
    """Options that no domain has a rule for, and what torch would do that no domain does."""
    rule = SUPPORTED.get(type(node.op))
    reason = rule.refuse(node.op) if rule else ""
    if isinstance(node.op, nn.Linear) and len(shape) != 1:
        reason = f"it takes flat features, not shape {tuple(shape)} (nn.Flatten() before it)"
    if reason:
        raise UsageError(f"layer {node.path} ({node.op}): {reason}")


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


def _open(module: nn.Module, source: int, path: str, nodes: list[Node]) -> int:
    """Append the nodes of `module` reading value `source`; return the value that it makes."""
    prefix = f"{path}." if path else ""
    if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
        for name, child in module.named_children():
            source = _open(child, source, prefix + name, nodes)
        return source
    if isinstance(module, Residual):
        body = _open(module.body, source, f"{prefix}body", nodes)
        shortcut = _open(module.shortcut, source, f"{prefix}shortcut", nodes)
        nodes.append(Node(Add(), (body, shortcut), path))
        return len(nodes)
    if isinstance(module, NO_OPS):
        return source
    # A subclass may compute anything.
    if type(module) not in LAYERS:
        names = ", ".join(layer.__name__ for layer in LAYERS)
        raise UsageError(f"layer {path or '0'} is a {type(module).__name__}; supported: {names}")
    nodes.append(Node(module, (source,), path))
    return len(nodes)
