"""The four metrics of the paper's Appendix A.4.

    original accuracy      share of the test images that are classified correctly
    verified error         of the correctly classified training images, the share that the attack
                           of the present stage breaks
    latent robustness      share of the test images that are correct and withstand an attack on the
                           region behind ReLU d
    certified robustness   share of the test images that are correct and proved robust

`measure` takes the first and the third. Methods note the second while they train (`Batch.ratio`),
and `Means` adds it up. The fourth is the certifier's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from maar.attacks import PGD, search
from maar.core.errors import RunError, UsageError, unknown
from maar.data import DataSet
from maar.domains import BOUNDS
from maar.domains.graph import compile_network
from maar.networks import relu_indices
from maar.networks import split as cut
from maar.networks.checking import LayerError, check
from maar.regions import Ball, LatentZonotope, Region
from maar.training.parallel import Workers
from maar.training.seeds import generator

# The paper's attack: 150 steps of 0.01 in e, where a region is [-1, 1]^m.
LATENT = PGD(steps=150, step_size=0.01, keep="best")
# Bounds that enclose a layer's inputs before the region behind it is made. Not alpha_crown: it is
# expensive, and tightens the margins at the end rather than the layers within.
REGION_BOUNDS = ("crown", "zonotope", "interval", "cauchy")

BATCH = 100


class Means:
    """Means over the steps of an epoch, by name: the sum of sums over the sum of counts."""

    def __init__(self) -> None:
        self.sums: dict[str, tuple[float, float]] = {}

    def add(self, numbers: Mapping[str, Tensor | tuple[Tensor, Tensor]]) -> None:
        """Take one step's numbers in, each a number or (sum, count)."""
        for name, number in numbers.items():
            parts = number if isinstance(number, tuple) else (number, torch.ones(()))
            total, count = (part.item() for part in parts)
            before, counted = self.sums.get(name, (0.0, 0.0))
            self.sums[name] = before + total, counted + count

    @property
    def values(self) -> dict[str, float]:
        """The means so far; what has counted nothing yet is left out."""
        return {name: total / count for name, (total, count) in self.sums.items() if count}


@dataclass(frozen=True)
class Measured:
    """Counts of images, so that shares can be formed and put together exactly."""

    images: int
    correct: int
    latent_robust: dict[int, int]
    """By layer, 0 for the input ball."""

    @property
    def accuracy(self) -> float:
        """Original accuracy."""
        return self.correct / self.images

    @property
    def latent_robustness(self) -> dict[int, float]:
        """By layer, 0 for the input ball."""
        return {layer: count / self.images for layer, count in self.latent_robust.items()}


def measure(
    net: nn.Sequential,
    data: DataSet,
    eps: float,
    *,
    layers: Sequence[int] | None = None,
    split: str = "test",
    limit: int | None = None,
    attack: PGD = LATENT,
    bounds: str = "crown",
    seed: int = 0,
    progress: Callable[[int], None] = lambda tried: None,
    workers: Workers | None = None,
) -> Measured:
    """Original accuracy, and latent robustness at the `layers` (default: the input, every ReLU).

    A network on the CPU or on another device, in evaluation mode; `data` on the same device.
    `progress` is told after each batch how many pairs of image and layer have been tried with it.
    `workers`: those who share the images, and all get the same answer.
    """
    layers = check_layers(net, layers)
    size = check_images(net, data, split, limit)
    regions = LatentRegions(net, data.shape, layers, bounds)
    correct, robust = 0, dict.fromkeys(layers, 0)
    rank, count = (workers.rank, workers.count) if workers else (0, 1)
    for start in range(rank * BATCH, size, count * BATCH):  # several processes take turns
        part = slice(start, min(start + BATCH, size))
        x, y = data.images(split, part), data.labels(split, part)
        with torch.no_grad():
            right = net(x).argmax(1) == y
        correct += int(right.sum())
        found = regions(Ball(x[right], eps), generator(seed, "bounds", start))
        for layer in layers:
            if bool(right.any()):
                chance = generator(seed, "latent attack", layer, start)
                attacked = search(net, found[layer], y[right], attacks=[attack], generator=chance)
                robust[layer] += int((~attacked.broken).sum())
            progress(len(x))
    if workers:
        sums = workers.sum({"correct": correct, **{str(d): n for d, n in robust.items()}})
        correct, robust = int(sums["correct"]), {d: int(sums[str(d)]) for d in layers}
    return Measured(size, correct, robust)


def check_bounds(name: str) -> None:
    """Refuse a name of bounds that no region can be made with."""
    if name not in REGION_BOUNDS and (name in BOUNDS or not BOUNDS.accepts(name)):
        raise unknown("bounds", name, REGION_BOUNDS)


class LatentRegions:
    """The convex regions behind some ReLUs of a network, counted from 1; for 0 the ball itself.

    `bounds` encloses the ReLUs' inputs. With all but cauchy, an estimate, every activation that an
    image of the ball can cause is a point of the region.
    """

    def __init__(
        self, net: nn.Sequential, shape: Sequence[int], layers: Sequence[int], bounds: str = "crown"
    ) -> None:
        check_bounds(bounds)
        self.bounds = bounds
        ends = {layer: relu_indices(net)[layer - 1] + 1 for layer in layers if layer}
        self.prefixes = {layer: cut(net, end)[0] for layer, end in ends.items()}
        graphs = {d: compile_network(part, tuple(shape)) for d, part in self.prefixes.items()}
        # More than one a layer where Residual blocks have their own.
        self.relus = {layer: len(graph.relus) for layer, graph in graphs.items()}
        self.deepest = graphs[max(graphs)] if graphs else None

    def __call__(self, ball: Ball, chance: torch.Generator) -> dict[int, Region]:
        """The regions of these images by layer, from one computation of bounds."""
        regions: dict[int, Region] = {0: ball}
        if self.deepest is None or not len(ball):
            return regions
        kind = BOUNDS[self.bounds]
        bound = kind(generator=chance) if self.bounds == "cauchy" else kind()
        # Only what is found on the way is wanted: of the output, one direction will do, 0.
        outputs = self.deepest.shapes[-1].numel()
        with torch.no_grad():
            pre = bound(self.deepest, ball, ball.lb.new_zeros(len(ball), 1, outputs)).pre
        for layer, prefix in self.prefixes.items():
            regions[layer] = LatentZonotope(prefix, ball, pre[: self.relus[layer]])
        return regions


def check_layers(net: nn.Sequential, layers: Sequence[int] | None) -> list[int]:
    """The layers in their order, each once; every one that there is for None."""
    count = len(relu_indices(net))
    chosen = range(count + 1) if layers is None else sorted(set(layers))
    for layer in chosen:
        if not 0 <= layer <= count:
            relus = {0: "", 1: ", 1 for the ReLU"}.get(count, f", 1 to {count} for the ReLUs")
            raise UsageError(f"layer {layer} (accepted: 0 for the input{relus})")
    return list(chosen)


def check_images(net: nn.Sequential, data: DataSet, split: str, limit: int | None = None) -> int:
    """How many images there are to measure on, once it is clear that the network takes them."""
    if limit is not None and limit < 1:
        raise UsageError(f"limit = {limit} (accepted: 1 or more images)")
    if not data.size(split):
        raise UsageError(f"data set {data.name} has no {split} images")
    try:
        check(net, data.shape)
    except LayerError as error:
        raise UsageError(f"the network does not take images of {data.name}: {error}") from None
    # A NaN is never behind another number: an image with one would count as robust.
    for weight, tensor in net.state_dict().items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise RunError(f"the network cannot be measured: {weight} has NaN or infinite numbers")
    return data.size(split) if limit is None else min(limit, data.size(split))
