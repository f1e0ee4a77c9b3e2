"""Norms of error terms that have passed two convolutions since they were made.

For terms of radius r, a convolution V, a scale s of each neuron and a convolution W, the norms are
|W diag(s) V| r. Only s and r differ from image to image, and an input at offset u of the joint
window reaches the output through few pairs of taps (t of W, v of V with u = stride t + v), so

    norm(p) = sum_u r(p, u) | sum_t s(p, t) . K(t, u) |,      K(t, u) = W(t) V(u - stride t),

where the products K do not depend on the image: a few dozen small matrix products, and no random
numbers. Where only W is trained the gradient skips every neuron that the loss does not look at.

The sum over all u may be estimated by that over a sample of them (`sample`). A norm's terms are
alike, at least before training has made weights sparse and neurons stable: then twenty of a
hundred terms have the spread of fifty Cauchy projections, at a tenth of their cost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from maar.domains.affine import Conv
from maar.domains.bound import Pair

# Rows of a block: so few that a block's products stay in the cache.
ROWS = 1280
# Neurons whose gradient is computed at a time.
NEURONS = 2048
# The share of the neurons below which it is faster to take them one by one.
FEW = 0.3
# Neurons whose norms are computed to see how large a sample has to be.
LOOKED_AT = 128


@dataclass(frozen=True)
class TwoConvolutions:
    """`second` diag(`scale`) `first`, for terms of this `radius`; both are [N, *shape]."""

    first: Conv
    radius: Tensor
    scale: Tensor
    second: Conv

    @cached_property
    def joints(self) -> list[Joint]:
        first = axes(self.first, self.radius.shape[2:])
        second = axes(self.second, self.scale.shape[2:])
        return [Joint(*pair) for pair in zip(first, second, strict=True)]

    @cached_property
    def outputs(self) -> list[int]:
        return [joint.second.outputs for joint in self.joints]

    @cached_property
    def V(self) -> Tensor:
        return _dense(self.first)

    @cached_property
    def W(self) -> Tensor:
        return _dense(self.second)

    @cached_property
    def S(self) -> Tensor:
        """The scales that each output position sees, [N * positions, *taps of W, channels]."""
        seconds = [joint.second for joint in self.joints]
        geometry = [(a.kernel, a.stride, a.padding, a.dilation) for a in seconds]
        return _windows(self.scale, self.outputs, geometry).flatten(0, 2)

    @cached_property
    def radii(self) -> Tensor:
        """The radii that each output position sees, [N, *positions, *joint window, channels]."""
        geometry = [
            (
                joint.size(),
                joint.first.stride * joint.second.stride,
                joint.first.padding + joint.first.stride * joint.second.padding,
                1,
            )
            for joint in self.joints
        ]
        return _windows(self.radius, self.outputs, geometry)

    @property
    def columns(self) -> int:
        """Number of terms in a neuron's norm."""
        return math.prod(joint.size() for joint in self.joints) * self.V.shape[1]

    @torch.no_grad()
    def sample(
        self, projections: int, where: Tensor | None, generator: torch.Generator | None
    ) -> Tensor:
        """So many columns, drawn at random, that the spread is that of so many projections.

        The variance of a norm's estimate is cv^2 (1/m - 1/n) with m of n columns, where cv is the
        variation among the norm's terms, and pi^2 / (4 k) with the median of k projections.
        """
        image, channel, y, x = self._looked_at(where, generator)
        row = (image * self.outputs[0] + y) * self.outputs[1] + x
        _, terms = _row(self.W[channel], self.V, self.S[row], self.joints)
        terms = terms.mul_(self.radii[image, y, x]).flatten(1)
        norms = terms.sum(1)
        terms, norms = terms[norms > 0], norms[norms > 0]
        n = self.columns
        if not len(terms):
            return torch.arange(n)
        variation = float((n * terms.square().sum(1) / norms.square()).mean()) - 1
        allowed = math.pi**2 / (4 * projections)
        wanted = 1 if variation <= 0 else 1 / (allowed / variation + 1 / n)
        order = torch.randperm(n, generator=generator)
        return order[: math.ceil(wanted)].sort().values

    def _looked_at(
        self, where: Tensor | None, generator: torch.Generator | None
    ) -> tuple[Tensor, ...]:
        """(image, channel, y, x) of a few neurons, of those that matter."""
        shape = (len(self.radius), len(self.W), *self.outputs)
        neurons = torch.randint(math.prod(shape), (8 * LOOKED_AT,), generator=generator)
        found = torch.unravel_index(neurons, shape)
        if where is not None:
            matters = where.view(shape)[found]
            found = tuple(part[matters] for part in found)
        return tuple(part[:LOOKED_AT] for part in found)

    def norms(self, where: Tensor | None, sample: Tensor | None = None) -> Tensor:
        """[N, *shape], of a sample of the columns if given; 0 at times where not asked for."""
        if sample is None:
            R = self.radii.reshape(-1, self.columns)
        else:
            y, x, channel = torch.unravel_index(sample, self.radii.shape[3:])
            # (each one stands for several)
            R = self.radii[:, :, :, y, x, channel].flatten(0, 2) * (self.columns / len(sample))
        if torch.is_grad_enabled() and any(part.requires_grad for part in (self.V, self.S, R)):
            norms = _blocks(self.V, self.S, R, self.W, self.joints, sample)
        else:
            if where is not None:
                where = where.view(len(self.radius), -1, *self.outputs)
                where = where.permute(1, 0, 2, 3).flatten(1)
            norms = _Trained.apply(self.W, self.V, self.S, R, self.joints, where, sample)
        return norms.view(len(self.radius), *self.outputs, -1).permute(0, 3, 1, 2)


def share(where: Tensor) -> float:
    """The part that is not zero."""
    return int(where.count_nonzero()) / max(1, where.numel())


@dataclass(frozen=True)
class Axis:
    """One dimension of a convolution."""

    kernel: int
    stride: int
    padding: int
    dilation: int
    size: int

    @property
    def outputs(self) -> int:
        reach = self.dilation * (self.kernel - 1) + 1
        return (self.size + 2 * self.padding - reach) // self.stride + 1


def axes(conv: Conv, size: torch.Size) -> list[Axis]:
    kernel = conv.weight.shape[2:]
    return [
        Axis(kernel[i], conv.stride[i], conv.padding[i], conv.dilation[i], size[i]) for i in (0, 1)
    ]


@dataclass(frozen=True)
class Joint:
    """One dimension of two convolutions, one after the other."""

    first: Axis
    second: Axis

    def step(self) -> int:
        """How far apart two neighbouring taps of the second are at the input."""
        return self.first.stride * self.second.dilation

    def size(self) -> int:
        """How wide the joint window is."""
        reach = self.first.dilation * (self.first.kernel - 1)
        return self.step() * (self.second.kernel - 1) + reach + 1

    def taps(self) -> list[tuple[int, ...]]:
        """By which taps of the second each offset of the joint window is reached."""
        found: list[list[int]] = [[] for _ in range(self.size())]
        for t, v in product(range(self.second.kernel), range(self.first.kernel)):
            found[self.step() * t + self.first.dilation * v].append(t)
        return [tuple(reached) for reached in found]

    def first_tap(self, t: Tensor, offset: Tensor) -> Tensor:
        """The taps of the first that lead from these offsets to tap t of the second."""
        return (offset - self.step() * t) // self.first.dilation


def _dense(conv: Conv) -> Tensor:
    """The weight with grouped channels written out."""
    if conv.groups == 1:
        return conv.weight
    parts = conv.weight.chunk(conv.groups)
    return torch.cat(
        [
            F.pad(part, (0, 0, 0, 0, g * part.shape[1], (conv.groups - 1 - g) * part.shape[1]))
            for g, part in enumerate(parts)
        ]
    )


def _windows(x: Tensor, outputs: list[int], geometry: list[tuple[int, int, int, int]]) -> Tensor:
    """Return the window of x at each output position, [N, *positions, height, width, channels]."""
    pads: list[int] = []
    for size, count, (kernel, stride, padding, dilation) in zip(
        x.shape[2:], outputs, geometry, strict=True
    ):
        needed = stride * (count - 1) + dilation * (kernel - 1) + 1
        pads = [padding, needed - padding - size, *pads]
    x = F.pad(x, pads).permute(0, 2, 3, 1).contiguous()
    images, rows, columns = x.stride()[:3]
    (kernel_y, stride_y, _, dilation_y), (kernel_x, stride_x, _, dilation_x) = geometry
    return x.as_strided(
        (len(x), *outputs, kernel_y, kernel_x, x.shape[3]),
        (
            images,
            rows * stride_y,
            columns * stride_x,
            rows * dilation_y,
            columns * dilation_x,
            1,
        ),
    )


@dataclass(frozen=True)
class Bundle:
    """Columns of the joint window that the same taps of W reach, and K from there."""

    columns: Tensor
    """Where their radii are."""
    down: slice | list[int]
    across: slice | list[int]
    K: Tensor
    """[taps and channels, columns and output channels]"""


def _bundles(V: Tensor, W: Tensor, joints: list[Joint], sample: Tensor | None) -> list[Bundle]:
    window = (*(joint.size() for joint in joints), V.shape[1])
    columns = torch.arange(math.prod(window)) if sample is None else sample
    at = torch.unravel_index(columns, window)
    alike: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    taps = [joint.taps() for joint in joints]
    for number, (y, x) in enumerate(zip(at[0].tolist(), at[1].tolist(), strict=True)):
        if taps[0][y] and taps[1][x]:
            alike.setdefault((taps[0][y], taps[1][x]), []).append(number)
    bundles = []
    for (down, across), numbers in alike.items():
        where = torch.tensor(numbers)
        y, x, channel = (part[where] for part in at)
        t, u = torch.tensor(list(product(down, across))).unbind(1)
        lead_y, lead_x = joints[0].first_tap(t[:, None], y), joints[1].first_tap(u[:, None], x)
        first, second = V[:, channel, lead_y, lead_x], W[:, :, t, u]
        # [taps, channels, columns, output channels]
        K = first.transpose(0, 1).unsqueeze(3) * second.permute(2, 1, 0).unsqueeze(2)
        K = K.reshape(len(t) * len(V), -1)
        bundles.append(Bundle(where, _slice(down), _slice(across), K))
    return bundles


def _slice(taps: tuple[int, ...]) -> slice | list[int]:
    # (dilation may leave holes; a slice needs no copy)
    span = range(taps[0], taps[-1] + 1)
    return slice(span.start, span.stop) if tuple(span) == taps else list(taps)


def _blocks(
    V: Tensor, S: Tensor, R: Tensor, W: Tensor, joints: list[Joint], sample: Tensor | None
) -> Tensor:
    bundles = _bundles(V, W, joints, sample)
    blocks = zip(S.split(ROWS), R.split(ROWS), strict=True)
    return torch.cat([_block(s, r, bundles, len(W)) for s, r in blocks])


def _block(S: Tensor, R: Tensor, bundles: list[Bundle], channels: int) -> Tensor:
    total = S.new_zeros(len(S), channels)
    for bundle in bundles:
        seen = S[:, bundle.down][:, :, bundle.across].flatten(1)
        size = (seen @ bundle.K).abs_().view(len(S), -1, channels)
        radius = R[:, bundle.columns].unsqueeze(2)
        for i in range(size.shape[1]):
            total = torch.addcmul(total, size[:, i], radius[:, i])
    return total


class _Trained(torch.autograd.Function):
    """The norms where only W has a gradient, [rows, channels].

    `where`, [channels, rows], says which neurons matter. The stable ones do not, to a ReLU and
    to a loss on stability, and often few are left: these are then taken one by one.
    """

    @staticmethod
    def forward(
        ctx: Any,
        W: Tensor,
        V: Tensor,
        S: Tensor,
        R: Tensor,
        joints: list[Joint],
        where: Tensor | None,
        sample: Tensor | None,
    ) -> Tensor:
        ctx.joints, ctx.rows, ctx.sample = joints, None, sample
        ctx.save_for_backward(W, V, S, R)
        if sample is not None or where is None or share(where) >= FEW:
            return _blocks(V, S, R, W, joints, sample)
        norms, rows = S.new_zeros(where.shape), []
        for o, neurons in _by_channel(where):
            sign, size = _row(W[o], V, S.index_select(0, neurons), joints)
            seen = R.index_select(0, neurons).view(size.shape)
            norms[o, neurons] = (size * seen).flatten(1).sum(1)
            if ctx.needs_input_grad[0]:
                rows.append((o, neurons, sign.mul_(seen)))
        ctx.rows = rows
        return norms.T

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        W, V, S, R = ctx.saved_tensors
        upstream = grads[0]
        if ctx.sample is not None or (ctx.rows is None and share(upstream) >= FEW):
            grad = _by_block(W, V, S, R, ctx.joints, ctx.sample, upstream)
        else:
            grad = torch.zeros_like(W)
            upstream = upstream.T.contiguous()
            for o, neurons, row in ctx.rows or _anew(W, V, S, R, ctx.joints, upstream != 0):
                weighted = row * upstream[o, neurons].view(-1, 1, 1, 1)
                grad[o] += _row_gradient(weighted, V, S.index_select(0, neurons), ctx.joints)
        return grad, None, None, None, None, None, None


def _by_block(
    W: Tensor,
    V: Tensor,
    S: Tensor,
    R: Tensor,
    joints: list[Joint],
    sample: Tensor | None,
    upstream: Tensor,
) -> Tensor:
    """The gradient in W over all neurons, one block's values at a time."""
    W = W.detach().requires_grad_()
    with torch.enable_grad():
        bundles = _bundles(V, W, joints, sample)
        leaves = [replace(b, K=b.K.detach().requires_grad_()) for b in bundles]
        for s, r, g in zip(S.split(ROWS), R.split(ROWS), upstream.split(ROWS), strict=True):
            _block(s, r, leaves, len(W)).backward(g)
        return torch.autograd.grad([b.K for b in bundles], W, [b.K.grad for b in leaves])[0]


def _by_channel(where: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Channels and the rows in which they matter, some rows at a time."""
    for o, of_channel in enumerate(where):
        for neurons in of_channel.nonzero().flatten().split(NEURONS):
            if len(neurons):
                yield o, neurons


def _anew(
    W: Tensor, V: Tensor, S: Tensor, R: Tensor, joints: list[Joint], where: Tensor
) -> Iterator[tuple[int, Tensor, Tensor]]:
    for o, neurons in _by_channel(where):
        sign, _ = _row(W[o], V, S.index_select(0, neurons), joints)
        yield o, neurons, sign.mul_(R.index_select(0, neurons).view(sign.shape))


def _row(W: Tensor, V: Tensor, S: Tensor, joints: list[Joint]) -> Pair:
    """Sign and size of the rows of W diag(s) V over the joint window, of one channel's neurons.

    The row of a neuron with window S is V^T (W * S). (Or W has a channel for each neuron.)
    """
    parts = (W.movedim(-3, -1) * S) @ V.permute(0, 2, 3, 1).flatten(1)
    row = S.new_zeros(len(S), *(joint.size() for joint in joints), V.shape[1])
    pairs = _pairs(row, joints)
    parts = parts.view(pairs.shape)
    # (one pair of taps of W at a time: those of different pairs overlap in `row`)
    for y, x in product(range(W.shape[-2]), range(W.shape[-1])):
        pairs[:, y, x] += parts[:, y, x]
    return row.sgn(), row.abs()


def _row_gradient(row: Tensor, V: Tensor, S: Tensor, joints: list[Joint]) -> Tensor:
    """The gradient in W of the inner product of `row` and W diag(s) V, summed: S * V(row)."""
    back = _pairs(row, joints).flatten(3) @ V.permute(0, 2, 3, 1).flatten(1).T
    return back.mul_(S).sum(0).permute(2, 0, 1)


def _pairs(row: Tensor, joints: list[Joint]) -> Tensor:
    """Joint windows [J, height, width, channels] by pair of taps, [J, t_y, t_x, v_y, v_x, c]."""
    neurons, *strides, channel = row.stride()
    return row.as_strided(
        (
            len(row),
            *(joint.second.kernel for joint in joints),
            *(joint.first.kernel for joint in joints),
            row.shape[3],
        ),
        (
            neurons,
            *(joint.step() * s for joint, s in zip(joints, strides, strict=True)),
            *(joint.first.dilation * s for joint, s in zip(joints, strides, strict=True)),
            channel,
        ),
    )
