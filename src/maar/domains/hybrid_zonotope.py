"""DiffAI's hybrid zonotope: {a + A e + diag(b) d, e and d in [-1,1]} (Mirman et al. 2018).

A zonotope with few error terms A that neurons share, and a box b for the rest. Behind a layer W it
is W a, W A and |W| b. A ReLU with l < 0 < u becomes whichever covers the smaller area:

    u < -l    the box [0, u]                                  its error terms are forgotten
    else      the band between v and v - l, slope 1           |l| / 2 is added to its box

At the input and behind each ReLU the `terms` neurons with the widest box get an error term of
their own in its place (DiffAI's "correlate"). With no terms at all these are interval bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from maar.domains.affine import conv_of, per_channel, scale_of
from maar.domains.bound import Bound, Enclosure, Pair, Problem, intersect
from maar.domains.graph import rule_of
from maar.domains.interval import Boxes, output
from maar.domains.linear_map import Mapped
from maar.domains.zonotope import RULES as ERROR_RULES
from maar.domains.zonotope import Terms
from maar.networks.layers import Normalize
from maar.networks.maps import Add, Combine, Concat


@dataclass(frozen=True)
class HybridZonotope(Bound):
    """For training: differentiable, batched, without account of rounding."""

    name: ClassVar[str] = "hybrid_zonotope"
    terms: int = 8

    def enclose(self, problem: Problem) -> Enclosure:
        graph, C = problem.graph, problem.C
        boxes = Boxes.start(graph, problem.box, False)
        lb, ub = boxes.lb[0], boxes.ub[0]
        values = [self._correlated(Hybrid(Terms((lb + ub) / 2, {}), (ub - lb) / 2), -1)]
        for i, node in enumerate(graph.nodes):
            given = [values[v] for v in node.inputs]
            if isinstance(node.op, nn.ReLU):
                k, value = graph.relus.index(i), node.inputs[0]
                boxes.advance(i)
                # The band reaches below 0: intervals are tighter at times.
                boxes.refine(value, given[0].bounds())
                boxes.refine(value, problem.known_at(k))
                bounds = boxes.lb[value], boxes.ub[value]
                values.append(self._correlated(_relu(given[0], *bounds), k))
            else:
                rule_of(RADII, node, self.name)
                values.append(_affine(node.op, *given))
        out = _affine(nn.Flatten(), values[-1])
        if C is not None:
            # C differs from image to image, so this is no common linear map.
            C = C.to(out.box)
            centre = (C @ out.zonotope.centre.unsqueeze(-1)).squeeze(-1)
            groups = {k: e @ C.transpose(1, 2) for k, e in out.zonotope.groups.items()}
            out = Hybrid(Terms(centre, groups), (C.abs() @ out.box.unsqueeze(-1)).squeeze(-1))
        return Enclosure(*intersect(out.bounds(), output(boxes, C)), boxes.pre())

    def _correlated(self, value: Hybrid, group: int) -> Hybrid:
        """The widest boxes made into error terms of their own."""
        box = value.box.flatten(1)
        count = min(self.terms, box.shape[1])
        if not count:
            return value
        place = box.detach().topk(count).indices
        errors = torch.diag_embed(box.gather(1, place))
        errors = box.new_zeros(len(box), count, box.shape[1]).scatter(
            2, place.unsqueeze(1).expand(-1, count, -1), errors
        )
        rest = box.scatter(1, place, 0.0).view_as(value.box)
        groups = {**value.zonotope.groups, group: errors.unflatten(2, value.box.shape[1:])}
        return Hybrid(Terms(value.zonotope.centre, groups), rest)


@dataclass(frozen=True)
class Hybrid:
    """A zonotope's centre and error terms [N, m, *shape], and the box around them [N, *shape]."""

    zonotope: Terms
    box: Tensor

    def shared(self) -> Tensor:
        """The part of the radius that is in error terms."""
        return self.zonotope.radius() if self.zonotope.groups else torch.zeros_like(self.box)

    def bounds(self) -> Pair:
        """The interval hull."""
        radius = self.box + self.shared()
        return self.zonotope.centre - radius, self.zonotope.centre + radius


def _relu(value: Hybrid, lb: Tensor, ub: Tensor) -> Hybrid:
    unstable, active = (lb < 0) & (ub > 0), lb >= 0
    # (where nothing is shared, the band would keep nothing that the box does not)
    boxed = unstable & ((ub < -lb) | (value.shared() == 0))
    band = unstable & ~boxed
    kept = (active | band).to(lb)
    shift = torch.where(band, -lb / 2, torch.where(boxed, ub / 2, torch.zeros_like(lb)))
    groups = {k: errors * kept.unsqueeze(1) for k, errors in value.zonotope.groups.items()}
    centre = value.zonotope.centre * kept + shift
    return Hybrid(Terms(centre, groups), value.box * kept + shift)


def _affine(op: nn.Module, *given: Hybrid) -> Hybrid:
    zonotope = ERROR_RULES[type(op)](op, *(value.zonotope for value in given))
    return Hybrid(zonotope, RADII[type(op)](op, *(value.box for value in given)))


def _conv(op: nn.Module, radius: Tensor) -> Tensor:
    conv = conv_of(op, radius.shape[1])
    return conv.forward(radius, conv.weight.to(radius).abs())


def _linear(op: nn.Module, radius: Tensor) -> Tensor:
    assert isinstance(op, nn.Linear)
    return radius @ op.weight.abs().T


def _scale(op: nn.Module, radius: Tensor) -> Tensor:
    return radius * per_channel(scale_of(op)[0].abs(), radius.dim())


def _flatten(op: nn.Module, radius: Tensor) -> Tensor:
    return radius.flatten(1)


def _add(op: nn.Module, left: Tensor, right: Tensor) -> Tensor:
    return left + right


def _mapped(op: nn.Module, radius: Tensor) -> Tensor:
    assert isinstance(op, Mapped)
    return op.linear(radius, absolute=True)


def _combine(op: nn.Module, *radii: Tensor) -> Tensor:
    assert isinstance(op, Combine)
    pairs = zip(op.coefficients, radii, strict=True)
    return torch.stack([radius * torch.as_tensor(c).abs() for c, radius in pairs]).sum(0)


def _concat(op: nn.Module, *radii: Tensor) -> Tensor:
    return op(*radii)


RADII: dict[type[nn.Module], Callable[..., Tensor]] = {
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
