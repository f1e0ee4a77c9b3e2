"""Steps per second and peak memory of every training method, with the settings of its recipe.

    python -m benchmarks.methods [--setting mnist-0.1] [--profile cpu] [--threads 2] [--repeats 15]

One step is everything that the trainer does for a batch: attack, bounds, loss, gradients and the
optimiser. Each stage, and of a method whose eps grows both the time before and after that, runs in
a process of its own, whose peak memory is shown. Weights are fresh and initialised as the method
asks. A recipe that is not there is left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.measure import alone, save
from benchmarks.stepping import median, step_times
from maar.config import load, recipes
from maar.methods import METHODS
from maar.networks import make


@dataclass(frozen=True)
class Part:
    """A part of a training in which a step costs about the same."""

    stage: int
    name: str
    epoch: float
    """Where it is measured."""
    epochs: float
    """How long it lasts."""


def parts(recipe: str) -> list[Part]:
    """The stages, and where eps grows the time until it has and the time after."""
    config = load(recipe)
    net = fresh(recipe)
    found: list[Part] = []
    for index, stage in enumerate(config.method.stages(net, config.eps, config.train.epochs)):
        end, tenths = float(stage.epochs), range(1, stage.epochs * 10)
        early = next((t / 10 for t in tenths if stage.eps(t / 10) > 0), 0.0)
        if stage.eps(early) < stage.eps(end):
            grown = next((t / 10 for t in tenths if stage.eps(t / 10) >= stage.eps(end)), end)
            found.append(Part(index, "eps grows", early, grown))
            found.append(Part(index, "eps full", end, end - grown))
        else:
            found.append(Part(index, stage.name, end / 2, end))
    return found


def minutes(recipe: str, seconds: Sequence[float]) -> float:
    """Of all steps of a training on MNIST or CIFAR-10, if a step takes so long in each part."""
    config = load(recipe)
    images = (60_000 if "mnist" in config.data else 50_000) - config.valid
    steps = images // config.train.batch
    each = zip(parts(recipe), seconds, strict=True)
    return sum(part.epochs * steps * step for part, step in each) / 60


def fresh(recipe: str) -> torch.nn.Sequential:
    """Its network, initialised as its method asks."""
    config = load(recipe)
    shape = (1, 28, 28) if "mnist" in config.data else (3, 32, 32)
    net = make(config.network, shape, 10, [0.45] * shape[0], [0.25] * shape[0], seed=0)
    config.method.initialise(net, torch.Generator().manual_seed(0))
    return net


def measured(recipe: str, stage: int, epoch: float, repeats: int) -> dict[str, Any]:
    """The median of some steps."""
    config = load(recipe)
    net = fresh(recipe)
    chance = torch.Generator().manual_seed(0)
    shape = (1, 28, 28) if "mnist" in config.data else (3, 32, 32)
    x = torch.rand(config.train.batch, *shape, generator=chance)
    y = torch.randint(10, (config.train.batch,), generator=chance)
    at = config.method.stages(net, config.eps, config.train.epochs)[stage]
    times = step_times(config.method, at, net, x, y, epoch=epoch, repeats=repeats)
    return {"seconds": median(times), "fastest": min(times), "batch": config.train.batch}


def main() -> None:
    """Measure every recipe of the setting, print the table, write the file."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.methods",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--setting", default="mnist-0.1")
    parser.add_argument("--profile", default="cpu")
    parser.add_argument("--method", action="append", choices=list(METHODS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    there = set(recipes())
    console = Console()
    table = Table("method", "at", "batch", "steps/s", "images/s", "x matmul", "peak MB")
    rows: list[dict[str, Any]] = []
    for method in args.method or METHODS:
        recipe = f"{args.setting}-{method}-{args.profile}"
        if recipe not in there:
            continue
        for part in parts(recipe):
            found = alone(
                measured, recipe, part.stage, part.epoch, args.repeats, threads=args.threads
            )
            name = part.name
            rows.append({"method": method, "recipe": recipe, "at": name, **found})
            per_second = 1 / found["seconds"]
            cells = [f"{per_second:.1f}", f"{per_second * found['batch']:.0f}"]
            cells += [f"{found['seconds'] * 1e3 / found['matmul_ms']:.1f}"]
            cells += [f"{found['peak_mb']:.0f}"]
            table.add_row(method, name, str(found["batch"]), *cells)
            console.print(f"{method} {name}: {per_second:.1f} steps/s")
        whole = minutes(recipe, [row["seconds"] for row in rows if row["method"] == method])
        console.print(f"{method}: {whole:.0f} minutes for all steps of {recipe}")
    console.print(table)
    out = args.out or Path(f"results/benchmarks/methods-{args.setting}.json")
    save(
        out,
        {"setting": args.setting, "profile": args.profile, "repeats": args.repeats},
        rows,
        args.threads,
    )


if __name__ == "__main__":
    main()
