"""Bands around affine functions of the input, carried forward: for many boxes of few inputs.

Over x = centre + radius e with e in [-1, 1]^d, every value is kept as

    A e + a  -  r  <=  v  <=  A e + a  +  r,

which an affine layer maps to (W A, W a + b, |W| r), and a ReLU with lb < 0 < ub to the band between
s v and s v + t. That costs d + 2 passes through the network, however many neurons are unstable,
where a backward bound of every neuron costs as many passes as there are neurons.

`r` also takes up what rounding may do: gamma(n) (|W| m + |b|) at a sum of n products, where m is
the largest absolute value that a band and its coefficients have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from maar.core import clock
from maar.domains.affine import conv_of
from maar.domains.bound import Pair
from maar.domains.graph import Graph, by_sparse
from maar.domains.interval import EXTRA
from maar.domains.relax import upper_line
from maar.domains.rounding import gamma, halves, unit
from maar.networks.maps import Add


@dataclass(frozen=True)
class Band:
    """`A` [N, d, *shape], `a` and `r` [N, *shape]; bounds that come with it."""

    A: Tensor
    a: Tensor
    r: Tensor

    def size(self) -> Tensor:
        """The largest absolute value of the band, with all of its coefficients."""
        return self.A.abs().sum(1) + self.a.abs() + self.r

    def bounds(self) -> Pair:
        """Lower and upper bounds, rounding included."""
        reach = self.A.abs().sum(1) + self.r
        reach = reach + gamma(self.A.shape[1] + EXTRA, self.a.dtype) * (self.a.abs() + reach)
        return self.a - reach, self.a + reach


class Forward:
    """The bands of a network of float64 weights that never change."""

    def __init__(self, graph: Graph) -> None:
        if graph.dtype != torch.float64:
            raise ValueError(f"bands are of float64, not of {graph.dtype}")
        self.graph = graph
        graph.keep_sparse()

    @staticmethod
    def supports(graph: Graph) -> bool:
        """Whether all operations have a rule here, and the weights are float64."""
        return graph.dtype == torch.float64 and all(type(node.op) in RULES for node in graph.nodes)

    @torch.no_grad()
    def __call__(self, lb: Tensor, ub: Tensor) -> tuple[Band, tuple[Pair, ...]]:
        """The band of the outputs over each box, and the bounds of each ReLU's input."""
        bands = [_start(lb, ub)]
        pre: list[Pair] = []
        last = {source: i for i, node in enumerate(self.graph.nodes) for source in node.inputs}
        for i, node in enumerate(self.graph.nodes):
            clock.check()
            sources = [bands[source] for source in node.inputs]
            if isinstance(node.op, nn.ReLU):
                pre.append(sources[0].bounds())
                bands.append(_relu(sources[0], *pre[-1]))
            else:
                bands.append(RULES[type(node.op)](self, i, *sources))
            for source in node.inputs:
                if last[source] == i:
                    bands[source] = bands[0]  # nobody needs it any more
        return bands[-1], tuple(pre)


def free_inputs(lb: Tensor, ub: Tensor) -> Tensor:
    """The places of the inputs that have a width in some box: one column of A for each."""
    return (halves(lb, ub)[1].flatten(1) > 0).any(0).nonzero().squeeze(1)


def _start(lb: Tensor, ub: Tensor) -> Band:
    """The box itself."""
    centre, radius = halves(lb, ub)
    flat, free = radius.flatten(1), free_inputs(lb, ub)
    A = flat.new_zeros(len(flat), len(free), flat.shape[1])
    A[:, torch.arange(len(free)), free] = flat[:, free]
    r = 4 * unit(lb.dtype) * (centre.abs() + radius) + torch.finfo(lb.dtype).tiny
    return Band(A.view(len(flat), len(free), *lb.shape[1:]), centre, r)


def _affine(
    band: Band,
    apply: Callable[[Tensor], Tensor],
    apply_abs: Callable[[Tensor], Tensor],
    bias: Tensor | None,
    terms: int,
) -> Band:
    count, d = band.A.shape[:2]
    moved = apply(torch.cat([band.A.flatten(0, 1), band.a]))
    A, a = moved[: count * d], moved[count * d :]
    lost = gamma(terms + EXTRA, a.dtype)
    r = apply_abs(band.r * (1 + lost) + lost * band.size() + torch.finfo(a.dtype).tiny)
    r = r * (1 + lost)
    if bias is not None:
        a = a + bias
        r = r + lost * bias.abs()
    return Band(A.view(count, d, *A.shape[1:]), a, r + torch.finfo(a.dtype).tiny)


def _linear(run: Forward, i: int, band: Band) -> Band:
    op = run.graph.nodes[i].op
    assert isinstance(op, nn.Linear)
    products = (lambda x: x @ op.weight.T, lambda x: x @ op.weight.abs().T)
    if kept := run.graph.sparse(i):
        products = (lambda x: by_sparse(kept[0], x), lambda x: by_sparse(kept[1], x))
    return _affine(band, *products, op.bias, op.weight.shape[1])


def _conv(run: Forward, i: int, band: Band) -> Band:
    node = run.graph.nodes[i]
    conv = conv_of(node.op, run.graph.shapes[node.inputs[0]][0])
    weight = conv.weight.to(band.a)
    bias = None if conv.bias is None else conv.bias[:, None, None]
    terms = weight[0].numel()
    positive = weight.abs()
    return _affine(
        band,
        lambda x: conv.forward(x, weight),
        lambda x: conv.forward(x, positive),
        bias,
        terms,
    )


def _relu(band: Band, lb: Tensor, ub: Tensor) -> Band:
    slope, intercept = upper_line(lb, ub)
    half = intercept / 2
    # (slope v + half +- half; the products and the sum round three times, relative to `size`)
    lost = 8 * unit(lb.dtype) * (slope * band.size() + intercept) + torch.finfo(lb.dtype).tiny
    return Band(slope.unsqueeze(1) * band.A, slope * band.a + half, slope * band.r + half + lost)


def _flatten(run: Forward, i: int, band: Band) -> Band:
    return Band(band.A.flatten(2), band.a.flatten(1), band.r.flatten(1))


def _add(run: Forward, i: int, left: Band, right: Band) -> Band:
    lost = 8 * unit(left.a.dtype) * (left.size() + right.size())
    return Band(left.A + right.A, left.a + right.a, left.r + right.r + lost)


RULES: dict[type[nn.Module], Callable[..., Band]] = {
    nn.Linear: _linear,
    nn.Conv2d: _conv,
    nn.AvgPool2d: _conv,
    nn.ReLU: lambda run, i, band: _relu(band, *band.bounds()),
    nn.Flatten: _flatten,
    Add: _add,
}


def lowest(band: Band, C: Tensor) -> Tensor:
    """Lower bounds of the rows C v, [N, rows], rounding included; `band` of flat outputs."""
    A = band.A @ C.transpose(1, 2)
    a, r = (C @ band.a[..., None])[..., 0], (C.abs() @ band.r[..., None])[..., 0]
    size = (C.abs() @ band.size()[..., None])[..., 0]
    reach = A.abs().sum(1) + r
    lost = gamma(C.shape[2] + band.A.shape[1] + EXTRA, a.dtype)
    return a - reach - lost * (size + reach) - torch.finfo(a.dtype).tiny
