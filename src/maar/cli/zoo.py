"""`maar zoo`: the networks that come with the package. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from maar.cli.parse import parse
from maar.zoo import PREFIX, Entry, entries, entry

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Zoo:
    """List the networks that come with maar, or show how one was trained and measured."""

    name: tyro.conf.Positional[Annotated[str | None, tyro.conf.arg(metavar="[NAME]")]] = None
    """A network of the list; without it, the list."""


def main(argv: Sequence[str]) -> int:
    """Print the list, or one network."""
    args = parse(Zoo, "maar zoo", argv)
    from rich.console import Console

    known = entries()
    if args.name is not None:
        Console().print(_one(entry(args.name)))
    elif known:
        Console().print(_list(list(known.values())))
        print("try one: maar certify zoo:NAME --limit 100; how it was made: maar zoo NAME")
    else:
        print("no networks come with this version of maar; train one: maar train demo")
    return 0


def _list(known: list[Entry]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    # A name must be there whole, to be copied; where it is narrow, the rest breaks into lines.
    table.add_column("name", no_wrap=True, min_width=max(len(PREFIX + one.name) for one in known))
    for head in ("data", "eps", "method", "network"):
        table.add_column(head, overflow="fold")
    for head in ("acc", "CR", "images", "MB"):
        table.add_column(head, justify="right", no_wrap=True)
    for one in known:
        size = f"{one.path.stat().st_size / 1e6:.1f}" if one.path.is_file() else "missing"
        shares = (f"{100 * one.accuracy:.2f}", f"{100 * one.certified:.2f}")
        facts = (one.data, str(one.eps), one.method, one.network)
        table.add_row(PREFIX + one.name, *facts, *shares, f"{one.images:,}", size)
    return table


def _one(one: Entry) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    robust = f"{100 * one.certified:.2f} % proved"
    if one.certified_upper > one.certified:
        robust += f", at most {100 * one.certified_upper:.2f} %"
    rows = {
        "name": PREFIX + one.name,
        "for": f"{one.data}, eps {one.eps}",
        "network": one.network,
        "method": one.method,
        "trained": f"{one.command} (seed {one.seed}, commit {one.commit[:12]})",
        "measured": one.certify,
        "accuracy": f"{100 * one.accuracy:.2f} % of {one.images:,} test images",
        "robust": robust,
        "weights": f"{one.file}, sha256 {one.sha256}",
    }
    for name, value in rows.items():
        table.add_row(name, Text(value))
    return table
