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
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from maar.bounds.affine import conv_of, per_channel, scale_of
from maar.bounds.bound import Bound, Enclosure, Pair, Problem, intersect
from maar.bounds.composed import Matrix, Path
from maar.bounds.graph import Add
from maar.bounds.interval import Boxes
from maar.bounds.relax import parallel_lines
from maar.networks.layers import Normalize

Map = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Cauchy(Bound):
    """The estimate.

    `per_group`: one median per group of error terms, summed, as COLT does (closer to the
    truth); else one median over all of them. `generator`: where the randomness comes from.
    """

    name: ClassVar[str] = "cauchy"
    sound: ClassVar[bool] = False
    projections: int = 50
    per_group: bool = True
    generator: torch.Generator | None = None

    def enclose(self, problem: Problem) -> Enclosure:
        """Differentiable in the weights and the box."""
        graph, C = problem.graph, problem.C
        boxes = Boxes.start(graph, problem.box, False)
        lb, ub = boxes.lb[0], boxes.ub[0]
        values = [Projected((lb + ub) / 2, {-1: self._fresh((ub - lb) / 2)})]
        pre: list[Pair] = []
        for node in graph.nodes:
            given = [values[v] for v in node.inputs]
            if isinstance(node.op, nn.ReLU):
                bounds = intersect(self._bounds(given[0]), problem.known_at(len(pre)))
                values.append(self._relu(given[0], len(pre), *bounds))
                pre.append(bounds)
            else:
                values.append(RULES[type(node.op)](node.op, *given))
        out = _flatten(nn.Flatten(), values[-1])
        if C is not None:
            C = C.to(out.centre)
            out = out.mixed(
                lambda x: (C @ x.unsqueeze(-1)).squeeze(-1),
                lambda x: _each(C, x),
                lambda x: (C.abs() @ x.unsqueeze(-1)).squeeze(-1),
                None,
            )
        return Enclosure(*self._bounds(out), tuple(pre))

    def _bounds(self, value: Projected) -> Pair:
        known = [group.exact for group in value.groups.values() if group.exact is not None]
        rest = [group.samples() for group in value.groups.values() if group.exact is None]
        if rest and not self.per_group:
            rest = [torch.stack(rest).sum(0)]
        norms = known + [samples.abs().median(1).values for samples in rest]
        radius = torch.stack(norms).sum(0)
        return value.centre - radius, value.centre + radius

    def _relu(self, value: Projected, k: int, lb: Tensor, ub: Tensor) -> Projected:
        slope, height = parallel_lines(lb, ub, None)
        below = value.scaled(lambda x: x * slope, lambda x: _per_image(x, lambda v: v * slope))
        groups = {**below.groups, k: self._fresh(height / 2)}
        return Projected(below.centre + height / 2, groups)

    def _fresh(self, radius: Tensor) -> Group:
        """A new group: one error term per neuron, which knows its norm and has no projections."""

        def draw() -> Tensor:
            # The same numbers for all images of the batch: k times fewer to draw.
            shape = (1, self.projections, *radius.shape[1:])
            uniform = torch.rand(shape, generator=self.generator, dtype=radius.dtype)
            # The inverse of the Cauchy distribution function.
            return torch.tan(torch.pi * (uniform.to(radius.device) - 0.5)) * radius.unsqueeze(1)

        return Group(radius, draw, self.projections, diagonal=True)


@dataclass
class Group:
    """One group of error terms: its L1 norms where they are known, its projections when asked.

    `diagonal`: each neuron has one term of its own, so the norms survive one matrix as |W| mu;
    after that `path` says how the terms came here.
    """

    exact: Tensor | None
    make: Callable[[], Tensor]
    projections: int
    diagonal: bool = False
    path: Path | None = None
    made: Tensor | None = field(default=None, repr=False)

    def samples(self) -> Tensor:
        """The projections A R, [N, k, *shape], made once and only if somebody needs them."""
        if self.made is None:
            self.made = self.make()
        return self.made


@dataclass(frozen=True)
class Projected:
    """centre [N, *shape] and the groups of error terms: -1 the input's, k those of ReLU k."""

    centre: Tensor
    groups: dict[int, Group]

    def scaled(self, apply: Map, to_samples: Map, absolute: Map | None = None) -> Projected:
        """A map of each neuron by itself: norms stay known (`absolute` is it on norms)."""
        on_norms = absolute or apply
        groups = {}
        for k, group in self.groups.items():
            exact = None if group.exact is None else on_norms(group.exact)
            path = group.path and replace(group.path, scale=to_samples(group.path.scale))
            make = _then(group, to_samples)
            groups[k] = Group(exact, make, group.projections, group.diagonal, path)
        return Projected(apply(self.centre), groups)

    def mixed(
        self, centre: Map, to_samples: Map, absolute: Map, matrix: Matrix | None
    ) -> Projected:
        """A matrix (None: one per image), after which few norms are known."""
        groups = {}
        for k, group in self.groups.items():
            exact = path = None
            if group.diagonal:
                assert group.exact is not None
                exact = absolute(group.exact)
                if matrix is not None:
                    ones = exact.new_ones(1, 1, *exact.shape[1:])
                    path = Path(group.exact, matrix, ones)
            elif group.path and matrix is not None and group.path.pays(matrix, group.projections):
                exact = group.path.norms(matrix)
            make = _then(group, to_samples)
            groups[k] = Group(exact, make, group.projections, path=path)
        return Projected(centre(self.centre), groups)


def _then(group: Group, apply: Map) -> Callable[[], Tensor]:
    return lambda: apply(group.samples())


def _per_image(samples: Tensor, apply: Map) -> Tensor:
    """Apply a map that differs from image to image to [N, k, *shape]."""
    return apply(samples.transpose(0, 1)).transpose(0, 1)


def _each(C: Tensor, samples: Tensor) -> Tensor:
    return samples.expand(len(C), -1, -1) @ C.transpose(1, 2)


def _batched(apply: Map) -> Map:
    """Apply a map of [batch, *shape] to projections [N, k, *shape]."""
    return lambda x: apply(x.flatten(0, 1)).unflatten(0, x.shape[:2])


def _conv(op: nn.Module, value: Projected) -> Projected:
    conv = conv_of(op, value.centre.shape[1])
    weight = conv.weight.to(value.centre)
    return value.mixed(
        lambda x: conv.forward(x, weight, conv.bias),
        _batched(lambda x: conv.forward(x, weight)),
        lambda x: conv.forward(x, weight.abs()),
        replace(conv, weight=weight),
    )


def _linear(op: nn.Module, value: Projected) -> Projected:
    assert isinstance(op, nn.Linear)
    weight = op.weight
    return value.mixed(op, lambda x: x @ weight.T, lambda x: x @ weight.abs().T, weight)


def _scale(op: nn.Module, value: Projected) -> Projected:
    scale, shift = scale_of(op)
    rank = value.centre.dim()
    factor = per_channel(scale, rank)
    return value.scaled(
        lambda x: x * factor + per_channel(shift, rank),
        lambda x: x * factor,
        lambda x: x * factor.abs(),
    )


def _flatten(op: nn.Module, value: Projected) -> Projected:
    return value.scaled(lambda x: x.flatten(1), lambda x: x.flatten(2))


def _add(op: nn.Module, left: Projected, right: Projected) -> Projected:
    groups = dict(left.groups)
    for k, group in right.groups.items():
        groups[k] = _sum(groups[k], group) if k in groups else group
    return Projected(left.centre + right.centre, groups)


def _sum(left: Group, right: Group) -> Group:
    """The same error terms on two branches: the norm of the sum is known to neither."""
    return Group(None, lambda: left.samples() + right.samples(), left.projections)


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
