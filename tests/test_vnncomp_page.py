"""The page of VNN-COMP instances is what the benchmark makes of its results."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    if importlib.util.find_spec("benchmarks") is None:
        pytest.skip("the benchmarks are not there")
    from benchmarks import vnncomp

    return vnncomp


def test_the_page_is_that_of_the_results(benchmark):
    content = json.loads((ROOT / benchmark.OUT).read_text())
    assert (ROOT / "docs" / "vnncomp.md").read_text() == benchmark.page(content)


def test_no_answer_contradicts_what_is_known(benchmark):
    for row in json.loads((ROOT / benchmark.OUT).read_text())["rows"]:
        assert row["result"] not in ("sat", "unsat") or row["result"] == row["expected"]
