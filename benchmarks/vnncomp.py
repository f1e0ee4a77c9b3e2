"""VNN-COMP instances with known verdicts: solved, wrong, seconds, beside published results.

    python -m benchmarks.vnncomp FOLDER [--timeout 60] [--wall] [--only acasxu,cora] [--again]
    python -m benchmarks.vnncomp --page docs/vnncomp.md

FOLDER has an instances.csv whose first line names the columns: network, property, timeout,
expected, tools_that_agree, fastest_tool_seconds. One instance after the other, one thread; seconds
and the time limit are of CPU time unless `--wall` is given. It goes on where it was stopped, cheap
categories first, and writes results/benchmarks/vnncomp.json after each instance.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import os
import statistics
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.measure import save

OUT = Path("results/benchmarks/vnncomp.json")
# Columns of the list that say what other tools did.
PUBLISHED = ("tools_that_agree", "fastest_tool_seconds")


def main() -> None:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--wall", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--again", action="store_true", help="forget earlier results")
    parser.add_argument("--page", type=Path)
    args = parser.parse_args()
    if args.page is not None:
        args.page.write_text(page(json.loads(OUT.read_text())))
    elif args.folder is None:
        parser.error("give FOLDER or --page FILE")
    else:
        measure(args)


def measure(args: argparse.Namespace) -> None:
    """Run what is not there yet."""
    import torch

    from maar.api.instances import run
    from maar.core import clock
    from maar.exchange.instances import read_instances

    torch.set_num_threads(1)
    if not args.wall:
        clock.count_cpu()
    path = args.folder / "instances.csv"
    instances = read_instances(path)
    with path.open() as file:
        published = {
            (row["network"], row["property"]): {name: float(row[name] or 0) for name in PUBLISHED}
            for row in csv.DictReader(file)
        }
    names = [name for name in args.only.split(",") if name]
    chosen = [i for i in instances if not names or any(name in i.category() for name in names)]
    # What others settle in a second comes first: a run that is cut short has the most to say.
    chosen.sort(key=lambda i: published[i.network, i.property]["fastest_tool_seconds"])
    settings = {
        "timeout": args.timeout,
        "seconds": "wall" if args.wall else "CPU",
        "instances": len(instances),
    }
    rows = _kept(settings) if not args.again else []
    done = {(row["network"], row["property"]) for row in rows}
    for outcome, _ in run(args.folder, chosen, timeout=args.timeout, done=done):
        facts = {"commit": _commit(), "load": round(os.getloadavg()[0], 1), "date": _today()}
        row = {**asdict(outcome), **published[outcome.key()], **facts}
        rows.append(row)
        save(OUT, settings, rows)
        wrong = f" CONTRADICTS {outcome.expected}" if outcome.is_wrong() else ""
        name = f"{Path(outcome.network).name} {Path(outcome.property).name}"
        print(f"{outcome.result:<8} {outcome.seconds:7.2f} s  {name}{wrong}", flush=True)


def _kept(settings: dict[str, Any]) -> list[dict[str, Any]]:
    if not OUT.exists():
        return []
    content = json.loads(OUT.read_text())
    return content["rows"] if content["settings"] == settings else []


def _commit() -> str:
    return subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()


def _today() -> str:
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()


HEAD = """# VNN-COMP instances

`maar verify` on public instances of the benchmarks of VNN-COMP 2021, 2022 and 2026, with the
verdict on which all published tools agree. An instance counts as solved if maar gives this verdict
within {timeout:g} seconds of {seconds} time, on one core and one thread of {platform}.
Other jobs were running. A wrong verdict is one that contradicts the published one. An error is
mostly an operation that maar does not support.

The last columns are published results of the competition. They were measured on other machines,
mostly with a GPU or on a large server, so they are no race: the median number of tools that agree
on an instance, and the median of the fastest tool's seconds, over the category's instances.

| category | instances | solved | wrong | errors | median s | tools | fastest tool, s |
|---|---|---|---|---|---|---|---|
"""


def page(content: dict[str, Any]) -> str:
    """The scoreboard as a page of the documentation."""
    from maar.reporting.scoreboard import Outcome, scores

    rows, settings = content["rows"], content["settings"]
    fields = Outcome.__dataclass_fields__
    rows = sorted(rows, key=lambda row: row["category"])
    outcomes = [Outcome(**{name: row[name] for name in fields}) for row in rows]
    lines = []
    for line in scores(outcomes):
        mine = [row for row in rows if line.category in (row["category"], "all")]
        agree, fastest = (statistics.median(row[name] for row in mine) for name in PUBLISHED)
        median = "-" if line.median_seconds is None else f"{line.median_seconds:.2f}"
        numbers = [line.instances, line.solved, line.wrong, line.errors, median]
        cells = [line.category, *map(str, numbers), f"{agree:g}", f"{fastest:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    missing = settings["instances"] - len(rows)
    tail = (
        f"\n{missing} of the {settings['instances']} instances were not run: mostly the hard ones,"
        "\nas those that other tools settle soonest come first.\n"
        if missing
        else ""
    )
    commits = ", ".join(sorted({row["commit"] for row in rows if row["commit"]}))
    source = (
        "\nMade by `python -m benchmarks.vnncomp FOLDER` and `--page docs/vnncomp.md` from"
        f"\n`results/benchmarks/vnncomp.json`, which names each instance; code at {commits}.\n"
    )
    machine = content["machine"]
    head = HEAD.format(
        timeout=settings["timeout"],
        seconds=settings["seconds"],
        platform=f"an x86-64 machine (torch {machine['torch']})",
    )
    return head + "\n".join(lines) + "\n" + tail + source


if __name__ == "__main__":
    main()
