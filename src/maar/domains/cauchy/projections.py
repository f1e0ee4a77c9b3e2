"""Random projections A R of error terms, made only when asked for, and medians of them.

A value's projections are those of the value before it, sent through one more layer. So a trail
remembers where it came from, and makes the projections of all groups that somebody asks for in one
walk: the groups are added where they are made, not where they end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from maar.domains.affine import Conv
from maar.domains.cauchy.last_matrix import LastMatrix, Matrix
from maar.domains.cauchy.median import chosen, median_of, spread

Map = Callable[[Tensor], Tensor]
Keys = frozenset[int]

# How many numbers the projections of a value may have at a time: they stay in the cache.
AT_A_TIME = 1 << 21


@dataclass(eq=False)
class Trail:
    """The projections [k, N, *shape] of the groups of error terms of one value.

    `largest`: of how many numbers the largest value on the way is. `whole`: make all projections
    of every value at once, and keep them, for values that are used more than once; else some at a
    time, to save memory. `before` and `matrix`, if the last layer was a matrix: what it was given.
    """

    keys: Keys
    count: int
    make: Callable[[Keys, slice], Tensor]
    largest: int
    whole: bool
    before: Trail | None = None
    matrix: Matrix | None = None
    onto: Callable[[Tensor, slice], Tensor] | None = None
    """adds some of the projections to a tensor in place, where that is cheaper than to make them"""
    _made: dict[Keys, Tensor] = field(default_factory=dict, repr=False)

    def part(self, keys: Keys, part: slice) -> Tensor:
        """Some of the projections, of these groups together."""
        keys = keys & self.keys
        if not self.whole:
            return self.make(keys, part)
        if keys not in self._made:
            self._made[keys] = self.make(keys, slice(0, self.count))
        return self._made[keys][part]

    def parts(self) -> Iterator[slice]:
        """Which projections to make at a time."""
        size = self.count if self.whole else max(1, AT_A_TIME // self.largest)
        return (slice(i, min(i + size, self.count)) for i in range(0, self.count, size))

    def mapped(self, apply: Map, like: Tensor, matrix: Matrix | None = None) -> Trail:
        """Behind a linear layer, which makes values shaped `like`."""
        return replace(
            self,
            make=lambda keys, part: apply(self.part(keys, part)),
            largest=max(self.largest, like.numel()),
            before=self,
            matrix=matrix,
            onto=None,
            _made={},
        )

    def joined(self, other: Trail) -> Trail:
        """With the groups of another trail to a value of the same shape; common ones are added."""

        def make(keys: Keys, part: slice) -> Tensor:
            trails = [trail for trail in (self, other) if keys & trail.keys]
            made = trails[0].part(keys, part)
            if len(trails) == 1:
                return made
            # (what is made some at a time belongs to whom it is made for)
            if other.onto is not None and not self.whole and not made.requires_grad:
                return other.onto(made, part)
            return made + other.part(keys, part)

        return replace(
            self,
            keys=self.keys | other.keys,
            make=make,
            largest=max(self.largest, other.largest),
            before=None,
            matrix=None,
            onto=None,
            _made={},
        )


def fresh(
    key: int,
    radius: Tensor,
    count: int,
    whole: bool,
    generator: torch.Generator | None,
    dtype: torch.dtype | None = None,
) -> Trail:
    """One error term per neuron, of these radii; projected in `dtype`, default: the radii's."""
    low = radius if dtype is None else radius.to(dtype)
    drawn: list[Tensor] = []

    def noise_of(part: slice) -> Tensor:
        if not drawn:
            # The same numbers for all images of the batch: N times fewer to draw.
            shape = (count, 1, *radius.shape[1:])
            uniform = torch.rand(shape, generator=generator, dtype=radius.dtype)
            # The inverse of the Cauchy distribution function.
            noise = torch.tan(torch.pi * (uniform - 0.5)).to(radius.device)
            if radius.dim() == 4:
                # (channels last: what convolutions are fastest on)
                noise = noise.movedim(2, -1).contiguous().movedim(-1, 2)
            drawn.append(noise.to(low.dtype))
        return drawn[0][part]

    return Trail(
        frozenset({key}),
        count,
        make=lambda keys, part: noise_of(part) * low,
        largest=radius.numel(),
        whole=whole,
        onto=None if low.requires_grad else lambda v, part: v.addcmul_(noise_of(part), low),
    )


def medians(trail: Trail, keys: Keys, where: Tensor | None) -> Tensor:
    """The median of |A R| over the projections, neuron by neuron, [N, *shape]; 0 where not asked.

    Where only the last matrix has a gradient, there is a shorter way than autograd's.
    """
    matrix, before = trail.matrix, trail.before
    weight = matrix.weight if isinstance(matrix, Conv) else matrix
    if (
        torch.is_grad_enabled()
        and before is not None
        and weight is not None
        and weight.requires_grad
        and not (isinstance(matrix, Conv) and matrix.groups > 1)
    ):
        given = [before.part(keys, part) for part in trail.parts()]
        if not any(part.requires_grad for part in given):
            return LastMatrix.apply(weight, matrix, given, where)
    index = None if where is None else where.flatten().nonzero().flatten()
    made, shape = [], torch.Size()
    for part in trail.parts():
        samples = trail.part(keys, part)
        shape = samples.shape[1:]
        made.append(chosen(samples, index))
    return spread(median_of(torch.cat(made)), index, shape)
