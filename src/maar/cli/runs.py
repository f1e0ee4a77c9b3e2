"""`maar runs [DIR]`: a table of the runs below a folder. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from maar.errors import UsageError, nearest
from maar.train.status import Status, find_runs, status

COLUMNS = (
    "run",
    "method",
    "network",
    "data",
    "eps",
    "state",
    "epochs",
    "acc",
    "CR",
    "time",
    "hash",
)
STYLES = {"finished": "green", "running": "cyan", "interrupted": "yellow", "damaged": "red"}


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    if argv and argv[0] in ("-h", "--help"):
        print(
            "usage: maar runs [DIR]\n\n"
            "List the runs below DIR (default: runs): what was trained, how far it is, how good.\n"
            "acc is on the test images of a finished run, else on validation; CR is certified."
        )
        return 0
    if flags := [word for word in argv if word.startswith("-")]:
        raise UsageError(f"unknown flag {flags[0]!r}{nearest(flags[0], ['--help'])}")
    if len(argv) > 1:
        raise UsageError(f"unexpected argument {argv[1]!r}: `maar runs` takes one folder")
    folder = Path(argv[0] if argv else "runs")
    if not folder.is_dir():
        if argv:
            raise UsageError(f"no such folder: {folder}")
        print("no runs yet; make one with: maar train demo")
        return 0
    found = [status(path) for path in find_runs(folder)]
    if not found:
        print(f"no runs in {folder}; make one with: maar train demo")
        return 0
    _print(found, folder)
    return 0


def _print(found: list[Status], folder: Path) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in COLUMNS:
        right = column in ("epochs", "acc %", "CR %", "time")
        table.add_column(
            column,
            justify="right" if right else "left",
            overflow="fold",
            no_wrap=column not in ("network", "data", "method"),
        )
    problems = []
    for run in found:
        inside = run.path != folder
        name = str(run.path.relative_to(folder)) if inside else run.path.resolve().name
        state = Text(run.state, STYLES[run.state])
        if run.state == "damaged":
            table.add_row(name, *[""] * 4, state)
            problems.append(f"{run.path} is damaged: {run.problem}")
        else:
            table.add_row(name, *_cells(run)[:4], state, *_cells(run)[4:])
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)  # for grep and files: a run is one line
    console.print(table)
    for problem in problems:
        console.print(Text(problem, "red"))


def _cells(run: Status) -> list[str]:
    method = _table(run.config, "method")
    base = _table(method, "base").get("name")
    test = _table(run.result, "test") or _table(run.last, "valid")
    certified = run.certified.get("certified")
    return [
        f"{method.get('name', '?')}({base})" if base else str(method.get("name", "?")),
        str(run.config.get("network", "?")),
        str(run.config.get("data", "?")),
        str(run.config.get("eps", "?")),
        str(run.epochs),
        _percent(test.get("accuracy")),
        _percent(certified),
        _clock(run.seconds),
        run.hash[:8],
    ]


def _table(table: dict[str, Any], key: str) -> dict[str, Any]:
    found = table.get(key)
    return found if isinstance(found, dict) else {}


def _percent(share: object) -> str:
    return f"{100 * share:.1f}" if isinstance(share, int | float) else ""


def _clock(seconds: float) -> str:
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d}"
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
