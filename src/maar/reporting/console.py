"""A table in a terminal, however narrow."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from rich.table import Table as Grid
from rich.text import Text

from maar.reporting.model import Table
from maar.terminal.tables import GAP
from maar.terminal.tables import table as grid

STYLES = {"good": "green", "bad": "red", "muted": "dim", "strong": "bold", "": ""}


def render(table: Table, width: int, short: Mapping[str, str] | None = None) -> Grid:
    """Lay a table out in `width` columns of letters; `short` has briefer heads.

    Rows of one group stand below its name. Columns that have no room are left out by their rank.
    """
    heads = [(short or {}).get(column.name, column.name) for column in table.columns]
    kept = [place for place in range(len(heads)) if place != table.group_by]
    sizes = [
        max(len(head), *(len(row[place].text) for row in table.rows))
        for place, head in enumerate(heads)
    ]
    by = table.group_by
    groups = [
        ("" if by is None else name, list(rows))
        for name, rows in groupby(table.rows, key=lambda row: "" if by is None else row[by].text)
    ]
    sizes[kept[0]] = max(sizes[kept[0]], *(len(name) for name, _ in groups))
    for place in sorted(kept, key=lambda place: -table.columns[place].rank):
        if sum(sizes[each] + GAP for each in kept) > width and table.columns[place].rank:
            kept.remove(place)
    gap = 1 if sum(sizes[place] + GAP for place in kept) > width else GAP
    numbers = [heads[place] for place in kept if table.columns[place].numeric]
    shown = grid(*(heads[place] for place in kept), right=numbers, whole=heads, gap=gap)
    for name, rows in groups:
        if name:
            shown.add_row(Text(name, "bold"))
        for row in rows:
            shown.add_row(*(Text(row[place].text, STYLES[row[place].tone]) for place in kept))
    return shown
