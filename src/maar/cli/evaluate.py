"""`maar evaluate NETWORK`: accuracy and latent robustness, as the paper's Appendix A.4."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from maar.cli.interrupt import farewell
from maar.cli.normalisation import check_normalisation
from maar.cli.parse import parse
from maar.cli.subject import NETWORK, PerChannel, Subject
from maar.cli.subject import subject as read_subject
from maar.core.errors import UsageError
from maar.records.evaluations import Evaluation
from maar.records.reading import Reader
from maar.records.stores import SUMMARY
from maar.terminal.progress import show_progress

if TYPE_CHECKING:
    from rich.table import Table

    from maar.training.metrics import Measured

OF_RUN = "(default: that of the run)"
ALL = "(default: all)"
FILE = "(default: RUN/evaluate-WEIGHTS.json, or certs/FILE/evaluate-model.json)"


@dataclass(frozen=True)
class Evaluate:
    """Measure a network: accuracy, and latent robustness layer by layer.

    Latent robustness at ReLU d is the share of images that are classified correctly and withstand
    a PGD attack on the convex region behind that ReLU; at 0, on the input ball. It proves nothing:
    that is what `maar certify` is for.
    """

    network: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar=NETWORK)]
    """The folder of a run, an ONNX file, or a network of `maar zoo`."""
    weights: Annotated[str, tyro.conf.arg(metavar="NAME")] = "model"
    """Of a run: model, the end of it, or a stage's, such as stage-1-last or stage-1-best. Of your
    own module: a .pt or .safetensors file with its state_dict."""
    data: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint=OF_RUN)] = None
    """Data set: see `maar data list`; your own: npz:PATH or folder:PATH."""
    eps: Annotated[str | None, tyro.conf.arg(metavar="EPS", help_behavior_hint=OF_RUN)] = None
    """L-infinity radius on pixels in [0, 1], such as 0.1 or 2/255."""
    layers: Annotated[str | None, tyro.conf.arg(metavar="D,E,...", help_behavior_hint=ALL)] = None
    """ReLUs to attack behind, counted from 1, separated by commas; 0 is the input."""
    steps: int = 150
    """Steps of the attack."""
    step_size: float = 0.01
    """Length of a step, where the region is [-1, 1]^m."""
    restarts: int = 1
    """Runs of the attack from fresh random starts."""
    bounds: Annotated[str, tyro.conf.arg(metavar="NAME|FILE.py:NAME")] = "crown"
    """What encloses the ReLUs' inputs, hence the region: crown, zonotope, interval, your own, or
    cauchy, an estimate."""
    split: Literal["test", "valid", "train"] = "test"
    """Which images; valid are those that the run kept for validation."""
    limit: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint=ALL)] = None
    """Only the first N images."""
    seed: int = 0
    """Of the attack's starts."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint=FILE)] = None
    """JSON file for the numbers."""
    mean: PerChannel = None
    """For ONNX files that take the normalised image: the mean of each channel."""
    std: PerChannel = None
    """For ONNX files that take the normalised image: the deviation of each channel."""


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    args = parse(Evaluate, "maar evaluate", argv)
    layers = None if args.layers is None else _numbers(args.layers)
    if args.out is not None and args.out.is_dir():
        raise UsageError(f"--out {args.out} is a folder (accepted: a file to write)")
    import torch
    from rich.console import Console

    from maar.attacks import PGD
    from maar.data import load
    from maar.networks import weights_hash
    from maar.training.env import resolve_device, resolve_threads
    from maar.training.metrics import check_bounds, check_images, check_layers, measure

    check_bounds(args.bounds)
    attack = PGD(steps=args.steps, step_size=args.step_size, restarts=args.restarts, keep="best")
    subject = read_subject(
        args.network, args.data, args.eps, weights=args.weights, mean=args.mean, std=args.std
    )
    layers = check_layers(subject.net, layers)
    # Without the split the training images are all of them, and the test images are as they are.
    valid = 0 if args.split == "test" else subject.valid
    device = resolve_device("auto")
    torch.set_num_threads(resolve_threads(0))
    data = load(subject.data, valid=valid)
    images = check_images(subject.net, data, args.split, args.limit)
    check_normalisation(subject, data, args.split)
    data = data.to(device)
    console = Console()
    what = f"{subject.name} on {subject.data}, eps {subject.eps}"
    console.print(f"{what} ({images:,} {args.split} images)", style="bold cyan", highlight=False)
    began = time.perf_counter()
    try:
        with show_progress(console, "attacking", images * len(layers)) as progress:
            measured = measure(
                subject.net.to(device),
                data,
                subject.eps,
                layers=layers,
                split=args.split,
                limit=args.limit,
                attack=attack,
                bounds=args.bounds,
                seed=args.seed,
                progress=progress,
            )
    except KeyboardInterrupt:
        return farewell("nothing was written")
    seconds = time.perf_counter() - began
    weights = weights_hash(subject.net.cpu())
    certified = _certified(subject, args, weights)
    console.print(_table(measured, certified))
    out = args.out or subject.folder / _file_name(args, subject)
    Evaluation(
        network=subject.name,
        weights=args.weights,
        data=subject.data,
        split=args.split,
        eps=float(subject.eps),
        layers=layers,
        attack={name: getattr(args, name) for name in ("steps", "step_size", "restarts", "seed")},
        bounds=args.bounds,
        weights_hash=weights,
        data_sha256=data.sha256,
        images=measured.images,
        of=data.size(args.split),
        accuracy=measured.accuracy,
        latent_robustness={str(d): x for d, x in measured.latent_robustness.items()},
        certified=certified,
        seconds=round(seconds, 3),
    ).write(out)
    print(f"numbers in {out}")
    return 0


def _numbers(text: str) -> list[int]:
    try:
        found = [int(word) for word in text.split(",")]
    except ValueError:
        raise UsageError(
            f"--layers {text!r} is not a list of numbers (accepted: such as 0,1,2)"
        ) from None
    return found


def _file_name(args: Evaluate, subject: Subject) -> str:
    """Other questions than the usual one go elsewhere, so that a short look replaces no result."""
    parts = ["evaluate", Path(args.weights).name]
    if args.data is not None and subject.is_run:
        parts.append(subject.data.rpartition("/")[2].replace(":", "-"))
    if args.eps is not None:
        parts.append(f"eps-{float(subject.eps):.4g}")
    if args.split != "test":
        parts.append(args.split)
    if args.limit is not None:
        parts.append(f"first-{args.limit}")
    return f"{'-'.join(parts)}.json"


def _certified(subject: Subject, args: Evaluate, weights: str) -> dict[str, Any] | None:
    """What the certifier has found for these very weights, data and eps; of several the most."""
    folder = subject.folder / "certify" if subject.is_run else subject.folder
    wanted = (weights, subject.data, args.split, float(subject.eps))
    best: dict[str, Any] | None = None
    for path in sorted(folder.glob(f"**/{SUMMARY}")):
        summary = Reader().json(path)
        keys = ("weights", "data", "split", "eps")
        share = {key: summary.get(key) for key in ("images", "verified", "certified")}
        if tuple(summary.get(key) for key in keys) != wanted or None in share.values():
            continue
        if best is None or (share["images"], share["verified"]) > (
            best["images"],
            best["verified"],
        ):
            best = share
    return best


def _table(measured: Measured, certified: dict[str, Any] | None) -> Table:
    from maar.terminal.tables import table

    shown = table("metric", "share", "images", right=("share", "images"), gap=3)

    def row(name: str, part: int, whole: int, style: str = "") -> None:
        shown.add_row(name, f"{100 * part / whole:.2f} %", f"{part:,} of {whole:,}", style=style)

    row("accuracy", measured.correct, measured.images)
    for layer, count in measured.latent_robust.items():
        where = f"ReLU {layer}" if layer else "the input"
        row(f"latent robustness at {where}", count, measured.images)
    if certified is not None:
        row("certified robustness", certified["verified"], certified["images"], "bold")
    return shown
