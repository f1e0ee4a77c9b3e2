"""`maar train CONFIG --lam 2,6 --seed 0,1`: a grid of trainings, and what came of them."""

from __future__ import annotations

import contextlib
import math
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from maar.cli.interrupt import farewell
from maar.core.errors import RunError, UsageError

if TYPE_CHECKING:
    from maar.config.flags import Extra
    from maar.experiments.launch import Launcher
    from maar.experiments.sweep import Training


def sweep(argv: Sequence[str], extras: Sequence[Extra], description: str) -> int | None:
    """Train every point of the grid; None if no flag has several values."""
    from maar.experiments.jobs import work_off
    from maar.experiments.sweep import grid
    from maar.experiments.work import said
    from maar.records.runs import read_run
    from maar.training.run import refuse_existing

    devices = _value(argv, "--device").split(",")
    argv = _one_device(argv, devices)
    points = grid(
        argv, description=description, extras=extras, runs=Path(_value(argv, "--runs") or "runs")
    )
    if not points:
        if len(devices) > 1:
            raise UsageError("several devices are for a sweep (accepted: one --device)")
        return None
    for point in points:
        refuse_existing(point.folder, resume="--resume" in argv)
    failed: dict[str, str] = {}

    def ended(number: int, code: int) -> None:
        point = points[number]
        if code:
            failed[point.name] = said(point.log) or f"exit code {code}"
            print(f"{point.label}: failed: {failed[point.name]}", flush=True)
            return
        test = read_run(point.folder).result.get("test", {})
        numbers = ", ".join(f"{key.replace('_', ' ')} {100 * x:.2f} %" for key, x in test.items())
        print(f"{point.label}: test {numbers}", flush=True)

    print(f"{len(points)} trainings, logs in {points[0].runs}", flush=True)
    try:
        with _launcher(argv, devices) as launcher:
            work_off(points, launcher, ended)
    except KeyboardInterrupt:
        words = [*argv, *([] if "--resume" in argv else ["--resume"])]
        return farewell(f"continue with: maar train {shlex.join(words)}")
    _show(points)
    if failed:
        raise RunError(f"{len(failed)} of {len(points)} trainings failed: {', '.join(failed)}")
    folders = [shlex.quote(str(point.folder)) for point in points]
    print(f"next: maar certify {folders[0]}  (and so on), then maar report {' '.join(folders)}")
    return 0


def _value(argv: Sequence[str], flag: str) -> str:
    """Return the value of a flag; empty if it is not there."""
    for number, word in enumerate(argv):
        if word == flag and number + 1 < len(argv):
            return argv[number + 1]
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return ""


def _one_device(argv: Sequence[str], devices: Sequence[str]) -> list[str]:
    """Put the first of several devices in their place: each run gets its own when it starts."""
    if len(devices) < 2:
        return list(argv)
    several = ",".join(devices)
    return [
        devices[0] if w == several else w.replace(f"={several}", f"={devices[0]}") for w in argv
    ]


@contextlib.contextmanager
def _launcher(argv: Sequence[str], devices: Sequence[str]) -> Iterator[Launcher]:
    from maar.core.machine import cores
    from maar.experiments.launch import Local, OnRay

    text, threads = _value(argv, "--jobs"), _value(argv, "--threads") or "1"
    if text and not (text.isdigit() and int(text)):
        raise UsageError(f"--jobs {text} (accepted: 1 or more)")
    address = _value(argv, "--ray")
    if address:
        from maar.certification.ray_workers import cluster

        with cluster(address):
            yield OnRay(int(text) if text else None)
        return
    on_gpu = [each for each in devices if each and each != "cpu"]
    jobs = int(text) if text else max(1, cores() // max(1, int(threads)))
    yield Local(jobs, on_gpu)


def _show(points: Sequence[Training]) -> None:
    """Print a row for each setting, over its seeds, named by what differs."""
    from rich.console import Console
    from rich.table import Table

    from maar.records.runs import read_run

    rows: dict[tuple[tuple[str, str], ...], list[dict[str, float]]] = {}
    for point in points:
        setting = tuple((name, value) for name, value in point.values if name != "seed")
        if test := read_run(point.folder).result.get("test"):
            rows.setdefault(setting, []).append(test)
    if not rows:
        return
    measures = list(dict.fromkeys(name for tests in rows.values() for x in tests for name in x))
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("run")
    for head in (*(f"test {name.replace('_', ' ')} %" for name in measures), "seeds"):
        table.add_column(head, justify="right")
    for setting, tests in rows.items():
        label = ", ".join(f"{name} = {value}" for name, value in setting) or "as given"
        cells = [_mean([test[name] for test in tests if name in test]) for name in measures]
        table.add_row(label, *cells, str(len(tests)))
    Console(highlight=False).print("", table)


def _mean(values: Sequence[Any]) -> str:
    """Show a mean in percent, with the 95 % interval of Student's t where there are several."""
    if not values:
        return ""
    mean = f"{100 * fmean(values):.2f}"
    if len(values) < 2:
        return mean
    reach = student(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return f"{mean} ± {100 * reach:.2f}"


def student(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t."""
    table = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
    return table[freedom - 1] if freedom <= len(table) else 1.96 + 2.4 / freedom
