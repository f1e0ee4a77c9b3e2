"""`maar audit STORE`: check a folder of `maar certify` again, by other code than made it."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from maar.cli.interrupt import leave_at_once
from maar.cli.parse import parse
from maar.cli.progress import show_progress
from maar.cli.subject import MODEL, PerChannel, subject
from maar.errors import RunError, UsageError

if TYPE_CHECKING:
    from torch import nn

    from maar.certify.audit.folder import Folder
    from maar.certify.audit.points import Runner
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
    attack and bounded by another implementation, the sums counted again. Verdicts that rest on
    trust, as nothing proves them again, are counted. STORE is only read.
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
    _require_onnxruntime()
    with leave_at_once():
        from rich.console import Console
        from rich.text import Text

        from maar.certify.audit.folder import read_folder
        from maar.certify.audit.run import Strength, audit
        from maar.certify.audit.table import explanations, headline, make_table, on_trust
        from maar.certify.workers import default_workers

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
        print("maar: interrupted: no audit result", file=sys.stderr)
        return 130
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


def _require_onnxruntime() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError:
        raise RunError(
            "the audit computes the network by onnxruntime too: pip install 'maar[onnx]'"
        ) from None


def _read(args: Audit, folder: Folder) -> tuple[nn.Sequential, DataSet, Runner, str | None]:
    """Return network, data, the network as onnxruntime has it, and its name if it has not moved."""
    from maar.data import load

    name, source = _network(args, folder)
    where = args.data or folder.source.get("data") or folder.manifest["data"]
    options = {"mean": source.get("mean"), "std": source.get("std")}
    options = {key: None if value is None else tuple(value) for key, value in options.items()}
    found = subject(name, where, str(folder.eps), weights=source.get("weights") or MODEL, **options)
    data = load(where, valid=folder.valid)
    # Somebody who says where it is now may have renamed it: the weights are compared all the same.
    called = found.name if args.network is None and name == source.get("network") else None
    return found.net, data, _runner(name, found.net, data, options), called


def _network(args: Audit, folder: Folder) -> tuple[str, dict[str, Any]]:
    """Where the network is, and how to read it."""
    if args.network is not None:
        return args.network, {"weights": args.weights, "mean": args.mean, "std": args.std}
    source = folder.source
    name = source.get("network")
    if not isinstance(name, str):
        raise UsageError(f"{args.store} does not say where its network is: give --network")
    around = folder.path.resolve().parent.parent
    if Path(name).exists() or name.startswith("zoo:"):
        return name, source
    if (around / "config.toml").is_file():
        return str(around), source  # the run was moved, together with what is in it
    raise UsageError(f"the network {name} is no longer there: give --network")


def _runner(name: str, net: nn.Sequential, data: DataSet, options: dict[str, Any]) -> Runner:
    from maar.exchange.onnx_out import write_onnx
    from maar.exchange.runtime import onnx_runner

    if name.lower().endswith((".onnx", ".onnx.gz")):
        runner = onnx_runner(name, **options)  # the file itself: our reader is checked as well
    else:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "net.onnx"
            write_onnx(net, path, data.shape)
            runner = onnx_runner(path)
    if runner is None:
        raise RunError(f"onnxruntime cannot run {name}")
    return runner


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
