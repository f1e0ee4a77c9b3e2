"""Experiments of `maar reproduce` as sections of a report: the table, figures, what was skipped."""

from __future__ import annotations

import re
from collections.abc import Container
from pathlib import Path
from typing import Any

from maar.records.reading import Object, number, table, word
from maar.reporting.curves import curve_figures
from maar.reporting.kept import kept_systems
from maar.reporting.model import Axis, Block, Figure, Notice, Section, Series
from maar.reporting.published import (
    METRICS,
    X_NAMES,
    elsewhere,
    mean_of,
    objects,
    published_of,
    result_table,
    setting_of,
)
from maar.reporting.stages import stage_figures


def experiment_section(
    path: Path, content: Object, id: str, here: Container[str] = ()
) -> Section | None:
    """The section of one experiment, its blocks' names begin with `id`; None if it has no rows.

    The epochs of runs that are `here`, by name, are drawn in a section of their own.
    """
    rows = objects(content, "rows")
    beside = objects(content, "beside")
    if not rows and not beside:
        return None
    name = word(content, "name") or path.stem
    title = word(content, "title") or name
    titles = {word(row, "setting"): setting_of(row) for row in rows}
    beside = [{"setting_title": titles.get(word(row, "setting"), ""), **row} for row in beside]
    blocks: list[Block] = []
    if rows:
        blocks += [result_table(id, title, content, path), *_figures(id, content, rows)]
        kept = kept_systems(rows, here)
        blocks += [*curve_figures(kept, f"{id}-"), *stage_figures(kept, f"{id}-")]
    if beside:
        blocks.append(elsewhere(id, beside))
    facts = {
        "Compared with": word(content, "of"),
        "profile": word(content, "profile"),
        "hardware": word(content, "hardware"),
        "weights": word(content, "weights"),
        "command": word(content, "command"),
    }
    said = "; ".join(f"{key}: {text}" for key, text in facts.items() if text)
    caption = ". ".join(filter(None, (word(content, "about"), said)))
    return Section(f"experiment-{id}", title, tuple(blocks), caption)


def experiment_notices(path: Path, content: Object) -> list[Notice]:
    """The banner of a reduced profile, and what was skipped or failed."""
    name = word(content, "name") or path.stem
    notices = []
    banner = word(content, "banner") or (word(content, "caveat") if content.get("reduced") else "")
    if banner:
        notices.append(Notice("warning", f"{name}: {banner}"))
    elif content.get("reduced"):
        profile = word(content, "profile")
        notices.append(Notice("warning", f"{name}: numbers of the reduced profile {profile}"))
    rows = objects(content, "rows")
    if word(content, "kind") == "training" and rows and not any(map(_has_epochs, rows)):
        again = f"maar reproduce {name} trains again"
        notices.append(Notice("info", f"{name} has no curves: its epochs were not kept ({again})"))
    if content.get("is_complete") is False:
        notices.append(Notice("info", f"{name} is not finished: rows without numbers are to come"))
    for kind, level in (("failed", "error"), ("skipped", "info")):
        for row in objects(content, kind):
            text = f"{name}, {_row_name(row)}: {kind}, {word(row, 'reason')}"
            notices.append(Notice("error" if level == "error" else "info", text))
    return notices


def _has_epochs(row: Object) -> bool:
    found = row.get("epochs")
    return isinstance(found, list) and any(found)


def slug(name: str) -> str:
    """A name for files and anchors: a-z, 0-9 and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unnamed"


def _row_name(row: Object) -> str:
    value = row.get("row", row)
    if isinstance(value, dict):
        return " ".join(filter(None, (setting_of(value), word(value, "system"))))
    return str(value)


def _share(value: Any) -> float | None:
    return number({"": value}, "")


def _figures(id: str, content: Object, rows: list[Object]) -> list[Figure]:
    """For experiments laid out over eps, lam or stages, one figure of each metric."""
    kind = word(content, "kind")
    if kind not in X_NAMES:
        return []
    figures = []
    for key, (_, long) in METRICS.items():
        series = _series(rows, key, is_text=kind != "lam")
        if series:
            figures.append(
                Figure(
                    f"{id}-{slug(key)}",
                    f"{long.partition(':')[0]} over {X_NAMES[kind]}",
                    "bars" if kind == "eps" else "lines",
                    Axis(X_NAMES[kind], "number" if kind == "lam" else "category"),
                    Axis(long.partition(":")[0].lower(), is_share=True),
                    tuple(series),
                    caption="Dashed or pale: published. A standard deviation to each side.",
                )
            )
    return figures


def _series(rows: list[Object], key: str, is_text: bool) -> list[Series]:
    groups: dict[str, list[Object]] = {}
    settings = set(map(setting_of, rows))
    for row in rows:
        if row.get("x") is not None:
            setting = f" ({setting_of(row)})" if len(settings) > 1 else ""
            groups.setdefault(word(row, "system") + setting, []).append(row)
    series = []
    for name, of_system in groups.items():
        x = tuple(str(row["x"]) if is_text else float(_share(row["x"]) or 0.0) for row in of_system)
        ours = tuple(mean_of(row, key) for row in of_system)
        if any(y is not None for y in ours):
            ends = [_ends(row, key) for row in of_system]
            has_ends = any(ends)
            series.append(
                Series(
                    name,
                    x,
                    ours,
                    tuple(end[0] if end else None for end in ends) if has_ends else (),
                    tuple(end[1] if end else None for end in ends) if has_ends else (),
                    tuple(f"{len(row.get('seeds') or ())} seeds" for row in of_system),
                    name,
                )
            )
        published = tuple(published_of(row, key) for row in of_system)
        if any(y is not None for y in published):
            series.append(Series(f"{name}, published", x, published, group=name, is_dashed=True))
    return series


def _ends(row: Object, key: str) -> tuple[float, float] | None:
    mean, std = mean_of(row, key), number(table(table(row, "metrics"), key), "std")
    return None if mean is None or not std else (mean - std, mean + std)
