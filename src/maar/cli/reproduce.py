"""`maar reproduce NAME`: run what a table or figure of the paper needs, and compare."""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from maar.cli.interrupt import farewell
from maar.cli.parse import Switch, parse
from maar.core.errors import MaarError, RunError, UsageError, unknown
from maar.core.files import json_text, write_text
from maar.experiments.tables import experiment, experiments, profiles

if TYPE_CHECKING:
    from maar.experiments.launch import Launcher
    from maar.experiments.plan import Choice, Plan, Task
    from maar.experiments.tables import Experiment

OF_ROWS = "(default: those of each row)"
ALL = "(default: all)"
NAMES = "NAME|FILE.toml ..."


@dataclass(frozen=True)
class Reproduce:
    """Run a table or figure of the paper and put the numbers beside the published ones.

    Every run is a recipe with a seed, below --runs. What is finished is taken as it is, what is
    half done is continued, and experiments share their runs. The result is OUT/NAME.json, NAME.md
    and a page NAME/index.html; what each run said is kept in OUT/runs, and not asked again even
    where the run itself is gone.
    """

    names: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar=NAMES, help_behavior_hint="")
    ] = ()
    """Experiments of --list, or TOML files like them."""
    profile: str = "cpu"
    """How much is spent: smoke (a minute), cpu, long (hours), paper (days), gpu, ..."""
    setting: Annotated[
        str | None, tyro.conf.arg(metavar="S,T,...", help_behavior_hint="(default: all)")
    ] = None
    """Only these settings, such as mnist-0.1."""
    methods: Annotated[str | None, tyro.conf.arg(metavar="M,N,...", help_behavior_hint=ALL)] = None
    """Only the rows of these methods."""
    seeds: Annotated[str | None, tyro.conf.arg(metavar="0,1,...", help_behavior_hint=OF_ROWS)] = (
        None
    )
    """Seeds of every row."""
    limit: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: as the profile says)")
    ] = None
    """Certify the first N test images only."""
    jobs: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: one per core)")
    ] = None
    """Processes side by side, one thread each."""
    runs: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs")
    """Folder that holds the runs."""
    out: Annotated[
        Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: results/PROFILE)")
    ] = None
    """Folder for the results."""
    device: Annotated[
        str | None, tyro.conf.arg(metavar="DEVICE", help_behavior_hint="(default: the profile's)")
    ] = None
    """Device of the trainings: cpu, cuda, or such as cuda:0. Certification runs on CPUs."""
    devices: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: all GPUs)")
    ] = None
    """With --device cuda: so many GPUs, one training on each at a time."""
    ray: Annotated[
        str | None,
        tyro.conf.arg(metavar="auto|ADDRESS", help_behavior_hint="(default: processes here)"),
    ] = None
    """Runs on a Ray cluster whose nodes share the folder of the runs; --ray alone is auto."""
    list: Switch = False
    """Show the experiments and profiles, or more on NAME, and leave."""
    dry_run: Switch = False
    """Show every run, how far it is and how long it may take, and leave."""
    collect: Switch = False
    """Run nothing: write and show the result as far as it is known."""


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code; 1 if some row failed."""
    args = parse(Reproduce, "maar reproduce", _with_address(argv))
    chosen = [experiment(name) for name in dict.fromkeys(args.names)]
    if args.list:
        return _list(chosen)
    if not chosen:
        raise UsageError(f"NAME is missing (accepted: {', '.join(experiments())}, FILE.toml)")
    if not args.dry_run:
        _require_folder("out", _out(args))
        if not args.collect:
            _require_folder("runs", args.runs)

    from maar.experiments.kept import choose
    from maar.experiments.measured import keep_all, require_data, require_same
    from maar.experiments.plan import make_plan, ordered

    choice = _choice(args)
    plans = [choose(make_plan(each, choice)) for each in chosen]
    tasks = ordered(point for plan in plans for point in plan.points)
    for run in dict.fromkeys(task.run for task in tasks):
        require_same(run)
    if args.dry_run:
        return _dry_run(plans, tasks)
    failed: dict[Task, str] = {}
    is_stopped = False
    if args.collect:
        keep_all(tasks)
    else:
        require_data(tasks)
        from maar.experiments.display import make_display
        from maar.experiments.work import work

        try:
            with _launcher(args) as launcher:
                failed = work(tasks, launcher, make_display())
        except KeyboardInterrupt:
            is_stopped = True
    # (not --collect itself: the command that makes the numbers is the one without it)
    command = f"maar reproduce {shlex.join(word for word in argv if word != '--collect')}"
    for plan in plans:
        _conclude(plan, _out(args), command, failed, is_whole=not is_stopped)
    if is_stopped:
        return farewell(f"continue with: {command}")
    if failed:
        names = ", ".join(f"{task.run.name} ({task.label})" for task in failed)
        raise RunError(f"{len(failed)} of {len(tasks)} tasks failed: {names}")
    return 0


def _with_address(argv: Sequence[str]) -> list[str]:
    """`--ray` without an address is `--ray auto`."""
    words = list(argv)
    if "--ray" in words:
        after = words.index("--ray") + 1
        follows = words[after] if after < len(words) else "-"
        if follows.startswith("-") or follows.endswith(".toml") or follows in experiments():
            words.insert(after, "auto")
    return words


def _choice(args: Reproduce) -> Choice:
    from maar.experiments.plan import Choice

    if args.profile not in profiles():
        raise unknown("profile", args.profile, profiles())
    if args.limit is not None and args.limit < 1:
        raise UsageError(f"--limit {args.limit} (accepted: 1 or more images)")
    if args.jobs is not None and args.jobs < 1:
        raise UsageError(f"--jobs {args.jobs} (accepted: 1 or more)")
    return Choice(
        profiles()[args.profile],
        args.runs,
        _words(args.setting, "setting"),
        _words(args.methods, "methods"),
        _seeds(args.seeds),
        args.limit,
        _out(args) / "runs",
    )


def _out(args: Reproduce) -> Path:
    return args.out or Path("results") / args.profile


def _require_folder(flag: str, path: Path) -> None:
    """Told now, not when hours of work are to be written down."""
    there = next(each for each in (path, *path.absolute().parents) if os.path.lexists(each))
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError:
        raise UsageError(
            f"--{flag} {path} (accepted: a folder that can be made and written to)"
        ) from None


def _words(text: str | None, flag: str) -> tuple[str, ...]:
    found = () if text is None else tuple(dict.fromkeys(text.replace(",", " ").split()))
    if text is not None and not found:
        raise UsageError(f"--{flag} {text!r} names none (accepted: names between commas)")
    return found


def _seeds(text: str | None) -> tuple[int, ...]:
    try:
        found = tuple(map(int, _words(text, "seeds")))
        if any(seed < 0 for seed in found):
            raise ValueError
    except ValueError:
        raise UsageError(
            f"--seeds {text!r} is not a list of seeds (accepted: such as 0,1,2)"
        ) from None
    return found


@contextlib.contextmanager
def _launcher(args: Reproduce) -> Iterator[Launcher]:
    from maar.core.machine import cores
    from maar.experiments.launch import Local, OnRay

    if args.ray is None:
        jobs = args.jobs or max(1, cores() // profiles()[args.profile].threads)
        yield Local(jobs, _devices(args))
        return
    from maar.certification.ray_workers import cluster

    with cluster(args.ray):
        yield OnRay(args.jobs)


def _devices(args: Reproduce) -> list[str]:
    """Return the GPUs that trainings take turns on; none for the CPU."""
    import torch

    device = args.device or profiles()[args.profile].device
    if device in ("", "cpu"):
        if args.devices is not None:
            raise UsageError(f"--devices {args.devices} counts GPUs (accepted: with --device cuda)")
        return []
    there = torch.cuda.device_count()
    if not there:
        raise UsageError(f"device {device}: torch finds no GPU here (accepted: --device cpu)")
    if device != "cuda":
        return device.split(",")
    count = there if args.devices is None else args.devices
    if not 1 <= count <= there:
        raise UsageError(f"--devices {args.devices} (accepted: 1 to {there}, the GPUs here)")
    return [f"cuda:{number}" for number in range(count)]


def _list(chosen: Sequence[Experiment]) -> int:
    """The experiments, or more on those that are named."""
    from rich.console import Console

    from maar.experiments.listing import details, listing

    console = Console(highlight=False)
    if not chosen:
        console.print(listing([*map(experiment, experiments())], [*profiles().values()]))
    for number, each in enumerate(chosen):
        console.print(*([""] if number else []), details(each), sep="\n")
    return 0


def _dry_run(plans: Sequence[Plan], tasks: Sequence[Task]) -> int:
    from rich.console import Console

    from maar.experiments.outlook import outlook

    console = Console(highlight=False)
    console.print(outlook(plans, tasks, console.width), crop=False)
    return 0


def _conclude(
    plan: Plan, out: Path, command: str, failed: dict[Task, str], *, is_whole: bool
) -> None:
    """Write and show what is known, if that is anything."""
    from rich.console import Console

    from maar.experiments.results import result
    from maar.experiments.show import markdown, terminal

    mine = {task: reason for task, reason in failed.items() if task in set(plan.tasks)}
    found = result(plan, command, mine)
    if not mine and not any(row["seeds"] for row in found["rows"]):
        print(f"nothing is known of {plan.stem} yet")
        return
    path = out / f"{plan.stem}.json"
    write_text(path, json_text(found))
    page = markdown(found)
    write_text(path.with_suffix(".md"), page)
    console = Console()
    console.print("", terminal(found, console.width)) if console.is_terminal else print(page)
    print(f"numbers in {path} and {path.with_suffix('.md')}")
    if is_whole:
        _report(path, found, out / plan.stem)


def _report(path: Path, found: dict[str, Any], out: Path) -> None:
    """The page; without the packages that draw it, a line that says how to have it."""
    from maar.reporting.write import write_report

    runs = dict.fromkeys(Path(run) for row in found["rows"] for run in row["runs"])
    # Of the others only the numbers are known.
    here = [run for run in runs if (run / "result.json").is_file()]
    try:
        page = write_report([path, *here], out, found["title"], found["command"])
    except MaarError as error:
        print(f"no page: {error}")
        return
    print(f"page in {page}")
