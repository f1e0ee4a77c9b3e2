"""BatchNorm multiplied into the layer before it, with gradients into both: for training by bounds.

    s (W h + b) + t  =  (s W) h + (s b + t)

A scale of its own makes a domain pass over every neuron several times more, forwards and backwards:
about a tenth of a step of IBP. (`networks.folding` does this once and for all, to a network whose
training is over.)
"""

from __future__ import annotations

import copy
from collections import Counter

from torch import Tensor, nn

from maar.domains.affine import scale_of
from maar.domains.graph import Graph, Node
from maar.domains.rewriting import Direct


def merged(graph: Graph) -> Graph:
    """The same map in fewer nodes, with the statistics that its BatchNorms have at this moment."""
    uses = Counter(value for node in graph.nodes for value in node.inputs)
    nodes: list[Node] = []
    shapes = [graph.shapes[0]]
    now = {0: 0}  # the value's number, from before to after
    for i, node in enumerate(graph.nodes):
        value = node.inputs[0]
        before = nodes[now[value] - 1] if now[value] else None
        if (
            before is not None
            and isinstance(node.op, nn.BatchNorm1d | nn.BatchNorm2d)
            and isinstance(before.op, nn.Conv2d | nn.Linear)
            and uses[value] == 1
        ):
            op = _scaled(before.op, *scale_of(node.op))
            nodes[now[value] - 1] = Node(op, before.inputs, before.path)
            now[i + 1] = now[value]
            continue
        inputs = tuple(now[each] for each in node.inputs)
        nodes.append(Node(node.op, inputs, node.path, _renumbered(node.direct, now)))
        shapes.append(graph.shapes[i + 1])
        now[i + 1] = len(nodes)
    return Graph(nodes, shapes)


def _renumbered(direct: Direct | None, now: dict[int, int]) -> Direct | None:
    return direct and (direct[0], tuple(now[value] for value in direct[1]))


def _scaled(layer: nn.Conv2d | nn.Linear, scale: Tensor, shift: Tensor) -> nn.Module:
    """The layer with other weights, which are not its own parameters but functions of them."""
    made = copy.copy(layer)
    made._parameters = {}
    weight = layer.weight * scale.view(-1, *(1 for _ in layer.weight.shape[1:]))
    bias = shift if layer.bias is None else layer.bias * scale + shift
    made.__dict__.update(weight=weight, bias=bias)
    return made
