"""`maar certify RUN|FILE.onnx`: settle each test image, and say how much is proved."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from maar.cli.asked import OF_RUN, Asked, folder, load_data, options, read, team, words
from maar.cli.interrupt import farewell
from maar.cli.normalisation import check_normalisation
from maar.cli.parse import parse
from maar.cli.subject import Subject
from maar.core import limits
from maar.core.errors import RunError, UsageError
from maar.core.unpacking import read_npy

if TYPE_CHECKING:
    from maar.certification.run import Plan
    from maar.records.verdicts import Tally

FOLDER = "(default: RUN/certify/eps-EPS-KEY, or certs/FILE/eps-EPS-KEY)"


@dataclass(frozen=True)
class _Radius:
    """The flag that stands before the others in the help."""

    eps: Annotated[str | None, tyro.conf.arg(metavar="EPS[,EPS...]", help_behavior_hint=OF_RUN)] = (
        None
    )
    """L-infinity radius on pixels in [0, 1], such as 0.1 or 2/255; several are compared. With
    colons, such as 1/255:2/255:1/255, one radius for each channel or feature."""
    eps_file: Annotated[
        Path | None, tyro.conf.arg(metavar="FILE.npy", help_behavior_hint="(default: none)")
    ] = None
    """Instead of --eps: an array of radii that broadcasts to an input."""


@dataclass(frozen=True)
class Certify(Asked, _Radius):
    """Prove or break each test image of a network.

    Verdicts are appended to verdicts.jsonl as they come. The same command again continues where it
    was stopped; finished images are not computed twice.
    """

    timeout: Annotated[
        float | None, tyro.conf.arg(metavar="S", help_behavior_hint="(default: 120)")
    ] = None
    """Seconds for each image, all verifiers together. A later call with more of them (or inf) takes
    just the images that are still open."""
    certificates: bool = False
    """Write a certificate of each verdict: a proof that another program, `maar check`, checks."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint=FOLDER)] = None
    """Folder for the results; with several eps, each gets one in it."""
    merge: Annotated[
        tuple[Path, ...] | None,
        tyro.conf.arg(metavar="OUT STORE ...", help_behavior_hint="(stands alone)"),
    ] = None
    """Instead of certifying: join folders of results of the same question in OUT."""


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code; 1 if some image ended in an error."""
    args = parse(Certify, "maar certify", joined(argv))
    if args.merge is not None:
        return _merge(args, list(args.merge))
    asked = [None] if args.eps is None else list(dict.fromkeys(words(args.eps)))
    if not asked:
        raise UsageError(f"--eps {args.eps!r} names no radius (accepted: such as 0.1 or 2/255)")
    plans = _plans(args, asked)

    from rich.console import Console

    from maar.certification.display import comparison, make_display
    from maar.certification.run import CERTIFICATION, run

    tallies: list[Tally] = []
    with team(args) as crew:
        for subject, plan, out in plans:
            if line := _expected(subject, plan):
                print(line)
            try:
                tally = run(
                    plan, out, workers=args.workers, display=make_display(CERTIFICATION), team=crew
                )
            except KeyboardInterrupt:
                return farewell(f"the same command continues {out}")
            print(f"verdicts in {out}")
            tallies.append(tally)
    if len(plans) > 1:
        _require_agreement(plans)
        rows = [(plan.eps, tally) for (_, plan, _), tally in zip(plans, tallies, strict=True)]
        Console().print("", comparison(rows))
    for tally in tallies:
        if failed := tally.counts["error"]:
            raise RunError(f"{failed} of {tally.images} images failed, such as {tally.last_error}")
    return 0


def _expected(subject: Subject, plan: Plan) -> str:
    """Say what the images of a network of the same recipe took; empty if nobody knows."""
    from maar.experiments.shipped import certification, recipe_of
    from maar.terminal.clock import clock

    recipe = recipe_of(subject.folder, plan.preset) if subject.is_run else ""
    each = certification(recipe, plan.preset) if recipe else None
    if each is None:
        return ""
    whole = clock(each.seconds * len(plan.indices))
    return f"expected: about {whole} of one core (by {recipe} elsewhere, with 10 s an image)"


def joined(argv: Sequence[str]) -> list[str]:
    """`--eps 0.1 0.2` as `--eps 0.1,0.2`, and no more: what follows may be the network."""
    words: list[str] = []
    for word in argv:
        is_number = re.fullmatch(r"[\d.][\d.eE/,:+-]*", word) is not None
        if is_number and words[-2:-1] == ["--eps"]:
            words[-1] += f",{word}"
        else:
            words.append(word)
    return words


def _plans(args: Certify, asked: Sequence[str | None]) -> list[tuple[Subject, Plan, Path]]:
    """Every request checked, before the first is begun."""
    radii = None
    if args.eps_file is not None:
        if args.eps is not None:
            raise UsageError("--eps and --eps-file exclude each other: give one of them")
        radii = read_npy(args.eps_file, limits.COUNTEREXAMPLE_BYTES)
        asked = [repr(float(radii.max(initial=0)))]
    subjects = [read(args, eps) for eps in asked]

    from maar.certification.run import TIMEOUT, make_plan

    timeout = TIMEOUT if args.timeout is None else args.timeout
    data = load_data(args, subjects[0])
    plans = []
    for subject in subjects:
        eps = subject.eps if radii is None else radii
        plan = make_plan(
            subject.net,
            data,
            eps,
            timeout=timeout,
            certificates=args.certificates,
            **options(args, subject),
        )
        out = (args.out or folder(subject, "certify")) / (
            f"eps-{float(plan.eps):.4g}-{plan.key[:8]}"
        )
        plans.append((subject, plan, args.out if args.out and len(asked) == 1 else out))
    check_normalisation(subjects[0], data, args.split)
    return plans


def _require_agreement(plans: list[tuple[Subject, Plan, Path]]) -> None:
    from maar.certification.compare import require_agreement
    from maar.records.stores import VERDICT_LINES

    require_agreement({float(plan.eps): VERDICT_LINES.read(out).lines for _, plan, out in plans})


def _merge(args: Certify, paths: list[Path]) -> int:
    if args.network is not None:
        raise UsageError("--merge stands alone: it joins folders of results, without a network")
    for each in fields(args):
        if each.name != "merge" and getattr(args, each.name) != each.default:
            raise UsageError(f"--{each.name} has no effect with --merge, which stands alone")
    if len(paths) < 2:
        raise UsageError("--merge takes OUT and one or more folders of results")

    from rich.console import Console

    from maar.certification.display import result
    from maar.certification.merge import merge

    tally = merge(paths[0], paths[1:])
    Console().print(result(tally))
    print(f"verdicts in {paths[0]}")
    return 0
