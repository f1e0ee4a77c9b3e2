"""`maar certify RUN|FILE.onnx`: settle each test image, and say how much is proved."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from maar.certify import CASCADE
from maar.cli.parse import parse
from maar.eps import Eps
from maar.errors import RunError, UsageError
from maar.files import write_text

if TYPE_CHECKING:
    from torch import nn

PerChannel = tuple[float, ...] | None

OF_RUN = "(default: that of the run)"
ALL = "(default: all)"
FOLDER = "(default: RUN/certify/eps-EPS-KEY, or certs/FILE/eps-EPS-KEY)"
PER_CORE = "(default: one per core, fewer for few images)"


@dataclass(frozen=True)
class Certify:
    """Prove or break each test image of a network.

    Verdicts are appended to verdicts.jsonl as they come. The same command again continues where it
    was stopped; finished images are not computed twice.
    """

    network: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN|FILE.onnx")]
    """The folder of a run, or an ONNX file."""
    data: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint=OF_RUN)] = None
    """Data set: see `maar data list`; your own: npz:PATH or folder:PATH."""
    eps: Annotated[str | None, tyro.conf.arg(metavar="EPS", help_behavior_hint=OF_RUN)] = None
    """L-infinity radius on pixels in [0, 1], such as 0.1 or 2/255."""
    limit: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint=ALL)] = None
    """Only the first N test images."""
    indices: Annotated[str | None, tyro.conf.arg(metavar="I,J,...", help_behavior_hint=ALL)] = None
    """Only these test images, counted from 0, separated by commas."""
    verifiers: Annotated[
        str | None,
        tyro.conf.arg(metavar="A,B,...", help_behavior_hint=f"(default: {', '.join(CASCADE)})"),
    ] = None
    """Verifiers to ask, in this order, separated by commas."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint=FOLDER)] = None
    """Folder for the results."""
    mean: Annotated[
        tuple[float, ...] | None, tyro.conf.arg(metavar="M ...", help_behavior_hint="")
    ] = None
    """For ONNX files that take the normalised image: the mean of each channel."""
    std: Annotated[
        tuple[float, ...] | None, tyro.conf.arg(metavar="S ...", help_behavior_hint="")
    ] = None
    """For ONNX files that take the normalised image: the deviation of each channel."""
    workers: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint=PER_CORE)] = None
    """Processes, one thread each."""


@dataclass(frozen=True)
class Subject:
    """What the positional argument names."""

    net: nn.Sequential
    name: str
    data: str
    eps: Eps
    folder: Path
    """Where results go if nothing else is said."""
    is_own: bool
    """Whether data and eps are those that a run was trained with."""


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code; 1 if some image ended in an error."""
    args = parse(Certify, "maar certify", argv)
    if args.workers is not None and args.workers < 1:
        raise UsageError(f"--workers {args.workers} (accepted: 1 or more)")
    indices = None if args.indices is None else _numbers(args.indices)
    subject = _onnx(args) if args.network.lower().endswith(".onnx") else _run(args)

    from maar.certify.display import make_display
    from maar.certify.run import make_plan, run
    from maar.data import load

    plan = make_plan(
        subject.net,
        load(subject.data),
        subject.eps,
        verifiers=CASCADE if args.verifiers is None else _words(args.verifiers),
        limit=args.limit,
        indices=indices,
        name=subject.name,
    )
    out = args.out or subject.folder / f"eps-{float(subject.eps):.4g}-{plan.key[:8]}"
    try:
        tally = run(plan, out, workers=args.workers, display=make_display())
    except KeyboardInterrupt:
        print(f"maar: interrupted; the same command continues {out}", file=sys.stderr)
        return 130
    if subject.is_own:
        _tell_the_run(subject.folder / "summary.json", out / "summary.json")
    print(f"verdicts in {out}")
    if failed := tally.counts["error"]:
        raise RunError(f"{failed} of {tally.images} images failed, such as {tally.last_error}")
    return 0


def _onnx(args: Certify) -> Subject:
    for flag in ("data", "eps"):
        if getattr(args, flag) is None:
            raise UsageError(f"--{flag} is needed: an ONNX file does not say it")
    assert args.data is not None
    assert args.eps is not None
    eps = Eps(args.eps)
    from maar.exchange.onnx_in import read_onnx

    path = Path(args.network)
    net = read_onnx(path, mean=args.mean, std=args.std)
    return Subject(net, path.name, args.data, eps, Path("certs") / path.stem, is_own=False)


def _run(args: Certify) -> Subject:
    path = Path(args.network)
    if not path.is_dir():
        raise UsageError(
            f"{args.network!r} is neither the folder of a run nor a FILE.onnx that is there"
        )
    if args.mean is not None or args.std is not None:
        raise UsageError("--mean and --std are for ONNX files: a run's network has them inside")
    eps = None if args.eps is None else Eps(args.eps)
    from maar.train.run import load_network

    net, config = load_network(path)
    data, eps = args.data or config.data, config.eps if eps is None else eps
    is_own = data == config.data and eps == config.eps
    return Subject(net, path.resolve().name, data, eps, path / "certify", is_own)


def _tell_the_run(known: Path, new: Path) -> None:
    """Keep, for `maar runs`, the summary of the run's own data and eps that settles most images."""
    found = json.loads(new.read_text())
    try:
        old = json.loads(known.read_text())
        if old["weights"] == found["weights"] and _settled(old) > _settled(found):
            return
    except (OSError, ValueError, KeyError, TypeError):
        pass  # none yet, or damaged
    write_text(known, json.dumps(found, indent=1) + "\n")


def _settled(summary: dict[str, int]) -> int:
    return summary["misclassified"] + summary["falsified"] + summary["verified"]


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _numbers(text: str) -> list[int]:
    try:
        return [int(word) for word in _words(text)]
    except ValueError:
        raise UsageError(
            f"--indices {text!r} is not a list of numbers (accepted: such as 0,5,7)"
        ) from None
