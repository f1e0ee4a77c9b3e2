"""Seconds per training step in each stage of layerwise training, beside COLT's public code.

    python -m benchmarks.train_step [--threads 2 | --processes 2] [--steps 8] [--repeats 7]
                                    [--method colt] [--stability-images 1] [--precision bf16]
                                    [--run RUN --setting "mnist 0.1"]

One step is everything that the trainer does for a batch of 100: the bounds of the stage's region,
the latent attack there and in the previous stage's region (the mix is half way), the loss with all
of its terms (L1 and ReLU-stability included), its gradients and the optimiser's step. Each stage
runs in a process of its own, whose peak memory is shown. The weights are fresh: nearly every ReLU
is unstable, which is the dearest case. With --processes 2, two processes of one thread share the
batch and average their gradients, as `maar train --devices 2` does: the same step, the same two
cores, and the memory of both. With --run, a stage begins with the weights that the stage
before it left in that run, on its images: the usual case. The COLT column was measured with its
public code on a machine of this kind (2 threads, batch 100, its own settings): compare ratios of
ten, not of 1.1.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.measure import alone, save, together
from benchmarks.stepping import median, step_times
from maar.attacks.pgd import PGD
from maar.core.eps import Eps
from maar.data import load
from maar.methods.base import Method
from maar.methods.colt import COLT
from maar.methods.maar import MAAR
from maar.methods.mat import MAT
from maar.networks import make
from maar.training.run import load_network

BATCH = 100
HALF = 1.0  # of two mix epochs
# setting: network, shape, eps, and COLT's seconds per step in each stage, and peak GB
SETTINGS: dict[str, tuple[str, tuple[int, int, int], str, list[float], float]] = {
    "mnist 0.1": ("convmed_2_2_100", (1, 28, 28), "0.1", [0.9, 3.1, 3.2], 1.3),
    "cifar10 2/255": (
        "convmedbig_2_2_4_250",
        (3, 32, 32),
        "2/255",
        [4.4, 15.4, 20.1, 21.1],
        4.1,
    ),
    "cifar10 8/255": ("convmed_2_4_250", (3, 32, 32), "8/255", [1.7, 5.3, 7.0], 1.8),
}


def method_named(name: str, steps: int, share: float) -> Method:
    """With COLT's own terms: mix, L1, stability; the natural loss is part of `paper` only."""
    knobs: dict[str, Any] = {
        "mix": 2.0,
        "attack": PGD(steps=steps, step_size=0.25),
        "stability_images": share,
    }
    if name == "colt":
        return COLT(objective="colt", **knobs)
    return MAT(**knobs) if name == "mat" else MAAR(base=COLT(**knobs))


def seconds_per_step(
    setting: str,
    stage: int,
    method: str,
    steps: int,
    share: float,
    repeats: int,
    run: str,
    precision: str,
) -> dict[str, Any]:
    """The median over some steps, after two that do not count."""
    network, shape, eps, _, _ = SETTINGS[setting]
    chance = torch.Generator().manual_seed(0)
    if run:
        net, config = load_network(run, f"stage-{max(stage, 1)}-last")
        x = load(config.data).images("train", torch.arange(BATCH))
    else:
        net = make(network, shape, 10, [0.45] * shape[0], [0.25] * shape[0], seed=0)
        x = torch.rand(BATCH, *shape, generator=chance)
    y = torch.randint(10, (BATCH,), generator=chance)
    trained = method_named(method, steps, share)
    at = trained.stages(net, Eps(eps), 4)[stage]
    exchange = None
    if torch.distributed.is_initialized():
        size = BATCH // torch.distributed.get_world_size()
        mine = slice(torch.distributed.get_rank() * size, (torch.distributed.get_rank() + 1) * size)
        x, y, exchange = x[mine], y[mine], averaged
    times = step_times(
        trained, at, net, x, y, epoch=HALF, repeats=repeats, exchange=exchange, precision=precision
    )
    return {"seconds": median(times), "fastest": min(times)}


def averaged(gradients: Sequence[Tensor]) -> None:
    """Replace the gradients by their means over the processes, in one exchange as the trainer's."""
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    torch.distributed.all_reduce(flat)
    flat /= torch.distributed.get_world_size()
    pieces = flat.split([gradient.numel() for gradient in gradients])
    for gradient, piece in zip(gradients, pieces, strict=True):
        gradient.copy_(piece.view(gradient.shape))


def main() -> None:
    """Measure every setting and stage, print the table, write the file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.train_step", description=__doc__)
    parser.add_argument("--threads", type=int, default=2, help="of one process")
    parser.add_argument(
        "--processes", type=int, default=1, help="that share a batch, a thread each"
    )
    parser.add_argument("--steps", type=int, default=8, help="updates of the attack")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--method", choices=["colt", "mat", "maar"], action="append")
    parser.add_argument("--setting", choices=list(SETTINGS), action="append")
    parser.add_argument("--stability-images", type=float, default=1.0, help="part of the batch")
    parser.add_argument("--precision", choices=["32", "bf16"], default="32")
    parser.add_argument("--run", default="", help="take the weights of a run's stages")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/train_step.json"))
    args = parser.parse_args()
    if args.processes < 1 or BATCH % args.processes:
        parser.error(f"--processes {args.processes}: accepted are divisors of {BATCH}")
    measured = partial(alone, threads=args.threads)
    if args.processes > 1:
        args.threads = 1
        measured = partial(together, processes=args.processes)
    rows = []
    table = Table(
        "setting", "method", "stage", "s/step", "x matmul", "peak MB", "COLT code", "ratio"
    )
    console = Console()
    for setting in args.setting or SETTINGS:
        _, _, _, public, _ = SETTINGS[setting]
        for method in args.method or ("colt", "maar"):
            for stage, theirs in enumerate(public):
                found = measured(
                    seconds_per_step,
                    setting,
                    stage,
                    method,
                    args.steps,
                    args.stability_images,
                    args.repeats,
                    args.run,
                    args.precision,
                )
                row = {"setting": setting, "method": method, "stage": stage + 1, **found}
                row["colt_code_seconds"] = theirs
                rows.append(row)
                table.add_row(
                    setting,
                    method,
                    str(stage + 1),
                    f"{found['seconds']:.3f}",
                    f"{found['seconds'] * 1e3 / found['matmul_ms']:.1f}",
                    f"{found['peak_mb']:.0f}",
                    f"{theirs} s",
                    f"{theirs / found['seconds']:.1f}",
                )
                console.print(f"{setting} {method} stage {stage + 1}: {found['seconds']:.3f} s")
    console.print(table)
    settings = {
        "batch": BATCH,
        "processes": args.processes,
        "precision": args.precision,
        "attack_steps": args.steps,
        "kappa": 0.5,
        "stability_images": args.stability_images,
        "weights": f"of the run {Path(args.run).name}" if args.run else "fresh",
        "repeats": args.repeats,
    }
    save(args.out, settings, rows, args.threads)


if __name__ == "__main__":
    main()
