"""The folder of a report.

    index.html               the page; needs none of the others
    tables/ID.{md,tex,csv}   every table
    figures/ID.{svg,pdf,csv} every figure
    data/report.json         all of it as data

write_report([Path("runs")], Path("report"))
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import maar
from maar.core.errors import RunError, UsageError, unknown
from maar.core.files import write_bytes, write_text
from maar.core.unpacking import read_json
from maar.reporting.auditor import make_audit_report
from maar.reporting.build import make_report
from maar.reporting.collect import collect
from maar.reporting.formats import figure_csv, latex, markdown, table_csv
from maar.reporting.model import Figure, Report

RESEARCH = "research"
AUDIENCES = {RESEARCH: make_report, "audit": make_audit_report}
PAGE = "index.html"
DATA = "data/report.json"
NEEDED = ("jinja2", "plotly", "matplotlib")
# What a report may have written besides the page; nothing else is ever removed.
_OURS = re.compile(r"(tables/[a-z0-9-]+\.(md|tex|csv))|(figures/[a-z0-9-]+\.(svg|pdf|csv))")


def write_report(paths: Sequence[Path], out: Path, title: str = "", command: str = "") -> Path:
    """Report on runs, stores and experiments below `paths`; return the page's path.

    The page says that it was made by `command`; default: `maar report` on these paths. An earlier
    report in `out` is replaced; a folder with anything else in it is refused.
    """
    save(read_report(paths, out, title, command), out)
    return out / PAGE


def read_report(
    paths: Sequence[Path], out: Path, title: str = "", command: str = "", audience: str = RESEARCH
) -> Report:
    """Return the report, not yet written; raises if it cannot be written to `out`."""
    if audience not in AUDIENCES:
        raise unknown("audience", audience, AUDIENCES)
    require_extra()
    require_free(out)
    own = ["maar", "report", *map(str, paths), "-o", str(out)]
    own += [] if audience == RESEARCH else ["--audience", audience]
    return AUDIENCES[audience](collect(paths), title, command or shlex.join(own))


def require_extra() -> None:
    """Raise if a package that only reports need is not installed."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise RunError(f"maar report needs {', '.join(missing)}: pip install 'maar[report]'")


def require_free(out: Path) -> None:
    """Raise unless a report may be written there."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out} is not a folder (accepted: a folder to write a report into)")
    is_empty = not out.exists() or not any(out.iterdir())
    if not is_empty and not (out / DATA).is_file():
        raise UsageError(
            f"--out {out} holds something else (accepted: a new folder, or that of a report)"
        )


def save(report: Report, out: Path) -> None:
    """Write everything, the page last: where it is, the files that it links to are."""
    from maar.reporting.page import render

    old = _read_old(out)
    files: dict[str, bytes] = {}
    for table in report.tables():
        names = table.files
        files[names["Markdown"]] = _encoded(markdown(table))
        files[names["LaTeX"]] = _encoded(latex(table))
        files[names["CSV"]] = _encoded(table_csv(table))
    for figure in report.figures():
        files.update(_drawn(figure, out, old))
    content = {"files": sorted(files), **asdict(report)}
    # The mark that this folder is ours comes first: an interrupted report can be written again.
    write_text(out / DATA, json.dumps(content, indent=1, allow_nan=False) + "\n")
    for name, data in files.items():
        write_bytes(out / name, data)
    for name in _written(old) - set(files):
        (out / name).unlink(missing_ok=True)
    pictures = {figure.id: files[figure.files["SVG"]] for figure in report.figures()}
    write_bytes(out / PAGE, _encoded(render(report, pictures)))


def _encoded(text: str) -> bytes:
    """A folder's name need not be in UTF-8: what is not becomes a question mark."""
    return text.encode("utf-8", "replace")


def _drawn(figure: Figure, out: Path, old: dict[str, Any]) -> dict[str, bytes]:
    """A figure's files; drawing is what takes long, so that an unchanged one is not drawn again."""
    names = figure.files
    svg, pdf = out / names["SVG"], out / names["PDF"]
    is_known = _plain(figure) in _old_figures(old) and svg.is_file() and pdf.is_file()
    if is_known and old.get("version") == maar.__version__:
        drawn = {"svg": svg.read_bytes(), "pdf": pdf.read_bytes()}
    else:
        from maar.reporting.static import draw

        drawn = draw(figure)
    return {
        names["SVG"]: drawn["svg"],
        names["PDF"]: drawn["pdf"],
        names["CSV"]: _encoded(figure_csv(figure)),
    }


def _plain(figure: Figure) -> Any:
    """As it is in report.json, where tuples are lists."""
    return json.loads(json.dumps(asdict(figure)))


def _old_figures(old: dict[str, Any]) -> list[Any]:
    sections = old.get("sections")
    if not isinstance(sections, list):
        return []
    blocks = (section.get("blocks") for section in sections if isinstance(section, dict))
    return [block for found in blocks if isinstance(found, list) for block in found]


def _read_old(out: Path) -> dict[str, Any]:
    """An earlier report in this folder; {} if there is none or it is damaged."""
    try:
        found = read_json(out / DATA)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _written(old: dict[str, Any]) -> set[str]:
    """The files of an earlier report."""
    names = old.get("files")
    if not isinstance(names, list):
        return set()
    return {name for name in names if isinstance(name, str) and _OURS.fullmatch(name)}
