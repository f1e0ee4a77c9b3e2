"""How tight and how fast the bounds are, one image at a time on one thread.

    python -m benchmarks.bounds [--network FILE.onnx] [--images 1000] [--memory-budget 4GB]

The network is the public COLT network for MNIST (eps 0.1); it takes normalised images. CNN7
has seeded random weights on CIFAR-10 shapes: nothing is certified there, it shows time and
memory. Every verdict holds for real numbers: float32 with its rounding error first, float64
where that leaves the image open.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.measure import alone, bytes_of, save
from maar.data import load
from maar.domains.alpha_crown import AlphaCrown
from maar.domains.bound import Problem, margins
from maar.domains.crown import Crown
from maar.domains.graph import Graph, compile_network
from maar.domains.interval import Interval
from maar.domains.reduced.linear import Affine
from maar.domains.reduced.network import Reduced, reduce
from maar.exchange.onnx_in import read_onnx
from maar.networks import make
from maar.regions import Ball

COLT = Path(__file__).parents[2] / "shared" / "nets" / "colt_mnist_0.1.onnx"
EPS = 0.1
STEPS = 20


class Images:
    """The first images of the MNIST test set and the network, compiled in both precisions."""

    def __init__(self, network: str, count: int) -> None:
        data = load("mnist")
        index = torch.arange(count)
        self.x, self.y = data.images("test", index), data.labels("test")[:count]
        net = read_onnx(Path(network), mean=[0.1307], std=[0.3081])
        self.single = compile_network(net, self.x.shape[1:])
        self.double = compile_network(net, self.x.shape[1:], torch.float64)

    def __len__(self) -> int:
        return len(self.x)

    def reduced(self, graph: Graph, n: int, parallel: bool = False) -> tuple[Reduced, Affine]:
        """Image n's reduced network and margins."""
        ball = Ball(self.x[n : n + 1].to(graph.dtype), EPS)
        C = margins(self.y[n : n + 1], 10, graph.dtype)
        return reduce(Problem(graph, ball, C), parallel=parallel)


@torch.no_grad()
def interval(network: str, count: int) -> dict[str, Any]:
    images, certified = Images(network, count), 0
    start = time.process_time()
    for n in range(count):
        ball = Ball(images.x[n : n + 1], EPS)
        bound = Interval(rounding=True)(images.single, ball, margins(images.y[n : n + 1], 10))
        certified += bool((bound.lb > 0).all())
    return _row(certified, count, time.process_time() - start)


@torch.no_grad()
def linear(network: str, count: int, parallel: bool) -> dict[str, Any]:
    """CROWN, or the zonotope with `parallel`."""
    images, certified = Images(network, count), 0
    start = time.process_time()
    for n in range(count):
        certified += bool((_first(images, n, parallel)[2] > 0).all())
    return _row(certified, count, time.process_time() - start)


def _first(images: Images, n: int, parallel: bool = False) -> tuple[Reduced, Affine, Tensor]:
    """Float32; float64 where rounding, not the relaxation, leaves the image open."""
    reduced, spec = images.reduced(images.single, n, parallel)
    lb = torch.maximum(reduced.lower(spec), reduced.interval[0][0])
    if bool((lb > 0).all()) or bool((lb < -4 * spec.e).any()):
        return reduced, spec, lb
    reduced, spec = images.reduced(images.double, n, parallel)
    return reduced, spec, torch.maximum(reduced.lower(spec), reduced.interval[0][0])


def alpha(network: str, count: int, slopes: Any) -> dict[str, Any]:
    """CROWN on every image, then alpha-CROWN in float64 on those still open."""
    images, certified, tried, spent = Images(network, count), 0, 0, 0.0
    bound = AlphaCrown(slopes=slopes, steps=STEPS, rounding=True)
    start = time.process_time()
    for n in range(count):
        with torch.no_grad():
            reduced, spec, lb = _first(images, n)
        if not bool((lb > 0).all()):
            tried, begun = tried + 1, time.process_time()
            with torch.no_grad():
                reduced, spec = images.reduced(images.double, n)
                lb = torch.maximum(reduced.lower(spec), reduced.interval[0][0])
            lb, _ = bound.improve(reduced, spec, lb)
            spent += time.process_time() - begun
        certified += bool((lb > 0).all())
    row = _row(certified, count, time.process_time() - start)
    return {**row, "open": tried, "open_ms": spent / max(tried, 1) * 1e3}


@torch.no_grad()
def cnn7(budget: int, intermediate: Any) -> dict[str, Any]:
    """CROWN on CIFAR-10 shapes, seeded random weights, eps 0.1/255, batch statistics of noise."""
    shape, generator = (3, 32, 32), torch.Generator().manual_seed(0)
    net = make("cnn7", shape, 10, mean=[0.5] * 3, std=[0.25] * 3, seed=0).train()
    for _ in range(5):
        net(torch.rand(32, *shape, generator=generator))
    x = torch.rand(1, *shape, generator=generator)
    graph = compile_network(net, shape)
    y = net.eval()(x).argmax(1)
    bound = Crown(intermediate=intermediate, rounding=True, upper=False, budget=budget // 2)
    start = time.process_time()
    found = bound(graph, Ball(x, 0.1 / 255), margins(y, 10))
    seconds = time.process_time() - start
    return _row(int((found.lb > 0).all()), 1, seconds)


def _row(certified: int, count: int, seconds: float) -> dict[str, Any]:
    return {"certified": certified, "images": count, "ms": seconds / count * 1e3}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bounds", description=__doc__)
    parser.add_argument("--network", default=str(COLT))
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--memory-budget", default="4GB", help="for CNN7")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/bounds.json"))
    args = parser.parse_args()
    budget, rows = bytes_of(args.memory_budget), []
    table = Table(title=f"bounds, eps {EPS}, one thread, one image at a time")
    for column in ("bound", "network", "certified", "CPU ms / image", "x matmul", "peak MB"):
        table.add_column(column, justify="left" if column in ("bound", "network") else "right")

    def add(name: str, network: str, row: dict[str, Any]) -> None:
        rows.append({"bound": name, "network": network, **row})
        table.add_row(
            name,
            network,
            f"{row['certified']} / {row['images']}",
            f"{row['ms']:.1f}",
            f"{row['ms'] / row['matmul_ms']:.2f}",
            f"{row['peak_mb']:.0f}",
        )
        if "open_ms" in row:
            label = f"  of which per open image ({row['open']})"
            ratio = row["open_ms"] / row["matmul_ms"]
            table.add_row(label, "", "", f"{row['open_ms']:.1f}", f"{ratio:.2f}", "")

    if Path(args.network).exists():
        given, short = (args.network, args.images), Path(args.network).stem
        add("interval", short, alone(interval, *given))
        add("zonotope", short, alone(linear, *given, True))
        add("crown", short, alone(linear, *given, False))
        add(f"alpha_crown, last slopes, {STEPS} steps", short, alone(alpha, *given, "last"))
        add(f"alpha_crown, all slopes, {STEPS} steps", short, alone(alpha, *given, "all"))
    else:
        print(f"no {args.network}: the COLT rows are left out (--network FILE.onnx gives it)")
    add("crown-ibp", "cnn7, random", alone(cnn7, budget, "interval"))
    add("crown", "cnn7, random", alone(cnn7, budget, "crown"))
    Console().print(table)
    settings = {"eps": EPS, "steps": STEPS, "images": args.images, "budget": args.memory_budget}
    save(args.out, {**settings, "network": Path(args.network).name}, rows)
    print(f"written to {args.out}")


if __name__ == "__main__":
    main()
