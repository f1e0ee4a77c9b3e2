"""A result for people: in the terminal, as a page of Markdown, and the facts below either.

The table is the one of `maar report`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.text import Text

from maar.reporting.console import render
from maar.reporting.formats import md, pipes
from maar.reporting.model import Table
from maar.reporting.published import result_table

Object = dict[str, Any]


def table_of(result: Object) -> Table:
    """Return the table of a result."""
    return result_table(result["name"], result["title"], result, Path(f"{result['name']}.json"))


def spread(metric: Object | None) -> str:
    """`97.70 ± 0.12`, and where few images or seeds are behind it ` [97.2, 98.1]`."""
    if metric is None:
        return ""
    deviation = "" if metric["std"] is None else f" ± {100 * metric['std']:.2f}"
    ends = [f"{100 * end:.1f}" for end in metric.get("interval95", [])]
    interval = f" [{', '.join(ends)}]" if ends else ""
    return f"{100 * metric['mean']:.2f}{deviation}{interval}"


def percent(share: float) -> str:
    """A published number with the digits it was published with: one, or two."""
    one = f"{100 * share:.1f}"
    return one if abs(float(one) - 100 * share) < 1e-6 else f"{100 * share:.2f}"


def seeds(row: Object) -> str:
    """How many there are, and of how many where some are to come."""
    there, wanted = len(row["seeds"]), len(row["seeds_wanted"])
    return str(there) if there == wanted else f"{there} of {wanted}"


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
    """Return the whole result as a page of Markdown."""
    table = table_of(result)
    title, of, about = (md(result[key]) for key in ("title", "of", "about"))
    parts = [f"# {title}", f"{of}: {about}."]
    if result["banner"]:
        parts.append(f"> **Not the paper's protocol:** {result['banner']}.")
    parts += [pipes(table), legend(table)]
    parts.append("\n".join(f"- {md(note)}" for note in table.notes))
    if result["beside"]:
        head = ["setting", "system", "ACC", "CR", "network, verifier"]
        parts.append("## Published since, not to be ranked with the above")
        parts.append(markdown_table(head, _beside(result)))
    parts.append("\n".join(f"- {name}: {text}" for name, text in facts(result)))
    for key in ("skipped", "failed"):
        if result[key]:
            lines = [f"- {md(each['row'])}: {md(each['reason'])}" for each in result[key]]
            parts.append(f"{key.capitalize()}:\n\n" + "\n".join(lines))
    return "\n\n".join(filter(None, parts)) + "\n"


def legend(table: Table) -> str:
    """Say what the heads of the columns mean."""
    heads = [column for column in table.columns if column.help and not _is_beside(column.name)]
    return " ".join([table.caption, *(f"{head.name}: {head.help}." for head in heads)])


def _is_beside(head: str) -> bool:
    """Whether a column stands behind the one that it belongs to."""
    return head.endswith(("published", "difference", "95 %"))


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
    """Return heads and cells between pipes."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(md(cell) for cell in line) + " |" for line in lines)


def terminal(result: Object, width: int) -> Group:
    """Return the table for people at a terminal, the banner above it."""
    table = table_of(result)
    short = {column.name: _short(column.name) for column in table.columns}
    parts: list[Any] = [Text(f"{result['title']} ({result['of']})", style="bold cyan")]
    if result["banner"]:
        parts.append(Text(f"Not the paper's protocol: {result['banner']}", style="yellow"))
    parts += ["", render(table, width, short), "", Text(legend(table), style="dim")]
    parts += [Text(note, style="dim") for note in table.notes]
    parts += [Text(f"skipped: {e['row']}: {e['reason']}", style="dim") for e in result["skipped"]]
    parts += [Text(f"{name}: {text}", style="dim") for name, text in facts(result)]
    return Group(*parts)


def _short(head: str) -> str:
    """Return a head that stands behind that of its number: `publ.` for `CR published`."""
    return {"published": "publ.", "difference": "diff"}.get(head.rpartition(" ")[2], head)
