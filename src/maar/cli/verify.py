"""`maar verify NET.onnx PROP.vnnlib`: sat, unsat, timeout or unknown, as VNN-COMP asks it."""

from __future__ import annotations

import csv
import io
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from maar.cli.parse import parse
from maar.cli.subject import PerChannel
from maar.core.errors import MaarError, RunError, UsageError
from maar.core.files import write_text

if TYPE_CHECKING:
    from maar.certification.properties.decide import Decision

PRINTED = "(default: printed only)"
BESIDE = "(default: none)"
COLUMNS = ("network", "property", "timeout", "result", "seconds", "by")


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
    """Where to write the answer too; for --instances the table of results, with the folder
    counterexamples beside it."""
    instances: Annotated[
        Path | None, tyro.conf.arg(metavar="FILE.csv", help_behavior_hint=BESIDE)
    ] = None
    """Instead of one network and property: all of a VNN-COMP instances.csv."""
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
    found = _decide(args, args.network, Path(args.property), args.timeout or 60.0)
    print(_answer(found), end="")
    if found.reason:
        print(f"maar: {found.verdict}: {found.reason}", file=sys.stderr)
    if args.out is not None:
        write_text(args.out, _answer(found))
    return 0


def _answer(found: Decision) -> str:
    return f"{found.verdict}\n{found.witness}\n" if found.witness else f"{found.verdict}\n"


def _all(args: Verify, path: Path) -> int:
    """Every instance in turn; one that fails is a line `error` and does not stop the others."""
    from maar.exchange.instances import read_instances

    instances = read_instances(path)
    rows: list[list[str]] = []
    last_error = ""
    for number, instance in enumerate(instances, 1):
        begin, by = time.monotonic(), ""
        timeout = args.timeout or instance.timeout
        network, prop = path.parent / instance.network, path.parent / instance.property
        try:
            found = _decide(args, str(network), prop, timeout)
            result, by = found.verdict, found.by or ""
            if args.out is not None and found.witness:
                name = f"{number}_{Path(instance.property).stem}.txt"
                write_text(args.out.parent / "counterexamples" / name, _answer(found))
        except MaarError as error:
            result, last_error = "error", str(error)
            print(f"maar: {error}", file=sys.stderr)
        seconds = time.monotonic() - begin
        names = [instance.network, instance.property]
        rows.append([*names, f"{timeout:g}", result, f"{seconds:.3f}", by])
        print(f"{number}/{len(instances)} {' '.join(names)} {result} {seconds:.1f} s", flush=True)
        if args.out is not None:
            write_text(args.out, _table(rows))
    failed = sum(row[3] == "error" for row in rows)
    if failed:
        raise RunError(f"{failed} of {len(rows)} instances failed, such as {last_error}")
    return 0


def _table(rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([COLUMNS, *rows])
    return text.getvalue()


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
