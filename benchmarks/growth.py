"""How the cost of CROWN grows: with eps and the number of unstable ReLUs, with width, with depth.

    python -m benchmarks.growth RUN [--weights stage-1-best] [--images 3]

RUN is the folder of a run, whose validation images are used; eps goes from half of its radius to
four times it. Widths and depths are those of random convolutional networks on the same images, at a
radius that leaves some of the ReLUs unstable. CPU seconds of one thread, rounding accounted for.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from benchmarks.measure import alone, save
from maar.api.loading import load as load_run
from maar.certification.network import Network
from maar.certification.query import Query
from maar.certification.verifiers.crown import CrownVerifier
from maar.data import load

SHARES = (0.5, 1.0, 2.0, 4.0)
WIDTHS = (8, 16, 32)
DEPTHS = (2, 3, 4)
SMALL = 0.25
"""Share of the run's eps for random networks, which nobody trained to be stable."""


def ask(net: nn.Module, x: Tensor, eps: float) -> dict[str, Any]:
    """Median CPU seconds of the crown verifier, and how many ReLUs are unstable."""
    network = Network(net, tuple(x.shape[1:]))  # type: ignore[arg-type]
    labels = network.net(x).argmax(1).tolist()
    seconds, unstable = [], []
    for n, label in enumerate([labels[0], *labels]):  # (the first one is for warming up)
        query = Query.of(network, x[max(n - 1, 0) : max(n, 1)], label, eps, n)
        start = time.process_time()
        CrownVerifier()(query)
        seconds.append(time.process_time() - start)
        pre = query.memory["found"].pre
        unstable.append(sum(int(((lb < 0) & (ub > 0)).sum()) for lb, ub in pre))
    return {
        "images": len(x),
        "seconds": statistics.median(seconds[1:]),
        "unstable": statistics.median(unstable[1:]),
        "relus": sum(lb.numel() for lb, _ in pre),
    }


def convolutions(channels: int, depth: int, shape: torch.Size) -> nn.Sequential:
    """A random network of so many convolutions, two of which halve the image."""
    torch.manual_seed(0)
    layers, before = list[nn.Module](), shape[0]
    for k in range(depth):
        kernel, stride = (4, 2) if k in (1, 2) else (3, 1)
        layers += [nn.Conv2d(before, channels, kernel, stride, 1), nn.ReLU()]
        before = channels
    layers.append(nn.Flatten())
    size = nn.Sequential(*layers)(torch.zeros(1, *shape)).shape[1]
    return nn.Sequential(*layers, nn.Linear(size, 100), nn.ReLU(), nn.Linear(100, 10)).eval()


def measured(run: str, weights: str, images: int, axis: str, value: float) -> dict[str, Any]:
    """One point of one axis."""
    loaded = load_run(run, weights=weights)
    data = load(loaded.config.data, valid=loaded.config.valid)
    x, eps = data.images("valid", list(range(images))), float(loaded.config.eps)
    with torch.no_grad():
        if axis == "eps":
            return ask(loaded.network, x, eps * value)
        width, depth = (int(value), 3) if axis == "width" else (16, int(value))
        return ask(convolutions(width, depth, x.shape[1:]), x, eps * SMALL)


def main() -> None:
    parser = argparse.ArgumentParser(description="how the cost of CROWN grows")
    parser.add_argument("run")
    parser.add_argument("--weights", default="model")
    parser.add_argument("--images", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/growth.json"))
    args = parser.parse_args()
    axes = {"eps": SHARES, "width": WIDTHS, "depth": DEPTHS}
    rows: list[dict[str, Any]] = []
    table = Table(title="CPU seconds of CROWN an image, one thread")
    for column in ("axis", "value", "ReLUs", "unstable", "seconds", "x matmul", "peak MB"):
        table.add_column(column, justify="left" if column == "axis" else "right")
    for axis, values in axes.items():
        for value in values:
            found = alone(measured, args.run, args.weights, args.images, axis, value)
            rows.append({"axis": axis, "value": value, **found})
            times = f"{1e3 * found['seconds'] / found['matmul_ms']:.1f}"
            cells = f"{found['relus']}", f"{found['unstable']:.0f}", f"{found['seconds']:.3f}"
            table.add_row(axis, f"{value:g}", *cells, times, f"{found['peak_mb']:.0f}")
    Console().print(table)
    settings = {"run": Path(args.run).name, "weights": args.weights, "images": args.images}
    save(args.out, settings, rows)
    print(f"written to {args.out}")


if __name__ == "__main__":
    main()
