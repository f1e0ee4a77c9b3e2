"""Interval bounds: a box through the network, layer by layer (Gowal et al. 2018).

The pass also notes, per affine layer, how large the sums that are formed there can get in
absolute value (`size`); every domain takes its rounding error from that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from maar.core.errors import UsageError
from maar.domains import smooth
from maar.domains.affine import conv_of, enclosed_scale, per_channel, scale_of
from maar.domains.bound import Bound, Box, Enclosure, Pair, Problem, intersect
from maar.domains.graph import Graph, by_sparse
from maar.domains.linear_map import Mapped
from maar.domains.rounding import gamma, halves, outward, refuse_inexact
from maar.networks.layers import Normalize
from maar.networks.maps import Add, Combine, Concat
from maar.networks.operations import is_odd

# Roundings beside the sum itself: centre, radius, bias, slope, intercept, final subtraction.
EXTRA = 16


@dataclass
class Boxes:
    """The box of each value so far; `size[i]` bounds |W| |h| + |b| at node i's output."""

    graph: Graph
    rounding: bool
    lb: list[Tensor] = field(default_factory=list)
    ub: list[Tensor] = field(default_factory=list)
    size: list[Tensor | None] = field(default_factory=list)
    total: Tensor | float = 0.0
    dual: Pair | None = None
    """Of an L2 ball within the input box: its centre, and its radius, rounded up."""

    @staticmethod
    def start(graph: Graph, box: Box, rounding: bool) -> Boxes:
        """The input box, rounded outwards to the dtype of the weights."""
        boxes = Boxes(graph, rounding)
        lb, ub = box.lb, box.ub
        if rounding:
            refuse_inexact(graph.dtype, lb.device, max(shape.numel() for shape in graph.shapes))
            lb, ub = outward(lb, ub, graph.dtype)
        boxes._append(lb.to(graph.dtype), ub.to(graph.dtype))
        boxes.dual = getattr(box, "dual", None)
        if boxes.dual is not None and boxes.dual[0].dtype != graph.dtype:
            raise UsageError(f"an L2 ball in {boxes.dual[0].dtype} for a graph in {graph.dtype}")
        return boxes

    def _append(self, lb: Tensor, ub: Tensor) -> None:
        self.lb.append(lb)
        self.ub.append(ub)
        if self.rounding:
            self.total = self.total + torch.maximum(lb.abs(), ub.abs()).flatten(1).sum(1)

    def underflow(self) -> Tensor:
        """Bound the effect of underflow on a row, [N].

        One underflow is an error of u tiny in a coefficient of a value or in the constant; a row
        meets less than 1/u of them per coefficient.
        """
        assert isinstance(self.total, Tensor)
        return torch.finfo(self.total.dtype).tiny * (1 + self.total)

    def advance(self, stop: int) -> None:
        """Run nodes up to, not including, node `stop`."""
        for i in range(len(self.size), stop):
            node = self.graph.nodes[i]
            lb, ub, size = RULES[type(node.op)](self, i)
            if node.direct is not None:
                ends, values = node.direct
                pairs = [end for v in values for end in (self.lb[v], self.ub[v])]
                lb, ub = intersect((lb, ub), ends(*pairs))
            self._append(lb, ub)
            self.size.append(size)

    def refine(self, value: int, pair: Pair | None) -> None:
        """Intersect a value's box with bounds found elsewhere."""
        if self.rounding and pair is not None and pair[0].dtype != self.lb[value].dtype:
            pair = outward(*pair, self.lb[value].dtype)
        self.lb[value], self.ub[value] = intersect((self.lb[value], self.ub[value]), pair)

    def pre(self) -> tuple[Pair, ...]:
        """The bounds on each ReLU's input passed so far."""
        values = (self.graph.nodes[i].inputs[0] for i in self.graph.relus if i < len(self.size))
        return tuple((self.lb[v], self.ub[v]) for v in values)


@dataclass(frozen=True)
class Interval(Bound):
    """The cheapest bound. `rounding=True` makes it hold for the real-number network."""

    name: ClassVar[str] = "interval"
    rounding: bool = False

    def enclose(self, problem: Problem) -> Enclosure:
        """Differentiable in the weights and in the box."""
        graph = problem.graph
        boxes = Boxes.start(graph, problem.box, self.rounding)
        for k, i in enumerate(graph.relus):
            boxes.advance(i)
            boxes.refine(graph.nodes[i].inputs[0], problem.known_at(k))
        lb, ub = output(boxes, problem.C)
        return Enclosure(lb, ub, boxes.pre())


def output(boxes: Boxes, C: Tensor | None) -> Pair:
    """Finish the pass and bound C f(x), with C multiplied into a last Linear layer."""
    graph, last = boxes.graph, len(boxes.graph.nodes) - 1
    op = graph.nodes[last].op
    boxes.advance(last + 1)
    if C is None or not isinstance(op, nn.Linear):
        lb, ub = boxes.lb[-1].flatten(1), boxes.ub[-1].flatten(1)
        if C is None:
            return lb, ub
        weight, bias = C.to(lb), None
    else:
        value = graph.nodes[last].inputs[0]
        lb, ub = boxes.lb[value], boxes.ub[value]
        C = C.to(op.weight)
        weight = C @ op.weight
        bias = None if op.bias is None else C @ op.bias
    centre, radius = (half.unsqueeze(-1) for half in halves(lb, ub))
    middle = (weight @ centre).squeeze(-1)
    if bias is not None:
        middle = middle + bias
    reach = (weight.abs() @ radius).squeeze(-1)
    if boxes.rounding:
        assert C is not None
        size = (centre.abs() + radius).squeeze(-1)
        if isinstance(op, nn.Linear):
            size = size @ op.weight.abs().T + (0 if op.bias is None else op.bias.abs())
        terms = lb.shape[-1] + C.shape[-1] + EXTRA
        total = (C.abs().to(size) @ size.unsqueeze(-1)).squeeze(-1)
        reach = reach + gamma(terms, lb.dtype) * total + boxes.underflow()[:, None]
    return middle - reach, middle + reach


Out = tuple[Tensor, Tensor, Tensor | None]


def _affine(
    boxes: Boxes,
    i: int,
    apply: Callable[[Tensor], Tensor],
    apply_abs: Callable[[Tensor], Tensor],
    bias: Tensor | None,
    terms: int,
    repeats: int = 1,
) -> Out:
    """centre -> W centre + b, radius -> |W| radius; `terms` is the longest sum of products.

    `bias` broadcasts against a batch of outputs. An input comes at most `repeats` times in a sum.
    """
    value = boxes.graph.nodes[i].inputs[0]
    lb, ub = boxes.lb[value], boxes.ub[value]
    if not boxes.rounding:
        # (the plain difference: this is for training, where a gradient of `halves` is dear)
        middle, reach = apply((lb + ub) / 2), apply_abs((ub - lb) / 2)
        return middle - reach, middle + reach, None
    centre, radius = halves(lb, ub)
    middle = apply(centre)
    largest = torch.maximum(lb.abs(), ub.abs())
    reach, size = apply_abs(torch.cat([radius, largest])).chunk(2)
    # Neurons that are always zero add nothing to a sum, not even rounding.
    alive = (largest > 0).flatten(1).sum(1).tolist()
    # (each product in `middle`, `reach` and `size` may underflow, by u tiny)
    size = size + 4 * torch.finfo(lb.dtype).tiny
    if bias is not None:
        size = size + bias.abs()
    # (each image's own number, so that its bounds do not depend on its batch)
    lost = size.new_tensor([gamma(min(terms, repeats * n) + EXTRA, lb.dtype) for n in alive])
    reach = reach + lost.view(-1, *(1 for _ in size.shape[1:])) * size
    return middle - reach, middle + reach, size


def _conv(boxes: Boxes, i: int) -> Out:
    node, graph = boxes.graph.nodes[i], boxes.graph
    conv = conv_of(node.op, graph.shapes[node.inputs[0]][0])
    weight = conv.weight.to(boxes.lb[0])
    positive = graph.remember((i, "abs"), lambda: weight.abs())
    return _affine(
        boxes,
        i,
        lambda x: conv.forward(x, weight, conv.bias),
        lambda x: conv.forward(x, positive),
        None if conv.bias is None else per_channel(conv.bias, 4),
        weight[0].numel(),
    )


def _linear(boxes: Boxes, i: int) -> Out:
    op = boxes.graph.nodes[i].op
    assert isinstance(op, nn.Linear)
    terms = op.weight.shape[1]
    if kept := boxes.graph.sparse(i):
        bias = 0.0 if op.bias is None else op.bias
        return _affine(
            boxes,
            i,
            lambda x: by_sparse(kept[0], x) + bias,
            lambda x: by_sparse(kept[1], x),
            op.bias,
            terms,
        )
    positive = boxes.graph.remember((i, "abs"), lambda: op.weight.abs())
    return _affine(
        boxes,
        i,
        lambda x: nn.functional.linear(x, op.weight, op.bias),
        lambda x: nn.functional.linear(x, positive),
        op.bias,
        terms,
    )


def _scale(boxes: Boxes, i: int) -> Out:
    node = boxes.graph.nodes[i]
    scale, shift = scale_at(boxes, i)
    rank = boxes.lb[node.inputs[0]].dim()
    factor = per_channel(scale, rank)
    return _affine(
        boxes,
        i,
        lambda x: x * factor + per_channel(shift, rank),
        lambda x: x * factor.abs(),
        # mean * scale is formed on the way to the shift, and may be larger than it
        per_channel(shift.abs() + (scale * _mean(node.op)).abs(), rank),
        8,
    )


def scale_at(boxes: Boxes, i: int) -> Pair:
    """Return node i's scale and shift per channel: enclosed where rounding counts."""
    node, graph = boxes.graph.nodes[i], boxes.graph
    if not boxes.rounding:
        return scale_of(node.op)
    return graph.remember((i, "scale"), lambda: enclosed_scale(node.op, graph.dtype, node.path))


def _mean(op: nn.Module) -> Tensor:
    mean = op.mean if isinstance(op, Normalize) else op.running_mean
    assert isinstance(mean, Tensor)
    return mean


def _relu(boxes: Boxes, i: int) -> Out:
    value = boxes.graph.nodes[i].inputs[0]
    return torch.relu(boxes.lb[value]), torch.relu(boxes.ub[value]), None


def _flatten(boxes: Boxes, i: int) -> Out:
    node = boxes.graph.nodes[i]
    value = node.inputs[0]
    return node.op(boxes.lb[value]), node.op(boxes.ub[value]), None


def _add(boxes: Boxes, i: int) -> Out:
    left, right = boxes.graph.nodes[i].inputs
    lb, ub = boxes.lb[left] + boxes.lb[right], boxes.ub[left] + boxes.ub[right]
    if not boxes.rounding:
        return lb, ub, None
    size = torch.maximum(lb.abs(), ub.abs())
    size = size + torch.finfo(lb.dtype).tiny
    reach = gamma(EXTRA, lb.dtype) * size
    return lb - reach, ub + reach, size


def _mapped(boxes: Boxes, i: int) -> Out:
    node, graph = boxes.graph.nodes[i], boxes.graph
    op, value = node.op, node.inputs[0]
    assert isinstance(op, Mapped)
    if op.is_exact:
        lb, ub = op(boxes.lb[value]), op(boxes.ub[value])
        # (backwards the coefficients of an element that comes twice are summed)
        return lb, ub, None if op.is_move else torch.maximum(lb.abs(), ub.abs())
    bias = op.shift(len(graph.shapes[i + 1]))

    def apply(x: Tensor) -> Tensor:
        return op.linear(x) if bias is None else op.linear(x) + bias

    terms = op.terms(graph.shapes[value])
    # (a padding that reflects brings an input into a window several times)
    repeats = terms if is_odd(op.layer) else 1
    return _affine(boxes, i, apply, lambda x: op.linear(x, absolute=True), bias, terms, repeats)


def _combine(boxes: Boxes, i: int) -> Out:
    node = boxes.graph.nodes[i]
    op = node.op
    assert isinstance(op, Combine)
    lb = ub = torch.zeros_like(boxes.lb[node.inputs[0]]) + op.shift
    size = torch.zeros_like(lb) + abs(op.shift)
    for c, value in zip(op.coefficients, node.inputs, strict=True):
        c = torch.as_tensor(c, dtype=lb.dtype, device=lb.device)
        one, other = c * boxes.lb[value], c * boxes.ub[value]
        lb, ub = lb + torch.minimum(one, other), ub + torch.maximum(one, other)
        if boxes.rounding:
            size = size + torch.maximum(one.abs(), other.abs())
    if not boxes.rounding:
        return lb, ub, None
    # (each product may underflow, by u tiny)
    size = size + 4 * torch.finfo(lb.dtype).tiny
    reach = gamma(len(node.inputs) + EXTRA, lb.dtype) * size
    return lb - reach, ub + reach, size


def _concat(boxes: Boxes, i: int) -> Out:
    node = boxes.graph.nodes[i]
    lb, ub = (node.op(*(ends[v] for v in node.inputs)) for ends in (boxes.lb, boxes.ub))
    return lb, ub, None


def _smooth(boxes: Boxes, i: int) -> Out:
    node = boxes.graph.nodes[i]
    ends = [end for v in node.inputs for end in (boxes.lb[v], boxes.ub[v])]
    return *smooth.ENDS[type(node.op)](*ends, boxes.rounding), None


RULES: dict[type[nn.Module], Callable[[Boxes, int], Out]] = {
    nn.Conv2d: _conv,
    nn.AvgPool2d: _conv,
    nn.Linear: _linear,
    nn.BatchNorm1d: _scale,
    nn.BatchNorm2d: _scale,
    Normalize: _scale,
    nn.ReLU: _relu,
    nn.BatchNorm3d: _scale,
    nn.Flatten: _flatten,
    Add: _add,
    Mapped: _mapped,
    Combine: _combine,
    Concat: _concat,
    **dict.fromkeys(smooth.ENDS, _smooth),
}
