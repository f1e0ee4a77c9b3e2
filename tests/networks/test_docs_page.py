"""docs/networks.md names everything there is, and its code runs."""

import re
from pathlib import Path

import pytest

from maar.exchange.onnx_table import OPERATORS
from maar.networks import NETWORKS, make
from maar.networks.operations import OPERATIONS

PAGE = (Path(__file__).parents[2] / "docs" / "networks.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.S | re.M)


@pytest.mark.parametrize("name", [*NETWORKS, *(kind.__name__ for kind in OPERATIONS), *OPERATORS])
def test_the_page_names(name):
    assert re.search(rf"\b{name}\b", PAGE)


def test_the_table_of_operations_is_current(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "scripts")
    import operations_table

    assert operations_table.page(PAGE) == PAGE, "run python scripts/operations_table.py"


def test_the_example_network(tmp_path):
    (block,) = (block for block in BLOCKS if block.startswith("# mine.py"))
    (tmp_path / "mine.py").write_text(block)
    make(f"{tmp_path / 'mine.py'}:net", (3, 32, 32), 10)


def test_the_example_of_use():
    (block,) = (block for block in BLOCKS if "weights_hash(net)" in block)
    names = {}
    exec(compile(block, "networks.md", "exec"), names)
    assert len(names["prefix"]) == 4
