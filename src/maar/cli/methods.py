"""`maar methods`: the training methods in one table, or one method with every knob."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from maar.cli.parse import parse

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Methods:
    """List the training methods with their papers and knobs, or show one with what each means."""

    name: tyro.conf.Positional[Annotated[str | None, tyro.conf.arg(metavar="[NAME]")]] = None
    """A method of the list; without it, the list."""


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    args = parse(Methods, "maar methods", argv)
    from rich.console import Console

    console = Console(highlight=False)
    if args.name is None:
        _list(console)
    else:
        _one(console, args.name)
    return 0


def _list(console: Console) -> None:
    from rich.text import Text

    from maar.methods import METHODS
    from maar.terminal.tables import table

    about = "idea, paper, and knobs with their defaults"
    shown = table("method", "year", about, whole=("method", "year"))
    for name in METHODS:
        cls = METHODS[name]
        own = ", ".join(knobs(cls)) or "no knobs"
        idea = Text.assemble(cls.idea, "\n", (cls.paper, "dim"), "\n", (own, "green"))
        shown.add_row(Text(name, "cyan"), str(cls.year), idea)
        shown.add_row()
    console.print(shown)
    console.print("what a knob means: maar methods NAME")


def _one(console: Console, name: str) -> None:
    from rich.text import Text

    from maar.config.flags import flags_of
    from maar.methods import METHODS
    from maar.terminal.tables import table

    method = METHODS[name]()
    console.print(Text.assemble((name, "cyan"), f"  {method.idea}"))
    console.print(Text(f"{method.paper}, {method.year}", "dim"))
    shown = table("flag", "default", "meaning", whole=("flag", "default"))
    for flag in flags_of(method, ("method",)):
        shown.add_row(Text(f"--{flag.name}"), Text(_default(flag.default)), Text(flag.help))
    if shown.row_count:
        console.print()
        console.print(shown)


def knobs(cls: type) -> list[str]:
    """`name default` for the method's own knobs; of an attack, how many steps of what size."""
    from maar.attacks.attack import Attack
    from maar.core.settings import hints
    from maar.methods.base import Method

    method, found = cls(), []
    for field in hints(cls):
        value, name = getattr(method, field), field.replace("_", "-")
        if isinstance(value, Attack):
            size = getattr(value, "step_size", None)
            found.append(f"{name} {value.steps} steps" + (f" of {size:g}" if size else ""))
        else:
            found.append(f"{name} {value.name if isinstance(value, Method) else _default(value)}")
    return found


def _default(value: object) -> str:
    from maar.config.dump import toml_value

    if value is None:
        return "none"
    if isinstance(value, tuple):
        return ",".join(map(toml_value, value)) or "none"
    return toml_value(value).strip('"')
