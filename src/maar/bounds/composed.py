"""The exact L1 norms of error terms that have passed two matrices since they were made.

For terms of radius r, a matrix V, a scale s of each neuron (a ReLU's slope, a BatchNorm) and a
matrix W, the norms are |W diag(s) V| r. Of two Linear layers that is a product per image. Of two
convolutions only s and r differ from image to image, and an input at offset u of the joint window
reaches the output through few pairs of taps (t of W, v of V with u = stride t + v), so

    norm(p) = sum_u r(p, u) | sum_t s(p, t) . K(t, u) |,      K(t, u) = W(t) V(u - stride t),

where the products K do not depend on the image: a few dozen small matrix products, and no random
numbers. Where only W is trained the gradient skips every neuron that the loss does not look at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from maar.bounds.affine import Conv
from maar.bounds.bound import Pair
from maar.bounds.projections import Map, Matrix

# Rows of a block: so few that a block's products stay in the cache.
ROWS = 1280
# What a number's part in the search for a median costs, in products of two numbers.
SELECT = 300
# How much more a neuron costs that is taken by itself.
SINGLE = 2.0
# Neurons whose gradient is computed at a time.
NEURONS = 2048
# How much more of the exact way's time than of the projections' the gradient takes, neuron for
# neuron, where all neurons have one.
DENSE = 2
# The share of the neurons below which it is faster to take them one by one.
FEW = 0.3


@dataclass(frozen=True)
class Path:
    """Error terms one matrix after they were made; `scale` is [1, 1 or N, *shape] since then.

    With a `second` matrix they are two matrices on, and `after` is the scale since that one.
    """

    radius: Tensor
    first: Matrix
    scale: Tensor
    second: Matrix | None = None
    after: Map = lambda x: x

    def scaled(self, apply: Map, absolute: Map) -> Path:
        """A map of each neuron by itself, on [k, N, *shape] and on norms."""
        if self.second is None:
            return replace(self, scale=apply(self.scale))
        return replace(self, after=lambda x: absolute(self.after(x)))

    def then(self, second: Matrix) -> Path | None:
        """Pass a second matrix; None where that is one kind of layer after the other."""
        if self.second is not None or isinstance(self.first, Conv) != isinstance(second, Conv):
            return None
        return replace(self, second=second)

    def pays(self, projections: int, where: Tensor | None) -> bool:
        """Whether the norms cost less than that many random projections."""
        first, second = self.first, self.second
        if second is None:
            return False
        if isinstance(first, Tensor) or isinstance(second, Tensor):
            assert isinstance(first, Tensor)
            assert isinstance(second, Tensor)
            outputs, exact = len(second), float(second.numel() * first.shape[1])
            projected = first.numel() + second.numel()
        else:
            outputs, exact = _products(second, self.scale.shape[3:], self.scale.shape[2])
            projected = _products(first, self.radius.shape[2:], first.weight.shape[1])[1]
            projected += exact / second.groups
            exact *= first.weight[0, 0].numel() * self.radius.shape[1]
            share = 1.0 if where is None else min(1.0, SINGLE * _share(where))
            trained = torch.is_grad_enabled() and second.weight.requires_grad
            exact *= share * (DENSE if trained and share == 1 else 1)
        return exact <= projections * (projected + SELECT * outputs)

    def norms(self, where: Tensor | None = None) -> Tensor:
        """|second diag(scale) first| radius, [N, *shape]; 0 at times where not asked for."""
        scale = self.scale.squeeze(0).expand(len(self.radius), *self.scale.shape[2:])
        if isinstance(self.first, Conv):
            assert isinstance(self.second, Conv)
            return self.after(_convolutions(self.first, self.radius, scale, self.second, where))
        assert isinstance(self.second, Tensor)
        joint = (self.second * scale.unsqueeze(1)) @ self.first
        return self.after((joint.abs() @ self.radius.unsqueeze(-1)).squeeze(-1))


def _share(where: Tensor) -> float:
    return int(where.count_nonzero()) / max(1, where.numel())


def _products(conv: Conv, size: torch.Size, channels: int) -> tuple[int, float]:
    """How many numbers a convolution makes, and of how many products."""
    height, width = (axis.outputs for axis in _axes(conv, size))
    outputs = height * width * len(conv.weight)
    return outputs, outputs * channels * conv.weight[0, 0].numel()


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


def _axes(conv: Conv, size: torch.Size) -> list[Axis]:
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

    def bundles(self) -> list[tuple[list[int], list[int]]]:
        """The offsets of the joint window, bundled by the taps of the second that reach them."""
        taps: dict[int, list[int]] = {}
        for t, v in product(range(self.second.kernel), range(self.first.kernel)):
            taps.setdefault(self.step() * t + self.first.dilation * v, []).append(t)
        bundles: dict[tuple[int, ...], list[int]] = {}
        for offset, reached in taps.items():
            bundles.setdefault(tuple(reached), []).append(offset)
        return [(list(reached), offsets) for reached, offsets in bundles.items()]

    def first_taps(self, t: int, offsets: list[int]) -> list[int]:
        """The taps of the first that lead from `offsets` to tap t of the second."""
        return [(offset - self.step() * t) // self.first.dilation for offset in offsets]


def _convolutions(
    first: Conv, radius: Tensor, scale: Tensor, second: Conv, where: Tensor | None
) -> Tensor:
    joints = [
        Joint(*axes)
        for axes in zip(_axes(first, radius.shape[2:]), _axes(second, scale.shape[2:]), strict=True)
    ]
    outputs = [joint.second.outputs for joint in joints]
    V, W = _dense(first), _dense(second)
    seconds = [joint.second for joint in joints]
    S = _windows(
        scale,
        outputs,
        [(a.kernel, a.stride, a.padding, a.dilation) for a in seconds],
    )
    R = _windows(
        radius,
        outputs,
        [
            (
                joint.size(),
                joint.first.stride * joint.second.stride,
                joint.first.padding + joint.first.stride * joint.second.padding,
                1,
            )
            for joint in joints
        ],
    )
    if torch.is_grad_enabled() and any(x.requires_grad for x in (V, S, R)):
        norms = _blocks(V, S, R, W, joints)
    else:
        if where is not None:
            where = where.view(len(radius), -1, *outputs).permute(1, 0, 2, 3).flatten(1)
        norms = _Trained.apply(W, V, S, R, joints, where)
    return norms.view(len(radius), *outputs, -1).permute(0, 3, 1, 2)


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
    """What each output position sees of x, [N * positions, height, width, channels]."""
    pads: list[int] = []
    for size, count, (kernel, stride, padding, dilation) in zip(
        x.shape[2:], outputs, geometry, strict=True
    ):
        needed = stride * (count - 1) + dilation * (kernel - 1) + 1
        pads = [padding, needed - padding - size, *pads]
    x = F.pad(x, pads).permute(0, 2, 3, 1).contiguous()
    images, rows, columns = x.stride()[:3]
    (kernel_y, stride_y, _, dilation_y), (kernel_x, stride_x, _, dilation_x) = geometry
    windows = x.as_strided(
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
    return windows.reshape(-1, kernel_y, kernel_x, x.shape[3])


@dataclass(frozen=True)
class Bundle:
    """Offsets (y, x) of the joint window that the same taps reach, and K there, tap row by row."""

    y: list[int]
    x: list[int]
    columns: slice | list[int]
    rows: list[int]
    K: list[Tensor]


def _bundles(V: Tensor, W: Tensor, joints: list[Joint]) -> Iterator[Bundle]:
    # [t_y, t_x, channel, v_y, v_x, input channel, output channel]
    K = (
        W.permute(2, 3, 1, 0)[:, :, :, None, None, None, :]
        * V.permute(0, 2, 3, 1)[None, None, ..., None]
    )
    down, across = joints
    for (taps_y, y), (taps_x, x) in product(down.bundles(), across.bundles()):
        rows = []
        for t in taps_y:
            row = K[t][:, :, down.first_taps(t, y)]
            parts = [row[u][:, :, across.first_taps(u, x)] for u in taps_x]
            rows.append(torch.cat([part.flatten(1) for part in parts]))
        # (dilation may leave holes; a slice needs no copy)
        span = range(taps_x[0], taps_x[-1] + 1)
        columns = slice(span.start, span.stop) if list(span) == taps_x else taps_x
        yield Bundle(y, x, columns, taps_y, rows)


def _blocks(V: Tensor, S: Tensor, R: Tensor, W: Tensor, joints: list[Joint]) -> Tensor:
    bundles = list(_bundles(V, W, joints))
    blocks = zip(S.split(ROWS), R.split(ROWS), strict=True)
    return torch.cat([_block(s, r, bundles, len(W)) for s, r in blocks])


def _block(S: Tensor, R: Tensor, bundles: list[Bundle], channels: int) -> Tensor:
    total = S.new_zeros(len(S), channels)
    for bundle in bundles:
        reach = None
        for t, K in zip(bundle.rows, bundle.K, strict=True):
            seen = S[:, t][:, bundle.columns].flatten(1)
            reach = seen @ K if reach is None else torch.addmm(reach, seen, K)
        assert reach is not None
        size = reach.abs().view(len(S), -1, channels)
        radius = R[:, bundle.y][:, :, bundle.x].reshape(len(R), -1, 1)
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
    ) -> Tensor:
        ctx.joints, ctx.rows = joints, None
        ctx.save_for_backward(W, V, S, R)
        if where is None or _share(where) >= FEW:
            return _blocks(V, S, R, W, joints)
        norms, rows = S.new_zeros(where.shape), []
        for o, neurons in _by_channel(where):
            sign, size = _row(W[o], V, S.index_select(0, neurons), joints)
            seen = R.index_select(0, neurons)
            norms[o, neurons] = (size * seen).flatten(1).sum(1)
            if ctx.needs_input_grad[0]:
                rows.append((o, neurons, sign.mul_(seen)))
        ctx.rows = rows
        return norms.T

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        W, V, S, R = ctx.saved_tensors
        upstream = grads[0]
        if ctx.rows is None and _share(upstream) >= FEW:
            grad = _by_block(W, V, S, R, ctx.joints, upstream)
        else:
            grad = torch.zeros_like(W)
            upstream = upstream.T.contiguous()
            for o, neurons, row in ctx.rows or _anew(W, V, S, R, ctx.joints, upstream != 0):
                weighted = row * upstream[o, neurons].view(-1, 1, 1, 1)
                grad[o] += _row_gradient(weighted, V, S.index_select(0, neurons), ctx.joints)
        return grad, None, None, None, None, None


def _by_block(
    W: Tensor, V: Tensor, S: Tensor, R: Tensor, joints: list[Joint], upstream: Tensor
) -> Tensor:
    """The gradient in W over all neurons, one block's values at a time."""
    W = W.detach().requires_grad_()
    with torch.enable_grad():
        bundles = list(_bundles(V, W, joints))
        leaves = [replace(b, K=[K.detach().requires_grad_() for K in b.K]) for b in bundles]
        for s, r, g in zip(S.split(ROWS), R.split(ROWS), upstream.split(ROWS), strict=True):
            _block(s, r, leaves, len(W)).backward(g)
        made = [K for b in bundles for K in b.K]
        grads = [K.grad for b in leaves for K in b.K]
        return torch.autograd.grad(made, W, grads)[0]


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
        yield o, neurons, sign.mul_(R.index_select(0, neurons))


def _row(W: Tensor, V: Tensor, S: Tensor, joints: list[Joint]) -> Pair:
    """Sign and size of the rows of W diag(s) V of one channel's neurons, over the joint window.

    The row of a neuron with window S is V^T (W * S).
    """
    parts = (W.permute(1, 2, 0) * S) @ V.permute(0, 2, 3, 1).flatten(1)
    row = S.new_zeros(len(S), *(joint.size() for joint in joints), V.shape[1])
    pairs = _pairs(row, joints)
    parts = parts.view(pairs.shape)
    # (one pair of taps of W at a time: those of different pairs overlap in `row`)
    for y, x in product(range(W.shape[1]), range(W.shape[2])):
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
