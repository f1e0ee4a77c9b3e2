"""`maar report RUNS… -o DIR`: a page, tables and figures of runs and certifications."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from maar.cli.parse import parse


@dataclass(frozen=True)
class ReportCommand:
    """Write a page that shows what runs and certifications have found.

    The page needs no network and no server. Every table is also written as Markdown, LaTeX and
    CSV, every figure as SVG, PDF and CSV. Runs may be unfinished: the same command again brings
    the report up to date.
    """

    paths: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="RUNS...", help_behavior_hint=""),
    ]
    """Folders of runs, folders of such folders, results of maar certify and maar radius, and the
    NAME.json files of maar reproduce."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR", aliases=["-o"])] = Path("report")
    """Folder to write into: a new one, or that of an earlier report."""
    title: Annotated[str, tyro.conf.arg(metavar="TEXT", help_behavior_hint="")] = ""
    """What stands at the top of the page."""
    audience: Literal["research", "audit"] = "research"
    """Who reads it: audit begins with the claim of each certification in plain words, and says who
    has checked it and what is not claimed."""
    pdf: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """Also print the page to this file, by Chromium."""


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    args = parse(ReportCommand, "maar report", argv)

    from maar.core.errors import UsageError
    from maar.reporting.write import PAGE, read_report, save

    if not args.paths:
        raise UsageError(
            "maar report takes one or more folders, such as: maar report runs -o report"
        )
    report = read_report(args.paths, args.out, args.title, audience=args.audience)
    save(report, args.out)
    for notice in report.notices:
        if notice.level == "error":  # a damaged file: the page says so too, and shows the rest
            print(f"warning: {notice.text}", file=sys.stderr)
    print(f"report in {args.out}: open {(args.out / PAGE).resolve().as_uri()}")
    if args.pdf is not None:
        from maar.reporting.pdf import write_pdf

        write_pdf(args.out / PAGE, args.pdf)
        print(f"PDF in {args.pdf}")
    return 0
