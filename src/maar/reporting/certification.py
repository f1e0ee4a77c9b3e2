"""Certification as figures: CR over eps and over lam, and which verifier settled what."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from maar.records.reading import count, number, table
from maar.records.stores import MODEL
from maar.reporting.collect import Collected, Run, Store
from maar.reporting.model import Axis, Figure, Series
from maar.reporting.results import accuracies_of, certified, label, radii_of
from maar.reporting.systems import (
    NOT_THE_SYSTEM,
    System,
    eps_text,
    evidence_of,
    flat,
    spread,
    systems,
    together,
)

MANY = 24
"""So many bars are legible beside each other."""


def shares(stores: Sequence[tuple[Run, Store]]) -> list[float]:
    """CR of each certification."""
    return [number(store.summary, "certified") or 0.0 for _, store in stores]


def cr_over_eps(found: Collected) -> list[Figure]:
    """Bars of CR at each eps, a colour for each system; one figure for a data set with several."""
    figures = []
    every = systems(found.runs)
    datasets = list(dict.fromkeys(system.first.data for system in every))
    for data in datasets:
        ours = [system for system in every if system.first.data == data]
        points = {
            system.name: {
                eps: stores for eps in radii_of(system) if (stores := certified(system, eps))
            }
            for system in ours
        }
        radii = sorted(
            {eps for of_system in points.values() for eps in of_system if eps is not None}
        )
        series = [_bars(name, radii, of_system) for name, of_system in points.items() if of_system]
        if not series or len(radii) < 2:
            continue  # of one radius the table says all
        figures.append(
            Figure(
                "cr-over-eps" if len(datasets) == 1 else f"cr-over-eps-{datasets.index(data) + 1}",
                f"Certified robustness over eps ({data})",
                "bars",
                Axis("eps", "category"),
                Axis("certified robustness", is_share=True),
                tuple(series),
                caption="Mean over the seeds, with a standard deviation to each side; of a single "
                "certification, from what is proved to what is not disproved.",
            )
        )
    return figures


def _bars(
    name: str, radii: list[float], stores: dict[float | None, list[tuple[Run, Store]]]
) -> Series:
    y: list[float | None] = []
    low: list[float | None] = []
    high: list[float | None] = []
    texts = []
    for eps in radii:
        of_eps = stores.get(eps, [])
        values = shares(of_eps)
        y.append(fmean(values) if values else None)
        ends = spread(values)
        if ends is None and values:
            upper = number(of_eps[0][1].summary, "certified_upper")
            ends = (values[0], values[0] if upper is None else upper)
        low.append(ends[0] if ends else None)
        high.append(ends[1] if ends else None)
        texts.append(str(together([evidence_of(store, run) for run, store in of_eps]) or ""))
    x = tuple(map(eps_text, radii))
    return Series(name, x, tuple(y), tuple(low), tuple(high), tuple(texts), name)


def lambda_figures(found: Collected) -> list[Figure]:
    """ACC and CR over lam, where systems differ in nothing else."""
    groups: dict[str, list[tuple[float, System]]] = {}
    for system in systems(found.runs):
        config = flat(system.first.config)
        lam = number(config, "method.lam")
        if lam is not None:
            kept = {
                key: value
                for key, value in config.items()
                if key not in (*NOT_THE_SYSTEM, "method.lam")
            }
            kept["revision"] = system.first.env.get("revision", 1)
            groups.setdefault(repr(sorted(kept.items())), []).append((lam, system))
    figures = []
    for group in groups.values():
        if len(group) < 2:
            continue
        group.sort(key=lambda pair: pair[0])
        first = group[0][1].first
        accuracy, robust = [], []
        for _, system in group:
            stores = certified(system, first.eps)
            accuracy.append(accuracies_of(system, stores)[0])
            robust.append(shares(stores))
        x = tuple(lam for lam, _ in group)
        series = [
            line(name, x, values)
            for name, values in (("CR", robust), ("ACC", accuracy))
            if any(values)
        ]
        if series:
            where = f"{first.method} on {first.data}, eps {eps_text(first.eps)}"
            figures.append(
                Figure(
                    "lambda" if not figures else f"lambda-{len(figures) + 1}",
                    f"Accuracy and certified robustness over lam ({where})",
                    "lines",
                    Axis("lam"),
                    Axis("share of the images", is_share=True),
                    tuple(series),
                    caption="Runs that differ in lam and seed alone; mean, and a standard "
                    "deviation to each side.",
                )
            )
    return figures


def line(
    name: str, x: tuple[float | str, ...], values: Sequence[Sequence[float]], group: str = ""
) -> Series:
    """Means, with their spread where there are several seeds."""
    ends = [spread(of_x) for of_x in values]
    has_ends = any(ends)
    return Series(
        name,
        x,
        tuple(fmean(of_x) if of_x else None for of_x in values),
        tuple(end[0] if end else None for end in ends) if has_ends else (),
        tuple(end[1] if end else None for end in ends) if has_ends else (),
        tuple(f"{len(of_x)} seed{'s' * (len(of_x) != 1)}" if of_x else "" for of_x in values),
        group or name,
    )


def cascade_figures(found: Collected) -> list[Figure]:
    """Two figures: the images that each verifier settled, and the seconds that it took."""
    stores = [
        (run, store)
        for run in found.runs
        for store in run.certifications
        if store.images and table(store.summary, "verifiers")
    ]
    left_out = len(stores) - MANY
    # The final weights are of more interest than those of stages.
    stores = sorted(stores, key=lambda pair: pair[1].weights != MODEL)[:MANY]
    if not stores:
        return []
    names = _in_order([list(table(store.summary, "verifiers")) for _, store in stores])
    labels = tuple(label(run, store) for run, store in stores)
    rows = [table(store.summary, "verifiers") for _, store in stores]
    settled = [
        Series(
            name,
            labels,
            tuple(
                (count(table(row, name), "verified") + count(table(row, name), "falsified"))
                / store.images
                for row, (_, store) in zip(rows, stores, strict=True)
            ),
            texts=tuple(_outcome(table(row, name)) for row in rows),
            group=name,
        )
        for name in names
    ]
    still_open = [
        count(store.summary, "unknown") + count(store.summary, "error") for _, store in stores
    ]
    if any(still_open):
        share = [left / store.images for left, (_, store) in zip(still_open, stores, strict=True)]
        texts = tuple(f"{left:,} open" for left in still_open)
        settled.append(Series("nobody", labels, tuple(share), texts=texts, group="nobody"))
    seconds = [
        Series(
            name,
            labels,
            tuple(number(table(row, name), "seconds") or 0.0 for row in rows),
            texts=tuple(f"{count(table(row, name), 'reached'):,} images asked" for row in rows),
            group=name,
        )
        for name in names
    ]
    notes = (f"{left_out} more are in the table of certifications.",) if left_out > 0 else ()
    category = Axis("certification", "category")
    return [
        Figure(
            "cascade-images",
            "Who settled what",
            "stacked",
            category,
            Axis("share of the images", is_share=True),
            tuple(settled),
            caption="Images that each verifier verified or falsified, in the order in which they "
            "are asked. Misclassified images need none; images that none settles are unknown.",
            notes=notes,
        ),
        Figure(
            "cascade-seconds",
            "In how many seconds",
            "stacked",
            category,
            Axis("seconds"),
            tuple(seconds),
            caption="Seconds in each verifier, all images together.",
            notes=notes,
        ),
    ]


def _in_order(lists: list[list[str]]) -> list[str]:
    """All verifiers, each behind those that are asked before it; the longest cascade leads."""
    merged: list[str] = []
    for names in sorted(lists, key=len, reverse=True):
        for place, name in enumerate(names):
            if name not in merged:
                before = [merged.index(other) for other in names[:place] if other in merged]
                merged.insert(max(before) + 1 if before else 0, name)
    return merged


def _outcome(row: dict[str, object]) -> str:
    return f"{count(row, 'verified'):,} proved, {count(row, 'falsified'):,} broken"
