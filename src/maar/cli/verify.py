"""`maar verify NET.onnx PROP.vnnlib`: sat, unsat, timeout or unknown, as VNN-COMP asks it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from maar.cli.parse import parse
from maar.cli.subject import PerChannel
from maar.core.errors import RunError, UsageError
from maar.core.files import write_text

if TYPE_CHECKING:
    from maar.certification.properties.decide import Decision
    from maar.exchange.instances import Instance
    from maar.reporting.scoreboard import Outcome

PRINTED = "(default: printed only)"
BESIDE = "(default: none)"


@dataclass(frozen=True)
class Verify:
    """Decide whether a network can give an output that a VNNLIB property calls unsafe.

    The first line is the answer: sat (with an input that does it), unsat (proved that none does),
    timeout, or unknown. Each of these ends with exit code 0.
    """

    network: Annotated[
        tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[NET.onnx]", help_behavior_hint="")
    ] = None
    """An ONNX file, also packed (.gz), zoo:NAME, a network of `maar zoo`, or FILE.py:NAME."""
    property: Annotated[
        tyro.conf.Positional[str | None],
        tyro.conf.arg(metavar="[PROP.vnnlib]", help_behavior_hint=""),
    ] = None
    """A VNNLIB file of version 1.0 or 2.0, also packed (.gz)."""
    timeout: Annotated[
        float | None,
        tyro.conf.arg(metavar="S", help_behavior_hint="(default: 60, or that of each instance)"),
    ] = None
    """Seconds for one property, reading included."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint=PRINTED)] = None
    """Where to write the answer too; for --instances the results as VNN-COMP has them, with the
    same name ending in .json for all details, and the folder counterexamples beside it."""
    instances: Annotated[
        Path | None, tyro.conf.arg(metavar="FILE.csv", help_behavior_hint=BESIDE)
    ] = None
    """Instead of one network and property: all of a VNN-COMP instances.csv. A first line with the
    columns' names may add `expected`, which answers are then compared with."""
    workers: int = 1
    """Processes for --instances, one thread each."""
    resume: bool = False
    """Go on with --instances: what --out has already is kept, errors are tried again."""
    verbose: bool = False
    """Also show which step did what, on standard error."""
    weights: Annotated[str, tyro.conf.arg(metavar="FILE")] = "model"
    """For a network of your own, FILE.py:NAME: a .pt or .safetensors file with its state_dict."""
    data: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint=BESIDE)] = None
    """For a network of your own: the data set whose shape and classes it is built for."""
    mean: PerChannel = None
    """For ONNX files that take the normalised image: the mean of each channel."""
    std: PerChannel = None
    """For ONNX files that take the normalised image: the deviation of each channel."""


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    args = parse(Verify, "maar verify", argv)
    if args.timeout is not None and not 0 < args.timeout < float("inf"):
        raise UsageError(f"--timeout {args.timeout} (accepted: a number of seconds > 0)")
    if args.instances is not None:
        if args.network is not None:
            raise UsageError("--instances names the networks: give it alone")
        return _all(args, args.instances)
    if args.network is None or args.property is None:
        raise UsageError("give NET.onnx and PROP.vnnlib, or --instances FILE.csv")
    if args.workers != 1 or args.resume:
        raise UsageError("--workers and --resume are for --instances")
    found = _decide(args, args.network, Path(args.property), args.timeout or 60.0)
    print(_answer(found), end="")
    if args.verbose:
        print("\n".join(map(str, found.log)), file=sys.stderr)
    if found.reason:
        print(f"maar: {found.verdict}: {found.reason}", file=sys.stderr)
    if args.out is not None:
        write_text(args.out, _answer(found))
    return 0


def _answer(found: Decision) -> str:
    from maar.api.instances import written

    return written(found)


def _all(args: Verify, path: Path) -> int:
    """Every instance, and the scoreboard; one that fails does not stop the others."""
    from maar.api.instances import run
    from maar.exchange.instances import read_instances

    if args.workers < 1:
        raise UsageError(f"--workers {args.workers} (accepted: a number >= 1)")
    if args.resume and args.out is None:
        raise UsageError("--resume goes on with the results in --out FILE: name it")
    instances = read_instances(path)
    outcomes = _kept(args, instances) if args.resume else {}
    options = {"timeout": args.timeout, "workers": args.workers, "mean": args.mean, "std": args.std}
    for outcome, answer in run(path.parent, instances, **options, done=outcomes.keys()):
        outcomes[outcome.key()] = outcome
        if outcome.result == "error":
            print(f"maar: {outcome.reason}", file=sys.stderr)
        names = f"{outcome.network} {outcome.property}"
        contradicts = f" CONTRADICTS {outcome.expected}" if outcome.is_wrong() else ""
        count = f"{len(outcomes)}/{len(instances)}"
        print(f"{count} {names} {outcome.result} {outcome.seconds:.1f} s{contradicts}", flush=True)
        if args.verbose and outcome.reason:
            print(f"    {outcome.reason}", file=sys.stderr)
        if args.out is not None:
            if outcome.result == "sat":
                number = [(i.network, i.property) for i in instances].index(outcome.key()) + 1
                name = f"{number}_{Path(outcome.property).stem}.txt"
                write_text(args.out.parent / "counterexamples" / name, answer)
            _write(args, instances, outcomes)
    return _end(args, instances, outcomes)


def _ordered(
    instances: Sequence[Instance], outcomes: dict[tuple[str, str], Outcome]
) -> list[Outcome]:
    """The outcomes so far in the order of the list."""
    keys = dict.fromkeys((i.network, i.property) for i in instances)
    return [outcomes[key] for key in keys if key in outcomes]


def _kept(args: Verify, instances: Sequence[Instance]) -> dict[tuple[str, str], Outcome]:
    """What an earlier run has answered by the same time limit."""
    from maar.reporting.scoreboard import read

    assert args.out is not None
    path = args.out.with_suffix(".json")
    if not path.exists():
        return {}
    try:
        outcomes = read(json.loads(path.read_text()))
    except (ValueError, KeyError, TypeError):
        raise RunError(f"{path} is damaged: delete it to begin again") from None
    limits = {(i.network, i.property): args.timeout or i.timeout for i in instances}
    return {
        outcome.key(): outcome
        for outcome in outcomes
        if outcome.result != "error" and limits.get(outcome.key()) == outcome.timeout
    }


def _write(
    args: Verify, instances: Sequence[Instance], outcomes: dict[tuple[str, str], Outcome]
) -> None:
    from maar.reporting.scoreboard import as_json, vnncomp_csv

    assert args.out is not None
    ordered = _ordered(instances, outcomes)
    settings = {"timeout": args.timeout, "workers": args.workers}
    write_text(args.out, vnncomp_csv(ordered))
    write_text(args.out.with_suffix(".json"), json.dumps(as_json(ordered, settings), indent=1))


def _end(
    args: Verify, instances: Sequence[Instance], outcomes: dict[tuple[str, str], Outcome]
) -> int:
    """The scoreboard, and exit code 1 where something failed or contradicts what is expected."""
    from maar.reporting.scoreboard import scores

    if args.out is not None:
        _write(args, instances, outcomes)
    ordered = _ordered(instances, outcomes)
    print(
        f"{'category':<24} {'instances':>9} {'solved':>6} {'wrong':>5} {'errors':>6} {'median':>9}"
    )
    for line in scores(ordered):
        median = "-" if line.median_seconds is None else f"{line.median_seconds:.2f} s"
        numbers = f"{line.instances:>9} {line.solved:>6} {line.wrong:>5} {line.errors:>6}"
        print(f"{line.category:<24} {numbers} {median:>9}")
    wrong = [outcome for outcome in ordered if outcome.is_wrong()]
    failed = [outcome for outcome in ordered if outcome.result == "error"]
    if wrong:
        names = f"{wrong[0].network} {wrong[0].property}"
        raise RunError(f"{len(wrong)} answers contradict what is expected, such as that of {names}")
    if failed:
        raise RunError(
            f"{len(failed)} of {len(ordered)} instances failed, such as {failed[-1].reason}"
        )
    return 0


def _decide(args: Verify, network: str, prop: Path, timeout: float) -> Decision:
    from maar.api.checking import verify

    return verify(
        network,
        prop,
        timeout=timeout,
        mean=args.mean,
        std=args.std,
        weights=args.weights,
        data=args.data,
    )
