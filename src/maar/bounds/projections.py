"""Random projections A R of error terms, made only when asked for, and medians of them.

A value's projections are those of the value before it, sent through one more layer. So a trail
remembers where it came from, and makes the projections of all groups that somebody asks for in one
walk: the groups are added where they are made, not where they end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from maar.bounds.affine import Conv

Map = Callable[[Tensor], Tensor]
Array = np.ndarray[Any, Any]
Keys = frozenset[int]
Matrix = Conv | Tensor
"""A convolution, or a Linear layer's weight."""

# How many numbers the projections of a value may have at a time: they stay in the cache.
AT_A_TIME = 1 << 21
# Neurons whose gradient is gathered at a time.
NEURONS = 8192
# Neurons whose medians are found at a time.
BLOCK = 4096


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
            _made={},
        )

    def joined(self, other: Trail) -> Trail:
        """With the groups of another trail to a value of the same shape; common ones are added."""

        def make(keys: Keys, part: slice) -> Tensor:
            trails = [trail for trail in (self, other) if keys & trail.keys]
            made = [trail.part(keys, part) for trail in trails]
            return made[0] if len(made) == 1 else made[0] + made[1]

        return replace(
            self,
            keys=self.keys | other.keys,
            make=make,
            largest=max(self.largest, other.largest),
            before=None,
            matrix=None,
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

    def make(keys: Keys, part: slice) -> Tensor:
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
        return drawn[0][part] * low

    return Trail(frozenset({key}), count, make, radius.numel(), whole)


def medians(trail: Trail, keys: Keys, where: Tensor | None) -> Tensor:
    """The median of |A R| over the projections, neuron by neuron, [N, *shape]; 0 where not asked.

    Where only the last matrix has a gradient, it is that of one projection per neuron, which is
    gathered neuron by neuron: a fiftieth of the products of the way that autograd would go.
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
            return _LastMatrix.apply(weight, matrix, given, where)
    index = None if where is None else where.flatten().nonzero().flatten()
    made, shape = [], torch.Size()
    for part in trail.parts():
        samples = trail.part(keys, part)
        shape = samples.shape[1:]
        made.append(_chosen(samples, index))
    return _spread(_median(torch.cat(made)), index, shape)


def _chosen(samples: Tensor, index: Tensor | None) -> Tensor:
    """A R of the neurons of `index`, [k, neurons]; medians are taken in single precision."""
    flat = samples.flatten(1)
    chosen = flat if index is None else flat[:, index]
    return chosen.float() if chosen.dtype == torch.bfloat16 else chosen


def _median(samples: Tensor) -> Tensor:
    """The lower median of each neuron's |A R|, [neurons]."""
    if samples.device.type != "cpu" or samples.requires_grad:
        return samples.abs().median(0).values
    return torch.from_numpy(_by_block(samples, lambda sizes, median, signed: median))


def _median_and_place(samples: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Also which projection it is of, the first of equals, and that one's sign."""
    if samples.device.type != "cpu":
        size, sizes = _median(samples), samples.abs()
        place = (sizes == size).to(torch.uint8).argmax(0)
        return size, place, samples.gather(0, place.unsqueeze(0)).squeeze(0).sgn_()

    def found(sizes: Array, median: Array, signed: Array) -> Array:
        place = (sizes == median[:, None]).argmax(1)
        sign = np.sign(np.take_along_axis(signed, place[:, None], 1)[:, 0])
        return np.stack([median, place.astype(median.dtype), sign], 1)

    size, place, sign = torch.from_numpy(_by_block(samples, found)).unbind(1)
    return size.contiguous(), place.to(torch.int32), sign.contiguous()


def _by_block(samples: Tensor, result: Callable[[Array, Array, Array], Array]) -> Array:
    """result(sizes, lower medians, samples) of some neurons at a time, which stay in the cache.

    By sorting: numpy has a row of 50 sorted (by vector instructions, where it has been built for
    them) in a fifth of the time that torch's median takes.
    """
    rows = samples.numpy()
    middle = (len(rows) - 1) // 2

    def block(start: int) -> Array:
        signed = np.ascontiguousarray(rows[:, start : start + BLOCK].T)
        sizes = np.abs(signed)
        ordered = sizes.copy()
        ordered.sort(axis=1)
        return result(sizes, ordered[:, middle], signed)

    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        return np.concatenate([*pool.map(block, range(0, max(1, rows.shape[1]), BLOCK))])


def _spread(found: Tensor, index: Tensor | None, shape: torch.Size) -> Tensor:
    if index is None:
        return found.view(shape)
    return found.new_zeros(shape.numel()).index_put((index,), found).view(shape)


class _LastMatrix(torch.autograd.Function):
    """Medians of |W P| over the projections P, [k, N, *given], with a gradient in W alone."""

    @staticmethod
    def forward(
        ctx: Any, W: Tensor, matrix: Matrix, given: list[Tensor], where: Tensor | None
    ) -> Tensor:
        index = None if where is None else where.flatten().nonzero().flatten()
        made, shape = [], torch.Size()
        for P in given:
            samples = _applied(matrix, W, P)
            shape = samples.shape[1:]
            made.append(_chosen(samples, index))
        size, which, sign = _median_and_place(torch.cat(made))
        ctx.matrix, ctx.given, ctx.shape, ctx.index = matrix, given, shape, index
        ctx.save_for_backward(W, which, sign)
        return _spread(size, index, shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        W, which, sign = ctx.saved_tensors
        upstream = grads[0].flatten()
        at = torch.arange(len(upstream), device=upstream.device) if ctx.index is None else ctx.index
        weight = upstream[at] * sign
        looked_at = weight.nonzero().flatten()
        at, weight, which = at[looked_at], weight[looked_at], which[looked_at].long()
        # Neurons as (image, channel, place): those of one channel share a row of W.
        per_image = ctx.shape[1:].numel()
        places = per_image // len(W)
        image, channel = at // per_image, at % per_image // places
        rows = _Rows(ctx.matrix, ctx.given, ctx.shape)
        grad = torch.zeros_like(W)
        order = channel.argsort()
        ends = channel.bincount(minlength=len(W)).cumsum(0).tolist()
        for o, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            for some in order[start:end].split(NEURONS):
                seen = rows(which[some], image[some], at[some] % places)
                grad[o] += (weight[some] @ seen.flatten(1).to(W.dtype)).view(seen.shape[1:])
        return grad, None, None, None


def _applied(matrix: Matrix, W: Tensor, P: Tensor) -> Tensor:
    W = W.to(P.dtype)
    if isinstance(matrix, Conv):
        return matrix.forward(P.flatten(0, 1), W).unflatten(0, P.shape[:2])
    return P @ W.T


class _Rows:
    """What a neuron sees of projection k of an image, shaped as its row of W."""

    def __init__(self, matrix: Matrix, given: list[Tensor], shape: torch.Size) -> None:
        if not isinstance(matrix, Conv):
            self.windows, self.width = torch.cat(given).unsqueeze(2), 1
            return
        vertical, horizontal = matrix.padding
        pads = (horizontal, horizontal, vertical, vertical)
        # [k, N, height, width, channels]: a window's rows then lie side by side.
        P = torch.cat([F.pad(part, pads).movedim(2, -1) for part in given]).contiguous()
        k, image, y, x, channel = P.stride()
        strides = matrix.stride, matrix.dilation
        self.width = shape[3]
        self.windows = P.as_strided(
            (*P.shape[:2], *shape[2:], *matrix.weight.shape[2:], P.shape[4]),
            (k, image, y * strides[0][0], x * strides[0][1],
             y * strides[1][0], x * strides[1][1], channel),
        )  # fmt: skip

    def __call__(self, which: Tensor, image: Tensor, place: Tensor) -> Tensor:
        if self.windows.dim() == 4:
            return self.windows[which, image, place]
        seen = self.windows[which, image, place // self.width, place % self.width]
        return seen.permute(0, 3, 1, 2)
