"""Tables and figures as files: what users call things stays text."""

import csv
import io
from dataclasses import replace

import pytest

from maar.reporting.colours import PALETTE, slots
from maar.reporting.formats import figure_csv, latex, markdown, table_csv, tex
from maar.reporting.model import Cell, Column, Series, Table
from maar.reporting.static import draw


def table(*names: str) -> Table:
    rows = tuple((Cell(name, name), Cell("96.3 ± 0.2", 0.96314)) for name in names)
    return Table("t", "A & B", (Column("run_1"), Column("CR", numeric=True)), rows, "in %", ("n|",))


def test_markdown():
    lines = markdown(table("a|b", "<b>_x_</b>")).splitlines()
    assert lines[0] == "**A &amp; B**"
    assert lines[4:6] == ["| run\\_1 | CR |", "| --- | ---: |"]
    assert lines[6] == "| a\\|b | 96.3 ± 0.2 |"
    assert lines[7] == "| &lt;b&gt;\\_x\\_&lt;/b&gt; | 96.3 ± 0.2 |"
    assert lines[9] == "- n\\|"


def test_latex():
    text = latex(table(r"50% & $x_1^2$ {#} \~"))
    assert r"50\% \& \$x\_1\textasciicircum{}2\$ \{\#\} \textbackslash{}\textasciitilde{}" in text
    assert r"96.3 $\pm$ 0.2 \\" in text
    assert r"\begin{tabular}{lr}" in text
    assert r"\caption{A \& B. in \%}" in text


def test_csv_has_the_unrounded_number_and_no_formula():
    rows = list(csv.reader(io.StringIO(table_csv(table("=1+1", "a,b\n", "-1")))))
    assert rows == [
        ["run_1", "CR"],
        ["'=1+1", "0.96314"],
        ["a,b\n", "0.96314"],
        ["-1", "0.96314"],
    ]


def test_csv_has_the_evidence_beside_the_number(example):
    rows = list(csv.DictReader(io.StringIO(table_csv(example.tables()[0]))))
    assert "1,000 of 10,000 test" in rows[0]["CR: evidence"]


def test_the_data_of_a_figure(example):
    for figure in example.figures():
        rows = list(csv.reader(io.StringIO(figure_csv(figure))))
        assert rows[0][:3] == ["series", figure.x.label, figure.y.label]
        points = sum(len(series.x) for series in figure.series)
        assert len(rows) == 1 + points + len(figure.bands)


def test_every_kind_of_figure_can_be_drawn_twice_the_same(example):
    for figure in example.figures():
        drawn = draw(figure)
        assert drawn["pdf"].startswith(b"%PDF")
        assert b"<svg" in drawn["svg"]
        assert b"<script>" not in drawn["svg"]
        assert drawn == draw(figure)


@pytest.mark.filterwarnings("error")
def test_names_that_mean_something_to_matplotlib(example):
    figure = example.figures()[0]
    series = (Series("$\\frac{", (1, 2), (0.1, None)), Series("_hidden", (1, 2), (None, None)))
    drawn = draw(type(figure)(figure.id, "$", "lines", figure.x, figure.y, series))
    assert b"frac" in drawn["svg"]
    assert b"_hidden" in drawn["svg"]


def test_a_long_name_leaves_room_for_the_figure(example):
    figure = next(figure for figure in example.figures() if figure.kind == "stacked")
    long = "x" * 70 + "y" * 70
    series = tuple(replace(one, x=(long,), y=one.y[:1]) for one in figure.series)
    drawn = draw(replace(figure, series=series))["svg"].decode()
    assert long not in drawn
    assert "xxxx … yyyy" in drawn


def test_names_are_not_shortened_to_the_same(example):
    figure = example.figures()[0]
    names = ["a" * 40 + middle + "b" * 40 for middle in "xy"]
    series = tuple(replace(figure.series[0], name=name) for name in names)
    drawn = draw(replace(figure, series=series))["svg"].decode()
    assert all(name in drawn for name in names)


def test_no_name_is_an_option_of_the_line_before():
    assert tex("[a] *b*") == "{[}a{]} {*}b{*}"


def test_colours_are_of_groups_and_the_usual_ones_for_usual_methods():
    def series(*groups):
        return [Series(str(k), (), (), group=group) for k, group in enumerate(groups)]

    assert slots(series("colt", "maar(colt)", "colt", "mine")) == [1, 0, 1, 2]
    many = slots(series(*map(str, range(25))))
    assert set(many) == set(range(len(PALETTE)))
