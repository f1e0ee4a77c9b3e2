"""The page: a report rendered to one HTML file that needs nothing beside it.

The templates hold the structure, `templates/css` the looks and `templates/js` what moves; all of it
and plotly.js are put into the file, and a content security policy forbids it to load anything else
or to run any script but these. Names come from users: the templates escape them (autoescape), and
data for scripts goes through `tojson`, which leaves no `<` in it.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from maar.report.model import Cell, Evidence, Figure, Gallery, Report, Table

STYLES = ("base", "tables", "figures", "gallery", "print")
# The theme comes before the body, so that a dark page does not flash in light first.
EARLY_SCRIPTS = ("theme",)
SCRIPTS = ("figures", "tables", "gallery", "page")
# A table of a figure's data is for reading; what is longer is in its CSV file.
LONGEST_DATA = 60


def render(report: Report) -> str:
    """The whole page; its links to other files are relative to where it is written."""
    environment = Environment(
        loader=PackageLoader("maar.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        brief=brief, choices=choices, data_rows=data_rows, grouped=grouped, proofs=proofs
    )
    early = [_asset(environment, f"js/{name}.js") for name in EARLY_SCRIPTS]
    late = [_asset(environment, f"js/{name}.js") for name in SCRIPTS]
    if report.figures():
        late.insert(0, _plotly())
    else:
        late.remove(_asset(environment, "js/figures.js"))
    return environment.get_template("page.html").render(
        report=report,
        styles=[_asset(environment, f"css/{name}.css") for name in STYLES],
        early_scripts=early,
        scripts=late,
        policy=_policy([*early, *late]),
        slots=slots(report),
        figures=_jsonable([asdict(figure) for figure in report.figures()]),
    )


def _asset(environment: Environment, name: str) -> Markup:
    loader = environment.loader
    assert loader is not None
    return Markup(loader.get_source(environment, name)[0])


def _plotly() -> Markup:
    from plotly.offline import get_plotlyjs

    return Markup(get_plotlyjs().replace("\r\n", "\n"))


def _policy(scripts: list[Markup]) -> str:
    """Only these scripts, by their hashes; images from the page itself; no requests at all."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    sources = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {sources}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _jsonable(value: Any) -> Any:
    """Without NaN and infinities: JSON has none, and a figure shows a gap there."""
    if isinstance(value, dict):
        return {key: _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def grouped(blocks: Iterable[Table | Figure | Gallery]) -> list[tuple[str, list[Any]]]:
    """(kind, blocks of that kind in a row), so that figures can stand side by side."""
    return [(kind.__name__.lower(), list(members)) for kind, members in groupby(blocks, key=type)]


def choices(table: Table) -> list[tuple[int, str, list[str]]]:
    """(index, name, what there is to choose from) of each column that is worth a choice."""
    found = []
    for index, column in enumerate(table.columns):
        texts = sorted({row[index].text for row in table.rows if row[index].text})
        if column.filterable and len(texts) > 1:
            found.append((index, column.name, texts))
    return found


@dataclass(frozen=True)
class Proof:
    """What some entries of a row rest on."""

    columns: list[str]
    evidence: Evidence | None
    notes: list[str]


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


def brief(found: list[Proof]) -> str:
    """The evidence of a row in a line: how much was tried, by what, and how often."""
    shown = ("images", "preset", "profile", "seeds", "seconds")
    for proof in found:
        facts = dict(proof.evidence.facts()) if proof.evidence else {}
        if facts:
            words = {"images": "{} images", "seeds": "seeds {}", "seconds": "{} s"}
            return " · ".join(
                words.get(name, "{}").format(facts[name]) for name in shown if name in facts
            )
    return "notes"


def data_rows(figure: Figure) -> list[tuple[float | str, list[float | None]]]:
    """(x, the y of each series there); nothing where that would be too long to read."""
    places = list(dict.fromkeys(x for series in figure.series for x in series.x))
    if len(places) > LONGEST_DATA:
        return []
    points = [dict(zip(series.x, series.y, strict=True)) for series in figure.series]
    return [(x, [of.get(x) for of in points]) for x in places]


def slots(report: Report) -> dict[str, list[int]]:
    """The colour of each series of each figure, by its place in the palette."""
    known: dict[tuple[bool, str], int] = {}
    result = {}
    for figure in report.figures():
        keys = [(figure.kind == "stacked", series.group or series.name) for series in figure.series]
        for key in keys:
            known.setdefault(key, sum(other[0] == key[0] for other in known))
        result[figure.id] = [known[key] % 10 for key in keys]
    return result
