"""Published numbers beside our own: the table of an experiment of `maar reproduce`.

The file is read leniently: what it lacks is left blank. Shares lie in [0, 1].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from maar.records.reading import Object, count, number, numbers, table, word, words
from maar.reporting.model import Cell, Column, Evidence, Table
from maar.reporting.systems import plain

METRICS = {
    "accuracy": ("ACC", "Original accuracy: classified correctly as they are"),
    "certified": ("CR", "Certified robustness: classified correctly and proved robust"),
    "latent_robustness": ("LR", "Latent robustness: not broken behind a ReLU; it proves nothing"),
    "verified_error": (
        "VE",
        "Verified error: the correct training images that the attack breaks in the last epoch; "
        "an attack's result, not a verifier's",
    ),
}
UPPER = "Upper bound on CR: the share of the images that no attack broke, in %"
INTERVAL = "95 % interval of the share of all images, as if these were drawn at random, in %"
TRAINING = "Minutes of training by one thread, with other jobs running; mean over the seeds"
X_NAMES = {"eps": "eps", "lam": "lam", "stages": "stage"}
"""Kind of experiment -> what its rows are laid out over."""
FEW = 100
"""Fewer images say nothing beside a published number."""
NOT_COMPARABLE = "published with another network or verifier: not to be ranked with ours"


def setting_of(row: Object) -> str:
    """Return the setting of a row, as people call it."""
    return word(row, "setting_title") or word(row, "setting")


def objects(content: Object, key: str) -> list[Object]:
    """Return a part that should be a list of tables."""
    found = content.get(key)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def result_table(id: str, title: str, content: Object, path: Path) -> Table:
    """Return published numbers beside our own, a row for each system of each setting."""
    rows = objects(content, "rows")
    kind = word(content, "kind")
    shown = [
        key
        for key in METRICS
        if any(mean_of(row, key) is not None or published_of(row, key) is not None for row in rows)
    ]
    x_name = X_NAMES.get(kind, "at")
    has_x = any(row.get("x") is not None for row in rows)
    columns = [Column("setting", filterable=True), Column("system")]
    columns += [Column(x_name, numeric=True)] if has_x else []
    for key in shown:
        short, long = METRICS[key]
        columns += [
            Column(short + _of(rows, key, kind), numeric=True, help=f"{long}, in %"),
            Column(f"{short} 95 %", numeric=True, help=INTERVAL, rank=7),
            Column(f"{short} published", numeric=True, help=f"{long}, in %"),
            Column(f"{short} difference", numeric=True, help="Ours minus published, in points"),
        ]
        if key == "certified":
            columns.append(Column("upper bound", numeric=True, help=UPPER, rank=2))
    columns += [
        Column("seeds", numeric=True, rank=1),
        Column("images", numeric=True, help="Images that CR is of", rank=3),
        Column("train min", numeric=True, help=TRAINING, rank=5),
        Column("network", rank=4),
        Column("preset", help="Which verifiers were asked", rank=6),
    ]
    settings = dict.fromkeys(map(setting_of, rows))
    ordered = [row for setting in settings for row in rows if setting_of(row) == setting]
    table = Table(
        id,
        f"{title}: published and measured",
        tuple(columns),
        tuple(_row(row, shown, has_x, content, path) for row in ordered),
        "In %; mean and standard deviation over the seeds. The difference is ours minus the "
        "published number. In parentheses: published with another network or verifier.",
        tuple(_notes(rows)),
        group_by=0,
    )
    return _without_empty(table, several_networks=_has_networks(rows))


def _without_empty(table: Table, *, several_networks: bool) -> Table:
    """Leave out what no row has, and networks where each setting has one."""
    kept = [
        place
        for place, column in enumerate(table.columns)
        if any(row[place].text for row in table.rows)
        and (column.name != "network" or several_networks)
    ]
    columns = tuple(table.columns[place] for place in kept)
    rows = tuple(tuple(row[place] for place in kept) for row in table.rows)
    return replace(table, columns=columns, rows=rows)


def _has_networks(rows: list[Object]) -> bool:
    """Whether a setting has several: then ours differ in more than the method."""
    pairs = {(setting_of(row), word(row, "network")) for row in rows}
    return len(pairs) > len({setting for setting, _ in pairs})


def _of(rows: list[Object], key: str, kind: str) -> str:
    """Say which images a share is of, where ACC and CR are of different ones."""
    images = {(count(row, "images"), count(row, "of")) for row in rows if count(row, "images")}
    if all(of in (0, part) for part, of in images) or key == "verified_error":
        return ""
    if key == "accuracy" and kind != "stages":
        return " (all)"
    part = min(part for part, _ in images)
    return f" ({part:,})" if len({part for part, _ in images}) == 1 else " (a part)"


def elsewhere(id: str, rows: list[Object]) -> Table:
    """Return published numbers that nothing was measured beside: a table of their own."""
    shown = [key for key in METRICS if any(published_of(row, key) is not None for row in rows)]
    columns = (
        Column("setting"),
        Column("system"),
        *(Column(METRICS[key][0], numeric=True, help=METRICS[key][1]) for key in shown),
        Column("network"),
        Column("verifier"),
    )
    cells = tuple(
        (
            plain(setting_of(row)),
            plain(word(row, "system")),
            *(_published_cell(row, published_of(row, key), True) for key in shown),
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
        if word(row, "source") and table(row, "published"):
            notes.setdefault(_source(row), []).append(word(row, "system"))
    for row in rows:
        if caveat := word(row, "caveat"):
            notes.setdefault(caveat, []).append(word(row, "system"))
        if said := word(row, "measured_caveat"):
            at = "" if row.get("x") is None else f" at {row['x']}"
            notes.setdefault(f"measured here, but {said}", []).append(word(row, "system") + at)
        for also in objects(row, "also_published"):
            shares = [
                f"{METRICS[key][0]} {100 * value:.1f}"
                for key in METRICS
                if (value := published_of(also, key)) is not None
            ]
            parts = (", ".join(shares), word(also, "source"), word(also, "caveat"))
            text = f"also published: {'; '.join(filter(None, parts))}"
            notes.setdefault(text, []).append(word(row, "system"))
    return [
        f"{', '.join(dict.fromkeys(filter(None, names)))}: {caveat}"
        for caveat, names in notes.items()
    ]


def _source(row: Object) -> str:
    facts = {"network": word(row, "published_network"), "verifier": word(row, "published_verifier")}
    told = "".join(f"; {name}: {text}" for name, text in facts.items() if text)
    return f"published in {word(row, 'source')}{told}"


def _row(
    row: Object, shown: list[str], has_x: bool, content: Object, path: Path
) -> tuple[Cell, ...]:
    evidence = _evidence(row, content, path)
    # Accuracy is known of all test images; only a stage's is of those that were certified.
    of_all = replace(evidence, images=None, of=None)
    proved = replace(evidence, hardware=word(row, "certified_on") or evidence.hardware)
    is_comparable = row.get("is_comparable") is not False
    is_compared = is_comparable and not 0 < count(row, "images") < FEW
    kind = word(content, "kind")
    cells = [plain(setting_of(row)), plain(word(row, "system"))]
    if has_x:
        x = row.get("x")
        cells.append(Cell() if x is None else Cell(str(x), _sortable(x)))
    for key in shown:
        ours, published = mean_of(row, key), published_of(row, key)
        std = number(table(table(row, "metrics"), key), "std")
        text = "" if ours is None else f"{100 * ours:.2f}"
        if std is not None and len(evidence.seeds) > 1:
            text += f" ± {100 * std:.2f}"
        mark = None
        if is_compared and ours is not None and published is not None:
            mark = (published, ours)
        basis = proved if key == "certified" else evidence
        if key == "accuracy" and content.get("kind") != "stages":
            basis = of_all
        cells.append(Cell(text, ours, basis, "strong", mark=mark) if text else Cell())
        ends = numbers(table(table(row, "metrics"), key), "interval95")
        cells.append(plain(" to ".join(f"{100 * end:.1f}" for end in ends)))
        cells.append(_published_cell(row, published, is_comparable))
        cells.append(_difference(ours, published) if is_compared else Cell())
        if key == "certified":
            upper = mean_of(row, "certified_upper")
            cells.append(Cell() if upper is None else Cell(f"{100 * upper:.2f}", upper, proved))
    images, minutes = count(row, "images"), numbers(row, "train_seconds")
    mean = sum(minutes) / len(minutes) / 60 if minutes else 0.0
    return (
        *cells,
        _how_many(row, evidence.seeds),
        Cell(_part(images, count(row, "of")), images) if images else Cell(),
        Cell(f"{mean:.0f}", mean) if minutes and kind in ("table", "lam") else Cell(),
        plain(word(row, "network")),
        plain(word(row, "preset")),
    )


def _how_many(row: Object, seeds: tuple[int, ...]) -> Cell:
    """How many seeds there are, and of how many where some are to come."""
    wanted = len(_seeds(row, "seeds_wanted"))
    if not seeds and not wanted:
        return Cell()
    of = f" of {wanted}" if wanted > len(seeds) else ""
    return Cell(f"{len(seeds)}{of}", len(seeds))


def _part(images: int, of: int) -> str:
    return f"{images:,}" if of in (0, images) else f"{images:,} of {of:,}"


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
    text = f"{100 * published:.2f}".removesuffix("0")
    return Cell(text if is_comparable else f"({text})", published, tone=tone, note=note)


def _difference(ours: float | None, published: float | None) -> Cell:
    if ours is None or published is None:
        return Cell()
    change = ours - published
    return Cell(f"{100 * change:+.2f}", change, tone="good" if change >= 0 else "bad")


def mean_of(row: Object, key: str) -> float | None:
    """Return our own number; None if there is none."""
    return number(table(table(row, "metrics"), key), "mean")


def published_of(row: Object, key: str) -> float | None:
    """Return the published number; None if there is none."""
    return number(table(row, "published"), key)


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
