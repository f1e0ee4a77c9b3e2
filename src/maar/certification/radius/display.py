"""What is seen of a search for radii."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from maar.records.radii import QUANTILES, RadiusTally
from maar.records.verdicts import Record
from maar.terminal.clock import clock
from maar.terminal.tables import table

if TYPE_CHECKING:
    from maar.certification.run import Plan


def subject(plan: Plan) -> str:
    """What is searched for."""
    return f"radii of {plan.name or 'network'} on {plan.data.name}, up to {plan.eps}"


def counts(tally: RadiusTally) -> str:
    """`97 found, 2 open, ...`."""
    parts = [f"{count:,} {verdict}" for verdict, count in tally.counts.items()]
    if tally.done < tally.images:
        parts.append(f"{tally.images - tally.done:,} to do")
    return ", ".join(parts)


def result(tally: RadiusTally) -> RenderableType:
    """How far the images are proved, and from where on they are broken."""
    names = {0: "least", 50: "median", 100: "most"}
    heads = [*(names.get(share, f"{share} %") for share in QUANTILES), "mean"]
    shown = table("of the images", *heads, right=heads)
    spread = tally.spread()
    for name, end, style in (("proved up to", "lower", "green"), ("broken at", "upper", "red")):
        values = (spell(value, end) for value in spread.get(end, ()))
        shown.add_row(name, *values, style=style)
    lines = [Text(counts(tally), "bold")]
    if tally.proved_by:
        who = ", ".join(f"{name} {count:,}" for name, count in tally.proved_by.most_common())
        lines.append(Text(f"lower ends proved by {who}"))
    if tally.done:
        each = tally.questions / tally.done
        lines.append(Text(f"{each:.1f} questions an image, {clock(tally.seconds)} in all", "dim"))
    if tally.last_error:
        lines.append(Text(tally.last_error, "red"))
    return Group(shown, "", *lines)


def spell(radius: float, end: str) -> str:
    """Four digits, rounded to the side on which the claim still holds."""
    digits = math.floor(radius * 1e4) if end == "lower" else math.ceil(radius * 1e4)
    return f"{digits / 1e4:.4f}"


def each(records: Iterable[Record], classes: Sequence[str] = ()) -> RenderableType:
    """Image by image."""
    heads = ("image", "label", "proved up to", "by", "broken at", "by", "as")
    shown = table(*heads, right={*heads} - {"by"})
    for record in records:
        upper, target = record["upper"], record.get("target")
        shown.add_row(
            str(record["index"]),
            spell_class(record["label"], classes),
            spell(record["lower"], "lower"),
            record["lower_by"] or "",
            "" if upper is None else spell(upper, "upper"),
            record["upper_by"] or ("" if record["verdict"] != "error" else "error"),
            "" if target is None else spell_class(target, classes),
        )
    return shown


def spell_class(label: int, classes: Sequence[str]) -> str:
    """Return a class by name where it has one other than its number."""
    name = classes[label] if label < len(classes) else ""
    return str(label) if name in ("", str(label)) else f"{name} ({label})"
