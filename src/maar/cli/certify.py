"""`maar certify RUN|FILE.onnx`: settle each test image, and say how much is proved."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from maar.certify import CASCADE
from maar.certify.fork_server import warm_up
from maar.cli.parse import parse
from maar.cli.subject import PerChannel
from maar.cli.subject import subject as read_subject
from maar.errors import RunError, UsageError
from maar.files import write_text

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
    """Only the first N images."""
    indices: Annotated[str | None, tyro.conf.arg(metavar="I,J,...", help_behavior_hint=ALL)] = None
    """Only these images, counted from 0, separated by commas."""
    split: Literal["test", "valid"] = "test"
    """The test images, or those that the run kept for validation: tune on the latter."""
    weights: Annotated[str, tyro.conf.arg(metavar="NAME")] = "model"
    """Of a run: model, the end of it, or a stage's, such as stage-1-last or stage-1-best."""
    verifiers: Annotated[
        str | None,
        tyro.conf.arg(metavar="A,B,...", help_behavior_hint=f"(default: {', '.join(CASCADE)})"),
    ] = None
    """Verifiers to ask, in this order, separated by commas."""
    timeout: Annotated[
        float | None, tyro.conf.arg(metavar="S", help_behavior_hint="(default: 120)")
    ] = None
    """Seconds for each image, all verifiers together. Images that stay open are taken again by a
    call with a longer one; inf is allowed."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint=FOLDER)] = None
    """Folder for the results."""
    mean: PerChannel = None
    """For ONNX files that take the normalised image: the mean of each channel."""
    std: PerChannel = None
    """For ONNX files that take the normalised image: the deviation of each channel."""
    workers: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint=PER_CORE)] = None
    """Processes, one thread each."""


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code; 1 if some image ended in an error."""
    args = parse(Certify, "maar certify", argv)
    if args.workers is not None and args.workers < 1:
        raise UsageError(f"--workers {args.workers} (accepted: 1 or more)")
    indices = None if args.indices is None else _numbers(args.indices)
    if args.workers != 1:
        warm_up()  # torch is imported there while it is imported here
    subject = read_subject(
        args.network, args.data, args.eps, weights=args.weights, mean=args.mean, std=args.std
    )
    folder = subject.folder / "certify" if subject.is_run else subject.folder

    from maar.certify.display import make_display
    from maar.certify.run import TIMEOUT, make_plan, run
    from maar.data import load

    plan = make_plan(
        subject.net,
        load(subject.data, valid=subject.valid if args.split == "valid" else 0),
        subject.eps,
        verifiers=CASCADE if args.verifiers is None else _words(args.verifiers),
        timeout=TIMEOUT if args.timeout is None else args.timeout,
        limit=args.limit,
        indices=indices,
        name=subject.name,
        split=args.split,
        source=subject.source,
    )
    out = args.out or folder / f"eps-{float(subject.eps):.4g}-{plan.key[:8]}"
    try:
        tally = run(plan, out, workers=args.workers, display=make_display())
    except KeyboardInterrupt:
        print(f"maar: interrupted; the same command continues {out}", file=sys.stderr)
        return 130
    if subject.is_own and args.split == "test":
        _tell_the_run(folder / "summary.json", out / "summary.json")
    print(f"verdicts in {out}")
    if failed := tally.counts["error"]:
        raise RunError(f"{failed} of {tally.images} images failed, such as {tally.last_error}")
    return 0


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
