"""RS (Xiao et al. 2019): adversarial training towards weights and ReLUs that a solver likes.

    CE(z(x'), y) + l1 * sum |W| - stability * sum tanh(1 + lb ub)

lb and ub bound the inputs of the ReLUs over the ball: lb ub < 0 means that a ReLU is unstable, and
costs a solver a binary variable. |W| is summed over the layers as matrices, the last one left out:
a convolution's weight counts as often as it is used. At the end of training weights below
`prune` become 0, and so do neurons whose ReLU is on for few of the training images.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from maar.attacks.pgd import PGD
from maar.core.eps import Eps
from maar.core.settings import Count, NonNegative, OnlyWith, Share
from maar.domains.bound import Bound
from maar.domains.graph import Graph, trace
from maar.domains.hybrid_zonotope import HybridZonotope
from maar.domains.interval import Interval
from maar.methods.base import Batch, Outputs, Stage
from maar.methods.batchnorm import population_statistics
from maar.methods.pgd import PGDTraining
from maar.methods.schedules import Constant, Ramp
from maar.networks import relu_indices
from maar.regions import Ball


@dataclass(frozen=True)
class RS(PGDTraining):
    """Adversarial cross-entropy, sparse weights, stable ReLUs; pruned at the end."""

    name: ClassVar[str] = "rs"
    paper: ClassVar[str] = "Xiao et al., Training for faster adversarial robustness verification"
    year: ClassVar[int] = 2019
    idea: ClassVar[str] = "adversarial training with sparse weights and stable ReLUs, pruned"

    stability: NonNegative = 1e-4
    """weight of the ReLU-stability term"""
    positions: Annotated[Literal["sum", "mean"], OnlyWith("stability")] = "sum"
    """over a convolution's positions that term is a sum, as the paper has it, or a mean"""
    error_terms: Count = 0
    """bounds of the ReLUs by intervals (0), or by the hybrid zonotope with so many error terms"""
    l1: NonNegative = 2e-5
    """weight of the L1 norm of the layers as matrices"""
    prune: NonNegative = 1e-3
    """at the end, smaller weights become 0, but for the last layer's"""
    prune_relus: Share = 0.1
    """at the end, neurons that are on for at most this share of the images become 0; 0: none"""
    attack: PGD = field(default_factory=lambda: PGD(steps=8, step_size=0.3))
    """the attack in training and on the validation images"""

    def stages(self, net: nn.Sequential, eps: Eps, epochs: int) -> list[Stage]:
        schedules = {"radius": Constant(float(eps))}
        return [Stage("input ball", epochs, Ramp(0.0, eps, self.ramp), schedules=schedules)]

    def terms(self, batch: Batch, outputs: Outputs) -> dict[str, Tensor]:
        terms, graph = super().terms(batch, outputs), _graph(batch)
        # The attack's radius may grow; a verifier will ask about the whole of it.
        ball = Ball(batch.x, batch.at.get("radius", batch.eps))
        bound: Bound = HybridZonotope(self.error_terms) if self.error_terms else Interval()
        with population_statistics(batch.net):
            pre = bound(graph, ball).pre
        for k, (lb, ub) in enumerate(pre, start=1):
            batch.note(**{f"unstable_relu_{k}": ((lb < 0) & (ub > 0)).flatten(1).sum(1)})
        stable = [(1 + lb * ub).tanh().flatten(1).sum(1).mean() for lb, ub in pre]
        if self.positions == "mean":
            stable = [s / places for s, places in zip(stable, _positions(graph), strict=True)]
        terms["stability"] = -self.stability * torch.stack(stable).sum()
        if self.l1:
            terms["l1"] = self.l1 * matrix_norm(graph)
        return terms

    def finish(self, net: nn.Sequential, batches: Iterable[Batch]) -> dict[str, float]:
        pruned = prune_weights(net, self.prune)
        if not self.prune_relus:
            return {"weights_pruned": pruned}
        seen, on = 0, [torch.zeros(())] * len(relu_indices(net))
        for batch in batches:
            active = _active(net, self.adversary(batch))
            on = [count.to(part) + part.sum(0) for count, part in zip(on, active, strict=True)]
            seen += len(batch.x)
        idle = [count <= self.prune_relus * seen for count in on]
        return {"weights_pruned": pruned, "neurons_pruned": prune_neurons(net, idle)}


def matrix_norm(graph: Graph) -> Tensor:
    """Sum of |W| over the layers as matrices, but the last."""
    norms = []
    for i, node in enumerate(graph.nodes):
        if isinstance(node.op, nn.Conv2d | nn.Linear):
            used = graph.shapes[i + 1][1:].numel()  # positions; 1 behind a Linear
            norms.append(used * node.op.weight.abs().sum())
    return torch.stack(norms[:-1]).sum()


def _positions(graph: Graph) -> list[int]:
    """Count the positions of each ReLU's input; 1 behind a Linear."""
    return [graph.shapes[i + 1][1:].numel() for i in graph.relus]


@torch.no_grad()
def prune_weights(net: nn.Sequential, least: float) -> float:
    """Zero the weights below `least`; returns the share of weights that are 0."""
    layers = [m for m in net.modules() if isinstance(m, nn.Conv2d | nn.Linear)][:-1]
    for layer in layers:
        layer.weight.masked_fill_(layer.weight.abs() < least, 0.0)
    zeros = sum(int((layer.weight == 0).sum()) for layer in layers)
    return zeros / max(1, sum(layer.weight.numel() for layer in layers))


@torch.no_grad()
def prune_neurons(net: nn.Sequential, idle: list[Tensor]) -> int:
    """Zero the neurons that are `idle` before each ReLU; returns how many.

    A convolution's channel has one weight for all positions, so it goes only as a whole.
    """
    count = 0
    for index, neurons in zip(relu_indices(net), idle, strict=True):
        before = net[index - 1]
        if not isinstance(before, nn.Conv2d | nn.Linear | _BatchNorm):
            continue
        whole = neurons.flatten(1).all(1) if neurons.dim() > 1 else neurons
        for weight in (before.weight, before.bias):
            if weight is not None:
                weight[whole] = 0.0
        count += int(whole.sum()) * (neurons[0].numel() if neurons.dim() > 1 else 1)
    return count


@torch.no_grad()
def _active(net: nn.Sequential, x: Tensor) -> list[Tensor]:
    """For each ReLU, which of its inputs are above 0, [N, *shape]."""
    found = []
    for layer in net:
        if isinstance(layer, nn.ReLU):
            found.append((x > 0).to(torch.int32))
        x = layer(x)
    return found


def _graph(batch: Batch) -> Graph:
    if "graph" not in batch.memo:
        batch.memo["graph"] = trace(batch.net, batch.x.shape[1:])
    return batch.memo["graph"]
