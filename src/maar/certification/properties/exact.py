"""The network in rational numbers at one point, where it is small enough for that."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from torch import nn

from maar.core import clock
from maar.domains.graph import Graph
from maar.networks.maps import Add

# Coefficients that are worth a tie.
LARGEST = 2_000_000


def exactly(graph: Graph, x: Sequence[Fraction]) -> list[Fraction] | None:
    """The outputs at `x`; None for a network that is too large or has other operations."""
    ops = [node.op for node in graph.nodes]
    if not all(isinstance(op, nn.Linear | nn.ReLU | nn.Flatten | Add) for op in ops):
        return None
    if sum(op.weight.numel() for op in ops if isinstance(op, nn.Linear)) > LARGEST:
        return None
    values = [list(x)]
    for node in graph.nodes:
        sources = [values[i] for i in node.inputs]
        if isinstance(node.op, nn.Linear):
            values.append(_linear(node.op, sources[0]))
        elif isinstance(node.op, nn.ReLU):
            values.append([max(v, Fraction(0)) for v in sources[0]])
        elif isinstance(node.op, Add):
            values.append([a + b for a, b in zip(*sources, strict=True)])
        else:
            values.append(sources[0])
    return values[-1]


def _linear(op: nn.Linear, x: Sequence[Fraction]) -> list[Fraction]:
    place = [j for j, value in enumerate(x) if value]
    weight = op.weight[:, place].tolist()
    bias = [0.0] * len(weight) if op.bias is None else op.bias.tolist()
    out = []
    for row, b in zip(weight, bias, strict=True):
        clock.check()
        terms = (Fraction(w) * x[j] for w, j in zip(row, place, strict=True) if w)
        out.append(sum(terms, Fraction(b)))
    return out
