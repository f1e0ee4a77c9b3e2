"""`maar tune CONFIG --knob ...`: search the knobs of a recipe on validation images."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maar.cli.interrupt import farewell
from maar.core.errors import UsageError

if TYPE_CHECKING:
    from maar.experiments.launch import Launcher

DESCRIPTION = """Search knobs of a recipe. Each trial trains, then certifies validation images;
test images are never loaded. Shows the trials that no other beats in accuracy
and certified robustness (CR), and writes OUT/chosen.toml and OUT/tune.json.
The flags below are those of `maar train`."""


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    if list(argv[:1]) == ["--trial"] and len(argv) == 2:
        from maar.tuning.trial import carry_out

        carry_out(Path(argv[1]))
        return 0
    from maar.config.flags import Extra, parse_command
    from maar.tuning.knobs import FORM, parse_knobs
    from maar.tuning.outcome import choose, outcome, write
    from maar.tuning.study import SAMPLERS, Search, check, tune
    from maar.tuning.trial import Asked

    extras = (
        Extra("knob", f"a setting to search, once for each: {FORM}", "", "NAME=VALUES"),
        Extra("hours", "no trial begins or goes on after so many hours", "1", "H"),
        Extra("trials", "no more trials than these, earlier ones included", "", "N"),
        Extra("jobs", "trials side by side, one thread each", "1", "N"),
        Extra("ray", "trials on a Ray cluster whose nodes share the folder", "", "auto|ADDRESS"),
        Extra("sampler", f"Optuna's: {', '.join(SAMPLERS)}", SAMPLERS[0], "NAME"),
        Extra("images", "validation images to certify in each trial", "200", "N"),
        Extra("preset", "verifiers to certify them with", "fast", "NAME"),
        Extra("timeout", "seconds for each of these images", "10", "S"),
        Extra("choose", "trial whose recipe is written", "", "N"),
        Extra("out", "folder of the study (default: tuning/NAME)", "", "DIR"),
        Extra("resume", "continue the study in the folder"),
    )
    texts, rest = _knobs_of(argv)
    config, own = parse_command(rest, prog="maar tune", description=DESCRIPTION, extras=extras)
    asked = Asked(int(_number(own, "images")), own["preset"], _number(own, "timeout", whole=False))
    folder = Path(own["out"] or Path("tuning") / config.name)
    search = Search(
        config, tuple(parse_knobs(texts, config)), asked, folder, sampler=own["sampler"]
    )
    check(config, asked)
    command = f"maar tune {shlex.join(word for word in argv if word != '--resume')}"
    trials = int(_number(own, "trials")) if own["trials"] else None
    hours, again = _number(own, "hours", whole=False), f"{command} --resume"
    is_stopped = False
    try:
        with _launcher(own) as launcher:
            study = tune(
                search,
                launcher,
                hours=hours,
                trials=trials,
                resume=own["resume"],
                display=_lines(),
            )
    except KeyboardInterrupt:
        from maar.tuning.study import open_study

        is_stopped, study = True, open_study(search, resume=True)
    found = outcome(search, study, command)
    if is_stopped and not found["front"]:
        return farewell(f"continue with: {again}")
    chosen = choose(found, int(_number(own, "choose", least=0)) if own["choose"] else None)
    write(search, found, chosen)
    _show(found, chosen)
    print(f"trials in {folder / 'tune.json'}, recipe in {folder / 'chosen.toml'}")
    if is_stopped:
        return farewell(f"continue with: {again}")
    print(f"next: maar train {shlex.quote(str(folder / 'chosen.toml'))}")
    return 0


def _knobs_of(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the words into the values of --knob and the rest."""
    texts: list[str] = []
    rest: list[str] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        if word == "--knob":
            if not words:
                raise UsageError("--knob needs a value")
            texts.append(words.pop(0))
        elif word.startswith("--knob="):
            texts.append(word.partition("=")[2])
        else:
            rest.append(word)
    return texts, rest


def _number(own: dict[str, Any], name: str, *, whole: bool = True, least: int = 1) -> float:
    """Read a number that a flag gives."""
    try:
        number = int(own[name]) if whole else float(own[name])
    except ValueError:
        number = -1.0
    if not (number >= least if whole else 0 < number < float("inf")):
        accepted = f"{least} or more" if whole else "a number > 0"
        raise UsageError(f"--{name} {own[name]} (accepted: {accepted})")
    return number


@contextlib.contextmanager
def _launcher(own: dict[str, Any]) -> Iterator[Launcher]:
    from maar.experiments.launch import Local, OnRay

    jobs = int(_number(own, "jobs"))
    if not own["ray"]:
        yield Local(min(jobs, os.cpu_count() or 1))
        return
    from maar.certification.ray_workers import cluster

    with cluster(own["ray"]):
        yield OnRay(jobs)


def _lines() -> Any:
    from maar.tuning.study import Display

    class Lines(Display):
        def ended(self, number: int, state: str, score: dict[str, Any], seconds: float) -> None:
            if score:
                state = f"accuracy {_percent(score['accuracy'])}, CR {_certified(score)}"
            print(f"trial {number}: {state}, {seconds:.0f} s", flush=True)

    return Lines()


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _certified(score: dict[str, Any]) -> str:
    low, high = (100 * bound for bound in score["certified_interval95"])
    return f"{_percent(score['certified'])} [{low:.1f}, {high:.1f}]"


def _show(found: dict[str, Any], chosen: dict[str, Any]) -> None:
    """Print the front, the chosen trial marked."""
    from rich.console import Console
    from rich.table import Table

    by_number = {trial["number"]: trial for trial in found["trials"]}
    knobs = list(by_number[chosen["number"]]["knobs"])
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in ("trial", "accuracy", "CR [95 %]", *knobs):
        table.add_column(head, justify="right")
    for number in dict.fromkeys([*found["front"], chosen["number"]]):
        trial = by_number[number]
        mark = "*" if number == chosen["number"] else ""
        values = [trial["knobs"][name] for name in knobs]
        texts = [f"{v:.4g}" if isinstance(v, float) else str(v) for v in values]
        score = trial["score"]
        table.add_row(f"{mark}{number}", _percent(score["accuracy"]), _certified(score), *texts)
    console = Console(highlight=False)
    ended = sum(bool(trial["score"]) for trial in found["trials"])
    console.print(f"\n{ended} trials finished; those that no other beats (* chosen):")
    console.print(table)
