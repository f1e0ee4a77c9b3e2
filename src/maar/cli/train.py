"""`maar train CONFIG [flags]`: train, or continue a run."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from maar.cli.interrupt import exit_code, farewell

if TYPE_CHECKING:
    from maar.config import Config

DESCRIPTION = """Train a network. CONFIG is a shipped recipe (such as `demo`), a TOML file, or the
folder of a run; every setting in it can be given as a flag. The flags below are those of the
chosen method: see `maar methods` for the others."""


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
    )
    config, own = parse_command(argv, prog="maar train", description=DESCRIPTION, extras=extras)
    resume, given = own["resume"], Path(own["config"])
    # A run's folder may have been renamed or moved: it is the one that is continued.
    path = given if resume and is_run(given) else Path(own["runs"]) / config.name
    if rank := place(config).rank:
        return _help_out(config, path, resume, rank)
    refuse_existing(path, resume=resume)
    finished = is_run(path) and bool(read_run(path).result) and has_model(path)
    quoted = shlex.quote(str(path))
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
