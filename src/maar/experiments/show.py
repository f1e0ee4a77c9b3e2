"""A result as a table of text: the same cells for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group
from rich.text import Text

from maar.terminal.tables import table

Object = dict[str, Any]

# metric -> head of its column; in this order.
METRICS = {
    "accuracy": "ACC",
    "certified": "CR",
    "certified_upper": "CR at most",
    "latent_robustness": "LR",
    "verified_error": "VE",
}
X = {"lam": "lam", "eps": "eps", "stages": "stage"}
# In a terminal: columns that a narrow one does without, in this order, and shorter heads.
DISPENSABLE = ("train min", "network", "images", "CR at most %", "seeds")
SHORT = {"published": "publ.", "CR at most %": "at most %"}
GAP = 2
LEGEND = {
    "ACC": "accuracy on all test images",
    "CR": "certified robustness, correct and proved",
    "CR at most": "what no attack has broken",
    "LR": "latent robustness: correct and not broken behind a ReLU; proves nothing",
    "VE": "verified error: of the correct training images, the share that the stage's attack "
    "breaks in the last epoch; an attack's result, not a verifier's",
}

OF_STAGES = "accuracy on the images that were to be certified"


@dataclass(frozen=True)
class Shown:
    """Heads, rows and what is said below."""

    head: list[str]
    rows: list[list[str]]
    notes: list[str]


def shown(result: Object) -> Shown:
    """The cells, in percent, with a note for every source."""
    rows = result["rows"]
    metrics = [m for m in METRICS if any(m in row["metrics"] for row in rows)]
    compared = {m for m in metrics if any(m in row["published"] for row in rows)}
    notes: list[str] = []
    head = ["setting", "system", *([X[result["kind"]]] if result["kind"] in X else []), "seeds"]
    for metric in metrics:
        head.append(f"{METRICS[metric]} %")
        if metric in compared:
            head += ["published", "diff"]
    has_images = any(row["images"] is not None for row in rows)
    head += ["images"] if has_images else []
    has_times = result["kind"] in ("table", "lam") and any(row["train_seconds"] for row in rows)
    head += ["train min"] if has_times else []
    # Where a setting has several, ours differ in more than the method.
    has_networks = len({(row["setting"], row["network"]) for row in rows}) > len(
        {row["setting"] for row in rows}
    )
    head += ["network"] if has_networks else []
    cells = []
    for row in rows:
        line = [row["setting"], row["system"]]
        if result["kind"] in X:
            line.append(str(row["x"]))
        line.append(seeds(row))
        mark = _mark(row, notes) if row["published"] else ""
        for metric in metrics:
            line.append(spread(row["metrics"].get(metric)))
            if metric in compared:
                value, difference = row["published"].get(metric), row["difference"].get(metric)
                # In parentheses: of another network or verifier.
                form = "{}" if row["is_comparable"] else "({})"
                line.append("" if value is None else f"{form.format(percent(value))} {mark}")
                line.append("" if difference is None else form.format(f"{100 * difference:+.2f}"))
        line += [_images(row)] if has_images else []
        line += [_minutes(row)] if has_times else []
        line += [row["network"]] if has_networks else []
        cells.append(line)
    return Shown(head, cells, notes)


def spread(metric: Object | None) -> str:
    """`97.70 ± 0.12`."""
    if metric is None:
        return ""
    deviation = "" if metric["std"] is None else f" ± {100 * metric['std']:.2f}"
    return f"{100 * metric['mean']:.2f}{deviation}"


def percent(share: float) -> str:
    """A published number with the digits it was published with: one, or two."""
    one = f"{100 * share:.1f}"
    return one if abs(float(one) - 100 * share) < 1e-6 else f"{100 * share:.2f}"


def seeds(row: Object) -> str:
    """How many there are, and of how many where some are to come."""
    there, wanted = len(row["seeds"]), len(row["seeds_wanted"])
    return str(there) if there == wanted else f"{there} of {wanted}"


def _images(row: Object) -> str:
    if row["images"] is None:
        return ""
    return (
        f"{row['images']:,}"
        if row["images"] == row["of"]
        else f"{row['images']:,} of {row['of']:,}"
    )


def _minutes(row: Object) -> str:
    """Of training, the mean over the seeds."""
    seconds = row["train_seconds"]
    return f"{sum(seconds) / len(seconds) / 60:.0f}" if seconds else ""


def _mark(row: Object, notes: list[str]) -> str:
    """The number of the note on where a published number is from."""
    also = [
        f"also published: {_numbers(entry['published'])} ({_source(entry)})"
        for entry in row["also_published"]
    ]
    note = "; ".join([_source(row), *also])
    if note not in notes:
        notes.append(note)
    return f"[{notes.index(note) + 1}]"


def _source(entry: Object) -> str:
    caveat = f"; {entry['caveat']}" if entry["caveat"] else ""
    apart = "" if entry["is_comparable"] or entry["caveat"] else "; not comparable"
    return (
        f"{entry['source']}; network: {entry['published_network']}; "
        f"verifier: {entry['published_verifier']}{caveat}{apart}"
    )


def _numbers(published: Object) -> str:
    return ", ".join(f"{METRICS[name]} {percent(value)}" for name, value in published.items())


def facts(result: Object) -> list[tuple[str, str]]:
    """What the numbers were measured with."""
    verifiers = list(dict.fromkeys(v for row in result["rows"] for v in row["verifiers"]))
    presets = list(dict.fromkeys(row["preset"] for row in result["rows"] if row["preset"]))
    seeds = sorted({seed for row in result["rows"] for seed in row["seeds"]})
    hours = result["seconds"] / 3600
    spread_too = "; mean ± standard deviation" if len(seeds) > 1 else ""
    told = [
        ("profile", result["profile"]),
        ("seeds", ", ".join(map(str, seeds)) + spread_too),
        ("verifiers", f"preset {', '.join(presets)}: {', '.join(verifiers)}" if presets else ""),
        ("hardware", f"{result['hardware']}; {hours:.2f} core hours in all"),
        ("measured before", _before(result)),
        ("weights", result.get("weights", "")),
        ("caveat", caveats(result)),
        ("versions", ", ".join(f"{name} {text}" for name, text in result["versions"].items())),
        ("command", f"`{result['command']}`"),
    ]
    return [(name, text) for name, text in told if text]


def _before(result: Object) -> str:
    """How many numbers were taken over from runs that are not here."""
    before = sum(len(row.get("measured_before", [])) for row in result["rows"])
    of = sum(len(row["seeds"]) for row in result["rows"])
    if not before:
        return ""
    return f"{before} of {of} runs, which are not here any more; what they said was kept"


def caveats(result: Object) -> str:
    """What has to be said of our own numbers, with the rows that it is about."""
    about: dict[str, list[str]] = {}
    for row in result["rows"]:
        if said := row.get("measured_caveat", ""):
            at = "" if row["x"] is None else f" at {row['x']}"
            about.setdefault(said, []).append(row["system"] + at)
    return "; ".join(f"{', '.join(dict.fromkeys(rows))}: {said}" for said, rows in about.items())


def markdown(result: Object) -> str:
    """The whole result as a page of Markdown."""
    table = shown(result)
    title, of, about = (_escaped(result[key]) for key in ("title", "of", "about"))
    parts = [f"# {title}", f"{of}: {about}."]
    if result["banner"]:
        parts.append(f"> **Not the paper's protocol:** {result['banner']}.")
    parts.append(markdown_table(table.head, table.rows))
    if legend := _legend(result, table.head):
        parts.append(legend)
    if table.notes:
        parts.append("\n".join(f"[{n}] {note}  " for n, note in enumerate(table.notes, 1)))
    if result["beside"]:
        parts.append(
            "## Published since, not to be ranked with the above\n\n"
            + markdown_table(
                ["setting", "system", "ACC %", "CR %", "network, verifier"], _beside(result)
            )
        )
    parts.append("\n".join(f"- {name}: {text}" for name, text in facts(result)))
    for key in ("skipped", "failed"):
        if result[key]:
            said = [f"{each['row']}: {each['reason']}" for each in result[key]]
            lines = [f"- {_escaped(line)}" for line in said]
            parts.append(f"{key.capitalize()}:\n\n" + "\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _legend(result: Object, head: Sequence[str]) -> str:
    """What the heads of the columns mean."""
    words = {**LEGEND, **({"ACC": OF_STAGES} if result["kind"] == "stages" else {})}
    legend = [f"{name}: {text}." for name, text in words.items() if f"{name} %" in head]
    if "train min" in head:
        legend.append("train min: minutes of training by one thread, others beside it as a rule.")
    if any(row["published"] and not row["is_comparable"] for row in result["rows"]):
        legend.append(
            "In parentheses: published with another network or verifier than the paper's."
        )
    return " ".join(legend)


def _beside(result: Object) -> list[list[str]]:
    return [
        [
            entry["setting"],
            entry["system"],
            *(_published(entry, name) for name in ("accuracy", "certified")),
            f"{entry['published_network']}; {entry['published_verifier']}",
        ]
        for entry in result["beside"]
    ]


def _published(entry: Object, name: str) -> str:
    value = entry["published"].get(name)
    return "" if value is None else percent(value)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Heads and cells between pipes."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_escaped(cell) for cell in line) + " |" for line in lines)


def _escaped(text: str) -> str:
    """Nothing in a user's label makes a line, a column, a tag or a link."""
    text = " ".join(text.split()).replace("\\", "\\\\")
    text = text.replace("|", "\\|").replace("](", "]\\(")
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("://", "&#58;//")


def terminal(result: Object, width: int) -> Group:
    """The table for people at a terminal, the banner above it; a narrow one gets fewer columns."""
    found = shown(result)
    titles = {row["setting"]: row["setting_title"] for row in result["rows"]}
    kept, gap = _fitting(found, width, max(map(len, titles.values())))
    heads = [SHORT.get(found.head[number], found.head[number]) for number in kept]
    grid = table(*heads, right=heads[1:], whole=heads, gap=gap)
    before = ""
    for row in found.rows:
        if row[0] != before:
            grid.add_row(Text(titles[row[0]], style="bold"))
            before = row[0]
        grid.add_row(*(Text(row[number], style=_tone(row[number])) for number in kept))
    parts: list[Any] = [Text(f"{result['title']} ({result['of']})", style="bold cyan")]
    if result["banner"]:
        parts.append(Text(f"Not the paper's protocol: {result['banner']}", style="yellow"))
    parts += ["", grid, "", Text(_legend(result, [found.head[n] for n in kept]), style="dim")]
    parts += [Text(f"[{n}] {note}", style="dim") for n, note in enumerate(found.notes, 1)]
    parts += [Text(f"skipped: {e['row']}: {e['reason']}", style="dim") for e in result["skipped"]]
    parts += [Text(f"{name}: {text}", style="dim") for name, text in facts(result)]
    return Group(*parts)


def _fitting(found: Shown, width: int, title: int) -> tuple[list[int], int]:
    """The columns that have room, and the gap between them; settings stand above their rows."""
    kept = list(range(1, len(found.head)))
    sizes = [
        max(len(SHORT.get(head, head)), *(len(row[number]) for row in found.rows))
        for number, head in enumerate(found.head)
    ]
    sizes[1] = max(sizes[1], title)

    def is_wide(gap: int) -> bool:
        return sum(sizes[number] + gap for number in kept) > width

    for name in DISPENSABLE:
        if is_wide(GAP) and name in found.head:
            kept.remove(found.head.index(name))
    return kept, 1 if is_wide(GAP) else GAP


def _tone(cell: str) -> str:
    return {"+": "green", "-": "red"}.get(cell[:1], "") if cell[1:2].isdigit() else ""
