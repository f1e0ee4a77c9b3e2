"""The table of every command: no lines, dim heads, columns two blanks apart."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rich.table import Table
from rich.text import Text

GAP = 2


def table(
    *heads: str, right: Collection[str] = (), whole: Collection[str] = (), gap: int = GAP
) -> Table:
    """Make a table with these heads.

    `right` names the columns of numbers, `whole` those whose cells are never broken into lines.
    """
    made = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
    for head in heads:
        justify = "right" if head in right else "left"
        made.add_column(head, justify=justify, no_wrap=head in whole, overflow="fold")
    return made


def pairs(rows: Mapping[str, str | Text]) -> Table:
    """Make a table of names and what they stand for."""
    made = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), show_header=False)
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows.items():
        made.add_row(name, Text(value) if isinstance(value, str) else value)
    return made
