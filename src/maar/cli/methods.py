"""`maar methods`: the training methods, their papers and their knobs."""

from __future__ import annotations

from collections.abc import Sequence

from maar.errors import UsageError


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    if argv and argv[0] in ("-h", "--help"):
        print("usage: maar methods\n\nList the training methods with their papers and knobs.")
        return 0
    if argv:
        raise UsageError(f"unexpected argument {argv[0]!r}: `maar methods` takes none")
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from maar.methods import METHODS

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("method", "year", "idea and paper", "knobs (flag, default)"):
        table.add_column(column, no_wrap=column in ("method", "year"))
    for name in METHODS:
        cls = METHODS[name]
        about = Text.assemble(cls.idea, "\n", (cls.paper, "dim"))
        table.add_row(Text(name, "cyan"), str(cls.year), about, "\n".join(knobs(cls)) or "none")
        table.add_row()
    Console().print(table)
    return 0


def knobs(cls: type) -> list[str]:
    """`--flag default` for every knob of a method."""
    from maar.config.dump import toml_value
    from maar.config.flags import flags_of

    return [
        f"--{flag.name} {toml_value(flag.default).strip(chr(34))}"
        for flag in flags_of(cls(), ("method",))
    ]
