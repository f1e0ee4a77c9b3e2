"""What an experiment would take: for people at a terminal, however narrow."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from rich.console import Group, RenderableType
from rich.text import Text

from maar.core.errors import MaarError
from maar.experiments.estimate import TEST_IMAGES, estimate
from maar.experiments.measured import in_folder, left, state_of
from maar.experiments.plan import Plan, Task, network_of
from maar.terminal.clock import clock
from maar.terminal.tables import GAP, table

VERDICT = 2000
"""Bytes of an image's verdict."""


def outlook(plans: Sequence[Plan], tasks: Sequence[Task], width: int) -> RenderableType:
    """Every task by its run: how far it is, and how long it may take.

    The name of a run is one to copy, so it is never broken: where there is no room for it beside
    its tasks, it stands above them.
    """
    rows: list[tuple[str, str, str, str]] = []
    known, unknown_times, before = 0.0, 0, ""
    to_do = set(left(tasks))
    for task in tasks:
        state = in_folder(task) if task in to_do else state_of(task)
        seconds = estimate(task, state)
        known, unknown_times = known + (seconds or 0.0), unknown_times + (seconds is None)
        time = "" if state.result else "?" if seconds is None else f"~{clock(seconds)}"
        name = "" if task.run.name == before else task.run.name
        before = task.run.name
        rows.append((name, task.label, f"{state.word} {state.progress}".rstrip(), time))
    parts: list[RenderableType] = [_outlook(rows, width)]
    for row, reason in dict.fromkeys(each for plan in plans for each in plan.skipped):
        parts.append(Text(f"skipped: {row}: {reason}", "dim"))
    parts.append(Text(_left(known, unknown_times, len(tasks))))
    folder = next((str(task.run.folder.parent) for task in tasks), "")
    parts.append(Text(f"disk: about {_size(disk(tasks))} in {folder}"))
    parts += [Text(f"missing: {line}", "yellow") for line in missing_extras(tasks)]
    commands = [task.command for task in tasks if task in to_do]
    parts += [Text("commands:", "dim")] if commands else []
    parts += [Text(f"  {command}", no_wrap=True, overflow="ignore") for command in commands]
    return Group(*parts)


def disk(tasks: Sequence[Task]) -> int:
    """Return about how many bytes the folders of the runs will have.

    A run keeps its weights, two positions to continue from (each with two moments of Adam), and the
    best and last weights of each stage; a verdict is some two kilobytes.
    """
    total = 0
    for run in dict.fromkeys(task.run for task in tasks):
        try:
            net = network_of(run.config)
            stages = run.config.method.stages(net, run.config.eps, run.config.train.epochs)
        except MaarError:
            continue  # a network or data of the user's own that is not there
        weights = sum(4 * parameter.numel() for parameter in net.parameters())
        total += weights * (1 + 2 * 3 + 2 * len(stages))
    certified = [task for task in tasks if task.what == "certify"]
    return total + sum(VERDICT * (task.images or TEST_IMAGES) for task in certified)


def missing_extras(tasks: Sequence[Task]) -> list[str]:
    """Return a line for each package that the work would miss."""
    found = []
    if any(find_spec(name) is None for name in ("matplotlib", "plotly", "jinja2")):
        found.append("maar[report]: the result has no page (pip install 'maar[report]')")
    if any(task.profile.device.startswith("cuda") for task in tasks):
        import torch

        if not torch.cuda.is_available():
            found.append("a GPU: torch finds none here (--device cpu trains without)")
    return found


def _size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def _outlook(rows: Sequence[tuple[str, str, str, str]], width: int) -> RenderableType:
    heads = ("run", "task", "state", "core time left")
    sizes = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    if sum(sizes) + GAP * (len(heads) - 1) <= width:
        shown = table(*heads, right=heads[-1:], whole=heads)
        for row in rows:
            shown.add_row(*row)
        return shown
    parts = [_line(heads, sizes, "dim")]
    for row in rows:
        if row[0]:
            parts.append(Text(row[0], "bold", no_wrap=True, overflow="ignore"))
        parts.append(_line(row, sizes))
    return Group(*parts)


def _line(row: Sequence[str], sizes: Sequence[int], style: str = "") -> Text:
    """A task below the name of its run; all lines with the same columns."""
    _, task, state, time = row
    line = f"{task:<{sizes[1]}}  {state:<{sizes[2]}}  {time:>{sizes[3]}}"
    return Text(f"  {line.rstrip()}", style)


def _left(known: float, unknown_times: int, tasks: int) -> str:
    if unknown_times == tasks:
        return "how long is not known: nothing like it was measured in this folder of runs"
    unmeasured = f"{unknown_times} tasks of unknown length" if unknown_times else ""
    measured = f"about {clock(known)} of one core" if known else ""
    return f"left: {' and '.join(filter(None, (measured, unmeasured))) or 'nothing, all is done'}"
