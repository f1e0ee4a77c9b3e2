"""The zonotope domain with exact error terms: {a + A e, e in [-1,1]^m} (DeepZ, Singh et al. 2018).

A ReLU with l < 0 < u becomes the band s v + mu (1 + e_new), mu = max(-s l, (1-s) u) / 2, with
DeepZ's slope s = u / (u - l) or one that is given and may be trained; a stable ReLU adds no
term. In training the error terms are carried forward, batch by batch and differentiably. In
certification the same bounds come from one image's reduced network, many times faster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from maar.domains.affine import conv_of, per_channel, scale_of
from maar.domains.bound import Bound, Enclosure, Pair, Problem, intersect
from maar.domains.graph import Graph, rule_of
from maar.domains.interval import Boxes, output
from maar.domains.linear_map import Mapped
from maar.domains.reduced.network import reduce
from maar.domains.relax import parallel_lines
from maar.networks.layers import Normalize
from maar.networks.maps import Add, Combine, Concat


@dataclass(frozen=True)
class Zonotope(Bound):
    """Forward error terms; `slopes[k]` is [*shape] or [N, *shape] for ReLU k (None: DeepZ's).

    `budget`: see `reduce`.
    """

    name: ClassVar[str] = "zonotope"
    slopes: tuple[Tensor, ...] | None = None
    rounding: bool = False
    budget: int = 4 << 30

    def enclose(self, problem: Problem) -> Enclosure:
        """Differentiable on a network; on a compiled graph it is fast instead."""
        graph = problem.graph
        if graph.constant:
            return self._reduced(problem)
        if self.rounding:
            # Rounding is accounted for in the reduced network, which needs fixed weights: they
            # are, for the time of this call.
            with torch.no_grad():
                fixed = Graph(graph.nodes, graph.shapes, constant=True)
                return self._reduced(replace(problem, graph=fixed))
        return self._forward(problem)

    def _reduced(self, problem: Problem) -> Enclosure:
        parts, graph = [], problem.graph
        for n, part in enumerate(problem.images()):
            slopes = self.slopes and [
                slope[n] if slope.dim() > len(graph.shapes[i + 1]) else slope
                for slope, i in zip(self.slopes, graph.relus, strict=True)
            ]
            reduced, rows = reduce(part, self.rounding, True, slopes, self.budget)
            own = slopes and [
                slope.flatten()[layer.index]
                for slope, layer in zip(slopes, reduced.layers, strict=True)
            ]
            parts.append(Enclosure(*reduced.bounds(rows, own), reduced.boxes.pre()))
        return Enclosure.stack(parts)

    def _forward(self, problem: Problem) -> Enclosure:
        graph, C = problem.graph, problem.C
        boxes = Boxes.start(graph, problem.box, False)
        values = [_start(boxes)]
        for i, node in enumerate(graph.nodes):
            given = [values[v] for v in node.inputs]
            if isinstance(node.op, nn.ReLU):
                k = graph.relus.index(i)
                boxes.advance(i)
                # A zonotope may leave the box of its own inputs: intervals are tighter at times.
                boxes.refine(node.inputs[0], given[0].bounds())
                boxes.refine(node.inputs[0], problem.known_at(k))
                bounds = boxes.lb[node.inputs[0]], boxes.ub[node.inputs[0]]
                slope = None if self.slopes is None else self.slopes[k].to(bounds[0])
                values.append(_relu(given[0], k, *bounds, slope))
            else:
                values.append(rule_of(RULES, node, self.name)(node.op, *given))
        out = _flatten(nn.Flatten(), values[-1])
        if C is not None:
            # C differs from image to image, so this is no common linear map.
            C = C.to(out.centre)
            centre = (C @ out.centre.unsqueeze(-1)).squeeze(-1)
            out = Terms(centre, {k: e @ C.transpose(1, 2) for k, e in out.groups.items()})
        return Enclosure(*intersect(out.bounds(), output(boxes, C)), boxes.pre())


@dataclass(frozen=True)
class Terms:
    """centre [N, *shape], and the error terms by group: -1 the input's, k those of ReLU k.

    A group is [N, m, *shape]. Where branches meet, terms of the same group are the same e.
    """

    centre: Tensor
    groups: dict[int, Tensor]

    def radius(self) -> Tensor:
        """The L1 norm of the error terms, neuron by neuron."""
        return torch.stack([errors.abs().sum(1) for errors in self.groups.values()]).sum(0)

    def bounds(self) -> Pair:
        """The interval hull."""
        radius = self.radius()
        return self.centre - radius, self.centre + radius

    def mapped(self, centre: Tensor, apply: Callable[[Tensor], Tensor]) -> Terms:
        """A linear map applied to every error term, [N m, *shape] at a time."""
        groups = {}
        for k, errors in self.groups.items():
            groups[k] = apply(errors.flatten(0, 1)).unflatten(0, errors.shape[:2])
        return Terms(centre, groups)


def _start(boxes: Boxes) -> Terms:
    """One error term per pixel."""
    lb, ub = boxes.lb[0], boxes.ub[0]
    radius = ((ub - lb) / 2).flatten(1)
    return Terms((lb + ub) / 2, {-1: torch.diag_embed(radius).unflatten(2, lb.shape[1:])})


def _relu(value: Terms, k: int, lb: Tensor, ub: Tensor, slope: Tensor | None) -> Terms:
    slope, height = parallel_lines(lb, ub, slope)
    mu = height / 2
    groups = {g: errors * slope.unsqueeze(1) for g, errors in value.groups.items()}
    # Each image numbers its own unstable neurons; shorter lists leave zero terms behind.
    unstable = ((lb < 0) & (ub > 0)).flatten(1)
    count = int(unstable.sum(1).max())
    if count:
        image, place = unstable.nonzero(as_tuple=True)
        number = unstable.cumsum(1)[image, place] - 1
        fresh = lb.new_zeros(len(lb), count, unstable.shape[1])
        fresh = fresh.index_put((image, number, place), mu.flatten(1)[image, place])
        groups[k] = fresh.unflatten(2, lb.shape[1:])
    return Terms(value.centre * slope + mu, groups)


def _conv(op: nn.Module, value: Terms) -> Terms:
    conv = conv_of(op, value.centre.shape[1])
    weight = conv.weight.to(value.centre)
    centre = conv.forward(value.centre, weight, conv.bias)
    return value.mapped(centre, lambda errors: conv.forward(errors, weight))


def _linear(op: nn.Module, value: Terms) -> Terms:
    assert isinstance(op, nn.Linear)
    return value.mapped(op(value.centre), lambda errors: errors @ op.weight.T)


def _scale(op: nn.Module, value: Terms) -> Terms:
    scale, shift = scale_of(op)
    rank = value.centre.dim()
    factor = per_channel(scale, rank)
    centre = value.centre * factor + per_channel(shift, rank)
    return value.mapped(centre, lambda errors: errors * factor)


def _flatten(op: nn.Module, value: Terms) -> Terms:
    return value.mapped(value.centre.flatten(1), lambda errors: errors.flatten(1))


def _add(op: nn.Module, left: Terms, right: Terms) -> Terms:
    groups = dict(left.groups)
    for k, errors in right.groups.items():
        groups[k] = groups[k] + errors if k in groups else errors
    return Terms(left.centre + right.centre, groups)


def _mapped(op: nn.Module, value: Terms) -> Terms:
    assert isinstance(op, Mapped)
    return value.mapped(op(value.centre), op.linear)


def _combine(op: nn.Module, *values: Terms) -> Terms:
    assert isinstance(op, Combine)
    centre = op(*(value.centre for value in values))
    groups: dict[int, Tensor] = {}
    for c, value in zip(op.coefficients, values, strict=True):
        for k, errors in value.groups.items():
            groups[k] = groups[k] + c * errors if k in groups else c * errors
    return Terms(centre, groups)


def _concat(op: nn.Module, *values: Terms) -> Terms:
    assert isinstance(op, Concat)
    centre = op(*(value.centre for value in values))
    groups: dict[int, Tensor] = {}
    for k in dict.fromkeys(k for value in values for k in value.groups):
        count = next(value.groups[k].shape[1] for value in values if k in value.groups)
        parts = [
            value.groups[k]
            if k in value.groups
            else value.centre.new_zeros(len(centre), count, *value.centre.shape[1:])
            for value in values
        ]
        groups[k] = torch.cat(parts, op.axis + 2)
    return Terms(centre, groups)


RULES: dict[type[nn.Module], Callable[..., Terms]] = {
    nn.Conv2d: _conv,
    nn.AvgPool2d: _conv,
    nn.Linear: _linear,
    nn.BatchNorm1d: _scale,
    nn.BatchNorm2d: _scale,
    Normalize: _scale,
    nn.BatchNorm3d: _scale,
    nn.Flatten: _flatten,
    Add: _add,
    Mapped: _mapped,
    Combine: _combine,
    Concat: _concat,
}
