"""One image's network with the stable ReLUs taken out.

On a small ball most ReLUs are stable: they pass their input or are zero, so the network is
an affine map of the image and of the outputs z of its few unstable ReLUs. Written that way,

    v_k = X_k x + Z_k [z_0, ..., z_{k-1}] + c_k (+- e_k),   z_k = relu(v_k),   lb_k <= v_k <= ub_k

a bound, an LP, a MILP or a branch is a computation on a few hundred rows, whatever the size
of the network, and a bound with other slopes costs next to nothing. CROWN treats stable
ReLUs exactly, so its bounds on the reduced network are its bounds on the network. e_k holds
what rounding may have done to the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from maar.core.errors import RunError
from maar.domains.backward import Backward, specification
from maar.domains.bound import Pair, Problem, intersect
from maar.domains.graph import Graph, one_affine
from maar.domains.interval import EXTRA, Boxes, output
from maar.domains.reduced.layer import Layer as Layer
from maar.domains.reduced.linear import Affine, Lines, Split, below_by, replaced
from maar.domains.reduced.near import Near
from maar.domains.reduced.places import bound_by_lines, can_be_tiled, keep_near, kept, tiled
from maar.domains.reduced.tiles import settled
from maar.domains.relax import parallel_lines
from maar.domains.rounding import gamma, halves
from maar.domains.rows import Rows, neurons

# Relaxing a row costs one product with every unstable ReLU's row; where that is so many times the
# work of carrying the row down twice, plain CROWN wins (measured: 20 times on a network with 4,900
# of 6,300 ReLUs unstable, while it loses 2 times with 47).
SLOWER = 4


class TooLarge(RunError):
    """The reduced network does not fit into its memory budget, or would not pay."""


@dataclass
class Reduced:
    """The reduced network of one image; `layers` has one entry per ReLU, possibly empty.

    `parallel`: ReLUs are relaxed by two parallel lines, which makes the bounds those of the
    zonotope domain, with the same error terms. `interval`: the specification's interval bounds,
    which are not always the looser ones.
    """

    graph: Graph
    boxes: Boxes
    layers: list[Layer]
    centre: Tensor
    radius: Tensor
    parallel: bool = False
    interval: Pair = field(init=False)
    composed: dict[int, Layer] = field(default_factory=dict)
    near: dict[int, Near] = field(default_factory=dict)

    @property
    def columns(self) -> int:
        """How many unstable ReLUs there are."""
        return sum(len(layer.index) for layer in self.layers)

    def lower(self, rows: Affine, slopes: Sequence[Tensor] | None = None) -> Tensor:
        """CROWN's lower bounds of rows over the first ReLUs; `slopes[k]` is [U_k] or [R, U_k]."""
        X, c, e = self._relaxed(rows, slopes, upper=False)
        return c + X @ self.centre - X.abs() @ self.radius - e

    def lower_in(
        self, rows: Affine, slopes: Sequence[Tensor], splits: Sequence[Split]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Each row's lower bound where its splits hold (some finite one where they hold nowhere).

        Also the row over the image that was minimised, and the coefficient that every z had, for
        the choice of the next split.
        """
        seen: list[Tensor] = []
        X, c, e = self._relaxed(rows, slopes, upper=False, splits=splits, seen=seen)
        low = c + X @ self.centre - X.abs() @ self.radius - e
        return low, X, torch.cat([low.new_zeros(len(low), 0), *seen[::-1]], 1)

    def upper(self, rows: Affine, slopes: Sequence[Tensor] | None = None) -> Tensor:
        """CROWN's upper bounds of rows."""
        X, c, e = self._relaxed(rows, slopes, upper=True)
        return c + X @ self.centre + X.abs() @ self.radius + e

    def bounds(self, rows: Affine, slopes: Sequence[Tensor] | None = None) -> Pair:
        """Both bounds of the specification's rows, intersected with the interval's; [1, S]."""
        low, high = self.both(rows, slopes)
        return intersect((low[None], high[None]), self.interval)

    def both(self, rows: Affine, slopes: Sequence[Tensor] | None = None) -> Pair:
        """CROWN's lower and upper bounds of rows, in one pass; `slopes[k]` is [U_k]."""
        low, high = self.lower(Affine.joined([rows, -rows]), slopes).chunk(2)
        return low, -high

    def quick(self, rows: Affine) -> Pair:
        """Bounds with every z anywhere in its own range: no matrix product, often enough."""
        middle = rows.c + rows.X @ self.centre
        reach = rows.X.abs() @ self.radius + rows.e
        if rows.Z.shape[1]:
            half = torch.cat([layer.ub for layer in self.layers])[: rows.Z.shape[1]] / 2
            middle, reach = middle + rows.Z @ half, reach + rows.Z.abs() @ half
        return middle - reach, middle + reach

    def _relaxed(
        self,
        rows: Affine,
        slopes: Sequence[Tensor] | None,
        upper: bool,
        splits: Sequence[Split] | None = None,
        seen: list[Tensor] | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The rows with every z replaced by a line on the side asked for: X, c, e over x alone.

        `seen` collects the coefficients of the z, last layer first.
        """
        start = rows.Z.shape[1]
        for k in range(self._depth(start) - 1, -1, -1):
            layer = self.layers[k]
            if not len(layer.index):
                continue
            start -= len(layer.index)
            lines = self.lines(layer, slopes[k] if slopes else None)
            if seen is not None:
                seen.append(rows.Z[:, start:])
            split = splits[k] if splits else None
            rows = replaced(rows, start, layer.rows, lines, upper, split)
        return rows.X, rows.c, rows.e

    def lines(self, layer: Layer, slope: Tensor | None) -> Lines:
        """The lines around a layer's ReLUs, with other slopes than CROWN's or DeepZ's if given."""
        if self.parallel:
            above, intercept = parallel_lines(layer.lb, layer.ub, slope)
            return Lines(above, intercept, above)
        below = layer.below if slope is None else below_by(layer.lb, layer.ub, layer.below, slope)
        return Lines(*layer.above, below)

    def _depth(self, columns: int) -> int:
        """How many ReLUs stand behind the first `columns` columns of Z."""
        depth = 0
        while columns > 0:
            columns -= len(self.layers[depth].index)
            depth += 1
        return depth

    def carry(self, value: int, rows: Rows, together: int) -> Affine:
        """Rows over a value of the network, as rows over the image and the unstable ReLUs.

        `together`: how many rows of this kind a later sum may take in (for its rounding).
        """
        boxes, graph = self.boxes, self.graph
        found: dict[int, Tensor] = {}
        taken: list[Affine] = []
        order = {i: k for k, i in enumerate(graph.relus)}

        def relu(run: Backward, i: int, rows: Rows) -> Rows | None:
            k = order[i]
            source = graph.nodes[i].inputs[0]
            found[k] = rows.columns(self.layers[k].index, graph.shapes[source])
            if rows.corner is None and self._worth_composing(k, len(rows)):
                known = self._active(k)
                taken.append(_compose(rows.A.flatten(1)[:, known.index], known.rows))
                return None
            active = boxes.lb[source] >= 0
            A = rows.A * rows.look_up(active.to(rows.A))
            return rows.gated(A, active) if boxes.rounding else rows.with_A(A)

        run = Backward(boxes, relu)
        at_input = run.run(value, rows)
        X = rows.A.new_zeros(len(rows), graph.shapes[0].numel())
        if at_input is not None:
            X = at_input.dense(graph.shapes[0]).A.flatten(1)
        parts = [
            found.get(k, X.new_zeros(len(X), len(layer.index)))
            for k, layer in enumerate(self.layers)
        ]
        Z = torch.cat([X.new_zeros(len(X), 0), *parts], 1)
        c, e = run.constant, run.error
        for more in taken:
            X, c, e = X + more.X, c + more.c, e + more.e
            Z[:, : more.Z.shape[1]] += more.Z
        return self.charged(Affine(X, Z, c, e), together)

    def _worth_composing(self, k: int, count: int) -> bool:
        """Whether `count` dense rows go down faster through the rows of ReLU k's active neurons.

        Few active neurons, each a window on the image, are composed once into a matrix; the
        alternative is a transposed convolution of the whole layer for every row.
        """
        if k in self.composed:
            return True
        value = self.graph.nodes[self.graph.relus[k]].inputs[0]
        if len(self.graph.shapes[value]) != 3:
            return False
        whole, window = _work(self.graph, k)
        active = int((self.boxes.lb[value] >= 0).sum())
        columns = self.graph.shapes[0].numel() + self.layers[k].rows.Z.shape[1]
        return active * window + count * active * columns < count * whole

    def _active(self, k: int) -> Layer:
        """The always-active neurons of ReLU k with their rows."""
        if k not in self.composed:
            value = self.graph.nodes[self.graph.relus[k]].inputs[0]
            lb, ub = self.boxes.lb[value].flatten(), self.boxes.ub[value].flatten()
            index = (lb >= 0).nonzero().squeeze(1)
            unit = neurons(self.graph.shapes[value], index, None, lb.dtype)
            rows = self.carry(value, unit, together=len(index))
            self.composed[k] = Layer(index, rows, lb[index], ub[index])
        return self.composed[k]

    def charged(
        self,
        rows: Affine,
        together: int,
        pixels: Tensor | None = None,
        columns: Tensor | None = None,
    ) -> Affine:
        """Add to e what computing with the rows later can lose.

        They are rows over all pixels and z so far, or only over these.
        """
        if not self.boxes.rounding:
            return rows
        lb, ub = self.boxes.lb[0].flatten(), self.boxes.ub[0].flatten()
        # No z, and no line above one, is larger than this on its range.
        reach = [torch.maximum(-layer.lb, layer.ub) for layer in self.layers]
        of_z, of_x = torch.cat([lb.new_zeros(0), *reach]), torch.maximum(lb.abs(), ub.abs())
        if pixels is not None:
            of_x = of_x[pixels]
        of_z = of_z[: rows.Z.shape[1]] if columns is None else of_z[columns]
        size = rows.X.abs() @ of_x + rows.Z.abs() @ of_z + rows.c.abs()
        return Affine(rows.X, rows.Z, rows.c, rows.e + self.lost(size, together))

    def lost(self, size: Tensor, together: int) -> Tensor:
        """What computing with a row of such a size can lose.

        A row is used in three ways: many rows are summed with weights into others, that sum
        is added to a row, and the result is multiplied with the box. Each loses at most
        gamma(longest sum) times the absolute values that went in.
        """
        terms = together + len(self.centre) + self.columns + 4 * len(self.layers) + EXTRA
        return gamma(terms, size.dtype) * size + self.boxes.underflow()


def _compose(A: Tensor, rows: Affine) -> Affine:
    """A applied to rows: linear functions of the values that the rows describe."""
    X, Z = (A @ rows.X, A @ rows.Z) if rows.blocks is None else rows.blocks.times(A)
    return Affine(X, Z, A @ rows.c, A.abs() @ rows.e)


def _work(graph: Graph, k: int) -> tuple[int, int]:
    """Multiplications to carry one row from ReLU k to the input: dense, and from one neuron."""
    return graph.remember(("work", k), lambda: _count(graph, graph.nodes[graph.relus[k]].inputs[0]))


def _count(graph: Graph, value: int) -> tuple[int, int]:
    """Only the trunk of convolutions counts; a residual's branches are both on the way."""
    whole = window = 0
    height = width = 1
    for i in range(value - 1, -1, -1):
        node = graph.nodes[i]
        if not isinstance(node.op, nn.Conv2d | nn.Linear):
            continue
        weight = node.op.weight
        out, source = graph.shapes[i + 1], graph.shapes[node.inputs[0]]
        whole += out.numel() * weight[0].numel()
        if isinstance(node.op, nn.Linear):
            window += weight.numel()
            continue
        before = weight.shape[0] * height * width
        height = min(source[1], (height - 1) * node.op.stride[0] + weight.shape[2])
        width = min(source[2], (width - 1) * node.op.stride[1] + weight.shape[3])
        window += before * weight.shape[1] * height * width
    return whole, window


def reduce(
    problem: Problem,
    rounding: bool = True,
    parallel: bool = False,
    slopes: Sequence[Tensor] | None = None,
    budget: int = 4 << 30,
    thrifty: bool = False,
) -> tuple[Reduced, Affine]:
    """Build the reduced network of one image and the rows of its specification C.

    `slopes`: a zonotope's own slopes for all neurons of each ReLU, instead of DeepZ's.
    `budget`: bytes that the rows may take; a network with too many unstable ReLUs is refused
    (`TooLarge`). `thrifty`: refused also in float32 where long sums lose more than in plain CROWN.
    """
    graph, boxes = problem.graph, Boxes.start(problem.graph, problem.box, rounding)
    if graph.smooth:
        first = graph.nodes[graph.smooth[0]]
        raise TooLarge(
            f"layer {first.path} is a {type(first.op).__name__}, which no exact row passes; use "
            "interval, crown or alpha_crown"
        )
    if len(problem.box.lb) != 1:
        raise ValueError(f"a reduced network is of one image, not of {len(problem.box.lb)}")
    lb, ub = boxes.lb[0].flatten(), boxes.ub[0].flatten()
    reduced = Reduced(graph, boxes, [], *halves(lb, ub), parallel)
    for k, i in enumerate(graph.relus):
        value = graph.nodes[i].inputs[0]
        boxes.advance(i)
        boxes.refine(value, problem.known_at(k))
        if thrifty and rounding and graph.dtype == torch.float32 and is_expensive(reduced, k):
            raise TooLarge(f"{reduced.columns} unstable ReLUs: plain CROWN loses less to rounding")
        reduced.layers.append(_layer(reduced, k, slopes, budget))
    reduced.interval = output(boxes, problem.C)
    rows = specification(graph, problem.C, 1, boxes.lb[0])
    return reduced, reduced.carry(len(graph.nodes), rows, together=len(rows))


def _layer(reduced: Reduced, k: int, slopes: Sequence[Tensor] | None, budget: int) -> Layer:
    """Bound the neurons that intervals leave open, and keep the rows of the unstable ones."""
    boxes, graph = reduced.boxes, reduced.graph
    value = graph.nodes[graph.relus[k]].inputs[0]
    given = slopes and [slopes[j].flatten()[layer.index] for j, layer in enumerate(reduced.layers)]
    if not one_affine(graph, value):
        refuse = partial(_refuse_if_too_large, reduced, budget=budget)
        layer = tiled(reduced, k, given, refuse) if can_be_tiled(reduced, k) else None
        if layer is not None:
            return layer
        if reduced.parallel or not is_expensive(reduced, k) or len(graph.shapes[value]) != 3:
            return _dense(reduced, value, given, budget)
        bound_by_lines(boxes, value)
    lb, ub = boxes.lb[value].flatten(), boxes.ub[value].flatten()
    index = ((lb < 0) & (ub > 0)).nonzero().squeeze(1)
    _refuse_if_too_large(reduced, len(index), budget)
    if keep_near(reduced, k, index):
        rows = kept(reduced, k, index)
    else:
        unit = neurons(graph.shapes[value], index, None, lb.dtype)
        rows = reduced.carry(value, unit, together=len(index))
    return Layer(index, rows, lb[index], ub[index])


def is_expensive(reduced: Reduced, k: int) -> bool:
    """Whether plain CROWN bounds ReLU k's input faster than rows over the image and all z."""
    work = _work(reduced.graph, k)[1]
    return reduced.columns * len(reduced.centre) > SLOWER * work


def _dense(reduced: Reduced, value: int, given: Sequence[Tensor] | None, budget: int) -> Layer:
    """Bounds by rows over the whole image and all z."""
    boxes, graph = reduced.boxes, reduced.graph
    lb, ub = boxes.lb[value].flatten().clone(), boxes.ub[value].flatten().clone()
    index = ((lb < 0) & (ub > 0)).nonzero().squeeze(1)
    widest = max(shape.numel() for shape in graph.shapes[: value + 1])
    step = max(1, budget // (8 * lb.element_size() * (widest + reduced.columns)))
    kept: list[tuple[Tensor, Affine]] = []
    # At least one turn, so that a layer without unstable neurons has empty rows of the right width.
    for part in index.split(step) if len(index) else [index]:
        unit = neurons(graph.shapes[value], part, None, lb.dtype)
        rows = reduced.carry(value, unit, together=len(index))
        quick = intersect((lb[part], ub[part]), reduced.quick(rows))
        lb[part], ub[part] = settled(rows, quick, lambda rows: reduced.lower(rows, given))
        open_ = (lb[part] < 0) & (ub[part] > 0)
        kept.append((part[open_], rows[open_]))
    boxes.lb[value] = lb.view_as(boxes.lb[value])
    boxes.ub[value] = ub.view_as(boxes.ub[value])
    index = torch.cat([part for part, _ in kept])
    _refuse_if_too_large(reduced, len(index), budget)
    rows = Affine.joined([rows for _, rows in kept])
    return Layer(index, rows, lb[index], ub[index])


def _refuse_if_too_large(reduced: Reduced, more: int, budget: int) -> None:
    """The rows of all unstable ReLUs over the image and over each other must fit."""
    count = reduced.columns + more
    size = reduced.centre.element_size() * count * (len(reduced.centre) + count)
    if size > budget:
        raise TooLarge(
            f"{count} unstable ReLUs make a reduced network of {size / 2**30:.1f} GiB, more than "
            f"the budget of {budget / 2**30:.1f} GiB; use crown, a smaller eps or a larger budget"
        )
