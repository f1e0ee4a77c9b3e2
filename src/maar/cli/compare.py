"""`maar compare RUN RUN`: which images one certifies and the other does not; is it chance?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from maar.cli.parse import Switch, parse

if TYPE_CHECKING:
    from rich.console import Console

    from maar.reporting.compare import Compared, Comparison
    from maar.reporting.model import Table


@dataclass(frozen=True)
class CompareCommand:
    """Compare two certified networks image by image, at every eps that both have.

    Shows how many images each certifies, which of them the other does not, whether the difference
    is more than chance (McNemar's test), what the open images could change about that, and in
    what the configurations differ.
    """

    runs: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="RUN RUN", help_behavior_hint=""),
    ]
    """Two of: the folder of a run, of one certification, certs/NAME, or zoo:NAME."""
    weights: Annotated[str, tyro.conf.arg(metavar="NAME")] = "model"
    """Which weights of the runs: model, or a stage's such as stage-1-last."""
    list: Annotated[int, tyro.conf.arg(metavar="N")] = 20
    """How many images to list at most that only one of them certifies; all are in --json."""
    json: Switch = False
    """Print all of it as JSON, every image included."""
    markdown: Switch = False
    """Print it as Markdown."""


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    args = parse(CompareCommand, "maar compare", argv)

    from maar.config.idle import effective
    from maar.core.errors import UsageError
    from maar.reporting.compare import compare

    if len(args.runs) != 2:
        raise UsageError(
            f"maar compare takes two runs, not {len(args.runs)}, such as: maar compare runs/a "
            "runs/b"
        )
    if args.json and args.markdown:
        raise UsageError("--json and --markdown exclude each other")
    if args.list < 0:
        raise UsageError(f"--list {args.list} is not a number of images (accepted: 0 or more)")
    one, other = map(_folder, args.runs)
    found = compare((one, other), args.weights, effective)
    if args.json:
        print(json.dumps(_json(found), indent=1, allow_nan=False))
    elif args.markdown:
        print(_markdown(found, args.list), end="")
    else:
        _show(found, args.list)
    return 0


def _folder(where: str) -> Path:
    """Where the certifications of a network from the zoo go if nothing else is said."""
    from maar.core.errors import UsageError
    from maar.zoo import entry, is_zoo

    path = Path("certs") / f"zoo-{entry(where).name}" if is_zoo(where) else Path(where)
    if not path.is_dir():
        certify = f" (make it: maar certify {where})" if is_zoo(where) else ""
        raise UsageError(f"no such folder: {path}{certify}")
    return path


def _json(found: Compared) -> dict[str, object]:
    return {
        "a": found.names[0],
        "b": found.names[1],
        "settings": {key: [one, other] for key, one, other in found.settings},
        "comparisons": [pair.to_json() for pair in found.comparisons],
        "problems": list(found.problems),
    }


def _markdown(found: Compared, listed: int) -> str:
    from maar.reporting.formats import markdown

    parts = [f"> **warning:** {problem}\n" for problem in found.problems]
    for pair in found.comparisons:
        parts.append(markdown(numbers(found, pair)))
        parts.append("".join(f"- {line}\n" for line in (*verdict(pair), *images(pair, listed))))
    if found.settings:
        parts.append(markdown(settings(found)))
        parts.append("".join(f"- {line}\n" for line in settings_of_one(found)))
    return "\n".join(parts)


def _show(found: Compared, listed: int) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    for problem in found.problems:
        console.print(f"warning: {problem}", style="yellow", markup=False)
    for name, path in zip("AB", found.names, strict=True):
        console.print(f"{name}  {path}", markup=False)
    for pair in found.comparisons:
        console.print()
        _print(console, numbers(found, pair))
        for line in (*verdict(pair), *images(pair, listed)):
            console.print(line, markup=False)
    if found.settings:
        console.print()
        _print(console, settings(found))
        for line in settings_of_one(found):
            console.print(line, markup=False)


def _print(console: Console, table: Table) -> None:
    from rich.text import Text

    from maar.reporting.console import render

    console.print(Text(table.title, "bold"))
    console.print(render(table, console.width))


def numbers(found: Compared, pair: Comparison) -> Table:
    """What each certifies, and how many images only one of them does."""
    from maar.reporting.compare import BROKEN
    from maar.reporting.model import Cell, Column, Table
    from maar.reporting.systems import eps_text

    n, test = len(pair.images), pair.certified
    _, low, high = test.difference

    def share(name: str, *verdicts: str, rest: bool) -> tuple[Cell, ...]:
        counts = [pair.count(one, *verdicts) for one in (pair.a, pair.b)]
        shares = [1 - count / n if rest else count / n for count in counts]
        apart = Cell(f"{100 * (shares[0] - shares[1]):+.2f}", shares[0] - shares[1])
        return (Cell(name), *(Cell(f"{100 * x:.2f}", x) for x in shares), apart, Cell())

    certified = share("certified, in %", "verified", rest=False)
    # Of one network there is nothing to estimate: what differs is not the images' doing.
    interval = Cell("" if _is_same(pair) else f"95 %: {100 * low:+.2f} to {100 * high:+.2f}")
    counts = [
        ("open images", pair.open(pair.a), pair.open(pair.b), ""),
        ("certified by this one only", test.b, test.c, _who(pair)),
    ]
    rows = [(*certified[:-1], interval), share("not broken, in %", *BROKEN, rest=True)]
    rows.append(share("correct, in %", "misclassified", rest=True))
    for name, a, b, why in counts:
        cells = (Cell(f"{a:,}", a), Cell(f"{b:,}", b), Cell(f"{a - b:+,}", a - b))
        rows.append((Cell(name), *cells, Cell(why)))
    columns = (
        Column(""),
        *(Column(name, numeric=True) for name in ("A", "B", "A - B")),
        Column(""),
    )
    title = f"{pair.a.data} {pair.a.split}, eps {eps_text(pair.a.eps)}: {n:,} images"
    names = f"A is {found.names[0]}, B is {found.names[1]}."
    return Table("compare", title, columns, tuple(rows), names)


def _who(pair: Comparison) -> str:
    both = pair.pairs()["certified", "certified"]
    neither = len(pair.images) - both - pair.certified.b - pair.certified.c
    return f"both {both:,}, neither {neither:,}"


def verdict(pair: Comparison) -> list[str]:
    """The answers in words, caveats included."""
    lines = [_same(pair)] if _is_same(pair) else _statistics(pair)
    for name, one in (("A", pair.a), ("B", pair.b)):
        more = len(one.verdicts) - len(pair.images)
        if more:
            lines.append(f"{name} has {more:,} images that the other has not: left out.")
    if not _is_same(pair) and pair.a.verifiers != pair.b.verifiers:
        lines.append(
            f"Certified by different verifiers ({', '.join(pair.a.verifiers)}; "
            f"{', '.join(pair.b.verifiers)}): part of the difference may be theirs."
        )
    elif not _is_same(pair) and pair.a.asked != pair.b.asked:
        lines.append(
            "The verifiers had different settings: part of the difference may be theirs "
            "(`verifiers` in the manifests of the certifications)."
        )
    if pair.a.limits != pair.b.limits and pair.a.limits and pair.b.limits:
        given = [", ".join(f"{x:g}" for x in one.limits) for one in (pair.a, pair.b)]
        lines.append(f"Open images had {given[0]} s each of A, {given[1]} s of B.")
    return lines


def _is_same(pair: Comparison) -> bool:
    return pair.a.weights == pair.b.weights


def _same(pair: Comparison) -> str:
    differs = any(pair.a.verdicts[i] != pair.b.verdicts[i] for i in pair.images)
    what = "what differs is the verifiers' work" if differs else "every verdict is the same"
    return f"Both are the same weights: {what}."


def _statistics(pair: Comparison) -> list[str]:
    """Whether it is chance, and what the open images could change."""
    test = pair.certified
    exact, mid = test.p
    lines = [f"McNemar: {_p(exact)} exact, {_p(mid)} mid-p: {_meaning(test.b, test.c, exact)}"]
    opened = [pair.open(one) for one in (pair.a, pair.b)]
    if any(opened):
        low, high = (f"{100 * extreme.difference[0]:+.2f}" for extreme in pair.extremes)
        lines.append(
            f"Open images: {opened[0]:,} of A and {opened[1]:,} of B. Whatever they are, the robust"
            f" shares differ by {low} to {high} points: {_robust(pair)}"
        )
    return lines


def _p(value: float) -> str:
    return (
        "p < 0.0001" if value < 1e-4 else f"p = {value:.4f}" if value < 0.1 else f"p = {value:.2f}"
    )


def _meaning(b: int, c: int, p: float) -> str:
    if b == c:
        return "as many each."
    better = "A" if b > c else "B"
    if p < 0.05:
        return f"{better} certifies more; significant at the 5 % level."
    return f"{better} certifies more; not significant at the 5 % level."


def _robust(pair: Comparison) -> str:
    """What is known however the open images turn out."""
    best_for_b, best_for_a = pair.extremes
    if best_for_b.b > best_for_b.c and best_for_b.p[0] < 0.05:
        return "A is more robust in any case (p < 0.05)."
    if best_for_a.b < best_for_a.c and best_for_a.p[0] < 0.05:
        return "B is more robust in any case (p < 0.05)."
    return "which one is more robust is not settled."


def images(pair: Comparison, listed: int) -> list[str]:
    """The images that only one certifies."""
    lines = []
    for name, other_name, one, other in (("A", "B", pair.a, pair.b), ("B", "A", pair.b, pair.a)):
        found = pair.only(one, other)
        if not found or not listed:
            continue
        kinds = [other.verdicts[i] for i in found]
        parts = [
            f"{kinds.count(kind):,} {kind}"
            for kind in ("misclassified", "falsified", "unknown", "error")
            if kind in kinds
        ]
        shown = ", ".join(map(str, found[:listed]))
        more = f", ... ({len(found) - listed:,} more)" if len(found) > listed else ""
        lines.append(f"Only {name} certifies (of {other_name}: {', '.join(parts)}): {shown}{more}")
    return lines


def settings(found: Compared) -> Table:
    """In what the configurations differ, where both have the setting."""
    from maar.reporting.model import Cell, Column, Table

    both = [row for row in found.settings if row[1] and row[2]]
    rows = tuple(tuple(map(Cell, row)) for row in both)
    columns = (Column("setting"), Column("A"), Column("B"))
    return Table("settings", "Settings that differ", columns, rows)


def settings_of_one(found: Compared) -> list[str]:
    """Settings that the other's method does not have: long lists that say little."""
    lines = []
    for side, name in ((1, "A"), (2, "B")):
        own = [f"{row[0]} {row[side]}" for row in found.settings if not row[3 - side]]
        if own:
            lines.append(f"Only {name} has: {', '.join(own)}")
    return lines
