"""Experiments of `maar reproduce`: published numbers beside our own, as a table and as figures.

The file is read leniently: what it lacks is left blank. Shares lie in [0, 1].
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from maar.records.reading import Object, count, number, table, word, words
from maar.reporting.curves import curve_figures
from maar.reporting.kept import kept_systems
from maar.reporting.model import (
    Axis,
    Block,
    Cell,
    Column,
    Evidence,
    Figure,
    Notice,
    Section,
    Series,
    Table,
)
from maar.reporting.stages import stage_figures
from maar.reporting.systems import plain

METRICS = {
    "accuracy": ("ACC", "Original accuracy"),
    "certified": ("CR", "Certified robustness"),
    "latent_robustness": ("LR", "Latent robustness"),
    "verified_error": ("VE", "Verified error: the attack's success on training images"),
}
X_NAMES = {"eps": "eps", "lam": "lam", "stages": "stage"}
"""Kind of experiment -> what its rows are laid out over."""
NOT_COMPARABLE = "published with another network or verifier: not to be ranked with ours"


def experiment_section(
    path: Path, content: Object, id: str, here: Container[str] = ()
) -> Section | None:
    """The section of one experiment, its blocks' names begin with `id`; None if it has no rows.

    The epochs of runs that are `here`, by name, are drawn in a section of their own.
    """
    rows = _objects(content, "rows")
    beside = _objects(content, "beside")
    if not rows and not beside:
        return None
    name = word(content, "name") or path.stem
    title = word(content, "title") or name
    titles = {word(row, "setting"): _setting(row) for row in rows}
    beside = [{"setting_title": titles.get(word(row, "setting"), ""), **row} for row in beside]
    blocks: list[Block] = []
    if rows:
        blocks += [_table(id, title, content, rows, path), *_figures(id, content, rows)]
        kept = kept_systems(rows, here)
        blocks += [*curve_figures(kept, f"{id}-"), *stage_figures(kept, f"{id}-")]
    if beside:
        blocks.append(_elsewhere(id, beside))
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
    rows = _objects(content, "rows")
    if word(content, "kind") == "training" and rows and not any(map(_has_epochs, rows)):
        again = f"maar reproduce {name} trains again"
        notices.append(Notice("info", f"{name} has no curves: its epochs were not kept ({again})"))
    if content.get("is_complete") is False:
        notices.append(Notice("info", f"{name} is not finished: rows without numbers are to come"))
    for kind, level in (("failed", "error"), ("skipped", "info")):
        for row in _objects(content, kind):
            text = f"{name}, {_row_name(row)}: {kind}, {word(row, 'reason')}"
            notices.append(Notice("error" if level == "error" else "info", text))
    return notices


def _has_epochs(row: Object) -> bool:
    found = row.get("epochs")
    return isinstance(found, list) and any(found)


def slug(name: str) -> str:
    """A name for files and anchors: a-z, 0-9 and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unnamed"


def _setting(row: Object) -> str:
    return word(row, "setting_title") or word(row, "setting")


def _row_name(row: Object) -> str:
    value = row.get("row", row)
    if isinstance(value, dict):
        return " ".join(filter(None, (_setting(value), word(value, "system"))))
    return str(value)


def _objects(content: Object, key: str) -> list[Object]:
    found = content.get(key)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _table(id: str, title: str, content: Object, rows: list[Object], path: Path) -> Table:
    shown = [
        key
        for key in METRICS
        if any(_mean(row, key) is not None or _published(row, key) is not None for row in rows)
    ]
    x_name = X_NAMES.get(word(content, "kind"), "at")
    has_x = any(row.get("x") is not None for row in rows)
    columns = [Column("setting", filterable=True), Column("system")]
    columns += [Column(x_name, numeric=True)] if has_x else []
    for key in shown:
        short, long = METRICS[key]
        columns += [
            Column(short, numeric=True, help=f"{long}, measured here, in %"),
            Column(f"{short} published", numeric=True, help=f"{long}, in %"),
            Column(f"{short} difference", numeric=True, help="Ours minus published, in points"),
        ]
    columns += [
        Column("seeds", numeric=True),
        Column("images", numeric=True),
        Column("preset", help="Which verifiers were asked"),
    ]
    settings = dict.fromkeys(map(_setting, rows))
    ordered = [row for setting in settings for row in rows if _setting(row) == setting]
    cells = tuple(_row(row, shown, has_x, content, path) for row in ordered)
    return Table(
        id,
        f"{title}: published and measured",
        tuple(columns),
        cells,
        "In %; mean and standard deviation over the seeds. The difference is ours minus the "
        "published number.",
        tuple(_notes(rows)),
        group_by=0,
    )


def _elsewhere(id: str, rows: list[Object]) -> Table:
    """Published numbers that nothing here was measured for: a table of their own, never ranked."""
    shown = [key for key in METRICS if any(_published(row, key) is not None for row in rows)]
    columns = (
        Column("setting"),
        Column("system"),
        *(Column(METRICS[key][0], numeric=True, help=METRICS[key][1]) for key in shown),
        Column("network"),
        Column("verifier"),
    )
    cells = tuple(
        (
            plain(_setting(row)),
            plain(word(row, "system")),
            *(_published_cell(row, _published(row, key), True) for key in shown),
            plain(word(row, "published_network")),
            plain(word(row, "published_verifier")),
        )
        for row in rows
    )
    return Table(
        f"{id}-elsewhere",
        "Published elsewhere, with other networks or verifiers",
        columns,
        cells,
        "In %. Not measured here, and not to be ranked with the numbers above.",
        tuple(_notes(rows)),
        group_by=0,
    )


def _notes(rows: Sequence[Object]) -> list[str]:
    """Sources and caveats below the table, each with the rows that it is about."""
    notes: dict[str, list[str]] = {}
    for row in rows:
        if (source := word(row, "source")) and table(row, "published"):
            notes.setdefault(f"published in {source}", []).append(word(row, "system"))
    for row in rows:
        if caveat := word(row, "caveat"):
            notes.setdefault(caveat, []).append(word(row, "system"))
        if said := word(row, "measured_caveat"):
            at = "" if row.get("x") is None else f" at {row['x']}"
            notes.setdefault(f"measured here, but {said}", []).append(word(row, "system") + at)
        for also in _objects(row, "also_published"):
            shares = [
                f"{METRICS[key][0]} {100 * value:.1f}"
                for key in METRICS
                if (value := _published(also, key)) is not None
            ]
            parts = (", ".join(shares), word(also, "source"), word(also, "caveat"))
            text = f"also published: {'; '.join(filter(None, parts))}"
            notes.setdefault(text, []).append(word(row, "system"))
    return [
        f"{', '.join(dict.fromkeys(filter(None, names)))}: {caveat}"
        for caveat, names in notes.items()
    ]


def _row(
    row: Object, shown: list[str], has_x: bool, content: Object, path: Path
) -> tuple[Cell, ...]:
    evidence = _evidence(row, content, path)
    # Accuracy is known of all test images; only a stage's is of those that were certified.
    of_all = replace(evidence, images=None, of=None)
    proved = replace(evidence, hardware=word(row, "certified_on") or evidence.hardware)
    is_comparable = row.get("is_comparable") is not False
    cells = [plain(_setting(row)), plain(word(row, "system"))]
    if has_x:
        x = row.get("x")
        cells.append(Cell() if x is None else Cell(str(x), _sortable(x)))
    for key in shown:
        ours, published = _mean(row, key), _published(row, key)
        std = number(table(table(row, "metrics"), key), "std")
        text = "" if ours is None else f"{100 * ours:.2f}"
        if std is not None and len(evidence.seeds) > 1:
            text += f" ± {100 * std:.2f}"
        mark = None
        if is_comparable and ours is not None and published is not None:
            mark = (published, ours)
        upper = _mean(row, "certified_upper") if key == "certified" else None
        note = "" if upper is None else f"at most {100 * upper:.2f} with more proofs"
        basis = proved if key == "certified" else evidence
        if key == "accuracy" and content.get("kind") != "stages":
            basis = of_all
        cells.append(Cell(text, ours, basis, "strong", note, mark=mark) if text else Cell())
        cells.append(_published_cell(row, published, is_comparable))
        cells.append(_difference(ours, published) if is_comparable else Cell())
    seeds = evidence.seeds
    images = count(row, "images")
    return (
        *cells,
        Cell(str(len(seeds)), len(seeds)) if seeds else Cell(),
        Cell(f"{images:,}", images) if images else Cell(),
        plain(word(row, "preset")),
    )


def _published_cell(row: Object, published: float | None, is_comparable: bool) -> Cell:
    if published is None:
        return Cell()
    facts = {
        "source": word(row, "source"),
        "network": word(row, "published_network"),
        "verifier": word(row, "published_verifier"),
        # Another network's number is printed, but neither compared nor ranked.
        "caveat": "" if is_comparable else NOT_COMPARABLE,
    }
    note = "; ".join(f"{name}: {text}" for name, text in facts.items() if text)
    tone = "" if is_comparable else "muted"
    # As many digits as were published, one at least.
    text = f"{100 * published:.2f}"
    return Cell(text.removesuffix("0"), published, tone=tone, note=note)


def _difference(ours: float | None, published: float | None) -> Cell:
    if ours is None or published is None:
        return Cell()
    change = ours - published
    return Cell(f"{100 * change:+.2f}", change, tone="good" if change >= 0 else "bad")


def _mean(row: Object, key: str) -> float | None:
    return number(table(table(row, "metrics"), key), "mean")


def _published(row: Object, key: str) -> float | None:
    return number(table(row, "published"), key)


def _share(value: Any) -> float | None:
    return number({"": value}, "")


def _sortable(x: object) -> str | float | int:
    return x if isinstance(x, int | float) else str(x)


def _evidence(row: Object, content: Object, path: Path) -> Evidence:
    commands = words(row, "commands") or tuple(filter(None, [word(row, "command")]))
    sources = [*words(row, "certify"), *words(row, "runs")] or [str(path)]
    return Evidence(
        source=", ".join(sources),
        images=count(row, "images") or None,
        of=count(row, "of") or None,
        split=word(row, "split"),
        eps=str(row.get("eps") or ""),
        preset=word(row, "preset"),
        verifiers=words(row, "verifiers"),
        seconds=number(row, "seconds"),
        profile=word(row, "profile") or word(content, "profile"),
        seeds=_seeds(row, "seeds"),
        before=_seeds(row, "measured_before"),
        hardware=word(row, "hardware") or word(content, "hardware"),
        command="; ".join(commands) or word(content, "command"),
    )


def _seeds(row: Object, key: str) -> tuple[int, ...]:
    found = row.get(key)
    return tuple(s for s in found if isinstance(s, int)) if isinstance(found, list) else ()


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
    settings = set(map(_setting, rows))
    for row in rows:
        if row.get("x") is not None:
            setting = f" ({_setting(row)})" if len(settings) > 1 else ""
            groups.setdefault(word(row, "system") + setting, []).append(row)
    series = []
    for name, of_system in groups.items():
        x = tuple(str(row["x"]) if is_text else float(_share(row["x"]) or 0.0) for row in of_system)
        ours = tuple(_mean(row, key) for row in of_system)
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
        published = tuple(_published(row, key) for row in of_system)
        if any(y is not None for y in published):
            series.append(Series(f"{name}, published", x, published, group=name, is_dashed=True))
    return series


def _ends(row: Object, key: str) -> tuple[float, float] | None:
    mean, std = _mean(row, key), number(table(table(row, "metrics"), key), "std")
    return None if mean is None or not std else (mean - std, mean + std)
