"""`maar train CONFIG [flags]`: train, or continue a run."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from maar.cli.interrupt import exit_code, farewell
from maar.core.errors import UsageError

if TYPE_CHECKING:
    from maar.config import Config
    from maar.config.flags import Extra

DESCRIPTION = """Train a network. CONFIG is a shipped recipe (such as `demo`), a TOML file, or the
folder of a run; every setting in it can be given as a flag. Several values,
such as `--lam 2,6 --seed 0,1`, make a sweep: a run for each combination. The flags below are those
of the chosen method: see `maar methods` for the others."""


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    from maar.config.flags import Extra, parse_command
    from maar.records.runs import is_run, read_run
    from maar.training.display import Several, make_display
    from maar.training.lines import number
    from maar.training.parallel import place
    from maar.training.run import has_model, refuse_existing
    from maar.training.trainer import train

    extras = (
        Extra(
            "resume", "continue a run where it was stopped, exactly; start it if it is not there"
        ),
        Extra("tensorboard", "also write the metrics for TensorBoard, into RUN/tensorboard"),
        Extra("runs", "folder that holds the runs", default="runs", metavar="DIR"),
        Extra("jobs", "of a sweep, such as --lam 2,6: trainings side by side", "", "N"),
        Extra("ray", "of a sweep: on a Ray cluster whose nodes share the folder", "", "ADDRESS"),
    )
    if (code := _sweep(argv, extras)) is not None:
        return code
    config, own = parse_command(argv, prog="maar train", description=DESCRIPTION, extras=extras)
    for name in ("jobs", "ray"):
        if own[name]:
            raise UsageError(f"--{name} has no effect on one training: it is for a sweep")
    resume, given = own["resume"], Path(own["config"])
    # A run's folder may have been renamed or moved: it is the one that is continued.
    path = given if resume and is_run(given) else Path(own["runs"]) / config.name
    if rank := place(config).rank:
        return _help_out(config, path, resume, rank)
    refuse_existing(path, resume=resume)
    finished = is_run(path) and bool(read_run(path).result) and has_model(path)
    quoted = shlex.quote(str(path))
    if not finished and (line := _expected(own["config"], config)):
        print(line)
    display = make_display()
    if own["tensorboard"]:
        from maar.training.tensorboard import TensorBoard

        display = Several(display, TensorBoard(path))
    try:
        result = train(config, path, resume=resume, display=display)
    except KeyboardInterrupt:
        way_on = f"continue with: maar train {quoted} --resume" if is_run(path) else ""
        return farewell(way_on)
    numbers = [f"{name.replace('_', ' ')} {number(name, x)}" for name, x in result["test"].items()]
    print(f"{path} {'was already' if finished else 'is'} finished", end="")
    print(f": test {', '.join(numbers)}" if numbers else "")
    print(f"next: maar certify {quoted}")
    return 0


def _expected(where: str, config: Config) -> str:
    """Say what a shipped recipe took, if it is trained as it is; empty if nobody knows."""
    from maar.config import config_hash, load, recipes
    from maar.experiments.shipped import training
    from maar.terminal.clock import clock

    if where not in recipes() or config.device not in ("auto", "cpu"):
        return ""
    recipe = load(where)
    # (a seed changes no time; a flag of the method or the optimiser may)
    is_same = config_hash(dataclasses.replace(config, seed=recipe.seed)) == config_hash(recipe)
    expected = training(where) if is_same else None
    if expected is None:
        return ""
    source = "a whole run elsewhere" if expected.is_measured else "single steps elsewhere"
    return f"expected: about {clock(expected.seconds)} of one core (by {source})"


def _sweep(argv: Sequence[str], extras: Sequence[Extra]) -> int | None:
    """Train a grid, if some flag has several values; None if not."""
    if {"-h", "--help"} & set(argv) or not any("," in word or "|" in word for word in argv):
        return None
    from maar.cli.sweep import sweep

    return sweep(argv, extras, DESCRIPTION)


def _help_out(config: Config, path: Path, resume: bool, rank: int) -> int:
    """Be one of several processes that train together: the first one speaks for all."""
    from maar.core.errors import MaarError
    from maar.training.parallel import Reported
    from maar.training.trainer import train

    try:
        train(config, path, resume=resume)
    except Reported:
        return 1
    except MaarError as error:
        print(f"maar: error in process {rank + 1}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return exit_code()
    return 0
