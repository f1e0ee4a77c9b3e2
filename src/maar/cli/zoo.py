"""`maar zoo`: the networks that come with the package. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from maar.cli.parse import parse
from maar.core.errors import UsageError
from maar.zoo import PREFIX, Entry, entries, entry

if TYPE_CHECKING:
    from rich.table import Table

# Of the list: columns of numbers, those that a narrow terminal does without, and what is between.
NUMBERS = ("acc", "CR", "images", "MB")
DISPENSABLE = ("MB", "images", "network")


@dataclass(frozen=True)
class Zoo:
    """List the networks that come with maar, or show how one was trained and measured."""

    name: tyro.conf.Positional[Annotated[str | None, tyro.conf.arg(metavar="[NAME]")]] = None
    """A network of the list; without it, the list."""
    check: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: no)")] = (
        None
    )
    """Certify the network on the first N test images, and check the certificates."""


def main(argv: Sequence[str]) -> int:
    """Print the list, or one network."""
    args = parse(Zoo, "maar zoo", argv)
    from rich.console import Console

    if args.check is not None:
        return _check(args)
    known = entries()
    if args.name is not None:
        Console().print(_one(entry(args.name)))
    elif known:
        console = Console()
        console.print(_list(list(known.values()), console.width))
        print("try one: maar certify zoo:NAME --limit 100; how it was made: maar zoo NAME")
    else:
        print("no networks come with this version of maar; train one: maar train demo")
    return 0


def _check(args: Zoo) -> int:
    """Certify anew, with certificates, and have them checked by `maar_check`."""
    from maar.cli import certify, check

    if args.name is None:
        raise UsageError("--check needs the name of a network of the zoo")
    name = entry(args.name).name
    out = f"certs/zoo/{name}"
    limit = str(args.check)
    code = certify.main([PREFIX + name, "--limit", limit, "--certificates", "--out", out])
    return code or check.main([out])


def _list(known: list[Entry], width: int) -> Table:
    from maar.terminal.tables import GAP, table

    rows = [_facts(one) for one in known]
    widths = {head: max(len(head), *(len(row[head]) for row in rows)) for head in rows[0]}
    # The name must be there whole, to be copied. Narrow terminals do without what matters least;
    # where that is not enough, the rest breaks into lines.
    for head in DISPENSABLE:
        if sum(widths.values()) + GAP * (len(widths) - 1) > width:
            del widths[head]
    shown = table(*widths, right=NUMBERS, whole=NUMBERS)
    shown.columns[0].min_width = widths["name"]
    for row in rows:
        shown.add_row(*(row[head] for head in widths))
    return shown


def _facts(one: Entry) -> dict[str, str]:
    """One line of the list."""
    return {
        "name": PREFIX + one.name,
        "data": one.data,
        "eps": str(one.eps),
        "method": one.method,
        "network": one.network,
        "acc": f"{100 * one.accuracy:.2f}",
        "CR": f"{100 * one.certified:.2f}",
        "images": f"{one.images:,}",
        "MB": f"{one.path.stat().st_size / 1e6:.1f}" if one.path.is_file() else "missing",
    }


def _one(one: Entry) -> Table:
    from maar.terminal.tables import pairs

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
    if one.note:
        rows["note"] = one.note
    return pairs(rows)
