"""`maar runs [DIR]`: a table of the runs below a folder. Imports no torch."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from maar.core.errors import UsageError, nearest
from maar.records.reading import Object, number, table, word
from maar.records.runs import WEIGHTS, RunFiles, certified, find_runs, read_run
from maar.terminal.clock import clock

COLUMNS = (
    "run",
    "method",
    "network",
    "data",
    "eps",
    "state",
    "stage",
    "epoch",
    "acc",
    "VE",
    "CR",
    "time",
    "hash",
)
NUMBERS = ("stage", "epoch", "acc", "VE", "CR", "time")
# What a narrow terminal does without, the first of them first.
LEFT_OUT = ("hash", "time", "network", "data", "eps", "stage")
STYLES = {"finished": "green", "running": "cyan", "interrupted": "yellow", "damaged": "red"}


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    if argv and argv[0] in ("-h", "--help"):
        print(
            "usage: maar runs [DIR]\n\n"
            "List the runs below DIR (default: runs): what was trained, how far, how good.\n"
            "acc is on the test images of a finished run, else on validation. VE is the\n"
            "verified error: of the training images that were classified correctly in the\n"
            "last epoch, those that the attack broke. CR is the certified share of the test\n"
            "images. All in %."
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
    found = [_read(path) for path in find_runs(folder)]
    if not found:
        print(f"no runs in {folder}; make one with: maar train demo")
        return 0
    _print(found, folder)
    return 0


def _read(path: Path) -> RunFiles:
    run = read_run(path)
    if run.state != "finished" or (path / WEIGHTS).is_file():
        return run
    again = f"`maar train {shlex.quote(str(path))} --resume` makes it again"
    return replace(run, state="damaged", problems=(f"{WEIGHTS} is missing: {again}",))


def _print(found: list[RunFiles], folder: Path) -> None:
    from rich.console import Console
    from rich.text import Text

    from maar.terminal.tables import table as grid

    rows = [_row(run, folder) for run in found]
    console = Console()
    if not console.is_terminal:
        # For grep and files: all of a run, on one line.
        longest = max(sum(len(cell) + 2 for cell in row.values()) for row in rows)
        console = Console(width=max(200, 2 * longest))
    fitting = _fitting(rows, console.width)
    shown = grid(*fitting, right=NUMBERS, whole={*fitting} - {"run"})
    for run, row in zip(found, rows, strict=True):
        cells = {**row, "state": Text(row["state"], STYLES[run.state])}
        shown.add_row(*(cells[name] for name in fitting))
    console.print(shown)
    for run in found:
        if run.state == "damaged":
            console.print(Text(f"{run.path} is damaged: {run.problems[0]}", "red"))


def _fitting(rows: list[dict[str, str]], width: int) -> list[str]:
    """The columns that the terminal has room for."""
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) + 2 for name in COLUMNS}
    for name in LEFT_OUT:
        if sum(widths.values()) - 2 <= width:
            break
        del widths[name]
    return list(widths)


def _row(run: RunFiles, folder: Path) -> dict[str, str]:
    name = str(run.path.relative_to(folder)) if run.path != folder else run.path.resolve().name
    known = {} if run.state == "damaged" else _cells(run)
    return {**dict.fromkeys(COLUMNS, ""), "run": name, "state": run.state, **known}


def _cells(run: RunFiles) -> dict[str, str]:
    test = table(run.result, "test") or table(run.last, "valid")
    return {
        "method": run.method or "?",
        "network": word(run.config, "network") or "?",
        "data": word(run.config, "data") or "?",
        "eps": str(run.config.get("eps", "?")),
        "stage": _of(run.last, "stage", "stages"),
        "epoch": _of(run.last, "epoch", "epochs"),
        "acc": _percent(number(test, "accuracy")),
        "VE": _percent(number(table(run.last, "train"), "verified_error")),
        "CR": _certified(certified(run)),
        "time": clock(run.seconds),
        "hash": run.hash[:8],
    }


def _of(last: Object, key: str, whole: str) -> str:
    """`2/3`: how far the last epoch is."""
    return f"{last[key]}/{last.get(whole, '?')}" if key in last else ""


def _certified(summary: Object) -> str:
    """In parentheses: of how many images, where that is a part of them."""
    share, images = _percent(number(summary, "certified")), summary.get("images")
    return f"{share} ({images})" if share and images and images != summary.get("of") else share


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"
