"""What one median for each group of error terms costs, and how near it comes to the truth.

python -m benchmarks.medians

Layerwise training's estimate of the radii of the inputs of ReLU 3 (`per_group`, see
`bounds.cauchy`), on COLT's network for CIFAR-10 at 2/255 with fresh weights: the ratio to the
exact L1 norms, on images of 16 x 16 pixels, where these fit in memory, and the time of a batch of
whole ones. CPU time, each the quickest of several, one kind after the other.
"""

from __future__ import annotations

import argparse
import time

import torch

from maar.domains.cauchy.estimate import Cauchy
from maar.domains.graph import Graph, trace
from maar.domains.interval import Interval
from maar.domains.zonotope import Zonotope
from maar.networks import make, relu_indices
from maar.regions import Ball

EPS = 2 / 255


def main() -> None:
    """Print a line for each kind of median."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--draws", type=int, default=5, help="random projections to average over")
    parser.add_argument("--batch", type=int, default=10, help="images, for the time")
    parser.add_argument("--repeats", type=int, default=3, help="of each time")
    args = parser.parse_args()
    torch.set_num_threads(1)
    times = _times(args.batch, args.repeats)
    ratios = _ratios(args.draws)
    for per_group, name in ((True, "of each group"), (False, "of all")):
        ratio, slower = ratios[per_group], times[per_group] / min(times.values())
        below = 100 * (ratio < 1).double().mean().item()
        print(
            f"medians {name}: {ratio.mean():.3f} of the exact norm (spread {ratio.std():.3f}, "
            f"{below:.0f} % below it), {slower:.2f} times the time"
        )


def _problem(size: int, images: int) -> tuple[Graph, Ball]:
    torch.manual_seed(0)
    net = make("convmedbig_2_2_4_250", (3, size, size), 10, [0.5] * 3, [0.25] * 3, seed=0)
    graph = trace(net[: relu_indices(net)[2]], torch.Size((3, size, size)))
    return graph, Ball(torch.rand(images, 3, size, size), EPS)


def _bound(per_group: bool, seed: int) -> Cauchy:
    chance = torch.Generator().manual_seed(seed)
    return Cauchy(generator=chance, per_group=per_group, skip_stable=True, sampled=True)


@torch.no_grad()
def _ratios(draws: int) -> dict[bool, torch.Tensor]:
    """Of the neurons that no interval proves stable."""
    graph, ball = _problem(16, 1)
    exact, interval = Zonotope()(graph, ball), Interval()(graph, ball)
    unstable = (interval.lb < 0) & (interval.ub > 0)
    found: dict[bool, list[torch.Tensor]] = {True: [], False: []}
    for seed in range(draws):
        for per_group, ratios in found.items():
            # (the exact one's ReLUs, so that it is the norms alone that differ)
            out = _bound(per_group, seed)(graph, ball, known=exact.pre)
            ratios.append(((out.ub - out.lb) / (exact.ub - exact.lb))[unstable])
    return {per_group: torch.cat(ratios) for per_group, ratios in found.items()}


@torch.no_grad()
def _times(batch: int, repeats: int) -> dict[bool, float]:
    graph, ball = _problem(32, batch)
    best = {True: float("inf"), False: float("inf")}
    for _ in range(repeats):
        for per_group in best:
            start = time.process_time()
            _bound(per_group, 0)(graph, ball)
            best[per_group] = min(best[per_group], time.process_time() - start)
    return best


if __name__ == "__main__":
    main()
