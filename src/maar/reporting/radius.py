"""Radii: how they are spread, as a table, and the share that is proved at each eps, as a figure."""

from __future__ import annotations

from maar.records.reading import count, number, table
from maar.reporting.collect import Collected, Run, Store
from maar.reporting.model import Axis, Cell, Column, Figure, Series, Table
from maar.reporting.systems import evidence_of, plain

QUANTILES = ("5", "25", "50", "75", "95", "mean")
POINTS = 60
"""On a curve."""


def radius_table(found: Collected) -> Table | None:
    """Two rows for each search, the proved end and the broken one."""
    rows = []
    for run in found.runs:
        for store in run.radii:
            rows += [_row(run, store, end) for end in ("lower", "upper")]
    if not rows:
        return None
    columns = (
        Column("network"),
        Column("end", help="lower: proved up to; upper: broken at"),
        Column("images", numeric=True),
        Column("found", numeric=True, help="Images whose two ends are as close as asked for"),
        *(Column(_quantile(name), numeric=True, help="Of the radius") for name in QUANTILES),
    )
    caption = "Misclassified images count with the radius 0, those never broken with the end 1."
    return Table("radii", "Radii", columns, tuple(rows), caption)


def _quantile(name: str) -> str:
    return name if name == "mean" else f"{name} %"


def _row(run: Run, store: Store, end: str) -> tuple[Cell, ...]:
    quantiles = table(store.summary, end)
    cells = []
    for name in QUANTILES:
        value = number(quantiles, name)
        cells.append(
            Cell() if value is None else Cell(f"{value:.4f}", value, evidence_of(store, run))
        )
    found = count(store.summary, "found")
    images = Cell(f"{store.images:,}", store.images)
    return plain(run.name), plain(end), images, Cell(f"{found:,}", found), *cells


def radius_figure(found: Collected) -> Figure | None:
    """The share of images proved, and the share not broken, at each eps."""
    series = []
    for run in found.runs:
        for store in run.radii:
            if store.lines:
                series += _shares(run, store)
    if not series:
        return None
    return Figure(
        "radii",
        "Share of the images that are robust, over eps",
        "lines",
        Axis("eps"),
        Axis("share of the images", is_share=True),
        tuple(series),
        caption="Proved for the whole ball of that radius; dashed: not broken within it. The truth "
        "lies between the two.",
    )


def _shares(run: Run, store: Store) -> list[Series]:
    lines = list(store.lines.values())
    lower = [number(line, "lower") or 0.0 for line in lines]
    upper = [number(line, "upper") for line in lines]
    broken = [1.0 if end is None else end for end in upper]
    misclassified = [line.get("verdict") == "misclassified" for line in lines]
    broken = [0.0 if wrong else end for wrong, end in zip(misclassified, broken, strict=True)]
    last = max([*lower, *(end for end in upper if end is not None)], default=0.0) or 1.0
    x = tuple(last * k / POINTS for k in range(POINTS + 1))
    texts = (f"{len(lines):,} images",) * len(x)
    # A radius of 0 proves nothing, so that at 0 just what is classified correctly counts.
    proved = tuple(
        sum(end >= max(eps, 1e-12) for end in lower) / len(lines) if eps else _right(misclassified)
        for eps in x
    )
    unbroken = tuple(sum(end > eps for end in broken) / len(lines) for eps in x)
    return [
        Series(f"{run.name}, proved", x, proved, texts=texts, group=run.name),
        Series(f"{run.name}, not broken", x, unbroken, texts=texts, group=run.name, is_dashed=True),
    ]


def _right(misclassified: list[bool]) -> float:
    return 1 - sum(misclassified) / len(misclassified)
