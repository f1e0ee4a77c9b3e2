"""The tables of results: what each system achieves, and each certification by itself."""

from __future__ import annotations

from statistics import median

from maar.records.reading import count, number, numbers, table
from maar.records.stores import MODEL
from maar.reporting.collect import Collected, Run, Store
from maar.reporting.model import Cell, Column, Evidence, Table
from maar.reporting.systems import (
    System,
    accuracy,
    best,
    eps_text,
    evidence_of,
    percent,
    plain,
    same,
    seconds_cell,
    systems,
    trained,
)

ACC = "Original accuracy: share of the test images that are classified correctly, in %"
CR = "Certified robustness: share of the images that are classified correctly and proved, in %"
UPPER = "Upper bound on CR: the share of the images that no attack broke, in %"


def results_table(found: Collected) -> Table | None:
    """One row for each system and radius; None if nothing has a result yet."""
    is_whole = all(store.images in (0, store.of) for store in found.certifications)
    rows = [
        row
        for system in systems(found.runs)
        for eps in radii_of(system)
        if (row := _row(system, eps, is_whole)) is not None
    ]
    if not rows:
        return None
    columns = (
        Column("system", help="Runs that differ in their seed alone"),
        Column("data", filterable=True),
        Column("eps", numeric=True, help="L-infinity radius on pixels in [0, 1]"),
        Column(
            "seeds", numeric=True, help="How many runs CR is of, and of how many ACC is, if more"
        ),
        Column("ACC" if is_whole else "ACC (all)", numeric=True, help=ACC),
        *(() if is_whole else (Column("ACC", numeric=True, help=f"{ACC}, of the images of CR"),)),
        Column("CR", numeric=True, help=CR),
        Column("upper bound", numeric=True, help=UPPER),
        Column("images", numeric=True, help="That CR was measured on"),
        Column("preset", filterable=True, help="Which verifiers were asked"),
        Column("training", numeric=True, help="Median time of its finished runs"),
    )
    return Table(
        "results",
        "Results",
        columns,
        tuple(rows),
        "Mean and standard deviation over the seeds, in %. ACC (all) is of all test images; ACC, "
        "CR and its upper bound are of the images named.",
    )


def radii_of(system: System) -> list[float | None]:
    """Every eps that it was certified at, and the one that it was trained for."""
    found: list[float] = [] if system.first.eps is None else [system.first.eps]
    for run in system.runs:
        for store in run.certifications:
            is_final = store.weights == MODEL and store.images
            if is_final and not any(same(store.eps, eps) for eps in found):
                found.append(store.eps)
    return [*sorted(found)] or [None]


def certified(system: System, eps: float | None) -> list[tuple[Run, Store]]:
    """Of each run that has one, the certification to show."""
    found = [(run, best(run, eps)) for run in system.runs]
    return [(run, store) for run, store in found if store is not None]


def _row(system: System, eps: float | None, is_whole: bool) -> tuple[Cell, ...] | None:
    stores = certified(system, eps)
    accuracies, sources = accuracies_of(system, stores)
    if not stores and not accuracies:
        return None
    evidence = [evidence_of(store, run) for run, store in stores]
    seeds = len(stores) or len(accuracies)
    # A seed that was not certified counts for ACC alone.
    of = f" of {len(accuracies)}" if seeds < len(accuracies) else ""
    images = [store.images for _, store in stores]
    texts = dict.fromkeys(_images(store) for _, store in stores)
    finished = [run for run in system.runs if run.state == "finished"]
    presets = dict.fromkeys(store.preset or ", ".join(store.verifiers) for _, store in stores)
    return (
        plain(system.name),
        plain(system.first.data),
        Cell(eps_text(eps), eps),
        Cell(f"{seeds}{of}", seeds) if system.first.config else Cell(),
        percent(accuracies, sources),
        *(() if is_whole else (percent(_numbers(stores, "accuracy"), evidence),)),
        percent([number(store.summary, "certified") or 0.0 for _, store in stores], evidence),
        percent([number(store.summary, "certified_upper") or 0.0 for _, store in stores], evidence),
        Cell(" / ".join(texts), min(images, default=None)),
        plain(" / ".join(presets)),
        seconds_cell(median(run.seconds for run in finished or system.runs)),
    )


def _numbers(stores: list[tuple[Run, Store]], name: str) -> list[float]:
    return [x for _, store in stores if (x := number(store.summary, name)) is not None]


def _images(store: Store) -> str:
    return f"{store.images:,}" + ("" if store.split == "test" else f" {store.split}")


def accuracies_of(
    system: System, stores: list[tuple[Run, Store]]
) -> tuple[list[float], list[Evidence]]:
    """Of finished runs on all test images; of a network without a run, on the certified ones."""
    shares = [(accuracy(run), trained(run)) for run in system.runs]
    if not system.first.config:
        shares = [
            (number(store.summary, "accuracy"), evidence_of(store, run)) for run, store in stores
        ]
    known = [(share, evidence) for share, evidence in shares if share is not None]
    return [share for share, _ in known], [evidence for _, evidence in known]


def certifications_table(found: Collected) -> Table | None:
    """One row for each certification; None if there is none."""
    rows = []
    for run in found.runs:
        for store in run.certifications:
            if store.images:
                rows.append(_certification(run, store))
    if not rows:
        return None
    shares = {"ACC": ACC, "CR": CR, "upper bound": UPPER}
    counts = ("misclassified", "falsified", "verified", "unknown", "error")
    columns = (
        Column("network"),
        Column("weights", filterable=True, help="model is the end of a run"),
        Column("data", filterable=True),
        Column("split", filterable=True),
        Column("eps", numeric=True, filterable=True),
        Column("preset", filterable=True),
        *(Column(name, numeric=True, help=text) for name, text in shares.items()),
        Column("95 % interval", help="Of the robust share of the whole split, from these images"),
        Column("images", numeric=True),
        *(Column(name, numeric=True, help="Images") for name in counts),
        Column("seconds", numeric=True, help="Of all verifiers"),
        Column("state", filterable=True),
        Column("key", help="The first digits of the hash of weights, data, eps and verifiers"),
    )
    return Table("certifications", "Certifications", columns, tuple(rows), is_long=True)


def _certification(run: Run, store: Store) -> tuple[Cell, ...]:
    summary = store.summary
    evidence = evidence_of(store, run)

    def share(name: str) -> Cell:
        value = number(summary, name)
        return Cell() if value is None else percent([value], [evidence])

    ends = [f"{100 * end:.1f}" for end in numbers(summary, "certified_interval95")]
    counts = ("misclassified", "falsified", "verified", "unknown", "error")
    state = "complete" if store.is_complete else "in progress"
    return (
        plain(run.name),
        plain(store.weights),
        plain(store.data),
        plain(store.split),
        Cell(eps_text(store.eps), store.eps),
        plain(store.preset),
        share("accuracy"),
        share("certified"),
        share("certified_upper"),
        plain(" to ".join(ends)),
        Cell(f"{store.images:,}", store.images),
        *(Cell(f"{count(summary, name):,}", count(summary, name)) for name in counts),
        Cell(f"{store.seconds:,.1f}", store.seconds),
        Cell(state, state, tone="good" if store.is_complete else "muted"),
        plain(_key(store)),
    )


def cascade_table(found: Collected) -> Table | None:
    """One row for each verifier of each certification."""
    rows = []
    for run, store in _shown(found):
        for name, row in table(store.summary, "verifiers").items():
            if not isinstance(row, dict):
                continue
            seconds, reached = number(row, "seconds") or 0.0, count(row, "reached")
            mean = seconds / reached if reached else None
            cells = [Cell(f"{count(row, key):,}", count(row, key)) for key in OUTCOMES]
            rows.append(
                (
                    plain(label(run, store)),
                    plain(name),
                    *cells,
                    Cell(f"{seconds:,.1f}", seconds, evidence_of(store, run)),
                    Cell() if mean is None else Cell(f"{mean:.4f}", mean),
                )
            )
    if not rows:
        return None
    columns = (
        Column("certification", filterable=True),
        Column("verifier", filterable=True),
        Column("asked", numeric=True, help="Images that reached it"),
        Column("falsified", numeric=True, help="Misclassified images included"),
        Column("verified", numeric=True),
        Column("seconds", numeric=True),
        Column("seconds an image", numeric=True),
    )
    caption = "In the order in which they are asked; each gets what those before it left open."
    return Table("cascade", "The cascade", columns, tuple(rows), caption, group_by=0)


OUTCOMES = ("reached", "falsified", "verified")


def _shown(found: Collected) -> list[tuple[Run, Store]]:
    return [(run, store) for run in found.runs for store in run.certifications if store.images]


def label(run: Run, store: Store) -> str:
    """A certification's name in a figure: the network, and what is unusual about it.

    Two that differ in the settings of a verifier alone have their keys behind that.
    """
    parts = _unusual(store)
    if sum(_unusual(other) == parts for other in run.certifications if other.images) > 1:
        parts = (*parts, _key(store))
    return f"{run.name} ({', '.join(parts)})"


def _key(store: Store) -> str:
    """The first digits of its key, with which its folder's name ends."""
    return store.path.name.rpartition("-")[2]


def _unusual(store: Store) -> tuple[str, ...]:
    parts = [] if store.weights == MODEL else [store.weights]
    parts += [f"eps {eps_text(store.eps)}"]
    parts += [] if store.split == "test" else [store.split]
    if not store.preset:
        parts.append("+".join(store.verifiers))
    elif store.preset != "complete":
        parts.append(store.preset)
    return tuple(parts)
