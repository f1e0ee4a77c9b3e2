"""docs/exchange.md says what is true."""

import re
from pathlib import Path

import pytest

from maar.certification.properties import STEPS
from maar.core import limits
from maar.exchange.onnx_table import OPERATORS

PAGE = (Path(__file__).parents[2] / "docs" / "exchange.md").read_text(encoding="utf-8")


def test_the_steps_are_listed_in_order():
    table = PAGE.partition("| step |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.M) == list(STEPS)


def test_the_operators_are_listed():
    shapes = {"Concat", "Gather", "Shape", "Unsqueeze"}  # "the shape arithmetic"
    section = PAGE.partition("## ONNX files that can be read")[2].partition("##")[0]
    for name in OPERATORS.keys() - shapes:
        assert re.search(rf"\b{name}\b", section), name


def test_the_limits_are_those_of_the_readers():
    table = PAGE.partition("| file | limit |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (?:ONNX|VNNLIB) \| .* \| (.*) \|$", table, re.M)
    assert rows == [
        f"{(limits.ONNX_BYTES + 1) // limits.GIB} GiB",
        f"{limits.NODES:,}",
        f"{limits.ELEMENTS:,}",
        f"{limits.CONSTANT_ELEMENTS:,}",
        f"{limits.RESIDUAL_DEPTH}",
        f"{limits.VNNLIB_BYTES >> 20} MiB; {limits.VNNLIB2_BYTES >> 20} MiB for 2.0",
        f"{limits.DISJUNCTS:,}",
        f"{limits.BOX_NUMBERS:,}",
        f"{limits.PARENTHESES}",
        f"{limits.DIGITS:,}; {limits.EXPONENT}",
    ]


def test_the_example_runs(tmp_path, monkeypatch, capsys):
    pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    exec(compile(code, "exchange.md", "exec"), {})
    assert re.match(r"(sat|unsat|timeout|unknown) ", capsys.readouterr().out)
