"""Rows carried backwards from a value of the network to its input.

a . h is rewritten as a' . h' + constant over the value below, affine layers exactly, ReLUs
by a function that the caller gives: CROWN relaxes there, the reduced network keeps the
unstable ones as variables. `error` bounds what rounding did to the whole computation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from maar.core import clock
from maar.domains import smooth
from maar.domains.affine import Conv, conv_of, per_channel
from maar.domains.graph import Graph, by_sparse
from maar.domains.interval import EXTRA, Boxes, scale_at
from maar.domains.linear_map import Mapped
from maar.domains.rounding import gamma, halves
from maar.domains.rows import Rows, add, picked
from maar.networks.layers import Normalize
from maar.networks.maps import Add, Combine, Concat
from maar.networks.operations import is_odd

# Up to this many coefficients a window's step through a convolution is one matrix product.
WINDOW = 1024
# Onto up to this many channels a transposed convolution is a matrix product and a fold.
FEW = 4


@dataclass
class Backward:
    """One pass. After `run`, a . h = result . x + constant, up to what `relu` gave away.

    `relu` may return None: it has taken the rows over, and nothing goes further down there.
    """

    boxes: Boxes
    relu: Callable[[Backward, int, Rows], Rows | None]
    constant: Tensor = field(init=False)
    error: Tensor = field(init=False)

    def run(self, value: int, rows: Rows) -> Rows | None:
        """Carry rows over `value` to the input; None if `relu` took all of them over."""
        graph = self.boxes.graph
        self.constant = rows.A.new_zeros(len(rows))
        self.error = rows.A.new_zeros(len(rows))
        waiting = {value: rows}
        for i in range(value - 1, -1, -1):
            here = waiting.pop(i + 1, None)
            if here is None:
                continue
            clock.check()
            node = graph.nodes[i]
            below: Rows | tuple[Rows, ...] | None
            if isinstance(node.op, nn.ReLU):
                below = self.relu(self, i, here)
                if below is None:
                    continue
            else:
                self._account(i, here)
                below = RULES[type(node.op)](self, i, here)
            each = below if isinstance(below, tuple) else (below,) * len(node.inputs)
            for source, part in zip(node.inputs, each, strict=True):
                if source in waiting:
                    waiting[source] = self._meet(source, waiting[source], part)
                else:
                    waiting[source] = part
        return waiting.get(0)

    def _account(self, i: int, rows: Rows) -> None:
        """Add what rounding may lose where the rows pass affine node i.

        Each new coefficient, and the constant, is a sum over the row's non-zero coefficients;
        n of them give gamma(n) |a| (|W| |h| + |b|). A row that picks one neuron of a layer
        takes its stored weights as they are; derived weights (1/std) have rounding of their own.
        """
        size = self.boxes.size[i]
        stored = isinstance(self.boxes.graph.nodes[i].op, nn.Conv2d | nn.Linear)
        if size is None or (rows.unit and stored):
            return
        terms = rows.A[:1].numel() if rows.terms is None else rows.terms
        op = self.boxes.graph.nodes[i].op
        if isinstance(op, Mapped) and is_odd(op.layer):
            # (reflected at an edge, an input comes to a window several times)
            terms *= op.terms(self.boxes.graph.shapes[self.boxes.graph.nodes[i].inputs[0]])
        # (the constant is a sum over the nodes)
        terms += EXTRA + len(self.boxes.size)
        self.error = self.error + gamma(terms, rows.A.dtype) * rows.dot_abs(size)

    def _meet(self, value: int, left: Rows, right: Rows) -> Rows:
        total = add(left, right, self.boxes.graph.shapes[value])
        if self.boxes.rounding:
            lb, ub = self.boxes.lb[value], self.boxes.ub[value]
            size = torch.maximum(lb.abs(), ub.abs())
            self.error = self.error + gamma(2, lb.dtype) * total.dot_abs(size)
        return total

    def concretise(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """The centre and the reach of a . x + constant over the input box, rounding included."""
        lb, ub = self.boxes.lb[0], self.boxes.ub[0]
        centre, radius = halves(lb, ub)
        middle = rows.dot(centre) + self.constant
        reach = rows.dot_abs(radius) + self.error
        if self.boxes.rounding:
            size = rows.dot_abs(torch.maximum(lb.abs(), ub.abs())) + self.constant.abs()
            terms = self.boxes.graph.shapes[0].numel() + len(self.boxes.size) + EXTRA
            underflow = self.boxes.underflow()
            if rows.image is not None:
                underflow = underflow[rows.image]
            reach = reach + gamma(terms, lb.dtype) * size + underflow
        if self.boxes.dual is None:
            return middle, reach
        return self._nearer(rows, middle, reach)

    def _nearer(self, rows: Rows, middle: Tensor, reach: Tensor) -> tuple[Tensor, Tensor]:
        """For each row the box's enclosure or the L2 ball's, whichever has the higher lower end.

        Over the ball, a . x ranges over a . centre +- radius |a|_2.
        """
        assert self.boxes.dual is not None
        centre, radius = self.boxes.dual
        lb, ub = self.boxes.lb[0], self.boxes.ub[0]
        count = self.boxes.graph.shapes[0].numel()
        A = rows.masked(self.boxes.graph.shapes[0]).A.flatten(1)
        # (the floor keeps the gradient of a root at 0 finite)
        length = A.square().sum(1).clamp_min(torch.finfo(A.dtype).tiny).sqrt()
        own = rows.dot(centre) + self.constant
        far = radius * length + self.error
        if self.boxes.rounding:
            info = torch.finfo(lb.dtype)
            size = rows.dot_abs(torch.maximum(lb.abs(), ub.abs())) + self.constant.abs()
            terms = count + len(self.boxes.size) + EXTRA
            underflow = self.boxes.underflow()
            if rows.image is not None:
                underflow = underflow[rows.image]
            # The norm is a sum of n squares and a root; squares below the normal numbers may be
            # lost, n tiny in all, the root of which is added.
            norm = gamma(terms, lb.dtype) * radius * length + radius * (count * info.tiny) ** 0.5
            far = far + gamma(terms, lb.dtype) * size + underflow + norm
        better = own - far > middle - reach
        return torch.where(better, own, middle), torch.where(better, far, reach)


def specification(graph: Graph, C: Tensor | None, batch: int, like: Tensor) -> Rows:
    """The rows of C (or one row per output) over the network's last value, image by image."""
    shape = graph.shapes[-1]
    count = shape.numel()
    if C is None:
        C = torch.eye(count, device=like.device).expand(batch, count, count)
    A = C.to(like).reshape(-1, *shape)
    image = torch.arange(batch, device=like.device).repeat_interleave(C.shape[1])
    return Rows(A, None if batch == 1 else image)


def _conv(run: Backward, i: int, rows: Rows) -> Rows:
    graph = run.boxes.graph
    node = graph.nodes[i]
    shape = graph.shapes[node.inputs[0]]
    conv = conv_of(node.op, shape[0])
    weight = conv.weight.to(rows.A)
    if conv.bias is not None:
        run.constant = run.constant + rows.A.sum((-1, -2)) @ conv.bias
    if rows.corner is None:
        return rows.with_A(_transposed(rows.A, weight, conv, shape))
    channels, height, width = rows.A.shape[1:]
    if rows.unit and conv.groups == 1 and conv.dilation == (1, 1):
        which, sign = picked(rows)
        A = (weight.flatten(1)[which] * sign).view(-1, *weight.shape[1:])
    elif run.boxes.graph.constant and conv.groups == 1 and channels * height * width <= WINDOW:
        # A window through a convolution is always the same small matrix, wherever it stands.
        def matrix() -> Tensor:
            unit_rows = torch.eye(channels * height * width).to(rows.A)
            return _transposed(unit_rows.view(-1, channels, height, width), weight, conv, None)

        table = graph.remember((i, "window", height, width), matrix)
        A = (rows.A.flatten(1) @ table.flatten(1)).view(-1, *table.shape[1:])
    else:
        A = _transposed(rows.A, weight, conv, None)
    scale = torch.tensor(conv.stride, device=A.device)
    offset = torch.tensor(conv.padding, device=A.device)
    below = Rows(A, rows.image, rows.corner * scale - offset)
    # At a ReLU or the image the look-up drops what lies in the padding; elsewhere we must.
    source = node.inputs[0]
    if source > 0 and not isinstance(graph.nodes[source - 1].op, nn.ReLU):
        below = below.masked(shape)
    return below.settle(shape)


def _transposed(A: Tensor, weight: Tensor, conv: Conv, shape: torch.Size | None) -> Tensor:
    """The transposed convolution onto a value of `shape`; None: onto the window that A reaches."""
    reached = []
    for axis in (0, 1):
        kernel = conv.dilation[axis] * (weight.shape[2 + axis] - 1) + 1
        reached.append((A.shape[2 + axis] - 1) * conv.stride[axis] + kernel)
    padding = (0, 0) if shape is None else conv.padding
    # Rows and columns at the far end that a strided kernel never reaches.
    spare = (
        (0, 0)
        if shape is None
        else tuple(shape[1 + a] - (reached[a] - 2 * padding[a]) for a in (0, 1))
    )
    if weight.shape[1] <= FEW and conv.groups == 1:
        # torch's own transposed convolution is slow onto few channels (images).
        columns = weight.flatten(1).T @ A.flatten(2)
        size = tuple(reached[a] - 2 * padding[a] + spare[a] for a in (0, 1))
        kernel_size = (weight.shape[2], weight.shape[3])
        return F.fold(columns, size, kernel_size, conv.dilation, padding, conv.stride)
    return F.conv_transpose2d(
        A, weight, None, conv.stride, padding, spare, conv.groups, conv.dilation
    )


def _linear(run: Backward, i: int, rows: Rows) -> Rows:
    op = run.boxes.graph.nodes[i].op
    assert isinstance(op, nn.Linear)
    if op.bias is not None:
        run.constant = run.constant + rows.A @ op.bias
    if rows.unit:
        which, sign = picked(rows)
        return rows.with_A(op.weight[which] * sign)
    if kept := run.boxes.graph.sparse(i):
        return rows.with_A(by_sparse(kept[2], rows.A))
    return rows.with_A(rows.A @ op.weight)


def _scale(run: Backward, i: int, rows: Rows) -> Rows:
    scale, shift = scale_at(run.boxes, i)
    total = rows.A.flatten(2).sum(2) if rows.A.dim() > 2 else rows.A
    run.constant = run.constant + total @ shift
    return rows.with_A(rows.A * per_channel(scale, rows.A.dim()))


def _flatten(run: Backward, i: int, rows: Rows) -> Rows:
    shape = run.boxes.graph.shapes[run.boxes.graph.nodes[i].inputs[0]]
    return rows.with_A(rows.A.reshape(len(rows), *shape))


def _add(run: Backward, i: int, rows: Rows) -> Rows:
    return rows


def _mapped(run: Backward, i: int, rows: Rows) -> Rows:
    graph = run.boxes.graph
    node, out = graph.nodes[i], graph.shapes[i + 1]
    op = node.op
    assert isinstance(op, Mapped)
    rows = rows.dense(out)
    bias = op.shift(len(out))
    if bias is not None:
        run.constant = run.constant + (rows.A * bias).flatten(1).sum(1)
    return rows.with_A(op.transposed(rows.A, graph.shapes[node.inputs[0]]))


def _combine(run: Backward, i: int, rows: Rows) -> tuple[Rows, ...]:
    op = run.boxes.graph.nodes[i].op
    assert isinstance(op, Combine)
    if op.shift:
        run.constant = run.constant + rows.A.flatten(1).sum(1) * op.shift
    if any(isinstance(c, Tensor) for c in op.coefficients):
        rows = rows.dense(run.boxes.graph.shapes[i + 1])
    return tuple(rows.with_A(rows.A * c) for c in op.coefficients)


def _concat(run: Backward, i: int, rows: Rows) -> tuple[Rows, ...]:
    graph = run.boxes.graph
    op = graph.nodes[i].op
    assert isinstance(op, Concat)
    rows = rows.dense(graph.shapes[i + 1])
    sizes = [graph.shapes[value][op.axis] for value in graph.nodes[i].inputs]
    return tuple(rows.with_A(part) for part in rows.A.split(sizes, op.axis + 1))


def _smooth(run: Backward, i: int, rows: Rows) -> tuple[Rows, ...]:
    """A plane in the place of the operation: the one below where the coefficient is positive.

    This gives something away, so it is right for bounds only, and rows must ask for the lower one.
    """
    boxes, node = run.boxes, run.boxes.graph.nodes[i]
    pairs = [(boxes.lb[v], boxes.ub[v]) for v in node.inputs]
    found = smooth.planes(type(node.op), pairs)
    positive, negative = rows.A.clamp(min=0), rows.A.clamp(max=0)
    run.constant = run.constant + rows.with_A(positive).dot(found.low)
    run.constant = run.constant + rows.with_A(negative).dot(found.high)
    parts = [
        rows.with_A(positive * rows.look_up(below) + negative * rows.look_up(above))
        for below, above in zip(found.below, found.above, strict=True)
    ]
    if boxes.rounding:
        lost = rows.with_A(rows.A.abs()).dot(torch.maximum(found.low.abs(), found.high.abs()))
        out = torch.maximum(boxes.lb[i + 1].abs(), boxes.ub[i + 1].abs())
        lost = lost + rows.dot_abs(out)
        for part, (lb, ub) in zip(parts, pairs, strict=True):
            lost = lost + part.dot_abs(torch.maximum(lb.abs(), ub.abs()))
        run.error = run.error + gamma(rows.A[:1].numel() + EXTRA, rows.A.dtype) * lost
    return tuple(parts)


RULES: dict[type[nn.Module], Callable[[Backward, int, Rows], Rows | tuple[Rows, ...]]] = {
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
    **dict.fromkeys(smooth.LINES, _smooth),
}
