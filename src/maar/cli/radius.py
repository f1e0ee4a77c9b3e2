"""`maar radius RUN|FILE.onnx`: up to which eps each image is proved, from which it is broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from maar.cli.asked import Asked, load_data, options, read, team
from maar.cli.interrupt import farewell
from maar.cli.normalisation import check_normalisation
from maar.cli.parse import parse
from maar.core.eps import Eps
from maar.core.errors import RunError, UsageError

FOLDER = "(default: RUN/radius-KEY, or certs/FILE/radius-KEY)"
FEW = 20
"""So many images are shown one by one."""


@dataclass(frozen=True)
class Radius(Asked):
    """Find the certified radius of each test image of a network by bisection.

    The lower end is proved, the upper end has a counterexample. Results are appended to radii.jsonl
    as they come; the same command again continues where it was stopped.
    """

    largest: Annotated[str, tyro.conf.arg(metavar="EPS")] = "0.5"
    """The largest radius to look for."""
    tolerance: Annotated[str, tyro.conf.arg(metavar="EPS")] = "0.001"
    """How close the ends have to come."""
    timeout: Annotated[
        float | None, tyro.conf.arg(metavar="S", help_behavior_hint="(default: 20)")
    ] = None
    """Seconds for each question, of which an image has about fifteen, most of them easy. A later
    call with more of them (or inf) takes just the images that are still open."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint=FOLDER)] = None
    """Folder for the results."""


def _radius(flag: str, text: str) -> Eps:
    try:
        return Eps(text)
    except UsageError as error:
        raise UsageError(f"--{flag}: {str(error).removeprefix('eps = ')}") from None


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code; 1 if some image ended in an error."""
    args = parse(Radius, "maar radius", argv)
    tolerance = _radius("tolerance", args.tolerance)
    largest = _radius("largest", args.largest)
    if not largest > 0:
        raise UsageError(f"--largest {largest} (accepted: a radius above 0)")
    subject = read(args, str(largest))

    from rich.console import Console

    from maar.certification.display import make_display
    from maar.certification.radius.display import each
    from maar.certification.radius.run import RADIUS, TIMEOUT, make_radius_plan, run_radius

    data = load_data(args, subject)
    plan = make_radius_plan(
        subject.net,
        data,
        subject.eps,
        tolerance=tolerance,
        timeout=TIMEOUT if args.timeout is None else args.timeout,
        **options(args, subject),
    )
    check_normalisation(subject, data, args.split)
    out = args.out or subject.folder / f"radius-{plan.key[:8]}"
    display = make_display(RADIUS)
    try:
        with team(args) as workers:
            tally, records = run_radius(
                plan, out, workers=args.workers, display=display, team=workers
            )
    except KeyboardInterrupt:
        return farewell(f"the same command continues {out}")
    if len(records) <= FEW:
        Console().print("", each(records, data.classes), "")
    print(f"radii in {out}")
    if failed := tally.counts["error"]:
        raise RunError(f"{failed} of {tally.images} images failed, such as {tally.last_error}")
    return 0
