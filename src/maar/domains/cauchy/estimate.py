"""COLT's estimate of the zonotope's bounds by Cauchy random projections. Not a bound.

The L1 norm of a row of error terms is estimated by the median of |A R| over k columns R of
standard Cauchy numbers (Li et al. 2007; Wong et al. 2018), without ever forming A. What is
cheap to know is not estimated: a group of error terms that has passed one matrix since it was
made has the norm |W| mu, so the first layer's bounds and every layer's newest group need no
projection; after a second matrix the norm is computed where that costs less than to project.
About half of the other neurons are underestimated, so training may use this and certification
may not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from maar.domains.affine import conv_of, per_channel, scale_of
from maar.domains.bound import Bound, Enclosure, Pair, Problem
from maar.domains.cauchy.composed import Matrix, Path, Rival
from maar.domains.cauchy.projections import Map, Trail, fresh, medians
from maar.domains.graph import rule_of
from maar.domains.interval import Boxes
from maar.networks.layers import Normalize
from maar.networks.maps import Add


@dataclass(frozen=True)
class Cauchy(Bound):
    """The estimate.

    `per_group`: one median per group of error terms, summed, as COLT does (closer to the
    truth); else one median over all of them, which needs the projections of their sum alone.
    `generator`: where the randomness comes from.
    `two_matrices`: compute norms after two matrices where that is cheaper; else estimate them.
    `sampled`: a sample of a norm's terms will do where it has the spread of the projections.
    `skip_stable`: a neuron that interval bounds prove stable keeps these, which is all that a
    ReLU or a loss on stability asks of it, costs next to nothing and has no gradient.
    `dtype`: what projections are computed in, if not in what the weights are. bfloat16 adds less
    than a hundredth to an estimate that is itself a fifth off, in half the time.
    """

    name: ClassVar[str] = "cauchy"
    sound: ClassVar[bool] = False
    projections: int = 50
    per_group: bool = True
    generator: torch.Generator | None = None
    skip_stable: bool = False
    two_matrices: bool = True
    sampled: bool = False
    dtype: torch.dtype | None = None

    def enclose(self, problem: Problem) -> Enclosure:
        """Differentiable in the weights and the box."""
        graph, C = problem.graph, problem.C
        boxes = Boxes.start(graph, problem.box, False)
        lb, ub = boxes.lb[0], boxes.ub[0]
        whole = any(isinstance(node.op, Add) for node in graph.nodes)
        group, trail = self._fresh(-1, (ub - lb) / 2, whole)
        values = [Projected((lb + ub) / 2, {-1: group}, trail)]
        pre: list[Pair] = []
        for i, node in enumerate(graph.nodes):
            given = [values[v] for v in node.inputs]
            if isinstance(node.op, nn.ReLU):
                # What is known is not estimated.
                known = problem.known_at(len(pre))
                if known is None and given[0].is_box and not whole:
                    # Before the first ReLU intervals are as good: they are these bounds.
                    bounds = self._bounds(given[0], None)
                    _fill(boxes, i, bounds)
                else:
                    interval = self._interval(boxes, i)
                    if known is None:
                        bounds = self._bounds(given[0], interval)
                    else:
                        bounds = known[0].to(lb), known[1].to(ub)
                    if interval:
                        boxes.refine(node.inputs[0], bounds)
                values.append(self._relu(given[0], len(pre), *bounds, whole))
                pre.append(bounds)
            else:
                values.append(rule_of(RULES, node, self.name)(node.op, *given))
        out = values[-1]
        if C is not None:
            out, C = _flatten(nn.Flatten(), out), C.to(out.centre)
            out = out.mixed(
                lambda x: (C @ x.unsqueeze(-1)).squeeze(-1),
                lambda x: _each(C, x),
                lambda x: (C.abs() @ x.unsqueeze(-1)).squeeze(-1),
                None,
            )
            return Enclosure(*self._bounds(out, None), tuple(pre))
        interval = None if out.is_box else self._interval(boxes, len(graph.nodes))
        # (flattened after, not before: the medians have a short way where a matrix comes last)
        lb, ub = self._bounds(out, interval)
        return Enclosure(lb.flatten(1), ub.flatten(1), tuple(pre))

    def _interval(self, boxes: Boxes, node: int) -> Pair | None:
        """The interval bounds on what node `node` is given."""
        if not self.skip_stable:
            return None
        # (whom a stable neuron's bounds need not be tight for needs no gradient of them either)
        with torch.no_grad():
            boxes.advance(node)
        value = boxes.graph.nodes[node].inputs[0] if node < len(boxes.graph.nodes) else node
        return boxes.lb[value], boxes.ub[value]

    def _bounds(self, value: Projected, interval: Pair | None) -> Pair:
        where = None
        if interval is not None:
            where = (interval[0] < 0) & (interval[1] > 0)
        norms, rest = [], []
        groups = value.groups
        # One median for all: a group that has to be projected takes the others along for nothing.
        together = not self.per_group and any(group.has_no_norms for group in groups.values())
        for key, group in groups.items():
            exact = group.exact if together else group.norms(where)
            if exact is None:
                rest.append(frozenset({key}))
            else:
                norms.append(exact)
        if rest and not self.per_group:
            rest = [frozenset().union(*rest)]
        norms += [medians(value.trail, keys, where) for keys in rest]
        radius = torch.stack(norms).sum(0)
        lb, ub = value.centre - radius, value.centre + radius
        if interval is None or where is None:
            return lb, ub
        return torch.where(where, lb, interval[0]), torch.where(where, ub, interval[1])

    def _relu(self, value: Projected, k: int, lb: Tensor, ub: Tensor, whole: bool) -> Projected:
        # DeepZ's band. A ReLU that is stable is clipped to one that has nothing below or above 0,
        # where slope and height come out right; no proof rests on this, so nothing is rounded up.
        under, over = lb.clamp_max(0), ub.clamp_min(0)
        slope = over / (over - under).clamp_min(torch.finfo(ub.dtype).tiny)
        half = -0.5 * slope * under
        # (projections that nobody keeps are multiplied where they are)
        on_trail = _times(slope, in_place=not whole)
        below = value.scaled(lambda x: x * slope, _times(slope), on_trail=on_trail)
        group, trail = self._fresh(k, half, whole)
        groups = {**below.groups, k: group}
        return Projected(below.centre + half, groups, below.trail.joined(trail))

    def _fresh(self, key: int, radius: Tensor, whole: bool) -> tuple[Group, Trail]:
        """A new group: one error term per neuron, which knows its norm."""
        rival = Rival(self.projections if self.two_matrices else 0, self.sampled, self.generator)
        trail = fresh(key, radius, self.projections, whole, self.generator, self.dtype)
        return Group(radius, rival, diagonal=True), trail


@dataclass(frozen=True)
class Group:
    """The L1 norms of one group of error terms, as far as they are computed.

    `diagonal`: each neuron has one term of its own, so the norms survive one matrix as |W| mu;
    after that `path` says how the terms came here. `rival`: what a computed norm must cost less
    than.
    """

    exact: Tensor | None
    rival: Rival
    diagonal: bool = False
    path: Path | None = None

    @property
    def has_no_norms(self) -> bool:
        """Whether they can only be estimated by projections."""
        return self.exact is None and (self.path is None or self.path.second is None)

    def norms(self, where: Tensor | None) -> Tensor | None:
        """The L1 norms if they are known, or can be; `where` says at which neurons they matter."""
        if self.exact is None and self.path:
            return self.path.norms(self.rival, where)
        return self.exact


@dataclass(frozen=True)
class Projected:
    """centre [N, *shape] and the groups of error terms: -1 the input's, k those of ReLU k."""

    centre: Tensor
    groups: dict[int, Group]
    trail: Trail

    @property
    def is_box(self) -> bool:
        """Whether there is but the input's group, and its norms are known."""
        return len(self.groups) == 1 and all(g.exact is not None for g in self.groups.values())

    def scaled(
        self,
        apply: Map,
        to_samples: Map,
        absolute: Map | None = None,
        on_trail: Map | None = None,
    ) -> Projected:
        """A map of each neuron by itself: norms stay known (`absolute` is it on norms).

        `on_trail`: the same as `to_samples`, and may overwrite what it is given.
        """
        on_norms = absolute or apply
        after, groups = apply(self.centre), {}
        for k, group in self.groups.items():
            exact = None if group.exact is None else on_norms(group.exact)
            path = group.path and group.path.scaled(to_samples, on_norms)
            groups[k] = replace(group, exact=exact, path=path)
        return Projected(after, groups, self.trail.mapped(on_trail or to_samples, after))

    def mixed(
        self, centre: Map, to_samples: Map, absolute: Map, matrix: Matrix | None
    ) -> Projected:
        """A matrix (None: one per image), after which few norms are known."""
        after, groups = centre(self.centre), {}
        for k, group in self.groups.items():
            exact = path = None
            if group.diagonal:
                assert group.exact is not None
                exact = absolute(group.exact)
                if matrix is not None:
                    ones = exact.new_ones(1, 1, *exact.shape[1:])
                    path = Path(group.exact, matrix, ones)
            elif group.path and matrix is not None:
                path = group.path.then(matrix)
            groups[k] = replace(group, exact=exact, path=path, diagonal=False)
        return Projected(after, groups, self.trail.mapped(to_samples, after, matrix))


def _fill(boxes: Boxes, node: int, bounds: Pair) -> None:
    """Take these for the boxes up to the input of a node; the others are not asked for again."""
    missing = node - len(boxes.size)
    boxes.lb += [bounds[0].detach()] * missing
    boxes.ub += [bounds[1].detach()] * missing
    boxes.size += [None] * missing


def _each(C: Tensor, samples: Tensor) -> Tensor:
    return (C.to(samples.dtype) @ samples.unsqueeze(-1)).squeeze(-1)


def _times(factor: Tensor, in_place: bool = False) -> Map:
    """Multiply by this, in the precision of what is multiplied."""
    made: list[Tensor] = []

    def apply(x: Tensor) -> Tensor:
        if factor.requires_grad or x.requires_grad:
            return x * factor.to(x.dtype)
        if x.dtype != factor.dtype and not made:
            made.append(factor.to(x.dtype))
        same = factor if x.dtype == factor.dtype else made[0]
        return x.mul_(same) if in_place else x * same

    return apply


def _batched(apply: Map) -> Map:
    """Apply a map of [batch, *shape] to projections [k, N, *shape]."""
    return lambda x: apply(x.flatten(0, 1)).unflatten(0, x.shape[:2])


def _conv(op: nn.Module, value: Projected) -> Projected:
    conv = conv_of(op, value.centre.shape[1])
    weight = conv.weight.to(value.centre)
    return value.mixed(
        lambda x: conv.forward(x, weight, conv.bias),
        _batched(lambda x: conv.forward(x, weight.to(x.dtype))),
        lambda x: conv.forward(x, weight.abs()),
        replace(conv, weight=weight),
    )


def _linear(op: nn.Module, value: Projected) -> Projected:
    assert isinstance(op, nn.Linear)
    weight = op.weight
    return value.mixed(op, lambda x: x @ weight.T.to(x.dtype), lambda x: x @ weight.abs().T, weight)


def _scale(op: nn.Module, value: Projected) -> Projected:
    scale, shift = scale_of(op)
    rank = value.centre.dim()
    factor = per_channel(scale, rank)
    return value.scaled(
        lambda x: x * factor + per_channel(shift, rank),
        _times(factor),
        lambda x: x * factor.abs(),
    )


def _flatten(op: nn.Module, value: Projected) -> Projected:
    return value.scaled(lambda x: x.flatten(1), lambda x: x.flatten(2))


def _add(op: nn.Module, left: Projected, right: Projected) -> Projected:
    groups = {**left.groups, **right.groups}
    for k in left.groups.keys() & right.groups.keys():
        # The same error terms on two branches: the norm of the sum is known to neither.
        groups[k] = Group(None, left.groups[k].rival)
    return Projected(left.centre + right.centre, groups, left.trail.joined(right.trail))


RULES: dict[type[nn.Module], Callable[..., Projected]] = {
    nn.Conv2d: _conv,
    nn.AvgPool2d: _conv,
    nn.Linear: _linear,
    nn.BatchNorm1d: _scale,
    nn.BatchNorm2d: _scale,
    Normalize: _scale,
    nn.Flatten: _flatten,
    Add: _add,
}
