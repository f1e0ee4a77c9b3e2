"""What the templates ask about a report: plain functions of the model, used as filters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from markupsafe import Markup, escape

from maar.reporting.model import Block, Cell, Evidence, Figure, Notice, Table, duration

LEVELS = ("error", "warning", "info")
CODE = re.compile(r"`([^`\n]+)`")
NEGATIVE = re.compile(r"^-(?=[\d.]+)")
# A table of a figure's data is for reading; what is longer is in its CSV file.
LONGEST_DATA = 60


def by_level(notices: Sequence[Notice]) -> list[tuple[str, list[Notice]]]:
    """(level, its notices), the gravest first."""
    levels = {level: [n for n in notices if n.level == level] for level in LEVELS}
    return [(level, found) for level, found in levels.items() if found]


def grouped(blocks: Iterable[Block]) -> list[tuple[str, list[Any]]]:
    """(kind, blocks of that kind in a row), so that figures can stand side by side."""
    return [(kind.__name__.lower(), list(blocks)) for kind, blocks in groupby(blocks, key=type)]


def choices(table: Table) -> list[tuple[int, str, list[str]]]:
    """(index, name, what there is to choose from) of each column that is worth a choice."""
    found = []
    for index, column in enumerate(table.columns):
        texts = sorted({row[index].text for row in table.rows if row[index].text})
        if column.filterable and len(texts) > 1:
            found.append((index, column.name, texts))
    return found


@dataclass(frozen=True)
class Group:
    """Rows under one heading, which is empty where there is none."""

    heading: str
    rows: list[tuple[Cell, ...]]
    scales: dict[int, tuple[float, float]] = field(default_factory=dict)
    """By column, the ends of the line on which its marks are drawn."""

    def place(self, column: int, value: float) -> float:
        """Where a value lies on its column's line, in percent of its length."""
        low, high = self.scales[column]
        return round(100 * (value - low) / (high - low), 2)


def grouping(table: Table) -> int | None:
    """The column whose texts become headings; none in a table that the reader sorts."""
    return None if table.is_long else table.group_by


def shown(table: Table) -> list[int]:
    """The columns that are shown as such."""
    return [index for index in range(len(table.columns)) if index != grouping(table)]


def has_marks(table: Table) -> bool:
    """Whether there is something to explain about them."""
    return any(cell.mark for row in table.rows for cell in row)


def groups(table: Table) -> list[Group]:
    """Consecutive rows of one heading, if the table has headings; else all of them."""
    by = grouping(table)
    parts = groupby(table.rows, key=lambda row: "" if by is None else row[by].text)
    return [_group(heading, list(rows)) for heading, rows in parts]


def _group(heading: str, rows: list[tuple[Cell, ...]]) -> Group:
    ends: dict[int, list[float]] = {}
    for row in rows:
        for index, cell in enumerate(row):
            if cell.mark:
                ends.setdefault(index, []).extend(cell.mark)
    scales = {}
    for index, values in ends.items():
        low, high = min(values), max(values)
        # At least two points of a percent: a small difference must not look like a great one.
        missing = max(0.0, 0.02 - (high - low)) / 2
        scales[index] = (low - missing, high + missing)
    return Group(heading, rows, scales)


@dataclass(frozen=True)
class Proof:
    """What some entries of a row rest on."""

    columns: list[str]
    evidence: Evidence | None
    notes: list[str]

    @property
    def facts(self) -> list[tuple[str, str]]:
        """(name, text): for which entries, what is to be said about them, and what is known."""
        known = self.evidence.facts() if self.evidence else []
        return [*(("note", note) for note in self.notes), *known]


def proofs(row: tuple[Cell, ...], table: Table) -> list[Proof]:
    """The evidence of a row, each once with the columns that share it, and the entries' notes."""
    found: dict[Evidence | str, Proof] = {}
    for cell, column in zip(row, table.columns, strict=True):
        if cell.evidence or cell.note:
            proof = found.setdefault(cell.evidence or cell.note, Proof([], cell.evidence, []))
            proof.columns.append(column.name)
            if cell.note and cell.note not in proof.notes:
                proof.notes.append(cell.note)
    return list(found.values())


def supported(group: Group, table: Table) -> list[tuple[tuple[Cell, ...], list[Proof]]]:
    """(row, what to say below it that it rests on).

    Rows that rest on the same are followed by it once, except where the reader sorts them apart.
    """
    found = [proofs(row, table) for row in group.rows]
    following = [*found[1:], None]
    return [
        (row, own if table.is_long or own != after else [])
        for row, own, after in zip(group.rows, found, following, strict=True)
    ]


TELLING = ("images", "preset", "profile", "seeds", "seconds", "measured before")
WORDS = {"images": "{} images", "seeds": "seeds {}", "measured before": "measured before"}


def brief(found: list[Proof]) -> str:
    """The most telling evidence of a row in a line: how much was tried, by what, how often."""
    known = [proof.evidence for proof in found if proof.evidence is not None]
    if not known:
        return "notes"
    fullest = max(known, key=lambda evidence: len(evidence.facts()))
    facts = dict(fullest.facts())
    if fullest.seconds is not None:
        facts["seconds"] = duration(fullest.seconds) + " in all" * (len(fullest.seeds) > 1)
    parts = (WORDS.get(name, "{}").format(facts[name]) for name in TELLING if name in facts)
    return " · ".join(parts) or "notes"


def prose(text: str) -> Markup:
    """Text with its `code` set as such."""
    return Markup(CODE.sub(r"<code>\1</code>", str(escape(text))))


def minus(text: str) -> str:
    """A number's hyphen as the sign that is as wide as its plus; other text as it is."""
    return NEGATIVE.sub("\N{MINUS SIGN}", text)


def data_rows(figure: Figure) -> list[tuple[float | str, list[float | None]]]:
    """(x, the y of each series there); nothing where that would be too long to read."""
    places = list(dict.fromkeys(x for series in figure.series for x in series.x))
    if len(places) > LONGEST_DATA:
        return []
    points = [dict(zip(series.x, series.y, strict=True)) for series in figure.series]
    return [(x, [of.get(x) for of in points]) for x in places]
