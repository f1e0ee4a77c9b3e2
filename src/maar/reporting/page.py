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
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from maar.reporting import view
from maar.reporting.colours import PALETTE, slots
from maar.reporting.model import Report

STYLES = ("base", "tables", "figures", "gallery", "print")


def render(report: Report, pictures: Mapping[str, bytes] | None = None) -> str:
    """The whole page; its links to other files are relative to where it is written.

    `pictures`: the id of a figure -> its SVG, for browsers that run no scripts.
    """
    # The theme comes before the body, so that a dark page does not flash in light first.
    first = [_asset("js/theme.js")]
    # Plotly is by far the largest part: only where there is something to draw.
    figures = [_plotly(), _asset("js/figures.js")] if report.figures() else []
    last = [*figures, *(_asset(f"js/{name}.js") for name in ("tables", "gallery", "page"))]
    return (
        _environment()
        .get_template("page.html")
        .render(
            report=report,
            palette=PALETTE,
            styles=[_asset(f"css/{name}.css") for name in STYLES],
            first_scripts=first,
            last_scripts=last,
            policy=_policy([*first, *last]),
            pictures={id: _uri(svg) for id, svg in (pictures or {}).items()},
            slots={figure.id: slots(figure.series) for figure in report.figures()},
            figures=_finite([{**asdict(one), "range": one.range} for one in report.figures()]),
        )
    )


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("maar.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        brief=view.brief,
        by_level=view.by_level,
        choices=view.choices,
        data_rows=view.data_rows,
        grouped=view.grouped,
        groups=view.groups,
        has_marks=view.has_marks,
        minus=view.minus,
        prose=view.prose,
        shown=view.shown,
        supported=view.supported,
    )
    return environment


def _uri(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


def _asset(name: str) -> Markup:
    """A file of ours, which may go into the page as it is."""
    return Markup((files("maar.reporting") / "templates" / name).read_text("utf-8"))


def _plotly() -> Markup:
    from plotly.offline import get_plotlyjs

    # As a browser reads it, or its hash would be another.
    return Markup(get_plotlyjs().replace("\r\n", "\n"))


def _policy(scripts: Sequence[Markup]) -> str:
    """Only these scripts, by their hashes; images from the page itself; no requests at all."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    sources = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {sources}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _finite(value: Any) -> Any:
    """Without NaN and infinities: JSON has none, and a figure shows a gap there."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
