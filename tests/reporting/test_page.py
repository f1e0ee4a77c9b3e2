"""The page as text: whole, escaped, and without a word to the outside."""

import base64
import dataclasses
import hashlib
import json
import math
import re
from html.parser import HTMLParser

import pytest

from maar.reporting.model import Cell, Column, Figure, Report, Section, Table
from maar.reporting.page import render
from maar.reporting.view import (
    brief,
    by_level,
    choices,
    data_rows,
    groups,
    minus,
    proofs,
    prose,
    shown,
    supported,
)

HOSTILE = "<img src=x onerror=alert(1)></script><!--\u2028\u2029'\"&lt;"


class Elements(HTMLParser):
    """Every element with its attributes, and the text of scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.is_in_script = False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        self.is_in_script = tag == "script"
        if self.is_in_script:
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.is_in_script = False

    def handle_data(self, data):
        if self.is_in_script:
            self.scripts[-1] += data

    def values(self, name: str) -> list[str]:
        return [attrs[name] or "" for _, attrs in self.found if name in attrs]


@pytest.fixture(scope="module")
def hostile(renamed) -> Report:
    return renamed(HOSTILE)


@pytest.fixture(scope="module")
def page(hostile) -> str:
    return render(hostile)


@pytest.fixture(scope="module")
def elements(page) -> Elements:
    return Elements(page)


def test_nothing_is_loaded_from_elsewhere(elements):
    assert all(source.startswith("data:") for source in elements.values("src"))
    links = [attrs for tag, attrs in elements.found if tag == "a"]
    assert all(re.match(r"#|tables/|figures/", link["href"] or "") for link in links)
    assert [attrs["href"] for tag, attrs in elements.found if tag == "link"] == ["data:,"]


def test_no_name_becomes_an_element(elements, page):
    assert HOSTILE not in page
    assert not [name for _, attrs in elements.found for name in attrs if name.startswith("on")]
    assert {attrs["src"] == "x" for tag, attrs in elements.found if tag == "img"} == {False}
    assert "\u2028" not in elements.scripts[-1]


def test_the_policy_allows_these_scripts_and_no_others(elements):
    (policy,) = [attrs["content"] for _, attrs in elements.found if "http-equiv" in attrs]
    kinds = [attrs.get("type") for tag, attrs in elements.found if tag == "script"]
    scripts = [s for s, kind in zip(elements.scripts, kinds, strict=True) if kind is None]
    hashes = {base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts}
    assert set(re.findall(r"'sha256-([^']+)'", policy)) == hashes
    assert "default-src 'none'" in policy


def test_data_for_scripts_survives_whole(elements, hostile):
    (data,) = [s for s in elements.scripts if s.startswith('{"figures"')]
    figures = json.loads(data)["figures"]
    assert [f["id"] for f in figures] == [f.id for f in hostile.figures()]
    assert HOSTILE in {series["name"] for f in figures for series in f["series"]}


def test_plotly_is_there_once_and_only_for_figures(page, example):
    assert page.count("* plotly.js v") == 1
    tables = [s for s in example.sections if not any(isinstance(b, Figure) for b in s.blocks)]
    bare = render(dataclasses.replace(example, sections=tuple(tables)))
    assert "plotly.js v" not in bare
    assert len(bare) < 200_000


def test_numbers_that_json_does_not_know_are_gaps(example):
    figure = example.figures()[0]
    series = dataclasses.replace(figure.series[0], y=(math.nan, math.inf, *figure.series[0].y[2:]))
    changed = dataclasses.replace(figure, series=(series,))
    page = render(dataclasses.replace(example, sections=(Section("a", "A", (changed,)),)))
    data = next(s for s in Elements(page).scripts if s.startswith('{"figures"'))
    assert json.loads(data)["figures"][0]["series"][0]["y"][:2] == [None, None]


def test_a_report_of_nothing(example):
    page = render(dataclasses.replace(example, sections=(), notices=(), facts=()))
    assert "</html>" in page


def test_every_id_is_there_once(elements):
    ids = elements.values("id")
    assert len(ids) == len(set(ids))


def table_of(*rows: tuple[Cell, ...], **more) -> Table:
    columns = tuple(Column(name) for name in ("setting", "system", "CR"))
    return Table("t", "T", columns, rows, **more)


def test_rows_under_headings():
    rows = [(Cell(setting), Cell(system), Cell()) for setting, system in ("ax", "ay", "bx")]
    table = table_of(*rows, group_by=0)
    assert [(group.heading, len(group.rows)) for group in groups(table)] == [("a", 2), ("b", 1)]
    assert shown(table) == [1, 2]
    sortable = dataclasses.replace(table, is_long=True)
    assert [len(group.rows) for group in groups(sortable)] == [3]
    assert shown(sortable) == [0, 1, 2]


def test_marks_of_a_column_share_a_scale_that_is_never_tiny():
    near = table_of((Cell(), Cell(), Cell(mark=(0.971, 0.970))))
    (group,) = groups(near)
    assert abs(group.place(2, 0.971) - group.place(2, 0.970)) == pytest.approx(5)
    far = table_of((Cell(), Cell(), Cell(mark=(0.2, 0.4))), (Cell(), Cell(), Cell(mark=(0.6, 0.4))))
    (group,) = groups(far)
    assert [group.place(2, x) for x in (0.2, 0.4, 0.6)] == [0, 50, 100]


def test_what_rows_rest_on_is_said_once(example):
    evidence = next(cell.evidence for cell in example.tables()[0].rows[0] if cell.evidence)
    row = (Cell("a"), Cell("x", evidence=evidence), Cell("y", evidence=evidence, note="rerun"))
    table = table_of(row, row)
    (proof,) = proofs(row, table)
    assert proof.columns == ["system", "CR"]
    assert proof.notes == ["rerun"]
    assert (
        brief([proof])
        == "1,000 of 10,000 test images · complete · cpu · seeds 0, 1, 2 · 2 min 03 s in all"
    )
    (group,) = groups(table)
    assert [bool(found) for _, found in supported(group, table)] == [False, True]
    sortable = dataclasses.replace(table, is_long=True)
    assert [bool(found) for _, found in supported(group, sortable)] == [True, True]


def test_choices_are_what_is_in_the_column(example):
    runs = next(table for table in example.tables() if table.is_long)
    assert [(name, len(texts)) for _, name, texts in choices(runs)] == [("method", 3), ("state", 2)]


def test_numbers_of_a_figure_by_place(example):
    bars = next(figure for figure in example.figures() if figure.kind == "bars")
    assert data_rows(bars)[2] == ("0.2", [0.5, None])
    long = dataclasses.replace(
        bars.series[0], x=tuple(range(99)), y=tuple(map(float, range(99))), low=(), high=()
    )
    assert data_rows(dataclasses.replace(bars, series=(long,))) == []


def test_the_sign_of_numbers_only():
    assert minus("-0.5 ± 0.1") == "−0.5 ± 0.1"
    assert minus("-") == "-"
    assert minus("a-1") == "a-1"


def test_code_in_prose():
    assert prose("`maar <x>` & `") == "<code>maar &lt;x&gt;</code> &amp; `"


def test_the_gravest_notices_come_first(example):
    assert [level for level, _ in by_level(example.notices)] == ["error", "warning", "info"]
