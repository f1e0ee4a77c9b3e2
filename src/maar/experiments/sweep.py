"""Sweeps: `--lam 2,6 --seed 0,1` is a grid of trainings, named by what differs.

Values are separated by commas; those of a setting that is a list itself by `|`.
"""

from __future__ import annotations

import dataclasses
import itertools
import shlex
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from maar.config import Config
from maar.config.flags import Extra, flags_of, parse_command
from maar.core.errors import UsageError

LISTS = ("|", ",")


@dataclass(frozen=True)
class Training:
    """One point of the grid."""

    config: Config
    values: tuple[tuple[str, str], ...]
    """(flag without dashes, value) of what differs."""
    given: tuple[str, ...]
    """CONFIG and flags, as one would type them."""
    runs: Path

    @property
    def label(self) -> str:
        """The settings that differ, for people."""
        return ", ".join(f"{name} = {value}" for name, value in self.values)

    @property
    def name(self) -> str:
        """Of the run."""
        return self.config.name

    @property
    def folder(self) -> Path:
        """Of the run."""
        return self.runs / self.name

    @property
    def words(self) -> list[str]:
        """The command, without `maar`."""
        place = ["--runs", str(self.runs), "--name", self.name]
        threads = [] if _has(self.given, "--threads") else ["--threads", "1"]
        return ["train", *self.given, *threads, *place, "--resume"]

    @property
    def log(self) -> Path:
        """What the command said."""
        return self.folder.with_name(f"{self.name}-train.log")

    @property
    def command(self) -> str:
        """The command as one would type it."""
        return f"maar {shlex.join(self.words)}"

    def at(self, name: str) -> str:
        """The value of a flag that differs; empty if it does not."""
        return dict(self.values).get(name, "")


def grid(
    argv: Sequence[str], *, description: str, extras: Sequence[Extra], runs: Path
) -> list[Training]:
    """Return the trainings that the words ask for; none if no flag has several values."""
    fixed, swept = _split(argv, {f"--{extra.name}" for extra in extras if extra.switch})
    if not swept:
        return []
    own = {f"--{extra.name}" for extra in extras} | {"--name", "--device"}
    for flag in swept:
        if flag in own:
            raise UsageError(f"{flag} cannot have several values in a sweep (accepted: one)")
    fixed = [word for word in fixed if word != "--resume"]
    found = []
    for values in itertools.product(*swept.values()):
        chosen = tuple(zip((flag[2:] for flag in swept), values, strict=True))
        words = [word for name, value in chosen for word in (f"--{name}", value)]
        given = (*_without_own(fixed, extras), *words)
        config, where = parse_command(given, prog="maar train", description=description)
        stem = "-".join((_stem(where["config"]), *(f"{n}-{_safe(v)}" for n, v in chosen)))
        found.append(Training(dataclasses.replace(config, name=stem), chosen, given, runs))
    if len(found) > len({training.name for training in found}):
        raise UsageError("a sweep has two runs of one name (accepted: each value once)")
    return found


def _split(argv: Sequence[str], switches: set[str]) -> tuple[list[str], dict[str, tuple[str, ...]]]:
    """Split the words into those of every run and the flags with several values."""
    fixed: list[str] = []
    swept: dict[str, tuple[str, ...]] = {}
    words, is_list = list(argv), _lists(argv)
    while words:
        word = words.pop(0)
        if not word.startswith("--") or word in switches:
            fixed.append(word)
            continue
        flag, equals, value = word.partition("=")
        if not equals:
            if not words:
                fixed.append(word)
                continue
            value = words.pop(0)
        sign = "|" if "|" in value or is_list(flag) else ","
        values = tuple(dict.fromkeys(each.strip() for each in value.split(sign) if each.strip()))
        if len(values) > 1:
            swept[flag.replace("_", "-")] = values
        else:
            fixed += [flag, value]
    return fixed, swept


def _lists(argv: Sequence[str]) -> Callable[[str], bool]:
    """Return a function that tells whether a flag takes a list, in any method that is named."""
    from maar.config.load import build, read

    where = next((word for word in argv if not word.startswith("-")), "")
    try:
        table, origin = read(where)
        flags = {f"--{flag.name}": flag.hint for flag in flags_of(build(table, origin))}
    except UsageError:
        flags = {}  # (told when the run is parsed)
    from maar.config.config import TrainConfig
    from maar.core.settings import hints
    from maar.methods import METHODS

    for cls in (TrainConfig, *(METHODS[name] for name in METHODS)):
        for name, hint in hints(cls).items():
            flags.setdefault(f"--{name.replace('_', '-')}", hint)
    return lambda flag: _is_list(flags.get(flag.replace("_", "-")))


def _is_list(hint: Any) -> bool:
    if typing.get_origin(hint) is Annotated:
        return _is_list(typing.get_args(hint)[0])
    return typing.get_origin(hint) is tuple


def _without_own(words: Sequence[str], extras: Sequence[Extra]) -> list[str]:
    """Leave out the command's own flags, and the name: each run has its own."""
    values = {f"--{extra.name}" for extra in extras if not extra.switch} | {"--name"}
    switches = {f"--{extra.name}" for extra in extras if extra.switch}
    found: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word in values:
            rest.pop(0)
        elif word not in switches:
            found.append(word)
    return found


def _stem(where: str) -> str:
    from maar.config import recipes

    return where if where in recipes() else Path(where).stem


def _safe(value: str) -> str:
    return value.replace("/", "_").replace(":", "_")


def _has(words: Sequence[str], flag: str) -> bool:
    return any(word == flag or word.startswith(f"{flag}=") for word in words)
