"""`maar check DIR`: check certificates by `maar_check`, a program that trusts nothing of maar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from maar.api.certificates import check
from maar.cli.parse import parse
from maar.core.errors import RunError

MOST_LINES = 20


@dataclass(frozen=True)
class Check:
    """Check certificates; exit code 0 only if every claim holds.

    The work is done by `python -m maar_check`, in a process of its own: numpy and the standard
    library only.
    """

    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="DIR")]]
    """A folder of `maar certify --certificates`, or the certificates in it."""
    workers: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """Processes, one thread each."""
    sample: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: all)")
    ] = None
    """Only so many certificates, chosen at random."""
    exact: bool = False
    """In rational numbers instead of floats: for small networks, or a small sample."""
    claim: Literal["real", "float32"] = "real"
    """The network in real numbers, or as it is computed in float32, in any order of summation."""
    data: Annotated[
        Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="(default: not compared)")
    ] = None
    """Compare images and labels with these IDX files (a folder) or this CIFAR-10 batch."""


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code; 1 if a claim does not hold."""
    args = parse(Check, "maar check", argv)
    total = check(
        args.folder,
        workers=args.workers,
        sample=args.sample,
        exact=args.exact,
        claim=args.claim,
        data=args.data,
    )
    print(total.table())
    if not total.holds:
        count = len(total.refused)
        raise RunError(f"{args.folder}: {count:,} claims do not hold, such as {total.refused[0]}")
    return 0
