"""`maar networks`: every network in one table, or one network layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from maar.cli.parse import parse

if TYPE_CHECKING:
    from maar.data import Info


@dataclass(frozen=True)
class Networks:
    """List the networks with their layers, parameters and ReLUs, or show one layer by layer."""

    name: tyro.conf.Positional[Annotated[str | None, tyro.conf.arg(metavar="[NAME]")]] = None
    """A network of the list, FILE.py:FUNCTION or FILE.onnx; without it, the list."""
    data: str = "mnist"
    """The data set that gives the input's shape and the number of classes."""


def main(argv: Sequence[str]) -> int:
    """Print the list, or one network."""
    args = parse(Networks, "maar networks", argv)

    from maar.data import info

    facts = info(args.data)
    table = _list(facts) if args.name is None else _layers(args.name, facts)
    Console().print(table)
    return 0


def _list(facts: Info) -> Table:
    import torch

    from maar.core.errors import UsageError
    from maar.networks import NETWORKS, describe, make
    from maar.networks.summary import one_line

    table = _table(f"networks for {_spell(facts)}; another: --data NAME")
    table.show_lines = True
    table.add_column("name and origin", min_width=max(map(len, NETWORKS)))
    table.add_column("layers")
    table.add_column("parameters", justify="right")
    table.add_column("ReLUs", justify="right")
    for name in NETWORKS:
        origin = (NETWORKS[name].__doc__ or "").splitlines()[0]
        title = Text.assemble((name, "bold"), "\n", (origin, "dim"))
        try:
            with torch.device("meta"):  # shapes only: no weights are drawn
                net = make(name, facts.shape, facts.n_classes)
        except UsageError as error:  # a network may be too deep for small images
            table.add_row(title, Text(str(error), "red"), "", "")
            continue
        rows = describe(net, facts.shape)
        table.add_row(
            title,
            Text(one_line(net)),
            f"{sum(row.parameters for row in rows):,}",
            f"{sum(row.relus for row in rows):,}",
        )
    return table


def _layers(name: str, facts: Info) -> Table:
    from maar.networks import describe, make
    from maar.networks.checking import spell

    net = make(name, facts.shape, facts.n_classes)
    table = _table(f"{name} for {_spell(facts)}")
    table.add_column("index")
    table.add_column("layer")
    table.add_column("output", justify="right")
    table.add_column("parameters", justify="right")
    table.add_column("ReLUs", justify="right")
    rows = describe(net, facts.shape)
    for row in rows:
        table.add_row(
            row.index,
            Text(row.layer),
            spell(row.shape),
            f"{row.parameters:,}" if row.parameters else "",
            f"{row.relus:,}" if row.relus else "",
        )
    table.add_section()
    table.add_row(
        "",
        Text("in all", "bold"),
        "",
        f"{sum(row.parameters for row in rows):,}",
        f"{sum(row.relus for row in rows):,}",
    )
    return table


def _table(title: str) -> Table:
    return Table(title=Text(title), title_justify="left", title_style="", header_style="dim")


def _spell(facts: Info) -> str:
    from maar.networks.checking import spell

    return f"{facts.name} ({spell(facts.shape)}, {facts.n_classes} classes)"
