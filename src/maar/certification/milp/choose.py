"""Which unstable ReLUs a program has exact, and which relaxed."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from maar.domains.learned_zonotope import LearnedZonotope
from maar.domains.reduced.linear import Affine
from maar.domains.reduced.network import Reduced
from maar.domains.relax import upper_line


def none(network: Reduced) -> Tensor:
    """The triangle everywhere."""
    return torch.zeros(network.columns, dtype=torch.bool)


def all_(network: Reduced) -> Tensor:
    """The network itself."""
    return torch.ones(network.columns, dtype=torch.bool)


def last(network: Reduced) -> Tensor:
    """Return the columns of the last ReLU layer."""
    exact = none(network)
    if network.layers:
        exact[network.columns - len(network.layers[-1].index) :] = True
    return exact


def last_convolution(
    network: Reduced, row: Affine, most: int, learned: LearnedZonotope | None = None
) -> Tensor:
    """Up to `most` of the ReLU after the last convolution: the steepest of the row's bound.

    The paper's choice: by the gradient of the margin's zonotope bound with respect to the slope of
    each ReLU's band, at the slopes that `learned` finds for the row; for None at DeepZ's.
    """
    exact = none(network)
    graph = network.graph
    places = [
        k
        for k, i in enumerate(graph.relus)
        if len(graph.shapes[graph.nodes[i].inputs[0]]) == 3 and len(network.layers[k].index)
    ]
    if not places:
        return exact
    if learned is None:
        at = [upper_line(layer.lb, layer.ub)[0] for layer in network.layers]
    else:
        at = learned.slopes(replace(network, parallel=True), row)
    with torch.enable_grad():
        slopes = [slope.detach().clone().requires_grad_() for slope in at]
        low = replace(network, parallel=True).lower(row, slopes)
        k = places[-1]
        (gradient,) = torch.autograd.grad(low.sum(), [slopes[k]])
    start = sum(len(layer.index) for layer in network.layers[:k])
    steepest = gradient.abs().topk(min(most, len(gradient))).indices
    exact[start + steepest] = True
    return exact
