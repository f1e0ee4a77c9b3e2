"""`maar audit STORE`: check a folder of `maar certify` again, by other code than made it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from maar.api.checking import network_of_store, require_onnxruntime, runner_of
from maar.cli.interrupt import farewell
from maar.cli.normalisation import check_normalisation
from maar.cli.parse import parse
from maar.cli.subject import MODEL, PerChannel, subject
from maar.core.errors import RunError, UsageError
from maar.terminal.progress import show_progress

if TYPE_CHECKING:
    from torch import nn

    from maar.certification.audit.folder import Folder
    from maar.certification.audit.points import Runner
    from maar.data import DataSet

RECORDED = "(default: as recorded in STORE)"
ALL = "(default: all)"
PER_CORE = "(default: one per core, fewer for few images)"
OFF = "(default: not asked)"
# Lines of disagreements on the screen: a wrong network has one for each image.
MOST_LINES = 100


@dataclass(frozen=True)
class Audit:
    """Check every line of a certification again; exit code 1 if anything disagrees.

    Counterexamples are replayed by onnxruntime and in float64, verified images attacked by another
    attack and bounded by another implementation, the sums counted again. Verdicts that are not
    proved again are counted as resting on trust. STORE is only read, but for the outcome, which is
    kept in STORE/audit.json.
    """

    store: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="STORE")]
    """A folder of `maar certify`."""
    network: Annotated[
        str | None, tyro.conf.arg(metavar="RUN|FILE.onnx|zoo:NAME", help_behavior_hint=RECORDED)
    ] = None
    """Where the network is, if it has moved."""
    data: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint=RECORDED)] = None
    """Where the data set is, if it has moved."""
    weights: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint=RECORDED)] = (
        None
    )
    """Of a run given with --network: model, or a stage's."""
    mean: PerChannel = None
    """For an ONNX file given with --network that takes the normalised image."""
    std: PerChannel = None
    """For an ONNX file given with --network that takes the normalised image."""
    limit: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint=ALL)] = None
    """Only the first N images of the store."""
    indices: Annotated[str | None, tyro.conf.arg(metavar="I,J,...", help_behavior_hint=ALL)] = None
    """Only these images, separated by commas."""
    attack_restarts: Annotated[int, tyro.conf.arg(metavar="N")] = 2
    """Starts of the attack on each verified or open image, each for all target classes."""
    complete: Annotated[float | None, tyro.conf.arg(metavar="S", help_behavior_hint=OFF)] = None
    """For verified images that the audit's bounds leave open: ask another complete verifier than
    the one that proved it, for up to S seconds each."""
    seed: int = 1
    """Of the attack."""
    workers: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint=PER_CORE)] = None
    """Processes, one thread each."""


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code; 1 if something disagrees."""
    args = parse(Audit, "maar audit", argv)
    _check(args)
    require_onnxruntime()
    from rich.console import Console
    from rich.text import Text

    from maar.certification.audit.folder import read_folder
    from maar.certification.audit.outcome import outcome
    from maar.certification.audit.run import Strength, audit
    from maar.certification.audit.table import explanations, headline, make_table, on_trust
    from maar.certification.workers import default_workers

    folder = read_folder(args.store)
    net, data, runner, name = _read(args, folder)
    chosen = _chosen(args, folder)
    strength = Strength(args.attack_restarts, args.complete or 0.0, args.seed)
    console = Console()
    about = f"{len(chosen):,} images of {folder.manifest['data']}, eps {folder.eps}"
    console.print(Text(f"audit of {args.store}: {about}", "bold cyan"))
    try:
        with show_progress(console, "checking", len(chosen)) as progress:
            report = audit(
                folder,
                net,
                data,
                runner,
                strength=strength,
                indices=chosen,
                workers=args.workers or default_workers(len(chosen)),
                name=name,
                progress=progress,
            )
    except KeyboardInterrupt:
        return farewell("no audit result; the same command begins again")
    try:
        outcome(folder, report, len(chosen)).write(args.store)
    except OSError as error:  # the folder may be somebody else's
        print(f"the outcome cannot be kept in {args.store}: {error.strerror}", file=sys.stderr)
    console.print(headline(report))
    console.print(make_table(report))
    for text in explanations(report):
        console.print(Text(text, "dim"))
    for note in report.notes:
        console.print(Text(f"note: {note}", "dim"))
    for line in report.wrong[:MOST_LINES]:
        console.print(Text(f"disagreement: {line}", "red"), soft_wrap=True)
    if len(report.wrong) > MOST_LINES:
        console.print(Text(f"... and {len(report.wrong) - MOST_LINES:,} more", "red"))
    if report.wrong:
        count = f"{len(report.wrong):,} disagreement{'s' * (len(report.wrong) > 1)}"
        raise RunError(f"{args.store} does not hold: {count}, the first: {report.wrong[0]}")
    print(f"no disagreement; {on_trust(report)}")
    return 0


def _check(args: Audit) -> None:
    for flag, value in (("limit", args.limit), ("workers", args.workers)):
        if value is not None and value < 1:
            raise UsageError(f"--{flag} {value} (accepted: 1 or more)")
    if args.attack_restarts < 1:
        raise UsageError(f"--attack-restarts {args.attack_restarts} (accepted: 1 or more)")
    if args.complete is not None and not 0 < args.complete < float("inf"):
        raise UsageError(f"--complete {args.complete} (accepted: a number of seconds > 0)")
    if args.limit is not None and args.indices is not None:
        raise UsageError("--limit and --indices exclude each other: give one of them")
    if args.network is None and (args.weights, args.mean, args.std) != (None, None, None):
        raise UsageError("--weights, --mean and --std go with --network")


def _read(args: Audit, folder: Folder) -> tuple[nn.Sequential, DataSet, Runner, str | None]:
    """Return network, data, the network as onnxruntime has it, and its name if it has not moved."""
    from maar.data import load
    from maar.networks import weights_hash

    asked = {"weights": args.weights, "mean": args.mean, "std": args.std}
    name, source = network_of_store(folder, args.network, asked)
    where = args.data or folder.source.get("data") or folder.manifest["data"]
    options = {"mean": source.get("mean"), "std": source.get("std")}
    options = {key: None if value is None else tuple(value) for key, value in options.items()}
    weights = source.get("weights") or MODEL
    mean, std = options["mean"], options["std"]
    found = subject(name, where, str(folder.eps), weights=weights, mean=mean, std=std)
    data = load(where, valid=folder.valid)
    about = folder.subject
    if (about["weights"], about["data"]) == (weights_hash(found.net), data.sha256):
        check_normalisation(found, data, folder.split)  # (others are a disagreement anyway)
    # Somebody who says where it is now may have renamed it: the weights are compared all the same.
    called = found.name if args.network is None and name == source.get("network") else None
    return found.net, data, runner_of(name, found.net, data, options), called


def _chosen(args: Audit, folder: Folder) -> list[int]:
    there = sorted(folder.records)
    if args.limit is not None:
        return there[: args.limit]
    if args.indices is None:
        return there
    try:
        return sorted({int(word) for word in args.indices.split(",")})
    except ValueError:
        raise UsageError(
            f"--indices {args.indices!r} is not a list of numbers (accepted: such as 0,5,7)"
        ) from None
