"""Medians of projections behind a matrix, where it alone has a gradient.

A median is one projection's number, so its gradient is that projection's: autograd would go through
all of them. Either what each neuron saw is gathered, a fiftieth of the products; or, where most
neurons have a gradient, which makes that much memory to move, one gradient of the whole
matrix is taken for each projection.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from maar.domains.affine import Conv
from maar.domains.cauchy.median import chosen, median_and_place, spread

Matrix = Conv | Tensor
"""A convolution, or a Linear layer's weight."""

# Neurons whose gradient is gathered at a time.
NEURONS = 8192
# Of the neurons, the part from which on they are not gathered.
MANY = 0.3


class LastMatrix(torch.autograd.Function):
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
            made.append(chosen(samples, index))
        size, which, sign = median_and_place(torch.cat(made))
        ctx.matrix, ctx.given, ctx.shape, ctx.index = matrix, given, shape, index
        ctx.save_for_backward(W, which, sign)
        return spread(size, index, shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        W, which, sign = ctx.saved_tensors
        upstream = grads[0].flatten()
        at = torch.arange(len(upstream), device=upstream.device) if ctx.index is None else ctx.index
        weight = upstream[at] * sign
        looked_at = weight.nonzero().flatten()
        at, weight, which = at[looked_at], weight[looked_at], which[looked_at]
        neurons = _Neurons(ctx.matrix, W, ctx.given, ctx.shape, at, weight, which)
        many = len(at) > MANY * len(upstream)
        return neurons.by_projection() if many else neurons.by_neuron(), None, None, None


class _Neurons(NamedTuple):
    """Neurons that have a gradient: their places, weights, and the projection of their median."""

    matrix: Matrix
    W: Tensor
    given: list[Tensor]
    shape: torch.Size
    at: Tensor
    weight: Tensor
    which: Tensor

    def by_neuron(self) -> Tensor:
        """Gather the inputs of each neuron: neurons that share a row of W are one product."""
        W, at = self.W, self.at
        # Neurons as (image, channel, place).
        per_image = self.shape[1:].numel()
        places = per_image // len(W)
        image, channel, which = at // per_image, at % per_image // places, self.which.long()
        rows = _Rows(self.matrix, self.given, self.shape)
        grad = W.new_zeros(len(W), *rows.seen)
        order = channel.argsort()
        ends = channel.bincount(minlength=len(W)).cumsum(0).tolist()
        for o, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            for some in order[start:end].split(NEURONS):
                seen = rows(which[some], image[some], at[some] % places)
                grad[o] += (self.weight[some] @ seen.flatten(1).to(W.dtype)).view(rows.seen)
        return grad.movedim(-1, 1)

    def by_projection(self) -> Tensor:
        """One gradient of W for all images, of those neurons whose median a projection is."""
        W, parts = self.W, [spread(part, self.at, self.shape) for part in (self.weight, self.which)]
        if len(self.shape) == 4:
            parts = [part.contiguous(memory_format=torch.channels_last) for part in parts]
        upstream, place = parts
        grad, first = torch.zeros_like(W), 0
        for P in self.given:
            for k in range(len(P)):
                share = (upstream * (place == first + k)).to(P.dtype)
                grad += _gradient(self.matrix, W, P[k], share).to(W.dtype)
            first += len(P)
        return grad


def _gradient(matrix: Matrix, W: Tensor, P: Tensor, upstream: Tensor) -> Tensor:
    """Return the gradient of the sum of upstream * (W P) in W."""
    if not isinstance(matrix, Conv):
        return upstream.T @ P
    return torch.ops.aten.convolution_backward(
        upstream, P, W.to(P.dtype), None, matrix.stride, matrix.padding, matrix.dilation,
        False, (0, 0), matrix.groups, (False, True, False),
    )[1]  # fmt: skip


def _applied(matrix: Matrix, W: Tensor, P: Tensor) -> Tensor:
    W = W.to(P.dtype)
    if isinstance(matrix, Conv):
        return matrix.forward(P.flatten(0, 1), W).unflatten(0, P.shape[:2])
    return P @ W.T


def _padded(given: list[Tensor], padding: tuple[int, int]) -> Tensor:
    """The parts one behind the other, channels last, within zeros; each number is moved once."""
    (vertical, horizontal), first = padding, given[0]
    _, images, channels, height, width = first.shape
    count = sum(map(len, given))
    P = first.new_empty(count, images, height + 2 * vertical, width + 2 * horizontal, channels)
    for edge in (P[:, :, :vertical], P[:, :, vertical + height :]):
        edge.zero_()
    for edge in (P[:, :, :, :horizontal], P[:, :, :, horizontal + width :]):
        edge.zero_()
    inner = P[:, :, vertical : vertical + height, horizontal : horizontal + width]
    start = 0
    for part in given:
        inner[start : start + len(part)] = part.movedim(2, -1)
        start += len(part)
    return P


class _Rows:
    """The part of an image's projection k that each neuron sees, channels last."""

    def __init__(self, matrix: Matrix, given: list[Tensor], shape: torch.Size) -> None:
        if not isinstance(matrix, Conv):
            self.windows, self.width = torch.cat(given).unsqueeze(2), 1
            self.seen = self.windows.shape[3:]
            return
        # [k, N, height, width, channels], padded: a window's rows then lie side by side.
        P = _padded(given, matrix.padding)
        k, image, y, x, channel = P.stride()
        strides = matrix.stride, matrix.dilation
        self.width = shape[3]
        self.windows = P.as_strided(
            (*P.shape[:2], *shape[2:], *matrix.weight.shape[2:], P.shape[4]),
            (k, image, y * strides[0][0], x * strides[0][1],
             y * strides[1][0], x * strides[1][1], channel),
        )  # fmt: skip
        self.seen = self.windows.shape[4:]

    def __call__(self, which: Tensor, image: Tensor, place: Tensor) -> Tensor:
        if self.windows.dim() == 4:
            return self.windows[which, image, place]
        return self.windows[which, image, place // self.width, place % self.width]
